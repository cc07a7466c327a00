/* special_tokens.h: finds control and user-defined tokens in raw text, before it is split
 * into words. The longest that starts leftmost wins; what it covers is not looked at again.
 *
 * An automaton of Aho and Corasick over the tokens read backwards: walking the text from its
 * end, the state at a byte knows the longest token that starts there. Linear in the text,
 * whatever the tokens are. Immutable after building. */
#ifndef TOKEND_SPECIAL_TOKENS_H
#define TOKEND_SPECIAL_TOKENS_H

#include "err.h"
#include "str.h"
#include "tokenizer.h"

/* When a token is recognised in the text. */
enum special_kind {
    SPECIAL_USER,    /* always */
    SPECIAL_MARKER,  /* always, but under CONTROL_SPANS only where a control token is */
    SPECIAL_SPANNED, /* only under CONTROL_SPANS, where a control token is */
    SPECIAL_CONTROL, /* where the control rule says so */
    N_SPECIAL_KINDS,
    SPECIAL_NOT = N_SPECIAL_KINDS, /* never: an ordinary token */
};

/* What a match takes with it, or where it must stand. */
enum { SPECIAL_LSTRIP = 1, SPECIAL_RSTRIP = 2, SPECIAL_SINGLE_WORD = 4 };

struct special_token {
    struct str text;
    int32_t id;
    uint8_t kind, flags;
};

struct special_tokens;

/* Keeps no pointer to the list. Texts that are empty or not UTF-8 are left out: a match must not
 * cut a character of the text. `covering`: under CONTROL_NONE control tokens hide, as plain
 * text, what lies under them (as the library of tokenizer.json does); otherwise they are not
 * looked for at all. */
struct special_tokens *special_tokens_new(const struct special_token *list, size_t n, bool covering,
                                          struct err *e);
void special_tokens_free(struct special_tokens *); /* NULL is fine */

struct special_match {
    size_t start, end;
    int32_t id;
    uint8_t kind, flags;
};
struct special_matches { /* zeroed = empty; free with special_matches_free */
    struct special_match *list;
    size_t n, cap;
};
/* The matches in text[n], ascending, not overlapping but for spaces that SPECIAL_RSTRIP takes: the
 * text goes on behind the last one, wherever that ends. Spans as in tokenizer_encode. */
bool special_tokens_find(const struct special_tokens *, const char *text, size_t n,
                         enum control_rule, const struct text_span *spans, size_t n_spans,
                         struct special_matches *out, struct err *e);
void special_matches_free(struct special_matches *);

#endif
