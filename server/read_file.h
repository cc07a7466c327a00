/* read_file.h: a small file that the user named, whole. */
#ifndef TOKEND_READ_FILE_H
#define TOKEND_READ_FILE_H

#include "buf.h"
#include "err.h"

/* Appends it to *out; false and *e, which names the path, when it cannot be read or is larger
 * than `most` bytes. */
bool read_file(const char *path, size_t most, struct buf *out, struct err *e);

#endif
