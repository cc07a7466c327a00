/* charsmap.h: a SentencePiece character map ("precompiled_charsmap"): strings and what they
 * become, most of them NFKC.
 *
 * The file holds a double-array trie (as darts-clone makes them) over the strings and one blob
 * of NUL-terminated results. All of it is hostile: every index is checked on the way.
 * Immutable after opening. */
#ifndef TOKEND_CHARSMAP_H
#define TOKEND_CHARSMAP_H

#include "err.h"
#include "str.h"

struct charsmap;
/* Copies the n bytes. */
struct charsmap *charsmap_new(const void *bytes, size_t n, struct err *e);
void charsmap_free(struct charsmap *); /* NULL is fine */

/* The longest, or the shortest, rule that text[n] starts with: returns its bytes and what they
 * become, or 0. */
size_t charsmap_longest(const struct charsmap *, const char *text, size_t n, struct str *becomes);
size_t charsmap_shortest(const struct charsmap *, const char *text, size_t n, struct str *becomes);

/* No rule starts with this ASCII character, unless something that is not ASCII follows it. */
bool charsmap_is_plain(const struct charsmap *, unsigned char c);

#endif
