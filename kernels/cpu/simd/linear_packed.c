/* Weights of 4, 5 and 6 bits (with VNNI also 8) times int8 rows. For a (row, token), 32 values at a
 * time, ascending:
 *
 *   i = exact integer product of q - offset
 *   acc = fma(float(i), d_w * d_x, acc);  with a minimum then acc = fma(m_w, s_x, acc)
 *
 * d_w and m_w are the block's, times the integer scale and minimum of the 32 in K types (exact
 * products). Q6_K has a scale for each 16: two integers, two steps.
 *
 * A tile chooses which (row, token) pairs are computed together and so cannot change a bit. The
 * type is a constant of every function here, so that nothing of another type is left. Bound by
 * vector operations when there are many tokens, by memory when there is one. */
#include "table.h"

#if SUM_BITS == 32
#define TOKENS 12 /* of a tile of sums in registers */
#elif LANES == 16
#define TOKENS 8
#elif LANES == 8
#define TOKENS 4
#else
#define TOKENS 2
#endif
#define FEW 3         /* up to here the float sums stay in registers */
#define PREFETCH 1600 /* bytes ahead; found by trying */

/* Of a block of the type, and of 32 (with two scales: 16) of its values */
struct head {
    vf d[GROUPS], m[GROUPS];
};
struct scales {
    vf d[2][GROUPS], m[GROUPS];
};

INL int two_scales(const enum dtype t)
{
    return quant_form(t).scale_run == 16;
}

/* Lines that one sum takes; an int16 holds 16 products of 15 * 127, 8 of 31, 4 of 63 * 127. */
INL int lines_a_sum(const enum dtype t)
{
    if (SUM_BITS == 32)
        return two_scales(t) ? 4 : 8;
    return 8 >> (quant_form(t).bits - 4);
}

/* What line j has above its nibbles, in place; fields of 1 or 2 bits, lowest line first */
INL vub high_bits(const enum dtype t, const uint8_t *w, const int j, const int group)
{
    const int one = quant_form(t).bits == 5, field = one ? j : j % 4 * 2;
    vuh h = (vuh)vub_load(w + 256 + (one ? 0 : j / 4) * 64 + group * VBYTES);
    const uint8_t mask = one ? 0x10 : 0x30;
    return (vub)(field < 4 ? h << (4 - field) : h >> (field - 4)) & mask;
}

INL void unpack(const enum dtype t, const uint8_t *w, int group, vub *u)
{
    if (quant_form(t).bits == 8) {
        for (int j = 0; j < 8; j++)
            u[j] = vub_load(w + j * 64 + group * VBYTES);
        return;
    }
    UNROLL
    for (int j = 0; j < 4; j++) {
        vub p = vub_load(w + j * 64 + group * VBYTES);
        u[j] = p & 15;
        u[j + 4] = (vub)((vuh)p >> 4) & 15;
        if (quant_form(t).bits > 4) {
            u[j] |= high_bits(t, w, j, group);
            u[j + 4] |= high_bits(t, w, j + 4, group);
        }
    }
}

INL void load_head(const enum dtype t, const uint8_t *w, struct head *h)
{
    const uint16_t *at = (const uint16_t *)(const void *)(w + panel_head_at(t));
    for (int g = 0; g < GROUPS; g++) {
        h->d[g] = f16_load(at + g * LANES);
        if (quant_form(t).minimum)
            h->m[g] = f16_load(at + 16 + g * LANES);
    }
}

INL void load_scales(const enum dtype t, const uint8_t *w, const struct head *h, struct scales *s)
{
    const uint8_t *at = w + panel_line_bytes(t);
    for (int g = 0; g < GROUPS; g++, at += LANES) {
        if (quant_form(t).scale_run == 0) {
            s->d[0][g] = h->d[g];
            s->m[g] = h->m[g];
        } else if (two_scales(t)) {
            s->d[0][g] = h->d[g] * i8_load(at);
            s->d[1][g] = h->d[g] * i8_load(at + 16);
        } else {
            s->d[0][g] = h->d[g] * u8_load(at);
            s->m[g] = -(h->m[g] * u8_load(at + 16));
        }
    }
}

/* One row's numbers of 32 values */
struct row32 {
    float d, s;
    int sum[2]; /* of the halves, times the type's offset */
};

