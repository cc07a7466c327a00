/* safetensors.h: reading a safetensors file through mmap.
 *
 * A file is eight bytes of header length, a JSON object that names each tensor's type, shape and
 * place, and their bytes. The file is hostile until checked: as in the reference implementation,
 * the tensors must fill the rest of the file exactly, one behind the other, so that nothing
 * overlaps, is left over or lies outside. Pointers point into the mapping and live as long as the
 * struct. Thread-free after opening. */
#ifndef TOKEND_SAFETENSORS_H
#define TOKEND_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "dtype.h"
#include "err.h"

enum { SAFETENSORS_MAX_DIMS = 8 };

struct st_tensor {
    const char *name; /* UTF-8, terminated */
    const char *type; /* "BF16", the file's word */
    int bits;         /* of an element */
    bool known;       /* dtype is valid: a type of plain values that we compute with */
    enum dtype dtype;
    int n_dims;
    int64_t dims[SAFETENSORS_MAX_DIMS]; /* the last is the row length; 1 beyond n_dims */
    const void *data;
    uint64_t bytes;
    bool mapped; /* data is a file's mapping */
};

struct safetensors;
struct safetensors *safetensors_open(const char *path, struct err *e);
/* Of bytes in memory, which must outlive it (tests, fuzzers). */
struct safetensors *safetensors_open_memory(const void *bytes, size_t n, struct err *e);
void safetensors_close(struct safetensors *); /* NULL is fine */

/* Another file, or this one after a change, has another. */
uint64_t safetensors_identity(const struct safetensors *);
size_t safetensors_n(const struct safetensors *);
const struct st_tensor *safetensors_at(const struct safetensors *, size_t i); /* by offset */
const struct st_tensor *safetensors_find(const struct safetensors *, const char *name);

/* Elements; they fit, with their bytes, in an int64_t. */
int64_t st_tensor_elems(const struct st_tensor *);

#endif
