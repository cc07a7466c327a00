/* repack.h: matrices from the file's layout into panels (layout.h), and rows back out. */
#ifndef TOKEND_REPACK_H
#define TOKEND_REPACK_H

#include "layout.h"

/* Bytes of a panel of a matrix with that many columns. */
size_t repack_panel_bytes(enum dtype, int64_t cols);
/* Fills panel `panel` of w (rows, cols and data set, data zeroed, panel_type(t) its type) from
 * the whole matrix of type t in the file's layout, at any alignment. */
void repack_panel(const struct weight *w, int panel, enum dtype t, const void *src);
/* Values of one row times scale, bit for bit what dtype_to_f32 makes of the file's row. */
void repack_row(const struct weight *w, int64_t row, float scale, float *out);

#endif