INL struct row32 row32(const enum dtype t, const struct rows_view *x, size_t at)
{
    const int offset = quant_form(t).offset;
    struct row32 r = {.d = x->d[at]};
    if (quant_form(t).minimum)
        r.s = x->s[at];
    else if (two_scales(t))
        for (int half = 0; half < 2; half++)
            r.sum[half] = x->sums[2 * at + half] * offset;
    else
        r.sum[0] = (x->sums[2 * at] + x->sums[2 * at + 1]) * offset;
    return r;
}

INL vf add_block(const enum dtype t, const vi *i, const struct scales *s, int g,
                 const struct row32 *r, vf acc)
{
    const int offset = quant_form(t).offset;
    for (int half = 0; half < 1 + two_scales(t); half++) {
        vi exact = offset ? i[half] - vi_splat(r->sum[half]) : i[half];
        acc = vf_fma(__builtin_convertvector(exact, vf), s->d[half][g] * r->d, acc);
    }
    return quant_form(t).minimum ? vf_fma(s->m[g], vf_splat(r->s), acc) : acc;
}

/* Products of lines [first, first + n), n even; two chains */
INL vi dot_lines(const vub *u, const int8_t *q, const int first, const int n)
{
    vsum a = sum_first(u[first], splat4(q + 4 * first));
    vsum b = sum_first(u[first + 1], splat4(q + 4 * first + 4));
    for (int j = first + 2; j < first + n; j += 2) {
        a = sum_add(a, u[j], splat4(q + 4 * j));
        b = sum_add(b, u[j + 1], splat4(q + 4 * j + 4));
    }
    return sum_wide(a + b);
}

INL void dot_block(const enum dtype t, const vub *u, const int8_t *q, vi *i)
{
    const int lines = lines_a_sum(t);
    UNROLL
    for (int first = 0; first < 8; first += lines) {
        const int half = two_scales(t) ? first / 4 : 0;
        vi more = dot_lines(u, q, first, lines);
        i[half] = first == half * 4 ? more : i[half] + more;
    }
}

/* n <= FEW tokens: weights stream through, sums stay in registers. */
INL void few(const enum dtype t, const uint8_t *w, int n_blocks, const struct rows_view *x, int t0,
             const int n, float *y, int ldy)
{
    const int parts = panel_parts(t), part_bytes = panel_part_bytes(t);
    vf acc[FEW][GROUPS];
    for (int k = 0; k < n; k++)
        for (int g = 0; g < GROUPS; g++)
            acc[k][g] = vf_splat(0);
    for (int b = 0; b < n_blocks; b++, w += panel_block_bytes(t)) {
        struct head h;
        load_head(t, w, &h);
        for (int part = 0; part < parts; part++) {
            const uint8_t *from = w + part * part_bytes;
            const int bytes = parts > 1 ? part_bytes : panel_block_bytes(t);
            for (int i = 0; i < bytes; i += 64)
                __builtin_prefetch(from + PREFETCH + i);
            size_t at = (size_t)(b * parts + part) * x->qstride + t0;
            struct scales s;
            load_scales(t, from, &h, &s);
            for (int g = 0; g < GROUPS; g++) {
                vub u[8];
                unpack(t, from, g, u);
                for (int k = 0; k < n; k++) {
                    struct row32 r = row32(t, x, at + k);
                    vi i[2];
                    dot_block(t, u, x->q + (at + k) * QBLOCK, i);
                    acc[k][g] = add_block(t, i, &s, g, &r, acc[k][g]);
                }
            }
        }
    }
    for (int k = 0; k < n; k++)
        for (int g = 0; g < GROUPS; g++)
            vf_store(y + (size_t)k * ldy + g * LANES, acc[k][g]);
}

/* As dot_lines for n tokens from q: int16 sums in registers, weights from L1. */
INL void tile_lines(const vub *u, const int8_t *q, const int first, const int n_lines, const int n,
                    vsum (*sum)[GROUPS])
{
    UNROLL
    for (int j = first; j < first + n_lines; j++) {
        vub w[GROUPS];
        for (int g = 0; g < GROUPS; g++) {
            w[g] = u[g * 8 + j];
            KEEP(w[g]); /* loaded here, once for all tokens */
        }
        for (int k = 0; k < n; k++) {
            vub v = splat4(q + k * QBLOCK + j * 4);
            for (int g = 0; g < GROUPS; g++) {
                sum[k][g] = j > first ? sum_add(sum[k][g], w[g], v) : sum_first(w[g], v);
            }
            for (int g = 0; g < GROUPS; g++)
                KEEP(sum[k][g]);
        }
    }
}

