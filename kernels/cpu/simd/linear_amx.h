/* linear_amx.h: the products of linear_packed.h for 16 tokens at once, by tile registers.
 *
 * The integers are exact and what becomes of them is what a tile of vectors makes of them, so the
 * bits are the same. A multiplication takes as long with k = 32 as with 64, but the sums of each 32
 * have scales of their own, and to turn those of 16 tokens into floats takes longer anyway (30
 * cycles and more at two vector operations each; the multiplication 16). Where each 16 have a scale
 * there are two multiplications of k = 16. Two sets of registers take turns. */
#ifndef TOKEND_LINEAR_AMX_H
#define TOKEND_LINEAR_AMX_H

#include "amx.h"

#if AMX
#define AMX_PRODUCT(a, sums, rows, weights, q, to)                                                 \
    do {                                                                                           \
        amx_load(a, rows, q, QBLOCK);                                                              \
        amx_zero(a, sums);                                                                         \
        amx_dot(a, sums, rows, weights);                                                           \
        amx_store(a, sums, to);                                                                    \
    } while (0)

/* Sums of 16 tokens, of all 32 values or of each half, by the registers whose turn it is */
INL void amx_sums(const enum dtype t, struct amx *a, bool turn, const int8_t *q,
                  int32_t (*to)[AMX_TOKENS][PANEL])
{
    if (panel_halves(t) == 1 && turn) {
        AMX_PRODUCT(a, 0, 4, 6, q, to[0][0]);
    } else if (panel_halves(t) == 1) {
        AMX_PRODUCT(a, 1, 5, 6, q, to[0][0]);
    } else if (turn) {
        AMX_PRODUCT(a, 0, 4, 6, q, to[0][0]);
        AMX_PRODUCT(a, 1, 5, 7, q + 16, to[1][0]);
    } else {
        AMX_PRODUCT(a, 2, 4, 6, q, to[0][0]);
        AMX_PRODUCT(a, 3, 5, 7, q + 16, to[1][0]);
    }
}

/* 32 values, all groups of 16 of n tokens from `at`. Returns how many these are. */
INL int amx_tiles(const enum dtype t, const vub *u, const struct scales *s,
                  const struct rows_view *x, size_t at, float (*acc)[PANEL], int n)
{
    if (n < AMX_TOKENS) /* the registers have no shapes */
        return 0;
    struct amx a = {.k = amx_k(t)};
    amx_load(&a, 6, u, 64);
    if (panel_halves(t) == 2)
        amx_load(&a, 7, u + 4, 64);
    int k = 0;
    for (bool turn = true; k + AMX_TOKENS <= n; turn = !turn) {
        int32_t sums[2][AMX_TOKENS][PANEL] __attribute__((aligned(64)));
        amx_sums(t, &a, turn, x->q + (at + k) * QBLOCK, sums);
        for (int j = 0; j < AMX_TOKENS; j++, k++) {
            struct row32 r = row32(t, x, at + k);
            vi i[2];
            for (int half = 0; half < panel_halves(t); half++)
                memcpy(&i[half], sums[half][j], sizeof *i);
            vf_store(acc[k], add_block(t, i, s, 0, &r, vf_load(acc[k])));
        }
    }
    return k;
}
#else
INL int amx_tiles(const enum dtype t, const vub *u, const struct scales *s,
                  const struct rows_view *x, size_t at, float (*acc)[PANEL], int n)
{
    return 0;
}
#endif

#endif
