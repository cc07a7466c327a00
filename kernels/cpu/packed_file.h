/* packed_file.h: packed weights in a file: what lies where, and whether it is as it was written.
 *
 * The file is a header, a table with an entry for each weight in the order of loading, and from
 * the next multiple of 2 MiB on their bytes, as memory has them. Numbers are the machine's own; a
 * file of another byte order, layout or model is not used. Header and table have a hash, and so
 * have the bytes of each weight. Hashes find damage, not malice: who may write the file can make
 * the model say anything, as who may write the model file can.
 *
 * A file is written under another name and renamed, never changed in place; a mapping of the one
 * before stays whole. */
#ifndef TOKEND_PACKED_FILE_H
#define TOKEND_PACKED_FILE_H

#include <stdatomic.h>

#include "dtype.h"
#include "err.h"
#include "team.h"

#define PACKED_LAYOUT "panels of 16, 1" /* layout.h's; its number grows with every change */

/* A weight as the backend has it, and what it was made of. */
struct packed_weight {
    enum dtype type; /* of the source */
    int64_t rows, cols;
    uint64_t source; /* packed_sample of the source */
    const void *data;
    size_t bytes;
};

/* What a file is of. Two are equal if all is. */
struct packed_key {
    const char *layout; /* at most 31 characters */
    uint64_t model;     /* which files, as they are now */
};

struct packed_file; /* open for reading */

/* False and *e: there is none (ERR_NOT_FOUND), or none of use, and why. */
bool packed_open(struct packed_file **, const char *path, const struct packed_key *, struct err *e);
void packed_close(struct packed_file *); /* NULL is fine. What packed_find gave goes with it. */
size_t packed_n(const struct packed_file *);
/* The bytes of weight i, read and found whole by all members of the team; or NULL and *e: it is
 * another weight than w (whose data is not looked at), or damaged. */
const void *packed_find(const struct packed_file *, size_t i, const struct packed_weight *w,
                        struct team *, struct err *e);

/* Writes a file with these n weights. Stops as soon as *stop is set, which is an error, too. */
bool packed_write(const char *path, const struct packed_key *, const struct packed_weight *,
                  size_t n, const atomic_bool *stop, struct err *e);

uint64_t packed_hash(const void *, size_t n);
/* Of a few places of some bytes, the first and the last among them. */
uint64_t packed_sample(const void *, size_t n);

#endif
