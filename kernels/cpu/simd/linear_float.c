/* Float weights times float32 rows: acc = fma(w, x, acc), k ascending, one chain a (row, token).
 *
 * Many tokens are bound by multiplications. Pieces of PIECE k carry the chains through memory, so
 * that a panel's piece, converted to float32 once for all tokens, stays in L1; meanwhile the next
 * piece comes from memory to L2. A tile's x, a few lines ahead, comes from L2. One token is bound
 * by reading weights. */
#include "linear_tile.h"

#define PIECE 192

TILE_OF(tile_f32, LINES_F32)
TILE_OF(tile_f16, LINES_F16)
TILE_OF(tile_bf16, LINES_BF16)

INL void panel(const uint8_t *w, const enum lines form, int cols, const float *x, int ldx, int n,
               float *y, int ldy)
{
    float buffer[PIECE * PANEL] __attribute__((aligned(64)));
    const size_t bytes = PIECE * line_bytes(form);
    for (int k = 0; k < cols; k += PIECE, w += bytes) {
        int nk = cols - k < PIECE ? cols - k : PIECE;
        const uint8_t *next = w + nk * line_bytes(form); /* the next panel's where this one ends */
        if (form == LINES_F32 || n <= TOKENS) {
            tile_fn *one = form == LINES_F32 ? tile_f32 : form == LINES_F16 ? tile_f16 : tile_bf16;
            tiles(one, w, k == 0, x + k, ldx, nk, n, y, ldy, next, form == LINES_F32 ? bytes : 0);
            continue;
        }
        for (int i = 0; i < nk; i++)
            for (int g = 0; g < GROUPS; g++)
                vf_store(buffer + i * PANEL + g * LANES, line_load(w, i, g, form));
        tiles(tile_f32, buffer, k == 0, x + k, ldx, nk, n, y, ldy, next, bytes);
    }
}

INL void panels(const struct weight *w, const enum lines form, const float *x, int ldx, int n,
                int p0, int p1, float *y, int ldy)
{
    const uint8_t *data = w->data + p0 * w->panel_bytes;
    int cols = (int)w->cols;
    if (n == 1)
        one_token(data, w->panel_bytes, p1 - p0, form, true, x, cols, y);
    else
        for (int p = p0; p < p1; p++, y += PANEL, data += w->panel_bytes)
            panel(data, form, cols, x, ldx, n, y, ldy);
}

/* A matrix of one row, kept as plain float32; the other 15 rows are not there. */
static void one_row(const struct weight *w, const float *x, int ldx, int n, float *y, int ldy)
{
    for (int t = 0; t < n; t++) {
        float acc = 0;
        for (int k = 0; k < w->cols; k++)
            acc = f_fma(w->vector[k], x[(size_t)t * ldx + k], acc);
        y[(size_t)t * ldy] = acc;
    }
}

void ISA_FN(linear_float)(const struct weight *w, const struct rows_view *x, int t0, int n, int p0,
                          int p1, float *y, int ldy)
{
    const float *rows = x->f + (size_t)t0 * x->stride;
    if (w->vector)
        one_row(w, rows, x->stride, n, y, ldy);
    else if (w->type == DTYPE_F16)
        panels(w, LINES_F16, rows, x->stride, n, p0, p1, y, ldy);
    else if (w->type == DTYPE_BF16 && !x->exact)
        ISA_FN(linear_bf16)(w, rows, x->stride, n, p0, p1, y, ldy);
    else if (w->type == DTYPE_BF16)
        panels(w, LINES_BF16, rows, x->stride, n, p0, p1, y, ldy);
    else
        panels(w, LINES_F32, rows, x->stride, n, p0, p1, y, ldy);
}
