/* packed_form.h: the bytes of a file of packed weights (packed_file.h). */
#ifndef TOKEND_PACKED_FORM_H
#define TOKEND_PACKED_FORM_H

#include "packed_file.h"

#define PACKED_MAGIC "tokend p"
#define PACKED_ORDER 0x01020304u
#define PACKED_ALIGN ((uint64_t)2 << 20) /* of the data: huge pages, where the kernel has them */
#define PACKED_CHUNK ((size_t)1 << 20)   /* of a weight, hashed by one member */

struct packed_header {
    char magic[8];
    uint32_t order, entry_bytes;
    char layout[32];
    uint64_t model, n, data_at, file_bytes;
    uint64_t table_hash;
    uint64_t hash; /* of what is above */
};

struct packed_entry {
    uint64_t type;
    int64_t rows, cols;
    uint64_t source;
    uint64_t at, bytes; /* in the file */
    uint64_t hash;      /* of its chunks' hashes */
};

static inline size_t packed_n_chunks(size_t bytes)
{
    return (bytes + PACKED_CHUNK - 1) / PACKED_CHUNK;
}

static inline uint64_t packed_round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

/* Of chunk i */
uint64_t packed_chunk_hash(const void *data, size_t bytes, size_t i);

#endif
