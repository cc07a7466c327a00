/* gguf_build.h: makes small GGUF files in memory for tests. A zeroed struct is an empty file;
 * build_free at the end. */
#ifndef TOKEND_GGUF_BUILD_H
#define TOKEND_GGUF_BUILD_H

#include <string.h>

#include "buf.h"
#include "gguf.h"

struct gguf_build {
    struct buf keys, tensors, file;
    uint64_t n_keys, n_tensors, data_bytes;
    uint32_t version; /* 0 = 3 */
};

static inline void build_num(struct buf *b, uint64_t v, size_t bytes)
{
    buf_add(b, &v, bytes);
}

static inline void build_text(struct buf *b, const char *s, size_t n)
{
    build_num(b, n, 8);
    buf_add(b, s, n);
}

/* A key and the bytes of its value as the file holds them. */
static inline void build_key(struct gguf_build *b, const char *key, uint32_t type,
                             const void *value, size_t n)
{
    build_text(&b->keys, key, strlen(key));
    build_num(&b->keys, type, 4);
    buf_add(&b->keys, value, n);
    b->n_keys++;
}

static inline void build_u32(struct gguf_build *b, const char *key, uint32_t v)
{
    build_key(b, key, GGUF_U32, &v, sizeof v);
}

static inline void build_f32(struct gguf_build *b, const char *key, float v)
{
    build_key(b, key, GGUF_F32, &v, sizeof v);
}

static inline void build_bool(struct gguf_build *b, const char *key, bool v)
{
    uint8_t byte = v;
    build_key(b, key, GGUF_BOOL, &byte, 1);
}

static inline void build_str(struct gguf_build *b, const char *key, const char *v)
{
    build_key(b, key, GGUF_STRING, NULL, 0);
    build_text(&b->keys, v, strlen(v));
}

static inline void build_array(struct gguf_build *b, const char *key, uint32_t elem, uint64_t n,
                               const void *data, size_t bytes)
{
    build_key(b, key, GGUF_ARRAY, &elem, sizeof elem);
    build_num(&b->keys, n, 8);
    buf_add(&b->keys, data, bytes);
}

static inline void build_strings(struct gguf_build *b, const char *key, uint64_t n,
                                 const char *const *texts)
{
    build_array(b, key, GGUF_STRING, n, NULL, 0);
    for (uint64_t i = 0; i < n; i++)
        build_text(&b->keys, texts[i], strlen(texts[i]));
}

/* A tensor's entry as given, nothing checked. */
static inline void build_tensor_raw(struct gguf_build *b, const char *name, uint32_t ggml_type,
                                    uint32_t n_dims, const uint64_t *dims, uint64_t offset)
{
    build_text(&b->tensors, name, strlen(name));
    build_num(&b->tensors, n_dims, 4);
    for (uint32_t i = 0; i < n_dims; i++)
        build_num(&b->tensors, dims[i], 8);
    build_num(&b->tensors, ggml_type, 4);
    build_num(&b->tensors, offset, 8);
    b->n_tensors++;
}

/* An F32 tensor [d0] or [d0, d1] (d1 > 0) of zeros, where the data is free. */
static inline void build_tensor(struct gguf_build *b, const char *name, uint64_t d0, uint64_t d1)
{
    const uint64_t dims[2] = {d0, d1};
    build_tensor_raw(b, name, 0, d1 ? 2 : 1, dims, b->data_bytes);
    b->data_bytes += (d0 * (d1 ? d1 : 1) * 4 + 31) / 32 * 32;
}

/* Puts the file together in b->file. */
static inline void build_file(struct gguf_build *b)
{
    buf_clear(&b->file);
    buf_add(&b->file, "GGUF", 4);
    build_num(&b->file, b->version ? b->version : 3, 4);
    build_num(&b->file, b->n_tensors, 8);
    build_num(&b->file, b->n_keys, 8);
    buf_add(&b->file, b->keys.data, b->keys.len);
    buf_add(&b->file, b->tensors.data, b->tensors.len);
    while (b->file.len % 32 != 0)
        buf_add_byte(&b->file, 0);
    for (uint64_t i = 0; i < b->data_bytes; i++)
        buf_add_byte(&b->file, 0);
}

static inline struct gguf *build_open(struct gguf_build *b, struct err *e)
{
    build_file(b);
    return gguf_open_memory(b->file.data, b->file.len, e);
}

static inline void build_free(struct gguf_build *b)
{
    buf_free(&b->keys);
    buf_free(&b->tensors);
    buf_free(&b->file);
    memset(b, 0, sizeof *b);
}

#endif
