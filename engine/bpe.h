/* bpe.h: byte pair encoding of one word.
 *
 * A word starts as one symbol a byte, or a character. Of the neighbours that can become one
 * token those with the lowest rank (of equal ranks the leftmost) do, until none can. A heap
 * holds the pairs, so that a word of n bytes costs n·log n whatever it says.
 *
 * Two ways to know what can merge:
 * - by pairs: a table of (left, right) with rank and result (GPT-2 and its heirs).
 * - by text: two symbols merge where their joined text is a token, which has a rank
 *   (SentencePiece's scores, tiktoken's ranks).
 * Words that are one token are found in a table first: where the model merges by the rules,
 * bpe_finish puts only those tokens there that merging gives as well.
 *
 * A character that is no token gives the tokens of its bytes, or else the unknown one.
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

struct bpe { /* zeroed = empty; free with bpe_free */
    size_t n_vocab;
    bool by_characters;      /* symbols start as characters, not as bytes */
    bool fuse_unknown;       /* of unknown characters in a row one token tells */
    int32_t unknown;         /* or -1: they give nothing */
    int32_t byte_token[256]; /* of bytes, or of characters that are no token; -1: none */

    struct merge_slot *merges; /* by pairs */
    uint32_t merge_mask;
    uint64_t key[2];

    const uint32_t *ranks;      /* [n_vocab] by text; NULL: by pairs */
    uint32_t *own_ranks;        /* the same, to be filled */
    bool *unused;               /* [n_vocab] by text: made on the way only; NULL: none is */
    struct string_table tokens; /* by text: those that can be made */
    size_t longest;             /* by text: bytes of the longest one */

    struct string_table words;      /* tokens that are taken whole */
    struct string_table characters; /* tokens of one character that is not ASCII */
    int32_t ascii[128];             /* and of one that is, or -1 */
};

struct bpe_scratch { /* zeroed = new; free with bpe_scratch_free */
    struct bpe_symbol *symbols;
    uint64_t *heap;
    size_t cap;
    uint32_t *unmade;   /* [n_vocab] of unused tokens: bytes of the left part they were made of
                         * last; NULL: none was made */
    bool after_unknown; /* the last token was `unknown`: more of it would say nothing new */
};

/* `tokens` are the model's own names for them, [n_vocab], kept by the caller. Nothing can be
 * made yet; byte_token has none, unknown is -1. */
bool bpe_init(struct bpe *, const struct str *tokens, size_t n_vocab, bool by_characters,
              struct err *e);
/* By pairs: room for n_merges. */
bool bpe_by_pairs(struct bpe *, size_t n_merges, struct err *e);
/* Of equal pairs the first rank stays, or the last one. */
void bpe_add_merge(struct bpe *, int32_t left, int32_t right, int32_t result, uint32_t rank);
void bpe_put_merge(struct bpe *, int32_t left, int32_t right, int32_t result, uint32_t rank);
/* By characters and pairs: the token is what the character starts as. Later ones win. */
void bpe_add_character(struct bpe *, int32_t id);

/* By text. */
enum { BPE_LONGEST_TEXT = 1024 }; /* more would make look-ups cost more than merging */
bool bpe_by_text(struct bpe *, struct err *e);
/* Lets tokens[id] be made; it has 1 to BPE_LONGEST_TEXT bytes. Of equal texts the last stays. */
void bpe_add_text(struct bpe *, int32_t id, uint32_t rank);
/* The token is made but, where it would be left at the end, taken apart again. */
bool bpe_set_unused(struct bpe *, int32_t id, struct err *e);

/* Fills the table of whole words from the tokens for which whole[id] is set. */
bool bpe_finish(struct bpe *, const bool *whole, bool ignore_merges, struct err *e);
void bpe_free(struct bpe *);

/* Appends the ids of word[n] (n > 0, below 2^31; by characters: valid UTF-8). */
bool bpe_encode(const struct bpe *, const char *word, size_t n, struct bpe_scratch *,
                struct token_list *out, struct err *e);
void bpe_scratch_free(struct bpe_scratch *);

#endif
