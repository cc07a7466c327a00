/* linear_bf16_amx.h: products of BF16 by tile registers: 16 tokens, 16 rows and 32 k at once.
 *
 * A register's even and odd k are added by themselves before they are added to the rest, which
 * vectors do not do: with this set, a single token is a tile, too, the others being zeros. It is
 * bound by reading weights all the same. Up to four groups of 16 tokens share a register of
 * weights. */
#ifndef TOKEND_LINEAR_BF16_AMX_H
#define TOKEND_LINEAR_BF16_AMX_H

#include "linear_tile.h"

#if AMX
#define AMX_LINES 16 /* of pairs of k, in a register of weights */
#define AMX_GROUPS 4

/* n of k of a panel as pairs, zeros up to whole registers of weights; how many lines that are */
INL int amx_lines(const uint8_t *w, int n, float *to)
{
    const int n_lines = (n + 2 * AMX_LINES - 1) / (2 * AMX_LINES) * AMX_LINES;
    uint16_t last[2][PANEL] = {{0}};
    for (int i = 0; i < n / 2; i++)
        vf_store(to + i * PANEL, line_load(w, i, 0, LINES_BF16_PAIRS));
    if (n % 2)
        memcpy(last, w + (size_t)(n - 1) * sizeof *last, sizeof *last);
    vf rest = line_load(last, 0, 0, LINES_BF16_PAIRS);
    for (int i = n / 2; i < n_lines; i++, rest = vf_splat(0))
        vf_store(to + i * PANEL, rest);
    return n_lines;
}

/* n_lines, a multiple of AMX_LINES, at w times as many of each token at x */
INL void amx_pairs(const float *w, const float *x, int ld, int n_lines, int groups,
                   float (*sums)[PANEL])
{
    struct amx a = {.k = 64};
#define EACH_GROUP(do_with)                                                                        \
    do_with(0, 4);                                                                                 \
    if (groups > 1)                                                                                \
        do_with(1, 5);                                                                             \
    if (groups > 2)                                                                                \
        do_with(2, 4);                                                                             \
    if (groups > 3)                                                                                \
    do_with(3, 5)
#define BEGIN(i, rows) amx_load(&a, i, sums[(i)*AMX_TOKENS], 64)
#define MULTIPLY(i, rows)                                                                          \
    do {                                                                                           \
        amx_load(&a, rows, x + (size_t)(i)*AMX_TOKENS * ld + at, ld * 4);                          \
        amx_dot_bf16(&a, i, rows, 6);                                                              \
    } while (0)
#define END(i, rows) amx_store(&a, i, sums[(i)*AMX_TOKENS])
    EACH_GROUP(BEGIN);
    for (int at = 0; at < n_lines; at += AMX_LINES) {
        amx_load(&a, 6, w + at * PANEL, 64);
        EACH_GROUP(MULTIPLY);
    }
    EACH_GROUP(END);
#undef EACH_GROUP
#undef BEGIN
#undef MULTIPLY
#undef END
}

/* The same of all n tokens, whose x are [n, a multiple of AMX_TOKENS][ld]; y += them, or, where
 * these are the first lines, y = them. */
INL void amx_panel(const float *w, bool first, const float *x, int ld, int n_lines, int n, float *y,
                   int ldy)
{
    for (; n > 0; n -= AMX_GROUPS * AMX_TOKENS) {
        float sums[AMX_GROUPS * AMX_TOKENS][PANEL] __attribute__((aligned(64))) = {{0}};
        const int some = n < AMX_GROUPS * AMX_TOKENS ? n : AMX_GROUPS * AMX_TOKENS;
        for (int t = 0; t < some && !first; t++)
            memcpy(sums[t], y + (size_t)t * ldy, sizeof sums[t]);
        amx_pairs(w, x, ld, n_lines, (some + AMX_TOKENS - 1) / AMX_TOKENS, sums);
        for (int t = 0; t < some; t++)
            memcpy(y + (size_t)t * ldy, sums[t], sizeof sums[t]);
        x += (size_t)AMX_GROUPS * AMX_TOKENS * ld;
        y += (size_t)AMX_GROUPS * AMX_TOKENS * ldy;
    }
}
#endif

#endif
