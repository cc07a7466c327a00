/* gguf_walk.h: reads everything that a GGUF file offers (tests and the fuzzer). */
#ifndef TOKEND_GGUF_WALK_H
#define TOKEND_GGUF_WALK_H

#include <stdlib.h>
#include <string.h>

#include "gguf.h"

static inline unsigned walk_bytes(const void *data, size_t n)
{
    const unsigned char *bytes = data;
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += bytes[i];
    return sum;
}

static inline unsigned walk_array(const struct gguf *g, const char *key)
{
    unsigned sum = 0;
    for (int elem = GGUF_U8; elem <= GGUF_F64; elem++) {
        static const unsigned sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
        struct gguf_string_iter it = {0};
        struct gguf_str s;
        const void *data;
        uint64_t n;
        gguf_array_len(g, key, (enum gguf_type)elem, &n, NULL);
        if (elem == GGUF_STRING && gguf_strings(g, key, &it, NULL))
            while (gguf_next_string(&it, &s))
                sum += walk_bytes(s.data, s.len) + (unsigned)gguf_show(s).text[0];
        else if (gguf_array(g, key, (enum gguf_type)elem, &data, &n, NULL))
            sum += walk_bytes(data, n * sizes[elem]);
    }
    return sum;
}

static inline unsigned walk_key(const struct gguf *g, const char *key)
{
    struct err e;
    struct gguf_str s;
    uint32_t u;
    float f;
    bool b;
    unsigned sum = gguf_has(g, key) + gguf_is_array(g, key);
    sum += gguf_u32(g, key, &u, &e) ? u : (unsigned)e.code;
    sum += gguf_u32_or(g, key, 1, &u, &e) ? u : 0;
    gguf_f32(g, key, &f, &e);
    gguf_f32_or(g, key, 1, &f, &e);
    sum += gguf_bool_or(g, key, true, &b, &e) && b;
    if (gguf_string(g, key, &s, &e))
        sum += walk_bytes(s.data, s.len);
    return sum + walk_array(g, key);
}

/* The result keeps the compiler from dropping the reads. */
static inline unsigned gguf_walk(const struct gguf *g)
{
    unsigned sum = (unsigned)strlen(gguf_path(g)) + (unsigned)gguf_file_bytes(g);
    for (uint64_t i = 0; i < gguf_n_keys(g); i++) {
        struct gguf_str name = gguf_key_at(g, i, NULL);
        char *key = strndup(name.data, name.len);
        sum += walk_key(g, key);
        free(key);
    }
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        char *name = strndup(t->name.data, t->name.len);
        struct err e;
        sum += gguf_find_tensor(g, name) == t;
        sum += gguf_want_tensor(g, name, t->n_dims, t->dims, &e) == t;
        sum += walk_bytes(t->data, t->bytes);
        free(name);
    }
    return sum;
}

#endif