/* 32 values, n <= TOKENS tokens from `at` */
INL void tile(const enum dtype t, const vub *u, const struct scales *s, const struct rows_view *x,
              size_t at, float (*acc)[16], const int n)
{
    const int lines = lines_a_sum(t);
    vi wide[TOKENS][GROUPS][2];
    UNROLL
    for (int first = 0; first < 8; first += lines) {
        const int half = two_scales(t) ? first / 4 : 0;
        vsum sum[TOKENS][GROUPS];
        tile_lines(u, x->q + at * QBLOCK, first, lines, n, sum);
        for (int k = 0; k < n; k++)
            for (int g = 0; g < GROUPS; g++) {
                vi i = sum_wide(sum[k][g]);
                wide[k][g][half] = first == half * 4 ? i : wide[k][g][half] + i;
            }
    }
    for (int k = 0; k < n; k++) {
        struct row32 r = row32(t, x, at + k);
        for (int g = 0; g < GROUPS; g++) {
            float *to = acc[k] + g * LANES;
            vf_store(to, add_block(t, wide[k][g], s, g, &r, vf_load(to)));
        }
    }
}

INL void many(const enum dtype t, const uint8_t *w, int n_blocks, const struct rows_view *x, int t0,
              int n, float *y, int ldy)
{
    float acc[TOKEN_TILE][16] __attribute__((aligned(64)));
    memset(acc, 0, (size_t)n * sizeof *acc);
    for (int b = 0; b < n_blocks; b++, w += panel_block_bytes(t)) {
        struct head h;
        load_head(t, w, &h);
        for (int part = 0; part < panel_parts(t); part++) {
            const uint8_t *from = w + part * panel_part_bytes(t);
            size_t at = (size_t)(b * panel_parts(t) + part) * x->qstride + t0;
            vub u[8 * GROUPS];
            struct scales s;
            for (int g = 0; g < GROUPS; g++)
                unpack(t, from, g, u + g * 8);
            load_scales(t, from, &h, &s);
            __asm__ volatile("" : : "r"(u) : "memory"); /* u belongs into memory, not registers */
            int k = 0;
            for (; k + TOKENS <= n; k += TOKENS)
                tile(t, u, &s, x, at + k, acc + k, TOKENS);
            for (; TOKENS > 4 && k + 4 <= n; k += 4)
                tile(t, u, &s, x, at + k, acc + k, TOKENS > 4 ? 4 : TOKENS);
            for (; k + 2 <= n; k += 2)
                tile(t, u, &s, x, at + k, acc + k, 2);
            if (k < n)
                tile(t, u, &s, x, at + k, acc + k, 1);
        }
    }
    for (int k = 0; k < n; k++)
        memcpy(y + (size_t)k * ldy, acc[k], sizeof *acc);
}

#define LINEAR(name, type)                                                                         \
    static __attribute__((noinline)) void many_##name(const uint8_t *w, int n_blocks,              \
                                                      const struct rows_view *x, int t0, int n,    \
                                                      float *y, int ldy)                           \
    {                                                                                              \
        many(type, w, n_blocks, x, t0, n, y, ldy);                                                 \
    }                                                                                              \
                                                                                                   \
    void ISA_FN(linear_##name)(const struct weight *w, int panel, const struct rows_view *x,       \
                               int t0, int n, float *y, int ldy)                                   \
    {                                                                                              \
        const uint8_t *p = w->data + panel * w->panel_bytes;                                       \
        const int n_blocks = (int)(w->cols / (panel_parts(type) * QBLOCK));                        \
        if (n == 1)                                                                                \
            few(type, p, n_blocks, x, t0, 1, y, ldy);                                              \
        else if (n == 2)                                                                           \
            few(type, p, n_blocks, x, t0, 2, y, ldy);                                              \
        else if (n == 3)                                                                           \
            few(type, p, n_blocks, x, t0, 3, y, ldy);                                              \
        else                                                                                       \
            many_##name(p, n_blocks, x, t0, n, y, ldy);                                            \
    }

#if SUM_BITS == 32 /* elsewhere linear_q8_0.c has a better one */
LINEAR(q8_0, DTYPE_Q8_0)
#endif
LINEAR(q4_0, DTYPE_Q4_0)
LINEAR(q4_1, DTYPE_Q4_1)
LINEAR(q5_0, DTYPE_Q5_0)
LINEAR(q5_1, DTYPE_Q5_1)
LINEAR(q4_k, DTYPE_Q4_K)
LINEAR(q5_k, DTYPE_Q5_K)
LINEAR(q6_k, DTYPE_Q6_K)
