/* bpe.h: byte pair encoding of one word.
 *
 * A word starts as one token a byte. The pair of neighbours whose merge has the lowest rank
 * (of equal ones the leftmost) becomes one token, until no pair can merge. A heap holds the
 * pairs, so that a word of n bytes costs n·log n whatever it says.
 *
 * Words that are one token are found in a table first. Where the model merges by the rules
 * (most do), bpe_finish puts only those tokens there that merging gives as well.
 *
 * Filled by one thread, then immutable: any thread may encode, each with its own scratch. */
#ifndef TOKEND_BPE_H
#define TOKEND_BPE_H

#include "err.h"
#include "string_table.h"
#include "tokenizer.h"

struct merge_slot {
    int32_t left, right; /* left -1: empty */
    uint32_t rank;
    int32_t result;
};

struct bpe {                 /* zeroed = empty; free with bpe_free */
    int32_t byte_token[256]; /* -1: the vocabulary has none for the byte */
    struct merge_slot *merges;
    uint32_t merge_mask;
    uint64_t key[2];
    struct string_table words; /* token strings that are taken whole */
};

struct bpe_scratch { /* zeroed = new; free with bpe_scratch_free */
    struct bpe_symbol *symbols;
    uint64_t *heap;
    size_t cap;
};

/* Room for n_merges. `pieces` are the tokens' bytes, [n_vocab], kept by the caller. */
bool bpe_init(struct bpe *, const struct gguf_str *pieces, size_t n_vocab, size_t n_merges,
              struct err *e);
/* Of equal pairs the first rank stays. */
void bpe_add_merge(struct bpe *, int32_t left, int32_t right, int32_t result, uint32_t rank);
/* Fills the table of whole words from the tokens for which whole[id] is set. */
bool bpe_finish(struct bpe *, const bool *whole, size_t n_vocab, bool ignore_merges, struct err *e);
void bpe_free(struct bpe *);

/* Appends the ids of word[n] (n > 0, below 2^31). Bytes that the vocabulary has no token for
 * are left out, as the reference implementation does. */
bool bpe_encode(const struct bpe *, const char *word, size_t n, struct bpe_scratch *,
                struct token_list *out, struct err *e);
void bpe_scratch_free(struct bpe_scratch *);

#endif
