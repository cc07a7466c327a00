/* output.h: what the commands write for people. A full disk or a closed pipe is a failure, too. */
#ifndef TOKEND_OUTPUT_H
#define TOKEND_OUTPUT_H

#include "err.h"

#include <stdio.h>

/* Writes what is buffered; false and *e when that or an earlier write failed. */
bool output_flush(struct err *e);

/* Text of a model's or a user's file: control characters, which would talk to the terminal, and
 * bytes that are not UTF-8 are shown as \xNN. */
void output_text(FILE *, const char *text);
/* Writes "tokend COMMAND: " and the message, so shown, as a line to standard error. */
void output_error(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
