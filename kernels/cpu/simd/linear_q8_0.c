/* Q8_0 weights (int8 q, value d*q) times int8 rows. For a (row, token), blocks ascending:
 *
 *   i = exact integer product of the block;  acc = fma(float(i), d_w * d_x, acc)
 *
 * Stored as q + 128, which VNNI's vpdpbusd wants: linear_packed.c has that one. Here two products
 * fit in an int16 and no more, so every four bytes are widened. */
#include "table.h"

#if SUM_BITS == 16
#if LANES > 4
#define TOKENS 4
#else
#define TOKENS 2
#endif
#define PREFETCH 1600

INL void sum_block(const uint8_t *w, const struct rows_view *x, size_t at, vi (*sum)[GROUPS],
                   const int n)
{
    for (int t = 0; t < n; t++)
        for (int g = 0; g < GROUPS; g++)
            sum[t][g] = vi_splat(0);
    UNROLL
    for (int j = 0; j < 8; j++) {
        vub p[GROUPS];
        for (int g = 0; g < GROUPS; g++)
            p[g] = vub_load(w + j * 64 + g * VBYTES) ^ 0x80;
        for (int t = 0; t < n; t++) {
            vub v = splat4(x->q + (at + t) * QBLOCK + j * 4);
            for (int g = 0; g < GROUPS; g++) {
                sum[t][g] += add_pairs(madd_s8s8(p[g], v));
                KEEP(sum[t][g]);
            }
        }
    }
}

INL void tile(const uint8_t *w, int n_blocks, const struct rows_view *x, int t0, const int n,
              float *y, int ldy)
{
    vf acc[TOKENS][GROUPS];
    for (int t = 0; t < n; t++)
        for (int g = 0; g < GROUPS; g++)
            acc[t][g] = vf_splat(0);
    for (int b = 0; b < n_blocks; b++, w += panel_block_bytes(DTYPE_Q8_0)) {
        for (int i = 0; n < 3 && i < panel_block_bytes(DTYPE_Q8_0); i += 64)
            __builtin_prefetch(w + PREFETCH + i);
        size_t at = (size_t)b * x->qstride + t0;
        vi sum[TOKENS][GROUPS];
        sum_block(w, x, at, sum, n);
        for (int g = 0; g < GROUPS; g++) {
            vf d = f16_load((const uint16_t *)(const void *)(w + 512) + g * LANES);
            for (int t = 0; t < n; t++)
                acc[t][g] =
                    vf_fma(__builtin_convertvector(sum[t][g], vf), d * x->d[at + t], acc[t][g]);
        }
    }
    for (int t = 0; t < n; t++)
        for (int g = 0; g < GROUPS; g++)
            vf_store(y + (size_t)t * ldy + g * LANES, acc[t][g]);
}

void ISA_FN(linear_q8_0)(const struct weight *w, int panel, const struct rows_view *x, int t0,
                         int n, float *y, int ldy)
{
    const uint8_t *p = w->data + panel * w->panel_bytes;
    int n_blocks = (int)(w->cols / QBLOCK), t = 0;
    for (; t + TOKENS <= n; t += TOKENS)
        tile(p, n_blocks, x, t0 + t, TOKENS, y + (size_t)t * ldy, ldy);
#if TOKENS > 2
    if (n - t == 3)
        tile(p, n_blocks, x, t0 + t, 3, y + (size_t)t * ldy, ldy);
    else if (n - t == 2)
        tile(p, n_blocks, x, t0 + t, 2, y + (size_t)t * ldy, ldy);
#endif
    if (n - t == 1)
        tile(p, n_blocks, x, t0 + t, 1, y + (size_t)t * ldy, ldy);
}
#endif
