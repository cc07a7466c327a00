/* str.h: a run of bytes that somebody else keeps. */
#ifndef TOKEND_STR_H
#define TOKEND_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct str {
    const char *data; /* not terminated */
    size_t len;
};

static inline bool str_is(struct str s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

static inline bool str_starts(struct str s, const char *with)
{
    size_t n = strlen(with);
    return s.len >= n && memcmp(s.data, with, n) == 0;
}

static inline bool str_ends(struct str s, const char *with)
{
    size_t n = strlen(with);
    return s.len >= n && memcmp(s.data + s.len - n, with, n) == 0;
}

#endif
