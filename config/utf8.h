/* utf8.h: the rules of well-formed UTF-8 (Unicode, table 3-7). */
#ifndef TOKEND_UTF8_H
#define TOKEND_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;

/* Bytes of the character that starts with `lead`: 1 to 4, or 0 when none does. */
int utf8_length(unsigned char lead);
/* May b be byte number `at` (1 to 3) of a character that starts with `lead`? */
bool utf8_continues(unsigned char lead, int at, unsigned char b);
/* Offset of the first ill-formed sequence; n when there is none. */
size_t utf8_check(const char *s, size_t n);
/* Bytes of the well-formed character that s (n > 0 bytes) starts with, or 0. */
int utf8_char(const char *s, size_t n);
/* n without the bytes of a last character that is cut off. */
size_t utf8_uncut(const char *s, size_t n);
/* Cuts a C string before its first ill-formed sequence. */
void utf8_trim(char *s);
/* Appends a C string; each byte that is no part of a whole character becomes U+FFFD. */
void utf8_replace_bad(struct buf *, const char *text);
/* Characters of well-formed text. */
size_t utf8_count(const char *s, size_t n);
/* The character at s[*i], which is moved behind it. The text is well formed. */
uint32_t utf8_decode(const char *s, size_t *i);

#endif
