/* codepoint.h: classes of characters as the tokenizers' reference implementations have them. */
#ifndef TOKEND_CODEPOINT_H
#define TOKEND_CODEPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool codepoint_is_space(uint32_t c);      /* the property White_Space */
bool codepoint_is_word(uint32_t c);       /* letters, marks, digits, connectors: regex's \w */
bool codepoint_is_mark(uint32_t c);       /* general category M */
int codepoint_put(char *out, uint32_t c); /* writes 1 to 4 bytes of UTF-8, returns how many */
/* The start of the last character of text[n], n > 0; the text is valid UTF-8. */
size_t codepoint_last(const char *text, size_t n);

#endif
