/* tokenizer_gguf.h: how the files that read a tokenizer from GGUF work together. */
#ifndef TOKEND_TOKENIZER_GGUF_H
#define TOKEND_TOKENIZER_GGUF_H

#include "tokenizer.h"
#include "tokenizer_impl.h"

/* Numbers of the format; 0 is undefined, which we take for normal. */
enum token_type {
    TYPE_NORMAL = 1,
    TYPE_UNKNOWN,
    TYPE_CONTROL,
    TYPE_USER_DEFINED,
    TYPE_UNUSED,
    TYPE_BYTE,
    LAST_TYPE = TYPE_BYTE
};

struct loading {
    const struct gguf *g;
    struct tokenizer *t; /* its names lie in the file until all is read */
    const struct tokenizer_kind *kind;
    uint8_t *types; /* [n_vocab] enum token_type */
    bool *whole;    /* [n_vocab] ordinary tokens that merging can make */
    int pre_flags;  /* of the pre-tokenizer */
    struct err *e;
};

/* A kind of tokenizer, by the name that tokenizer.ggml.model has. */
struct tokenizer_kind {
    const char *name;
    /* Before names are read: the rules for splitting text. */
    bool (*start)(struct loading *);
    /* As tokenizer_say. Sets whole[id]; may change kinds[id]. */
    int64_t (*piece)(struct loading *, int32_t id, char *out);
    /* When pieces are there: the special tokens, what merges. */
    bool (*finish)(struct loading *);
    bool (*adds_bos)(const struct loading *); /* where the file says nothing */
};
extern const struct tokenizer_kind tokenizer_kind_bpe, tokenizer_kind_spm, tokenizer_kind_gemma4;

bool tokenizer_load_oom(struct loading *); /* fails with the words for it */
/* The id under a key, -1 when there is none. */
bool tokenizer_load_id(struct loading *, const char *key, int32_t *id);
/* Collects the tokens of kinds from `least` to `most`, by name. */
struct special_tokens *tokenizer_load_special(struct loading *, enum special_kind least,
                                              enum special_kind most);
/* Merges by the pairs in the file, whose tokens are t->names. */
bool tokenizer_load_merges(struct loading *);

#endif
