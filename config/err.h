/* err.h: how a function says what went wrong.
 *
 * A function that can fail returns bool (or a pointer) and takes `struct err *`. On failure
 * it fills the error once, at the place that knows most; callers may put context before it
 * with err_prefix. A message says what was wrong, where (file, tensor, field, offset) and
 * what would be right. Thread-free: the caller owns the struct. `e` may be NULL everywhere. */
#ifndef TOKEND_ERR_H
#define TOKEND_ERR_H

#include <stdbool.h>

enum err_code {
    ERR_NONE = 0,
    ERR_INVALID,     /* a value, file or request breaks its rules */
    ERR_UNSUPPORTED, /* well formed, but something we do not do; the message names it */
    ERR_NOT_FOUND,
    ERR_LIMIT,  /* over a bound that we set (depth, size, time) */
    ERR_MEMORY, /* out of memory, or more asked than there is */
    ERR_IO,     /* the operating system refused; the message has strerror */
    ERR_DEVICE, /* the backend failed */
};

struct err {
    enum err_code code;
    char msg[512]; /* UTF-8, always terminated; cut at a character when too long */
};

/* Fills *e and returns false, so that `return err_set(e, ...)` ends a function. */
bool err_set(struct err *e, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As err_set with ERR_IO, appending ": " and strerror(errno). */
bool err_errno(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Puts "prefix: " before a message that is already there, and returns false. */
bool err_prefix(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
