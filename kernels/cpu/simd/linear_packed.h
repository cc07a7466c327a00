/* linear_packed.h: quantised weights times int8 rows. For a (row, token), 32 values at a time,
 * ascending:
 *
 *   i = exact integer product of u - offset;  u is q or its number in the codebook
 *   acc = fma(float(i), d_w * d_x, acc);  with a minimum then acc = fma(m_w, s_x, acc)
 *
 * d_w and m_w are the block's, times the integer scale and minimum of the 32 in types that have
 * them (exact products). Where each 16 have a scale there are two integers: two steps, then two
 * of minima.
 *
 * Without VNNI sums are int16, and of eight bits, or a codebook of large numbers, only two products
 * fit: these are multiplied signed, u - offset, and every four bytes are widened.
 *
 * A tile chooses which (row, token) pairs are computed together and so cannot change a bit. The
 * type is a constant of every function here, so that nothing of another type is left; types that
 * differ in the codebook and a power of two in d share one. Bound by vector operations when there
 * are many tokens, by memory when there is one. */
#ifndef TOKEND_LINEAR_PACKED_H
#define TOKEND_LINEAR_PACKED_H

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
    vf d[2][GROUPS], m[GROUPS]; /* m: or the zero, negative */
};
struct scales {
    vf d[2][GROUPS], m[2][GROUPS];
};

/* What a weight's own type says where types share a function */
struct codes {
    vub u;        /* of q, every 16 bytes */
    float factor; /* of d */
};

/* Numbers are multiplied less their offset, which is 128. */
INL bool is_signed(const enum dtype t)
{
    return SUM_BITS == 16 && quant_form(t).top > 63;
}

/* Lines that one sum takes; an int16 holds 16 products of 15 * 127, 8 of 31, 4 of 63 * 127. */
INL int lines_a_sum(const enum dtype t)
{
    const int top = quant_form(t).top, most = panel_halves(t) == 2 ? 4 : 8;
    const int lines = SUM_BITS == 32 || is_signed(t) || top < 16 ? 8 : top < 32 ? 4 : 2;
    return lines < most ? lines : most;
}

INL struct codes load_codes(const enum dtype t, enum dtype own)
{
    struct codes c = {.factor = 1};
    if (!quant_form(t).codebook)
        return c;
    const struct quant_form f = quant_form(own);
    uint8_t wide[VBYTES];
    for (int i = 0; i < VBYTES; i += 16)
        memcpy(wide + i, f.codebook, 16);
    c.u = vub_load(wide) ^ (uint8_t)(is_signed(t) ? 128 : 0);
    c.factor = 1 / (float)(1 << f.d_shift);
    return c;
}

INL vub decode(const enum dtype t, const struct codes *c, vub q)
{
    if (quant_form(t).codebook)
        return vub_lookup(c->u, q);
    return is_signed(t) ? q ^ 128 : q;
}

/* Pair j % 4 of bits of a vector, in place */
INL vub pair_bits(vub v, const int j, const int to, const uint8_t mask)
{
    const int from = j % 4 * 2;
    return (vub)(from < to ? (vuh)v << (to - from) : (vuh)v >> (from - to)) & mask;
}

/* What line j has above its nibble or pair, in place */
INL vub high_bits(const enum dtype t, const uint8_t *w, const int j, const int group)
{
    const int bits = quant_form(t).bits, below = bits / 2 * 2;
    if (bits == 6)
        return pair_bits(vub_load(w + 256 + j / 4 * 64 + group * VBYTES), j, 4, 0x30);
    vuh h = (vuh)vub_load(w + below * 64 + group * VBYTES);
    return (vub)(j < below ? h << (below - j) : h >> (j - below)) & (uint8_t)(1 << below);
}

/* What is multiplied, of 8 lines */
INL void unpack(const enum dtype t, const uint8_t *w, const struct codes *c, int group, vub *u)
{
    const int bits = quant_form(t).bits;
    UNROLL
    for (int j = 0; j < 8; j++) {
        vub q;
        if (bits == 8) {
            q = vub_load(w + j * 64 + group * VBYTES);
        } else if (bits < 4) {
            q = pair_bits(vub_load(w + j / 4 * 64 + group * VBYTES), j, 0, 3);
        } else {
            vub p = vub_load(w + j % 4 * 64 + group * VBYTES);
            q = (j < 4 ? p : (vub)((vuh)p >> 4)) & 15;
        }
        if (bits == 3 || bits == 5 || bits == 6)
            q |= high_bits(t, w, j, group);
        u[j] = decode(t, c, q);
    }
}

