/* bpe.h: byte pair encoding of one word.
 *
 * A word starts as one symbol a byte, or a character. Of the neighbours that can become one
 * token those with the lowest rank (of equal ranks the leftmost) do, until none can. A heap
 * holds the pairs, so that a word of n bytes costs n·log n whatever it says.
 *
 * Two ways to know what can merge:
 * - by pairs: a table of (left, right) with rank and result. Symbols start as bytes. Words that
 *   are one token are found in a table first. Where the model merges by the rules (most do),
 *   bpe_finish puts only those tokens there that merging gives as well.
 * - by text (SentencePiece): two symbols merge where their joined text is a token; its score
 *   gives the rank. Symbols start as characters, of which some may be no token: what they say
 *   at the end are the tokens of their bytes.
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
    struct string_table words; /* token strings that are taken whole; by text: all of them */

    uint32_t *ranks;    /* [n_vocab] by text; NULL: by pairs */
    int32_t ascii[128]; /* by text: the token of the character, or -1 */
    int32_t unknown;    /* by text: the token of characters that even bytes cannot say, or -1 */
    size_t longest;     /* by text: bytes of the longest token */
};

struct bpe_scratch { /* zeroed = new; free with bpe_scratch_free */
    struct bpe_symbol *symbols;
    uint64_t *heap;
    size_t cap;
    bool after_unknown; /* the last token was `unknown`: more of it would say nothing new */
};

/* Room for n_merges. `pieces` are the tokens' bytes, [n_vocab], kept by the caller. */
bool bpe_init(struct bpe *, const struct gguf_str *pieces, size_t n_vocab, size_t n_merges,
              struct err *e);
/* Of equal pairs the first rank stays. */
void bpe_add_merge(struct bpe *, int32_t left, int32_t right, int32_t result, uint32_t rank);
/* Fills the table of whole words from the tokens for which whole[id] is set. */
bool bpe_finish(struct bpe *, const bool *whole, size_t n_vocab, bool ignore_merges, struct err *e);
void bpe_free(struct bpe *);

/* By text instead: no tokens yet, no byte tokens and no unknown one. `unknown` and `byte_token`
 * are the caller's to set. */
bool bpe_init_by_text(struct bpe *, const struct gguf_str *pieces, size_t n_vocab, struct err *e);
enum { BPE_LONGEST_TEXT = 1024 }; /* more would make look-ups cost more than merging */
/* Lets pieces[id] be made; it has 1 to BPE_LONGEST_TEXT bytes and is valid UTF-8. Of equal texts
 * the last one stays. */
void bpe_add_text(struct bpe *, int32_t id, uint32_t rank);

/* Appends the ids of word[n] (n > 0, below 2^31; by text: valid UTF-8). Bytes that the
 * vocabulary has no token for are left out, as the reference implementation does. */
bool bpe_encode(const struct bpe *, const char *word, size_t n, struct bpe_scratch *,
                struct token_list *out, struct err *e);
void bpe_scratch_free(struct bpe_scratch *);

#endif
