/* gguf_file.h: inside of a GGUF file, shared by gguf.c (open, close), gguf_parse.c, gguf_get.c
 * (getters), gguf_split.c and gguf_types.c. */
#ifndef TOKEND_GGUF_FILE_H
#define TOKEND_GGUF_FILE_H

#include "file_map.h"
#include "gguf.h"

struct gguf_key {
    struct gguf_str name; /* first: see gguf_index */
    enum gguf_type type;
    enum gguf_type elem;        /* of an array */
    uint64_t n;                 /* elements of an array, bytes of a string */
    const unsigned char *value; /* checked to lie wholly inside the file; unaligned */
};

/* Entries by name. Each pointer is to an entry's first member, its name. Sorted rather than
 * hashed: no choice of names makes it slow. */
struct gguf_index {
    const struct gguf_str **by_name;
    uint64_t n;
};
/* entries: n structs of `stride` bytes that begin with their name. Two of one name are an error. */
bool gguf_index_build(struct gguf_index *, const void *entries, size_t stride, uint64_t n,
                      const char *kind, struct err *e);
/* The entry of this name, or NULL. */
const void *gguf_index_find(const struct gguf_index *, const char *name);

struct gguf {
    char *path;
    char shown_path[128]; /* for messages: the tail of a long path */
    const unsigned char *bytes;
    uint64_t size;
    struct file_map map; /* of bytes, where they are a file's */
    struct gguf_key *keys;
    struct gguf_tensor *tensors;
    uint64_t n_keys, n_tensors;
    struct gguf_index key_index, tensor_index;
    struct gguf **parts; /* the further parts of a split model; their tensors are in ours */
    int n_parts;
};

/* Fills keys, tensors and indexes from bytes, all of it checked. */
bool gguf_parse(struct gguf *, struct err *e);

enum { GGUF_N_TYPES = GGUF_F64 + 1 };
const char *gguf_type_name(enum gguf_type);
/* Bytes of a value; 0 of strings and arrays. */
unsigned gguf_type_bytes(enum gguf_type);

/* What ggml says about a tensor type. */
struct ggml_type {
    const char *name;
    int block_elems, block_bytes; /* 0: unknown */
    bool known;                   /* dtype is valid */
    enum dtype dtype;
};
/* Never fails: a number that we do not know gives the name "unknown". */
struct ggml_type ggml_type_of(uint32_t number);
/* The names of those that are known to dtype.h, as far as they fit. */
void ggml_known_types(char *out, size_t n);

#endif