INL void load_head(const enum dtype t, const uint8_t *w, const struct codes *c, struct head *h)
{
    const struct quant_form f = quant_form(t);
    const uint8_t *d = w + panel_head_at(t), *second = w + panel_second_at(t);
    for (int g = 0; g < GROUPS; g++) {
        if (f.d == QUANT_D_E8M0) {
            h->d[0][g] = e8m0_half_load(d + g * LANES);
            continue;
        }
        for (int half = 0; half < (f.d_run ? 2 : 1); half++)
            h->d[half][g] = f16_load((const uint16_t *)(const void *)d + half * 16 + g * LANES);
        if (f.codebook && f.scale_run)
            h->d[0][g] *= c->factor;
        if (f.minimum)
            h->m[g] = f16_load((const uint16_t *)(const void *)second + g * LANES);
        if (f.zero)
            h->m[g] = -u8_load(second + g * LANES);
    }
}

INL void load_scales(const enum dtype t, const uint8_t *w, const struct head *h, struct scales *s)
{
    const struct quant_form f = quant_form(t);
    const uint8_t *at = w + panel_line_bytes(t);
    for (int half = 0; half < panel_halves(t); half++, at += 16)
        for (int g = 0; g < GROUPS; g++) {
            const uint8_t *own = at + g * LANES;
            if (f.scale_run == 0) {
                s->d[half][g] = h->d[half][g];
                s->m[half][g] = h->m[g];
            } else if (f.minimum && panel_halves(t) == 2) {
                vi both = u8_ints(own);
                s->d[half][g] = h->d[0][g] * __builtin_convertvector(both & 15, vf);
                s->m[half][g] = -(h->m[g] * __builtin_convertvector(both >> 4, vf));
            } else {
                s->d[half][g] = h->d[0][g] * i8_load(own);
                if (f.minimum)
                    s->m[half][g] = -(h->m[g] * u8_load(own + 16));
            }
        }
}

/* One row's numbers of 32 values */
struct row32 {
    float d, s[2];
    int sum[2]; /* of the halves, times the type's offset */
};

INL struct row32 row32(const enum dtype t, const struct rows_view *x, size_t at)
{
    const struct quant_form f = quant_form(t);
    const int halves = panel_halves(t);
    const int16_t *sums = x->sums + 2 * at;
    struct row32 r = {.d = x->d[at]};
    if (f.minimum)
        for (int half = 0; half < halves; half++)
            r.s[half] = halves == 2 ? x->d[at] * (float)sums[half] : x->s[at];
    else if (f.zero)
        r.s[0] = (float)(sums[0] + sums[1]);
    else if (halves == 2)
        for (int half = 0; half < 2; half++)
            r.sum[half] = sums[half] * f.offset;
    else
        r.sum[0] = (sums[0] + sums[1]) * f.offset;
    return r;
}

INL vf add_block(const enum dtype t, const vi *i, const struct scales *s, int g,
                 const struct row32 *r, vf acc)
{
    const struct quant_form f = quant_form(t);
    for (int half = 0; half < panel_halves(t); half++) {
        vi exact = f.offset && !is_signed(t) ? i[half] - vi_splat(r->sum[half]) : i[half];
        vf product = __builtin_convertvector(exact, vf);
        if (f.zero) /* exact: both are integers below 2^24 */
            product = vf_fma(s->m[0][g], vf_splat(r->s[0]), product);
        acc = vf_fma(product, s->d[half][g] * r->d, acc);
    }
    for (int half = 0; f.minimum && half < panel_halves(t); half++)
        acc = vf_fma(s->m[half][g], vf_splat(r->s[half]), acc);
    return acc;
}

/* Products of lines [first, first + n), n even; two chains */
INL vi dot_lines(const enum dtype t, const vub *u, const int8_t *q, const int first, const int n)
{
    if (is_signed(t)) {
        vi a = add_pairs(madd_s8s8(u[first], splat4(q + 4 * first)));
        for (int j = first + 1; j < first + n; j++)
            a += add_pairs(madd_s8s8(u[j], splat4(q + 4 * j)));
        return a;
    }
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
        const int half = panel_halves(t) == 2 ? first / 4 : 0;
        vi more = dot_lines(t, u, q, first, lines);
        i[half] = first == half * 4 ? more : i[half] + more;
    }
}

