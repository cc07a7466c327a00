/* check.h: a condition that only a programming error can break.
 *
 * Unlike assert it stays in release builds: where page counts are wrong, going on would give
 * one client another client's text. Never used on what a client or a file says. */
#ifndef TOKEND_CHECK_H
#define TOKEND_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(cond) ((cond) ? (void)0 : check_failed(#cond, __FILE__, __LINE__))

_Noreturn static inline void check_failed(const char *what, const char *file, int line)
{
    fprintf(stderr, "%s:%d: broken invariant: %s\n", file, line, what);
    abort();
}

#endif
