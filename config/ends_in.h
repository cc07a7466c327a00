/* ends_in.h: whether a name has an ending. */
#ifndef TOKEND_ENDS_IN_H
#define TOKEND_ENDS_IN_H

#include <stdbool.h>
#include <string.h>

static inline bool ends_in(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && memcmp(name + n - m, end, m) == 0;
}

#endif
