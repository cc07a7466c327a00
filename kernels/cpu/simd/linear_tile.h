/* linear_tile.h: what linears of float types are made of: chains acc = acc + w * x of 16 rows and a
 * few tokens, kept in registers while the lines of a panel go by.
 *
 * A line is 16 rows' values of one k, to be multiplied with a float32 of each token; or, where the
 * set has an instruction for it (BF16_PAIRS), 16 pairs of bf16, with a pair of bf16 in 32 bits. A
 * pair is added odd k first, each product rounded once with the sum, and subnormal numbers are
 * zeros: so does vdpbf16ps. The other sets have two lines a pair, in that order (linear_bf16.c). */
#ifndef TOKEND_LINEAR_TILE_H
#define TOKEND_LINEAR_TILE_H

#include "amx.h"
#include "table.h"

#if AMX || (defined(__AVX512BF16__) && LANES == 16) /* AMX_EMULATED, too */
#define BF16_PAIRS 1
#else
#define BF16_PAIRS 0
#endif

#if LANES == 16
#define TOKENS 8 /* of a tile of chains in registers */
#elif defined(__AVX2__) || defined(SIMD_NEON)
#define TOKENS 6
#else
#define TOKENS 3
#endif
#define AHEAD 4096 /* bytes, fetched by tiles that read weights as they lie in memory */
#define ABREAST 4  /* panels side by side for one token: chains that hide the latency */

/* How a panel has them (layout.h) */
enum lines {
    LINES_F32,
    LINES_F16,
    LINES_BF16,
    LINES_BF16_PAIRS, /* of BF16, too, to be read by pairs of k */
};

INL size_t line_bytes(const enum lines form)
{
    return form == LINES_F32 || (form == LINES_BF16_PAIRS && BF16_PAIRS) ? 64 : 32;
}

#if BF16_PAIRS
/* [2 k][16 rows] as [16 rows][2 k] */
INL vf pairs_of(__m512i two)
{
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return (vf)_mm512_permutexvar_epi16(order, two);
}
#endif

/* Lanes [g * LANES, …) of line i */
INL vf line_load(const void *w, int i, int g, const enum lines form)
{
    const size_t at = (size_t)i * PANEL + (size_t)g * LANES;
    if (form == LINES_F16)
        return f16_load((const uint16_t *)w + at);
    if (form == LINES_BF16)
        return bf16_load((const uint16_t *)w + at);
#if BF16_PAIRS
    if (form == LINES_BF16_PAIRS)
        return pairs_of(_mm512_loadu_si512((const uint8_t *)w + at * 4));
#else
    if (form == LINES_BF16_PAIRS)
        return bf16_load((const uint16_t *)w + (size_t)(i ^ 1) * PANEL + (size_t)g * LANES);
#endif
    return vf_load((const float *)w + at);
}

/* acc and the product of w with the token's x. As assembler, because gcc 12 does not read a pair
 * from memory as it is multiplied; to repeat it in a register first takes a third more time. */
