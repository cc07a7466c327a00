/* utf8_text.h: small helpers for text that leaves as JSON. */
#ifndef TOKEND_UTF8_TEXT_H
#define TOKEND_UTF8_TEXT_H

#include <stddef.h>

/* Code points of valid UTF-8. */
size_t utf8_code_points(const char *text, size_t n);
/* Cuts a C string before the first byte that is not part of a whole character. */
void utf8_trim(char *text);

#endif