/* n <= FEW tokens: weights stream through, sums stay in registers. */
INL void few(const enum dtype t, const uint8_t *w, int n_blocks, const struct codes *c,
             const struct rows_view *x, int t0, const int n, float *y, int ldy)
{
    const int parts = panel_parts(t), part_bytes = panel_part_bytes(t);
    vf acc[FEW][GROUPS];
    for (int k = 0; k < n; k++)
        for (int g = 0; g < GROUPS; g++)
            acc[k][g] = vf_splat(0);
    for (int b = 0; b < n_blocks; b++, w += panel_block_bytes(t)) {
        struct head h;
        load_head(t, w, c, &h);
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
                unpack(t, from, c, g, u);
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

/* As dot_lines for n tokens from q: sums in registers, weights from L1. */
INL void tile_lines(const vub *u, const int8_t *q, const int first, const int n_lines, const int n,
                    vi (*out)[GROUPS])
{
    vsum sum[TOKENS][GROUPS];
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
    for (int k = 0; k < n; k++)
        for (int g = 0; g < GROUPS; g++)
            out[k][g] = sum_wide(sum[k][g]);
}

INL void tile_signed(const vub *u, const int8_t *q, const int first, const int n_lines, const int n,
                     vi (*sum)[GROUPS])
{
    UNROLL
    for (int j = first; j < first + n_lines; j++) {
        for (int k = 0; k < n; k++) {
            vub v = splat4(q + k * QBLOCK + j * 4);
            for (int g = 0; g < GROUPS; g++) {
                vi more = add_pairs(madd_s8s8(u[g * 8 + j], v));
                sum[k][g] = j > first ? sum[k][g] + more : more;
                KEEP(sum[k][g]);
            }
        }
    }
}

/* 32 values, n <= TOKENS tokens from `at` */
INL void tile(const enum dtype t, const vub *u, const struct scales *s, const struct rows_view *x,
              size_t at, float (*acc)[16], const int n)
{
    const int lines = lines_a_sum(t);
    vi i[TOKENS][GROUPS][2], more[TOKENS][GROUPS];
    UNROLL
    for (int first = 0; first < 8; first += lines) {
        const int half = panel_halves(t) == 2 ? first / 4 : 0;
        if (is_signed(t))
            tile_signed(u, x->q + at * QBLOCK, first, lines, n, more);
        else
            tile_lines(u, x->q + at * QBLOCK, first, lines, n, more);
        for (int k = 0; k < n; k++)
            for (int g = 0; g < GROUPS; g++)
                i[k][g][half] = first == half * 4 ? more[k][g] : i[k][g][half] + more[k][g];
    }
    for (int k = 0; k < n; k++) {
        struct row32 r = row32(t, x, at + k);
        for (int g = 0; g < GROUPS; g++) {
            float *to = acc[k] + g * LANES;
            vf_store(to, add_block(t, i[k][g], s, g, &r, vf_load(to)));
        }
    }
}

INL void many(const enum dtype t, const uint8_t *w, int n_blocks, const struct codes *c,
              const struct rows_view *x, int t0, int n, float *y, int ldy)
{
    float acc[TOKEN_TILE][16] __attribute__((aligned(64)));
    memset(acc, 0, (size_t)n * sizeof *acc);
    for (int b = 0; b < n_blocks; b++, w += panel_block_bytes(t)) {
        struct head h;
        load_head(t, w, c, &h);
        for (int part = 0; part < panel_parts(t); part++) {
            const uint8_t *from = w + part * panel_part_bytes(t);
            size_t at = (size_t)(b * panel_parts(t) + part) * x->qstride + t0;
            vub u[8 * GROUPS];
            struct scales s;
            for (int g = 0; g < GROUPS; g++)
                unpack(t, from, c, g, u + g * 8);
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

#define LINEAR(name, shared)                                                                       \
    static __attribute__((noinline)) void many_##name(                                             \
        const uint8_t *w, int n_blocks, const struct codes *c, const struct rows_view *x, int t0,  \
        int n, float *y, int ldy)                                                                  \
    {                                                                                              \
        many(shared, w, n_blocks, c, x, t0, n, y, ldy);                                            \
    }                                                                                              \
                                                                                                   \
    void ISA_FN(linear_##name)(const struct weight *w, int panel, const struct rows_view *x,       \
                               int t0, int n, float *y, int ldy)                                   \
    {                                                                                              \
        const uint8_t *p = w->data + panel * w->panel_bytes;                                       \
        const int n_blocks = (int)(w->cols / (panel_parts(shared) * QBLOCK));                      \
        const struct codes c = load_codes(shared, w->type);                                        \
        if (n == 1)                                                                                \
            few(shared, p, n_blocks, &c, x, t0, 1, y, ldy);                                        \
        else if (n == 2)                                                                           \
            few(shared, p, n_blocks, &c, x, t0, 2, y, ldy);                                        \
        else if (n == 3)                                                                           \
            few(shared, p, n_blocks, &c, x, t0, 3, y, ldy);                                        \
        else                                                                                       \
            many_##name(p, n_blocks, &c, x, t0, n, y, ldy);                                        \
    }

#endif
