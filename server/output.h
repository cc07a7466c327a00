/* output.h: what the commands write for people. A full disk or a closed pipe is a failure, too. */
#ifndef TOKEND_OUTPUT_H
#define TOKEND_OUTPUT_H

#include "buf.h"
#include "err.h"

#include <stdio.h>

/* Writes what is buffered; false and *e when that or an earlier write failed. */
bool output_flush(struct err *e);

/* Writes a whole file; `what` comes before its path in the error: "--svg". */
bool output_file(const char *what, const char *path, const struct buf *text, struct err *e);

/* Text of a model's or a user's file: control characters, which would talk to the terminal, and
 * bytes that are not UTF-8 are shown as \xNN. */
void output_text(FILE *, const char *text);
/* 1234567 as "1,234,567", rounded to a whole number; out has room for `cap` bytes. */
void output_number(double v, char *out, size_t cap);
/* Writes "tokend COMMAND: " and the message, so shown, as a line to standard error. */
void output_error(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
