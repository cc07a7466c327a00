/* gguf.h: reading a GGUF v2/v3 file (ggml's specification) through mmap.
 *
 * The file is hostile until checked: every count, length, offset, alignment, type and
 * product is checked against the file's size before use, in O(file header) time and memory.
 * Pointers that are returned point into the mapping, or into the struct, and live as long
 * as it. Thread-free after gguf_open: reading needs no lock. */
#ifndef TOKEND_GGUF_H
#define TOKEND_GGUF_H

#include <string.h>

#include "dtype.h"
#include "err.h"

struct gguf;

/* Numbers of the specification. */
enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
};

struct gguf_str {
    const char *data; /* not terminated */
    size_t len;
};

static inline bool gguf_str_is(struct gguf_str s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

struct gguf_tensor {
    struct gguf_str name;
    uint32_t ggml_type;    /* the file's own number */
    const char *type_name; /* "Q4_K", also of types that we cannot compute with; or "unknown" */
    bool known;            /* dtype is valid */
    enum dtype dtype;
    int n_dims;
    int64_t dims[4]; /* ggml's order: dims[0] is the row length */
    const void *data;
    bool mapped;            /* data is a file's mapping */
    uint64_t offset, bytes; /* in the file; bytes is 0 when the type's blocks are unknown */
};

struct gguf *gguf_open(const char *path, struct err *e);
/* As gguf_open, of bytes in memory, which must outlive it (tests, fuzzers). */
struct gguf *gguf_open_memory(const void *bytes, size_t n, struct err *e);
/* Of its file and all parts: another one, or this one after a change, has another. */
uint64_t gguf_identity(const struct gguf *);
void gguf_close(struct gguf *); /* NULL is fine */

/* A model that is split over files NAME-00001-of-0000N.gguf: opens the others beside the first,
 * checks that each is the part that its name says, and adds their tensors to g's. Does nothing
 * for a file that is not split. */
bool gguf_join_parts(struct gguf *g, struct err *e);
bool gguf_is_whole(const struct gguf *); /* not split, or joined */

const char *gguf_path(const struct gguf *);
uint64_t gguf_file_bytes(const struct gguf *);

/* Metadata. The getters with *e fail with a message that names the key, and what its type is
 * and should be; those with a default return it when the key is absent, and fail when it is
 * there with a wrong type. Integers accept every integer type that holds the value. */
bool gguf_has(const struct gguf *, const char *key);
bool gguf_is_array(const struct gguf *, const char *key);
bool gguf_u32(const struct gguf *, const char *key, uint32_t *out, struct err *e);
bool gguf_u32_or(const struct gguf *, const char *key, uint32_t dflt, uint32_t *out, struct err *e);
bool gguf_f32(const struct gguf *, const char *key, float *out, struct err *e);
bool gguf_f32_or(const struct gguf *, const char *key, float dflt, float *out, struct err *e);
bool gguf_bool_or(const struct gguf *, const char *key, bool dflt, bool *out, struct err *e);
bool gguf_string(const struct gguf *, const char *key, struct gguf_str *out, struct err *e);

/* Arrays. gguf_array_len gives 0 when the key is absent. Strings are walked in order, since
 * the file holds them one after the other: start with a zeroed iterator. */
bool gguf_array_len(const struct gguf *, const char *key, enum gguf_type elem, uint64_t *out,
                    struct err *e);
struct gguf_string_iter {
    const unsigned char *at;
    uint64_t left;
};
bool gguf_strings(const struct gguf *, const char *key, struct gguf_string_iter *it, struct err *e);
bool gguf_next_string(struct gguf_string_iter *it, struct gguf_str *out); /* false at the end */
/* Array of fixed-size elements of exactly `elem`; the data may be unaligned. */
bool gguf_array(const struct gguf *, const char *key, enum gguf_type elem, const void **data,
                uint64_t *n, struct err *e);

/* Tensors. */
uint64_t gguf_n_tensors(const struct gguf *);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *, uint64_t i);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *, const char *name); /* NULL: none */

/* The tensor of this name and shape (further dims of 1 in the file are fine), of a type that we
 * compute with; or NULL and an error naming it, what it is and what it should be. */
const struct gguf_tensor *gguf_want_tensor(const struct gguf *, const char *name, int n_dims,
                                           const int64_t *dims, struct err *e);

/* For messages and `inspect`: every key in order. */
uint64_t gguf_n_keys(const struct gguf *);
struct gguf_str gguf_key_at(const struct gguf *, uint64_t i, enum gguf_type *type);

/* As err_set, with the file's path before the message. */
bool gguf_err(const struct gguf *, struct err *e, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* A string of the file made fit for a message: printable ASCII, the rest as \xNN, cut with
 * "..." when long. By value: printf("%s", gguf_show(s).text). */
struct gguf_shown {
    char text[84];
};
struct gguf_shown gguf_show(struct gguf_str);

#endif
