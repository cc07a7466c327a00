/* output.h: standard output of the commands. A full disk or a closed pipe is a failure, too. */
#ifndef TOKEND_OUTPUT_H
#define TOKEND_OUTPUT_H

#include "err.h"

/* Writes what is buffered; false and *e when that or an earlier write failed. */
bool output_flush(struct err *e);

#endif
