#include "utf8.h"

#include "buf.h"

#include <string.h>

int utf8_length(unsigned char lead)
{
    if (lead < 0x80)
        return 1;
    if (lead < 0xC2 || lead > 0xF4)
        return 0;
    return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

bool utf8_continues(unsigned char lead, int at, unsigned char b)
{
    unsigned char least = 0x80, most = 0xBF;
    if (at == 1) { /* no overlong forms, no surrogates, nothing above U+10FFFF */
        if (lead == 0xE0)
            least = 0xA0;
        else if (lead == 0xED)
            most = 0x9F;
        else if (lead == 0xF0)
            least = 0x90;
        else if (lead == 0xF4)
            most = 0x8F;
    }
    return b >= least && b <= most;
}

int utf8_char(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    int len = utf8_length(u[0]);
    if ((size_t)len > n)
        return 0;
    for (int k = 1; k < len; k++)
        if (!utf8_continues(u[0], k, u[k]))
            return 0;
    return len;
}

static bool eight_ascii(const char *s)
{
    uint64_t word;
    memcpy(&word, s, sizeof word);
    return (word & 0x8080808080808080u) == 0;
}

size_t utf8_check(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        if (n - i >= 8 && eight_ascii(s + i)) {
            i += 8;
            continue;
        }
        int len = utf8_char(s + i, n - i);
        if (len == 0)
            return i;
        i += (size_t)len;
    }
    return n;
}

size_t utf8_uncut(const char *s, size_t n)
{
    size_t tail = 1;
    while (tail < 4 && tail < n && ((unsigned char)s[n - tail] & 0xC0) == 0x80)
        tail++;
    return tail <= n && (size_t)utf8_length((unsigned char)s[n - tail]) > tail ? n - tail : n;
}

void utf8_trim(char *s)
{
    s[utf8_check(s, strlen(s))] = '\0';
}

void utf8_replace_bad(struct buf *out, const char *text)
{
    for (const char *end = text + strlen(text); text < end; text++) {
        size_t good = utf8_check(text, (size_t)(end - text));
        buf_add(out, text, good);
        text += good;
        if (text == end)
            return;
        buf_add_str(out, "\xEF\xBF\xBD");
    }
}

size_t utf8_count(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)s[i] & 0xC0) != 0x80;
    return count;
}

uint32_t utf8_decode(const char *s, size_t *i)
{
    const unsigned char *u = (const unsigned char *)s + *i;
    int len = utf8_length(u[0]);
    uint32_t c = len == 1 ? u[0] : u[0] & (0x7Fu >> len);
    for (int k = 1; k < len; k++)
        c = c << 6 | (u[k] & 0x3Fu);
    *i += (size_t)len;
    return c;
}
