/* Float weights times float32 rows: acc = fma(w, x, acc), k ascending, one chain a (row, token).
 * Pieces of PIECE k carry the chain through memory, so that a panel's piece, converted to
 * float32 once for many tokens, stays in L1. */
#include "table.h"

#if defined(__AVX2__) || defined(SIMD_NEON)
#define TOKENS 6
#else
#define TOKENS 3
#endif
#define ABREAST 4 /* panels side by side for one token: chains that hide the latency */
#define PIECE 256

INL vf load_as(const void *w, size_t i, const enum dtype type)
{
    if (type == DTYPE_F32)
        return vf_load((const float *)w + i);
    if (type == DTYPE_F16)
        return f16_load((const uint16_t *)w + i);
    return bf16_load((const uint16_t *)w + i);
}

/* 16 rows, n tokens, k in [0, nk) of the weight piece w; x and y begin at its first k. */
INL void tile(const void *w, const enum dtype type, bool first, const float *x, int ldx, int nk,
              const int n, float *y, int ldy)
{
    vf acc[TOKENS][GROUPS];
    for (int t = 0; t < n; t++)
        for (int g = 0; g < GROUPS; g++)
            acc[t][g] = first ? vf_splat(0) : vf_load(y + (size_t)t * ldy + g * LANES);
    for (int k = 0; k < nk; k++) {
        vf v[GROUPS];
        for (int g = 0; g < GROUPS; g++)
            v[g] = load_as(w, (size_t)k * PANEL + g * LANES, type);
        for (int t = 0; t < n; t++) {
            vf b = vf_splat(x[(size_t)t * ldx + k]);
            for (int g = 0; g < GROUPS; g++)
                acc[t][g] = vf_fma(v[g], b, acc[t][g]);
        }
    }
    for (int t = 0; t < n; t++)
        for (int g = 0; g < GROUPS; g++)
            vf_store(y + (size_t)t * ldy + g * LANES, acc[t][g]);
}

INL void tiles(const void *w, const enum dtype type, bool first, const float *x, int ldx, int nk,
               int n, float *y, int ldy)
{
    int t = 0;
    for (; t + TOKENS <= n; t += TOKENS)
        tile(w, type, first, x + (size_t)t * ldx, ldx, nk, TOKENS, y + (size_t)t * ldy, ldy);
    x += (size_t)t * ldx;
    y += (size_t)t * ldy;
    switch (n - t) {
#if TOKENS > 3
    case 5:
        tile(w, type, first, x, ldx, nk, 5, y, ldy);
        break;
    case 4:
        tile(w, type, first, x, ldx, nk, 4, y, ldy);
        break;
    case 3:
        tile(w, type, first, x, ldx, nk, 3, y, ldy);
        break;
#endif
    case 2:
        tile(w, type, first, x, ldx, nk, 2, y, ldy);
        break;
    case 1:
        tile(w, type, first, x, ldx, nk, 1, y, ldy);
        break;
    }
}

INL void panel(const uint8_t *w, const enum dtype type, int cols, const float *x, int ldx, int n,
               float *y, int ldy)
{
    float buffer[PIECE * PANEL] __attribute__((aligned(64)));
    size_t elem = type == DTYPE_F32 ? 4 : 2;
    for (int k = 0; k < cols; k += PIECE) {
        int nk = cols - k < PIECE ? cols - k : PIECE;
        const uint8_t *piece = w + (size_t)k * PANEL * elem;
        if (type == DTYPE_F32 || n <= TOKENS) {
            tiles(piece, type, k == 0, x + k, ldx, nk, n, y, ldy);
            continue;
        }
        for (int i = 0; i < nk * PANEL; i += LANES)
            vf_store(buffer + i, load_as(piece, i, type));
        tiles(buffer, DTYPE_F32, k == 0, x + k, ldx, nk, n, y, ldy);
    }
}

/* np panels, one token */
INL void vector(const uint8_t *w, size_t panel_bytes, const int np, const enum dtype type, int cols,
                const float *x, float *y)
{
    size_t elem = type == DTYPE_F32 ? 4 : 2;
    vf acc[ABREAST][GROUPS];
    for (int p = 0; p < np; p++)
        for (int g = 0; g < GROUPS; g++)
            acc[p][g] = vf_splat(0);
    for (int k = 0; k < cols; k++) {
        vf b = vf_splat(x[k]);
        for (int p = 0; p < np; p++) {
            const uint8_t *at = w + p * panel_bytes;
            if (k % 2 == 0 || type == DTYPE_F32)
                __builtin_prefetch(at + k * PANEL * elem + 1024);
            for (int g = 0; g < GROUPS; g++)
                acc[p][g] = vf_fma(load_as(at, (size_t)k * PANEL + g * LANES, type), b, acc[p][g]);
        }
    }
    for (int p = 0; p < np; p++)
        for (int g = 0; g < GROUPS; g++)
            vf_store(y + p * PANEL + g * LANES, acc[p][g]);
}

INL void panels(const struct weight *w, const enum dtype type, const float *x, int ldx, int n,
                int p0, int p1, float *y, int ldy)
{
    const uint8_t *data = w->data + p0 * w->panel_bytes;
    int cols = (int)w->cols, p = p0;
    for (; n == 1 && p + ABREAST <= p1; p += ABREAST, y += ABREAST * PANEL) {
        vector(data, w->panel_bytes, ABREAST, type, cols, x, y);
        data += ABREAST * w->panel_bytes;
    }
    for (; p < p1; p++, y += PANEL, data += w->panel_bytes) {
        if (n == 1)
            vector(data, w->panel_bytes, 1, type, cols, x, y);
        else
            panel(data, type, cols, x, ldx, n, y, ldy);
    }
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
        panels(w, DTYPE_F16, rows, x->stride, n, p0, p1, y, ldy);
    else if (w->type == DTYPE_BF16)
        panels(w, DTYPE_BF16, rows, x->stride, n, p0, p1, y, ldy);
    else
        panels(w, DTYPE_F32, rows, x->stride, n, p0, p1, y, ldy);
}
