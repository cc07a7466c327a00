/* buf.h: a growable run of bytes.
 *
 * A zeroed struct is an empty buffer. When memory runs out the buffer turns `failed`, keeps
 * what it had and ignores later appends, so that a writer checks once, at the end.
 * `data` is always terminated by a NUL that `len` does not count (NULL while empty).
 * One owner; buf_free takes a zeroed buffer. */
#ifndef TOKEND_BUF_H
#define TOKEND_BUF_H

#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *data;
    size_t len, cap;
    bool failed;
};

void buf_add(struct buf *b, const void *bytes, size_t n);
void buf_add_str(struct buf *b, const char *s);
void buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_add_byte(struct buf *b, char c);
/* Makes room for n more bytes and returns where they go, or NULL; the caller then adds to len. */
char *buf_reserve(struct buf *b, size_t n);
/* Drops the first n bytes (n <= len). */
void buf_drop(struct buf *b, size_t n);
/* Empties it but keeps its memory. */
void buf_clear(struct buf *b);
void buf_free(struct buf *b);

#endif
