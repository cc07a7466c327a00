#ifndef TOKEND_REGEX_TRANSLATE_H
#define TOKEND_REGEX_TRANSLATE_H

#include "buf.h"
#include "regex.h"

/* Writes the pattern in PCRE2's syntax to out. */
bool regex_translate(struct str pattern, enum regex_dialect, struct buf *out, struct err *e);

#endif
