/* Q4_1 weights (4-bit q, value d*q + m) times int8 rows. For a (row, token), blocks ascending:
 *
 *   i = exact integer product of the block
 *   acc = fma(float(i), d_w * d_x, acc);  acc = fma(m_w, s_x, acc)
 *
 * A tile chooses which (row, token) pairs are computed together and so cannot change a bit.
 * Sixteen products of 15 * 127 fit in an int16, so one widening a block is enough. Bound by
 * vector operations when there are many tokens, by memory when there is one. */
#include "table.h"

#ifdef __AVX2__
#define TOKENS 4 /* of a tile of int16 sums in registers */
#else
#define TOKENS 2
#endif
#define FEW 3         /* up to here the float sums stay in registers */
#define PREFETCH 1600 /* bytes ahead; found by trying */

struct scales {
    vf d[GROUPS], m[GROUPS];
};

INL void unpack(const uint8_t *w, int group, vub *u)
{
    for (int j = 0; j < 4; j++) {
        vub p = vub_load(w + j * 64 + group * VBYTES);
        u[j] = p & 15;
        u[j + 4] = (vub)((vuh)p >> 4) & 15;
    }
}

INL void load_scales(const uint8_t *w, struct scales *s)
{
    const uint16_t *h = (const uint16_t *)(const void *)(w + 256);
    for (int g = 0; g < GROUPS; g++) {
        s->d[g] = f16_load(h + g * LANES);
        s->m[g] = f16_load(h + 16 + g * LANES);
    }
}

INL vf add_block(vh sum, vf d, vf m, float dx, float sx, vf acc)
{
    vf i = __builtin_convertvector(add_pairs(sum), vf);
    acc = vf_fma(i, d * dx, acc);
    return vf_fma(m, vf_splat(sx), acc);
}

INL vh dot_block(const vub *u, const int8_t *q)
{
    vh a = madd_u8s8(u[0], splat4(q)), b = madd_u8s8(u[1], splat4(q + 4));
    for (int j = 2; j < 8; j += 2) {
        a += madd_u8s8(u[j], splat4(q + 4 * j));
        b += madd_u8s8(u[j + 1], splat4(q + 4 * j + 4));
    }
    return a + b;
}

/* n <= FEW tokens: weights stream through, sums stay in registers. */
INL void few(const uint8_t *w, int n_blocks, const struct rows_view *x, int t0, const int n,
             float *y, int ldy)
{
    vf acc[FEW][GROUPS];
    for (int t = 0; t < n; t++)
        for (int g = 0; g < GROUPS; g++)
            acc[t][g] = vf_splat(0);
    for (int b = 0; b < n_blocks; b++, w += Q4_1_BYTES) {
        for (int i = 0; i < Q4_1_BYTES; i += 64)
            __builtin_prefetch(w + PREFETCH + i);
        size_t at = (size_t)b * x->qstride + t0;
        struct scales s;
        load_scales(w, &s);
        for (int g = 0; g < GROUPS; g++) {
            vub u[8];
            unpack(w, g, u);
            for (int t = 0; t < n; t++)
                acc[t][g] = add_block(dot_block(u, x->q + (at + t) * QBLOCK), s.d[g], s.m[g],
                                      x->d[at + t], x->s[at + t], acc[t][g]);
        }
    }
    for (int t = 0; t < n; t++)
        for (int g = 0; g < GROUPS; g++)
            vf_store(y + (size_t)t * ldy + g * LANES, acc[t][g]);
}

/* One block, n <= TOKENS tokens from `at`: int16 sums in registers, weights from L1. */
INL void tile(const vub *u, const struct scales *s, const struct rows_view *x, size_t at,
              float (*acc)[16], const int n)
{
    vh sum[TOKENS][GROUPS];
    UNROLL
    for (int j = 0; j < 8; j++) {
        vub w[GROUPS];
        for (int g = 0; g < GROUPS; g++) {
            w[g] = u[g * 8 + j];
            KEEP(w[g]); /* loaded here, once for all tokens */
        }
        for (int t = 0; t < n; t++) {
            vub v = splat4(x->q + (at + t) * QBLOCK + j * 4);
            for (int g = 0; g < GROUPS; g++) {
                vh p = madd_u8s8(w[g], v);
                sum[t][g] = j ? sum[t][g] + p : p;
            }
            for (int g = 0; g < GROUPS; g++)
                KEEP(sum[t][g]);
        }
    }
    for (int t = 0; t < n; t++)
        for (int g = 0; g < GROUPS; g++)
            vf_store(acc[t] + g * LANES, add_block(sum[t][g], s->d[g], s->m[g], x->d[at + t],
                                                   x->s[at + t], vf_load(acc[t] + g * LANES)));
}

static __attribute__((noinline)) void
many(const uint8_t *w, int n_blocks, const struct rows_view *x, int t0, int n, float *y, int ldy)
{
    float acc[TOKEN_TILE][16] __attribute__((aligned(64)));
    memset(acc, 0, (size_t)n * sizeof *acc);
    for (int b = 0; b < n_blocks; b++, w += Q4_1_BYTES) {
        size_t at = (size_t)b * x->qstride + t0;
        vub u[8 * GROUPS];
        struct scales s;
        for (int g = 0; g < GROUPS; g++)
            unpack(w, g, u + g * 8);
        load_scales(w, &s);
        __asm__ volatile("" : : "r"(u) : "memory"); /* u belongs into memory, not registers */
        int t = 0;
        for (; t + TOKENS <= n; t += TOKENS)
            tile(u, &s, x, at + t, acc + t, TOKENS);
        for (; t + 2 <= n; t += 2)
            tile(u, &s, x, at + t, acc + t, 2);
        if (t < n)
            tile(u, &s, x, at + t, acc + t, 1);
    }
    for (int t = 0; t < n; t++)
        memcpy(y + (size_t)t * ldy, acc[t], sizeof *acc);
}

void ISA_FN(linear_q4_1)(const struct weight *w, int panel, const struct rows_view *x, int t0,
                         int n, float *y, int ldy)
{
    const uint8_t *p = w->data + panel * w->panel_bytes;
    int n_blocks = (int)(w->cols / QBLOCK);
    switch (n) {
    case 1:
        few(p, n_blocks, x, t0, 1, y, ldy);
        break;
    case 2:
        few(p, n_blocks, x, t0, 2, y, ldy);
        break;
    case 3:
        few(p, n_blocks, x, t0, 3, y, ldy);
        break;
    default:
        many(p, n_blocks, x, t0, n, y, ldy);
    }
}
