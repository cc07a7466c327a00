/* spm.h: what SentencePiece does to text before merging.
 *
 * Its pieces write U+2581 where the text has a space. We go the other way: pieces are read with
 * spaces for U+2581, and so is text, in which both then say the same.
 *
 * SentencePiece merges a whole text at once. We cut it where no token holds the two characters
 * side by side: no merge can reach across, so that the parts give the same tokens on their own.
 * Filled by one thread, then immutable. */
#ifndef TOKEND_SPM_H
#define TOKEND_SPM_H

#include "buf.h"
#include "gguf.h"

#include <stdint.h>

struct spm {                     /* zeroed = no token yet */
    bool add_prefix;             /* a text begins with a space more */
    bool one_space;              /* runs of spaces are one, and none is at either end */
    uint8_t joins[256][256 / 8]; /* bit: some token has this last byte of a character before this
                                  * first byte of the next */
};

/* Writes the piece with spaces for U+2581 to out (s.len bytes are enough); returns its length. */
size_t spm_spaces(struct gguf_str, char *out);

/* Notes the neighbours in a token's text. */
void spm_note_token(struct spm *, struct gguf_str text);

/* Where in a text something lies: at its start, at its end. */
enum { SPM_FIRST = 1, SPM_LAST = 2 };
/* Makes of text[n], which lies at `where`, what is merged. Replaces what out holds. */
void spm_normalise(const struct spm *, const char *text, size_t n, int where, struct buf *out);

/* The end of the part that starts at text[at] (at < n). The text is valid UTF-8. */
size_t spm_part_end(const struct spm *, const char *text, size_t n, size_t at);

#endif
