/* regex.h: regular expressions that split text, through PCRE2.
 *
 * Tokenizer files write them for other engines: Oniguruma (tokenizer.json) and Rust's regex
 * crates (tiktoken). What those mean by \s, \w, $ and the like is translated; what has no
 * equal is refused by name. Immutable after opening; each caller brings its own scratch.
 *
 * A file's pattern may need more time than anybody has: what all looks with one scratch cost is
 * limited, in processor time, to a quarter of a second and 10 µs for each byte of the texts (those
 * that a look begins at 0 of), ten seconds at most. Between two looks at the clock lie a few places where a match may
 * start, each with a limit of PCRE2's own. (Our own patterns cost linear time and have no limit.)
 */
#ifndef TOKEND_REGEX_H
#define TOKEND_REGEX_H

#include "err.h"
#include "str.h"

struct regex;

enum regex_dialect {
    REGEX_PCRE,  /* our own patterns */
    REGEX_ONIG,  /* Oniguruma's Ruby syntax */
    REGEX_RUST,  /* regex, fancy-regex */
    REGEX_PLAIN, /* the text itself */
};

/* Inside a class: white space as Unicode's property White_Space has it (PCRE2's own \s also
 * has U+180E, which is none since Unicode 6.3). */
#define REGEX_SPACES "\\p{Z}\\x{9}-\\x{D}\\x{85}"

struct regex *regex_open(struct str pattern, enum regex_dialect, struct err *e);
void regex_close(struct regex *); /* NULL is fine */

struct regex_scratch; /* for one text at a time */
struct regex_scratch *regex_scratch_new(struct err *e);
void regex_scratch_free(struct regex_scratch *);
/* Seconds of processor time instead of a quarter and what the texts' bytes are worth: tests. */
void regex_scratch_limit(struct regex_scratch *, double seconds);

/* The next match in text[n], valid UTF-8, from `at` on. 1: found, 0: none, -1: failed. */
int regex_find(const struct regex *, struct regex_scratch *, const char *text, size_t n, size_t at,
               size_t *start, size_t *end, struct err *e);

#endif
