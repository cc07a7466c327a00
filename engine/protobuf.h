/* protobuf.h: walks the fields of a message in protocol buffers' wire format. The bytes are
 * hostile: every length is checked. */
#ifndef TOKEND_PROTOBUF_H
#define TOKEND_PROTOBUF_H

#include <stdint.h>

#include "err.h"
#include "str.h"

enum proto_wire { PROTO_VARINT = 0, PROTO_64 = 1, PROTO_BYTES = 2, PROTO_32 = 5 };

struct proto_field {
    uint32_t number;
    enum proto_wire wire;
    uint64_t value;   /* VARINT, 64 and 32 */
    struct str bytes; /* BYTES */
};

/* Reads the field that *rest starts with and moves *rest behind it. 1: a field, 0: the end,
 * -1: failed. */
int proto_next(struct str *rest, struct proto_field *, struct err *e);
float proto_float(const struct proto_field *); /* of a 32 */

#endif
