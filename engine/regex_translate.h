#ifndef TOKEND_REGEX_TRANSLATE_H
#define TOKEND_REGEX_TRANSLATE_H

#include "buf.h"
#include "regex.h"

/* Whether what it writes is known to cost linear time, and looks back from where a look began. */
bool regex_translate_is_linear(struct str pattern, enum regex_dialect);
/* Writes the pattern in PCRE2's syntax to out. */
bool regex_translate(struct str pattern, enum regex_dialect, struct buf *out, struct err *e);

#endif
