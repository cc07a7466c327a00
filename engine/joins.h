/* joins.h: where a text may be cut before it is merged.
 *
 * Models without words (SentencePiece) merge a whole text at once. No merge, and no path of a
 * Unigram model, reaches across a place where no token holds those two bytes side by side: the
 * parts on both sides give the same tokens on their own. In English a part has four bytes.
 * Filled by one thread, then immutable. */
#ifndef TOKEND_JOINS_H
#define TOKEND_JOINS_H

#include <stdint.h>

#include "str.h"

struct joins {                  /* zeroed = no token yet */
    uint8_t bits[256][256 / 8]; /* some token has this last byte of a character before this
                                 * first byte of the next */
};

void joins_note(struct joins *, struct str token);

/* The end of the part that starts at text[at] (at < n). The text is valid UTF-8. */
size_t joins_part_end(const struct joins *, const char *text, size_t n, size_t at);

#endif
