/* Float weights times float32 rows: acc = fma(w, x, acc), k ascending, one chain a (row, token).
 *
 * Many tokens are bound by multiplications. Pieces of PIECE k carry the chains through memory, so
 * that a panel's piece, converted to float32 once for all tokens, stays in L1; meanwhile the next
 * piece comes from memory to L2. A tile's x, a few lines ahead, comes from L2. One token is bound
 * by reading weights. */
#include "table.h"

#if LANES == 16
#define TOKENS 8 /* of a tile of chains in registers */
#elif defined(__AVX2__) || defined(SIMD_NEON)
#define TOKENS 6
#else
#define TOKENS 3
#endif
#define PIECE 192
#define AHEAD 4096 /* bytes, fetched by tiles that read weights as they lie in memory */
#define ABREAST 4  /* panels side by side for one token: chains that hide the latency */

INL size_t line_bytes(const enum dtype type)
{
    return (size_t)PANEL * (type == DTYPE_F32 ? 4 : 2);
}

INL vf load_as(const void *w, size_t i, const enum dtype type)
{
    if (type == DTYPE_F32)
        return vf_load((const float *)w + i);
    if (type == DTYPE_F16)
        return f16_load((const uint16_t *)w + i);
    return bf16_load((const uint16_t *)w + i);
}

/* 16 rows, n tokens, nk values of k of the weight piece w; x and y begin at its first k. */
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
        if (type != DTYPE_F32)
            __builtin_prefetch((const uint8_t *)w + k * line_bytes(type) + AHEAD);
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

/* As tile, for any n <= TOKENS. Functions of their own: where they are inlined in the loop over
 * tiles, gcc 12 keeps the rows' offsets, computed once for all tiles, in vector registers. */
#define TILE(type, n)                                                                              \
    case n:                                                                                        \
        tile(w, type, first, x, ldx, nk, n < TOKENS ? n : TOKENS, y, ldy);                         \
        break;
#if TOKENS > 6
#define TILES(t) TILE(t, 4) TILE(t, 5) TILE(t, 6) TILE(t, 7) TILE(t, 8)
#elif TOKENS > 3
#define TILES(t) TILE(t, 4) TILE(t, 5) TILE(t, 6)
#else
#define TILES(t)
#endif
#define TILE_OF(name, type)                                                                        \
    static __attribute__((noinline)) void name(const void *w, bool first, const float *x, int ldx, \
                                               int nk, int n, float *y, int ldy)                   \
    {                                                                                              \
        switch (n) {                                                                               \
            TILE(type, 1) TILE(type, 2) TILE(type, 3) TILES(type)                                  \
        }                                                                                          \
    }
TILE_OF(tile_f32, DTYPE_F32)
TILE_OF(tile_f16, DTYPE_F16)
TILE_OF(tile_bf16, DTYPE_BF16)

/* Meanwhile `bytes` at `next` are fetched, some during every tile. */
INL void tiles(const void *w, const enum dtype type, bool first, const float *x, int ldx, int nk,
               int n, float *y, int ldy, const uint8_t *next, size_t bytes)
{
    const size_t share = bytes * TOKENS / (size_t)n / 64 * 64 + 64;
    const uint8_t *end = next + bytes;
    for (; n > 0; n -= TOKENS) {
        for (const uint8_t *to = end - next < (ptrdiff_t)share ? end : next + share; next < to;
             next += 64)
            __builtin_prefetch(next, 0, 2);
        (type == DTYPE_F32   ? tile_f32
         : type == DTYPE_F16 ? tile_f16
                             : tile_bf16)(w, first, x, ldx, nk, n < TOKENS ? n : TOKENS, y, ldy);
        x += (size_t)TOKENS * ldx;
        y += (size_t)TOKENS * ldy;
    }
}

INL void panel(const uint8_t *w, const enum dtype type, int cols, const float *x, int ldx, int n,
               float *y, int ldy)
{
    float buffer[PIECE * PANEL] __attribute__((aligned(64)));
    const size_t bytes = PIECE * line_bytes(type);
    for (int k = 0; k < cols; k += PIECE, w += bytes) {
        int nk = cols - k < PIECE ? cols - k : PIECE;
        const uint8_t *next = w + nk * line_bytes(type); /* the next panel's where this one ends */
        if (type == DTYPE_F32 || n <= TOKENS) {
            tiles(w, type, k == 0, x + k, ldx, nk, n, y, ldy, next, type == DTYPE_F32 ? bytes : 0);
            continue;
        }
        for (int i = 0; i < nk * PANEL; i += LANES)
            vf_store(buffer + i, load_as(w, i, type));
        tiles(buffer, DTYPE_F32, k == 0, x + k, ldx, nk, n, y, ldy, next, bytes);
    }
}

/* np panels, one token */
INL void vector(const uint8_t *w, size_t panel_bytes, const int np, const enum dtype type, int cols,
                const float *x, float *y)
{
    vf acc[ABREAST][GROUPS];
    for (int p = 0; p < np; p++)
        for (int g = 0; g < GROUPS; g++)
            acc[p][g] = vf_splat(0);
    for (int k = 0; k < cols; k++) {
        vf b = vf_splat(x[k]);
        for (int p = 0; p < np; p++) {
            const uint8_t *at = w + p * panel_bytes;
            if (k % 2 == 0 || type == DTYPE_F32)
                __builtin_prefetch(at + k * line_bytes(type) + 1024);
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
    for (; n == 1 && p + 2 <= p1; p += 2, y += 2 * PANEL, data += 2 * w->panel_bytes)
        vector(data, w->panel_bytes, 2, type, cols, x, y);
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
