/* unigram.h: the best path through a text, of all ways to cut it into tokens (Viterbi).
 *
 * Tokens lie in a trie, so that a place of the text meets those that start there in one walk.
 * Scores are added from the start of a text in the reference implementations' precision, since
 * ways that are nearly as good must come out as theirs do.
 * Filled by one thread, then immutable. */
#ifndef TOKEND_UNIGRAM_H
#define TOKEND_UNIGRAM_H

#include "err.h"
#include "str.h"
#include "tokenizer.h"

enum { UNIGRAM_LONGEST = 1024 }; /* bytes of a token: what a place of the text may cost */

struct unigram_token {
    struct str text; /* UTF-8; kept by the caller until unigram_new returns */
    int32_t id;
    double score;
    bool control; /* never made of untrusted text */
};

struct unigram_rules {
    bool single;     /* sums are kept in float, as SentencePiece does; else in double */
    bool fuse;       /* neighbouring unknown characters are one */
    bool look_up;    /* what was fused may be a token after all */
    int32_t unknown; /* or -1: a character that is no token is an error */
    double unk_score;
    int32_t byte_token[256]; /* instead of unknown where all bytes of it have one; -1: none */
};

struct unigram;
/* Of equal texts the last counts. */
struct unigram *unigram_new(const struct unigram_token *list, size_t n, struct unigram_rules,
                            struct err *e);
void unigram_free(struct unigram *); /* NULL is fine */

struct unigram_scratch { /* zeroed = new; free with unigram_scratch_free */
    struct unigram_node *nodes;
    size_t cap;
    double sum;         /* of what lies before this part; 0 at the start of a text */
    bool after_unknown; /* the last token was the unknown one, and runs of it are one */
};
void unigram_scratch_free(struct unigram_scratch *);

/* Appends the ids of text[n], n > 0. `guarded`: no control tokens. */
bool unigram_encode(const struct unigram *, const char *text, size_t n, bool guarded,
                    struct unigram_scratch *, struct token_list *out, struct err *e);

#endif