INL vf line_add(vf acc, vf w, const float *x, const enum lines form)
{
#if BF16_PAIRS
    if (form == LINES_BF16_PAIRS) {
        __asm__("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*x));
        return acc;
    }
#endif
    return vf_fma(w, vf_splat(*x), acc);
}

/* 16 rows, n tokens, n_lines lines at w, which x and y begin with, too; `first`: the first of all
 */
INL void tile(const void *w, const enum lines form, bool first, const float *x, int ldx,
              int n_lines, const int n, float *y, int ldy)
{
    vf acc[TOKENS][GROUPS];
    UNROLL
    for (int t = 0; t < n; t++)
        for (int g = 0; g < GROUPS; g++)
            acc[t][g] = first ? vf_splat(0) : vf_load(y + (size_t)t * ldy + g * LANES);
    for (int i = 0; i < n_lines; i++) {
        vf v[GROUPS];
        for (int g = 0; g < GROUPS; g++)
            v[g] = line_load(w, i, g, form);
        if (form != LINES_F32)
            __builtin_prefetch((const uint8_t *)w + (size_t)i * line_bytes(form) + AHEAD);
        UNROLL
        for (int t = 0; t < n; t++) {
            const float *at = x + (size_t)t * ldx + i;
            for (int g = 0; g < GROUPS; g++)
                acc[t][g] = line_add(acc[t][g], v[g], at, form);
        }
    }
    UNROLL
    for (int t = 0; t < n; t++)
        for (int g = 0; g < GROUPS; g++)
            vf_store(y + (size_t)t * ldy + g * LANES, acc[t][g]);
}

/* TILE_OF(name, form): a function like tile for any n <= TOKENS. Functions of their own: where they
 * are inlined in the loop over tiles, gcc 12 keeps the rows' offsets, computed once for all tiles,
 * in vector registers. */
typedef void tile_fn(const void *w, bool first, const float *x, int ldx, int n_lines, int n,
                     float *y, int ldy);
#define TILE(form, n)                                                                              \
    case n:                                                                                        \
        tile(w, form, first, x, ldx, n_lines, n < TOKENS ? n : TOKENS, y, ldy);                    \
        break;
#if TOKENS > 6
#define TILES(t) TILE(t, 4) TILE(t, 5) TILE(t, 6) TILE(t, 7) TILE(t, 8)
#elif TOKENS > 3
#define TILES(t) TILE(t, 4) TILE(t, 5) TILE(t, 6)
#else
#define TILES(t)
#endif
#define TILE_OF(name, form)                                                                        \
    static __attribute__((noinline)) void name(const void *w, bool first, const float *x, int ldx, \
                                               int n_lines, int n, float *y, int ldy)              \
    {                                                                                              \
        switch (n) {                                                                               \
            TILE(form, 1) TILE(form, 2) TILE(form, 3) TILES(form)                                  \
        }                                                                                          \
    }

/* Tiles of all n tokens. Meanwhile `bytes` at `next` are fetched, some during every tile. */
INL void tiles(tile_fn *one, const void *w, bool first, const float *x, int ldx, int n_lines, int n,
               float *y, int ldy, const uint8_t *next, size_t bytes)
{
    const size_t share = bytes * TOKENS / (size_t)n / 64 * 64 + 64;
    const uint8_t *end = next + bytes;
    for (; n > 0; n -= TOKENS) {
        for (const uint8_t *to = end - next < (ptrdiff_t)share ? end : next + share; next < to;
             next += 64)
            __builtin_prefetch(next, 0, 2);
        one(w, first, x, ldx, n_lines, n < TOKENS ? n : TOKENS, y, ldy);
        x += (size_t)TOKENS * ldx;
        y += (size_t)TOKENS * ldy;
    }
}

/* np panels, one token */
INL void abreast(const uint8_t *w, size_t panel_bytes, const int np, const enum lines form,
                 bool first, const float *x, int n_lines, float *y)
{
    vf acc[ABREAST][GROUPS];
    UNROLL
    for (int p = 0; p < np; p++)
        for (int g = 0; g < GROUPS; g++)
            acc[p][g] = first ? vf_splat(0) : vf_load(y + p * PANEL + g * LANES);
    for (int i = 0; i < n_lines; i++) {
        UNROLL
        for (int p = 0; p < np; p++) {
            const uint8_t *at = w + p * panel_bytes;
            if (i % 2 == 0 || line_bytes(form) == 64)
                __builtin_prefetch(at + (size_t)i * line_bytes(form) + 1024);
            for (int g = 0; g < GROUPS; g++)
                acc[p][g] = line_add(acc[p][g], line_load(at, i, g, form), x + i, form);
        }
    }
    UNROLL
    for (int p = 0; p < np; p++)
        for (int g = 0; g < GROUPS; g++)
            vf_store(y + p * PANEL + g * LANES, acc[p][g]);
}

/* n panels, one token */
INL void one_token(const uint8_t *w, size_t panel_bytes, int n, const enum lines form, bool first,
                   const float *x, int n_lines, float *y)
{
    for (; n >= ABREAST; n -= ABREAST, w += ABREAST * panel_bytes, y += ABREAST * PANEL)
        abreast(w, panel_bytes, ABREAST, form, first, x, n_lines, y);
    for (; n >= 2; n -= 2, w += 2 * panel_bytes, y += 2 * PANEL)
        abreast(w, panel_bytes, 2, form, first, x, n_lines, y);
    if (n)
        abreast(w, panel_bytes, 1, form, first, x, n_lines, y);
}

#endif
