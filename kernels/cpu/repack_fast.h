/* repack_fast.h: panels of the usual types, as quickly as memory takes them. */
#ifndef TOKEND_REPACK_FAST_H
#define TOKEND_REPACK_FAST_H

#include "layout.h"

/* Rows of a matrix in a file, at any alignment */
struct file_rows {
    const uint8_t *data;
    size_t row_bytes;
    int n; /* at most PANEL */
    int64_t cols;
};

/* Writes what repack_panel's plain way would: `to` is zeroed. False: there is no quick way. */
bool repack_fast(enum dtype, uint8_t *to, const struct file_rows *);

#endif
