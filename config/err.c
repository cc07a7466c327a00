#include "err.h"

#include "utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* vsnprintf may have cut inside a character. */
static void trim_cut(char *s, size_t cap)
{
    size_t n = strlen(s);
    if (n + 1 == cap)
        s[utf8_uncut(s, n)] = '\0';
}

static void fill(struct err *e, enum err_code code, const char *fmt, va_list ap)
{
    e->code = code;
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    trim_cut(e->msg, sizeof e->msg);
}

bool err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
    if (!e)
        return false;
    va_list ap;
    va_start(ap, fmt);
    fill(e, code, fmt, ap);
    va_end(ap);
    return false;
}

bool err_errno(struct err *e, const char *fmt, ...)
{
    int saved = errno;
    if (!e)
        return false;
    va_list ap;
    va_start(ap, fmt);
    fill(e, ERR_IO, fmt, ap);
    va_end(ap);
    size_t n = strlen(e->msg);
    snprintf(e->msg + n, sizeof e->msg - n, ": %s", strerror(saved));
    return false;
}

bool err_prefix(struct err *e, const char *fmt, ...)
{
    if (!e)
        return false;
    char old[sizeof e->msg];
    memcpy(old, e->msg, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    size_t n = strlen(e->msg);
    snprintf(e->msg + n, sizeof e->msg - n, ": %s", old);
    trim_cut(e->msg, sizeof e->msg);
    return false;
}
