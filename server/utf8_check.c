#include "utf8_check.h"

#include <string.h>

/* Length of the character at s[0 … n), or 0. */
static size_t char_len(const unsigned char *s, size_t n)
{
    unsigned char a = s[0];
    if (a < 0x80)
        return 1;
    if (a < 0xC2 || a > 0xF4)
        return 0;
    size_t len = a < 0xE0 ? 2 : a < 0xF0 ? 3 : 4;
    if (n < len)
        return 0;
    /* The second byte's range excludes overlong forms, surrogates and what is too large. */
    unsigned char lo = a == 0xE0 ? 0xA0 : a == 0xF0 ? 0x90 : 0x80;
    unsigned char hi = a == 0xED ? 0x9F : a == 0xF4 ? 0x8F : 0xBF;
    if (s[1] < lo || s[1] > hi)
        return 0;
    for (size_t i = 2; i < len; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    return len;
}

size_t utf8_bad_at(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t i = 0;
    while (i < n) {
        size_t len = char_len(s + i, n - i);
        if (len == 0)
            return i;
        i += len;
    }
    return n;
}

size_t utf8_count(const char *text, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

void utf8_trim(char *text)
{
    text[utf8_bad_at(text, strlen(text))] = '\0';
}
