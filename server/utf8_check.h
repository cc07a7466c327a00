/* utf8_check.h: is a run of bytes UTF-8? As the Unicode standard has it: no overlong forms, no
 * surrogates, nothing above U+10FFFF. */
#ifndef TOKEND_UTF8_CHECK_H
#define TOKEND_UTF8_CHECK_H

#include <stddef.h>

/* Offset of the first byte that is not part of a whole character; n when all is well. */
size_t utf8_bad_at(const char *text, size_t n);
/* Code points of valid UTF-8. */
size_t utf8_count(const char *text, size_t n);
/* Cuts a C string before the first byte that is not part of a whole character. */
void utf8_trim(char *text);

#endif
