#include "buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *buf_reserve(struct buf *b, size_t n)
{
    if (b->failed)
        return NULL;
    if (n >= SIZE_MAX / 2 - b->len) {
        b->failed = true;
        return NULL;
    }
    size_t need = b->len + n + 1;
    if (need > b->cap) {
        size_t cap = b->cap ? b->cap : 64;
        while (cap < need)
            cap += cap / 2;
        char *p = realloc(b->data, cap);
        if (!p) {
            b->failed = true;
            return NULL;
        }
        b->data = p;
        b->cap = cap;
    }
    return b->data + b->len;
}

void buf_add(struct buf *b, const void *bytes, size_t n)
{
    char *p = buf_reserve(b, n);
    if (!p)
        return;
    if (n)
        memcpy(p, bytes, n);
    b->len += n;
    b->data[b->len] = '\0';
}

void buf_add_str(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

void buf_add_byte(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_addf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) {
        b->failed = true;
        return;
    }
    char *p = buf_reserve(b, (size_t)n);
    if (!p)
        return;
    va_start(ap, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
}

void buf_drop(struct buf *b, size_t n)
{
    if (n == 0)
        return;
    memmove(b->data, b->data + n, b->len - n + 1);
    b->len -= n;
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data)
        b->data[0] = '\0';
}

void buf_free(struct buf *b)
{
    free(b->data);
    *b = (struct buf){0};
}
