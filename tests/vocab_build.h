/* vocab_build.h: makes small tokenizers in memory for tests, from a zeroed struct.
 * Byte-level: vocab_start, which makes ids 0 to 255 the bytes in order; vocab_token and
 * vocab_merge; vocab_open. With scores: vocab_piece and vocab_bytes; vocab_open_scored. */
#ifndef TOKEND_VOCAB_BUILD_H
#define TOKEND_VOCAB_BUILD_H

#include <stdio.h>

#include "gguf_build.h"
#include "tokenizer.h"

enum { T_NORMAL = 1, T_UNKNOWN, T_CONTROL, T_USER, T_UNUSED, T_BYTE };

struct vocab_build {
    struct gguf_build file;
    struct buf tokens, types, merges, scores;
    uint64_t n_tokens, n_types, n_merges, n_scores;
};

static inline int32_t vocab_token_n(struct vocab_build *v, const char *name, size_t n, int32_t type)
{
    build_text(&v->tokens, name, n);
    buf_add(&v->types, &type, sizeof type);
    v->n_types++;
    return (int32_t)v->n_tokens++;
}

static inline int32_t vocab_token(struct vocab_build *v, const char *name, int32_t type)
{
    return vocab_token_n(v, name, strlen(name), type);
}

static inline void vocab_merge_only(struct vocab_build *v, const char *merge)
{
    build_text(&v->merges, merge, strlen(merge));
    v->n_merges++;
}

/* "left right" in the alphabet, and the token that it makes. */
static inline int32_t vocab_merge(struct vocab_build *v, const char *merge)
{
    char joined[256];
    const char *space = strchr(merge + 1, ' ');
    snprintf(joined, sizeof joined, "%.*s%s", (int)(space - merge), merge, space + 1);
    vocab_merge_only(v, merge);
    return vocab_token(v, joined, T_NORMAL);
}

static inline void vocab_start(struct vocab_build *v)
{
    unsigned next = 0x100;
    for (unsigned b = 0; b < 256; b++) {
        bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
        unsigned c = printable ? b : next++;
        char name[2] = {(char)(0xC0 | c >> 6), (char)(0x80 | (c & 0x3F))};
        if (c < 0x80)
            name[0] = (char)c;
        vocab_token_n(v, name, c < 0x80 ? 1 : 2, T_NORMAL);
    }
}

static inline int32_t vocab_piece(struct vocab_build *v, const char *name, float score,
                                  int32_t type)
{
    buf_add(&v->scores, &score, sizeof score);
    v->n_scores++;
    return vocab_token(v, name, type);
}

/* The 256 byte tokens. */
static inline void vocab_bytes(struct vocab_build *v)
{
    for (unsigned b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", b);
        vocab_piece(v, name, 0, T_BYTE);
    }
}

/* Puts the arrays into the file; other keys are the caller's. */
static inline void vocab_arrays(struct vocab_build *v)
{
    build_array(&v->file, "tokenizer.ggml.tokens", GGUF_STRING, v->n_tokens, v->tokens.data,
                v->tokens.len);
    build_array(&v->file, "tokenizer.ggml.token_type", GGUF_I32, v->n_types, v->types.data,
                v->types.len);
    build_array(&v->file, "tokenizer.ggml.merges", GGUF_STRING, v->n_merges, v->merges.data,
                v->merges.len);
}

static inline void vocab_free(struct vocab_build *v)
{
    buf_free(&v->tokens);
    buf_free(&v->types);
    buf_free(&v->merges);
    buf_free(&v->scores);
    build_free(&v->file);
    v->n_tokens = v->n_types = v->n_merges = v->n_scores = 0;
}

/* Opens what was built, and frees it: the tokenizer keeps nothing of the file. */
static inline struct tokenizer *vocab_open_as(struct vocab_build *v, const char *model,
                                              struct err *e)
{
    build_str(&v->file, "tokenizer.ggml.model", model);
    vocab_arrays(v);
    struct gguf *g = build_open(&v->file, e);
    struct tokenizer *t = g ? tokenizer_open_gguf(g, e) : NULL;
    gguf_close(g);
    vocab_free(v);
    return t;
}

static inline struct tokenizer *vocab_open(struct vocab_build *v, const char *pre, struct err *e)
{
    if (pre)
        build_str(&v->file, "tokenizer.ggml.pre", pre);
    return vocab_open_as(v, "gpt2", e);
}

static inline struct tokenizer *vocab_open_scored(struct vocab_build *v, struct err *e)
{
    build_array(&v->file, "tokenizer.ggml.scores", GGUF_F32, v->n_scores, v->scores.data,
                v->scores.len);
    return vocab_open_as(v, "llama", e);
}

#endif
