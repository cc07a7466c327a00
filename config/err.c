#include "err.h"

#include "utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* `len` is what the whole message would have: where it did not fit, vsnprintf may have cut
 * inside a character. */
static void trim_cut(struct err *e, size_t len)
{
    if (len >= sizeof e->msg)
        e->msg[utf8_uncut(e->msg, sizeof e->msg - 1)] = '\0';
}

static void fill(struct err *e, enum err_code code, const char *fmt, va_list ap)
{
    e->code = code;
    int len = vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    trim_cut(e, len > 0 ? (size_t)len : 0);
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
    int more = snprintf(e->msg + n, sizeof e->msg - n, ": %s", old);
    trim_cut(e, n + (size_t)more);
    return false;
}
