/* linear_packed.h: quantised weights times int8 rows. For a (row, token), 32 values at a time,
 * ascending:
 *
 *   i = exact integer product of u - offset;  u is q or its number in the codebook
 *   acc = fma(float(i), d_w * d_x, acc);  with a minimum then acc = fma(m_w, s_x, acc)
 *
 * d_w and m_w are the block's, times the integer scale and minimum of the 32 in types that have
 * them (exact products). Where each 16 have an integer scale, i is the sum of both products times
 * their scales, exact until float() rounds it, and a minimum adds the exact sum of minima times
 * sums of x, times m and d_x. Where they have a d each (NVFP4) there are two steps.
 *
 * Without instructions that add four products to an int32, sums are int16, and of eight bits, or a
 * codebook of large numbers, only two products fit: these are multiplied signed, u - offset, and
 * every four bytes are widened. They are signed, too, where the instructions take signed bytes
 * only.
 *
 * A tile chooses which (row, token) pairs are computed together and so cannot change a bit. The
 * type is a constant of every function here, so that nothing of another type is left; types that
 * differ in the codebook and a power of two in d share one. Bound by vector operations when there
 * are many tokens, by memory when there is one. */
#ifndef TOKEND_LINEAR_PACKED_H
#define TOKEND_LINEAR_PACKED_H

#include "table.h"

#if SUM_BITS == 32 && LANES == 16
#define TOKENS 12 /* of a tile of sums in registers */
#elif SUM_BITS == 32 && LANES == 8
#define TOKENS 5
#elif LANES == 16
#define TOKENS 8
#elif LANES == 8 || defined(SIMD_NEON)
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
    vf d[2][GROUPS], m[GROUPS];
    /* Of each 16, integer scales and minima: */
    vf s[2][GROUPS], t[2][GROUPS];
    vi factor[2][GROUPS], offset[GROUPS], minima[GROUPS]; /* the same as pairs of int16 */
};

INL bool has_factors(const enum dtype t)
{
    return quant_form(t).scale_run == 16;
}

/* Sums of int16 are widened by a multiplication with pairs of int16, which may as well be scales;
 * elsewhere floats multiply with scales, and give the same: (a s) is exact, a s + b t rounds once.
 */
INL bool int_factors(const enum dtype t)
{
    return has_factors(t) && SUM_BITS == 16 && LANES > 4;
}

/* What a weight's own type says where types share a function */
struct codes {
    vub u;        /* of q, every 16 bytes */
    float factor; /* of d */
};

/* Numbers are multiplied less their offset, which is 128. */
INL bool is_signed(const enum dtype t)
{
    return (SUM_BITS == 16 || DOT_SIGNED) && quant_form(t).top > 63;
}

/* No more than two products fit a sum. */
INL bool two_fit(const enum dtype t)
{
    return SUM_BITS == 16 && is_signed(t);
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

/* Two numbers within int16 side by side in a lane */
INL vi pair(vi low, vi high)
{
    return (low & 0xffff) | high << 16;
}

INL void load_factors(const enum dtype t, const uint8_t *at, const struct head *h, struct scales *s)
{
    const struct quant_form f = quant_form(t);
    for (int g = 0; g < GROUPS; g++, at += LANES) {
        vi a = f.minimum ? u8_ints(at) : i8_ints(at);
        vi b = f.minimum ? u8_ints(at + 16) : i8_ints(at + 16);
        s->d[0][g] = h->d[0][g];
        if (f.minimum) { /* nibbles: the scale and above it the minimum */
            s->m[g] = -h->m[g];
            s->t[0][g] = __builtin_convertvector(a >> 4, vf);
            s->t[1][g] = __builtin_convertvector(b >> 4, vf);
            s->minima[g] = pair(a >> 4, b >> 4);
            a &= 15;
            b &= 15;
        }
        s->s[0][g] = __builtin_convertvector(a, vf);
        s->s[1][g] = __builtin_convertvector(b, vf);
        s->factor[0][g] = pair(a, a);
        s->factor[1][g] = pair(b, b);
        s->offset[g] = pair(a * f.offset, b * f.offset);
    }
}

INL void load_scales(const enum dtype t, const uint8_t *w, const struct head *h, struct scales *s)
{
    const struct quant_form f = quant_form(t);
    const uint8_t *at = w + panel_line_bytes(t);
    if (has_factors(t)) {
        load_factors(t, at, h, s);
        return;
    }
    for (int g = 0; g < GROUPS; g++, at += LANES) {
        for (int half = 0; half < panel_halves(t); half++)
            s->d[half][g] = f.scale_run ? h->d[half][g] * i8_load(at) : h->d[half][g];
        if (f.minimum)
            s->m[g] = f.scale_run ? -(h->m[g] * u8_load(at + 16)) : h->m[g];
        if (f.zero)
            s->m[g] = h->m[g];
    }
}

/* One row's numbers of 32 values */
struct row32 {
    float d, s;
    int sum[2];    /* of the halves, times the type's offset; [0] of all where they are added */
    float part[2]; /* sums of the halves, … */
    int both;      /* … and as a pair of int16 */
};

INL struct row32 row32(const enum dtype t, const struct rows_view *x, size_t at)
{
    const struct quant_form f = quant_form(t);
    const int16_t *sums = x->sums + 2 * at;
    struct row32 r = {.d = x->d[at]};
    if (panel_halves(t) == 2) {
        memcpy(&r.both, sums, sizeof r.both);
        for (int half = 0; half < 2; half++) {
            r.sum[half] = sums[half] * f.offset;
            r.part[half] = sums[half];
        }
    } else {
        r.s = f.zero ? (float)(sums[0] + sums[1]) : x->s[at];
        r.sum[0] = (sums[0] + sums[1]) * f.offset;
    }
    return r;
}

INL vi less_offset(const enum dtype t, vi i, int sum)
{
    return quant_form(t).offset && !is_signed(t) ? i - vi_splat(sum) : i;
}

/* The exact sums, of products and of minima, where each 16 have integers */
INL vf factored(const enum dtype t, const vi *i, const struct scales *s, int g,
                const struct row32 *r)
{
    if (int_factors(t)) {
        const bool offset = quant_form(t).offset && !is_signed(t);
        vi less = offset ? madd_pairs((vh)vi_splat(r->both), s->offset[g]) : vi_splat(0);
        return __builtin_convertvector(i[0] - less, vf);
    }
    vf a = __builtin_convertvector(less_offset(t, i[0], r->sum[0]), vf);
    vf b = __builtin_convertvector(less_offset(t, i[1], r->sum[1]), vf);
    return vf_fma(b, s->s[1][g], a * s->s[0][g]);
}

INL vf minima(const struct scales *s, int g, const struct row32 *r)
{
    if (LANES > 4)
        return __builtin_convertvector(madd_pairs((vh)vi_splat(r->both), s->minima[g]), vf);
    return vf_fma(vf_splat(r->part[1]), s->t[1][g], s->t[0][g] * r->part[0]);
}

INL vf add_block(const enum dtype t, const vi *i, const struct scales *s, int g,
                 const struct row32 *r, vf acc)
{
    const struct quant_form f = quant_form(t);
    if (has_factors(t)) {
        acc = vf_fma(factored(t, i, s, g, r), s->d[0][g] * r->d, acc);
        return f.minimum ? vf_fma(minima(s, g, r), s->m[g] * r->d, acc) : acc;
    }
    for (int half = 0; half < panel_halves(t); half++) {
        vf product = __builtin_convertvector(less_offset(t, i[half], r->sum[half]), vf);
        if (f.zero) /* exact: both are integers below 2^24 */
            product = vf_fma(s->m[g], vf_splat(r->s), product);
        acc = vf_fma(product, s->d[half][g] * r->d, acc);
    }
    return f.minimum ? vf_fma(s->m[g], vf_splat(r->s), acc) : acc;
}

/* Which integer the lines from `first` on add to */
INL int sum_of(const enum dtype t, const int first)
{
    return panel_halves(t) == 2 && !int_factors(t) ? first / 4 : 0;
}

INL vi widen(const enum dtype t, vsum sum, vi factor)
{
#if SUM_BITS == 16
    if (int_factors(t))
        return madd_pairs(sum, factor);
#endif
    return sum_wide(sum);
}

/* Products of signed numbers, two and two widened */
INL vi signed_pairs(const enum dtype t, vub u, vub x, vi factor)
{
    vh pairs = madd_s8s8(u, x);
    return int_factors(t) ? madd_pairs(pairs, factor) : add_pairs(pairs);
}

/* Products of lines [first, first + n), n even, times the factor if there is one; two chains */
INL vi dot_lines(const enum dtype t, const vub *u, const int8_t *q, const int first, const int n,
                 vi factor)
{
    if (two_fit(t)) {
        vi a = vi_splat(0);
        for (int j = first; j < first + n; j++)
            a += signed_pairs(t, u[j], splat4(q + 4 * j), factor);
        return a;
    }
    vsum a = sum_first(u[first], splat4(q + 4 * first));
    vsum b = sum_first(u[first + 1], splat4(q + 4 * first + 4));
    for (int j = first + 2; j < first + n; j += 2) {
        a = sum_add(a, u[j], splat4(q + 4 * j));
        b = sum_add(b, u[j + 1], splat4(q + 4 * j + 4));
    }
    return widen(t, a + b, factor);
}

INL void dot_block(const enum dtype t, const vub *u, const int8_t *q, const struct scales *s,
                   const int g, vi *i)
{
    const int lines = lines_a_sum(t);
    UNROLL
    for (int first = 0; first < 8; first += lines) {
        const int to = sum_of(t, first);
        vi more = dot_lines(t, u, q, first, lines,
                            int_factors(t) ? s->factor[first / 4][g] : vi_splat(0));
        i[to] = first == to * 4 ? more : i[to] + more;
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
                    dot_block(t, u, x->q + (at + k) * QBLOCK, &s, g, i);
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
INL void tile_lines(const enum dtype t, const vub *u, const int8_t *q, const int first,
                    const int n_lines, const int n, const vi *factor, vi (*out)[GROUPS])
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
            out[k][g] = widen(t, sum[k][g], factor[g]);
}

INL void tile_signed(const enum dtype t, const vub *u, const int8_t *q, const int first,
                     const int n_lines, const int n, const vi *factor, vi (*sum)[GROUPS])
{
    UNROLL
    for (int j = first; j < first + n_lines; j++) {
        for (int k = 0; k < n; k++) {
            vub v = splat4(q + k * QBLOCK + j * 4);
            for (int g = 0; g < GROUPS; g++) {
                vi more = signed_pairs(t, u[g * 8 + j], v, factor[g]);
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
    /* Zeroed, not stored by the first lines: gcc 12 at -O2 makes wrong code of such a choice. */
    for (int k = 0; k < n; k++)
        for (int g = 0; g < GROUPS; g++)
            i[k][g][0] = i[k][g][1] = vi_splat(0);
    UNROLL
    for (int first = 0; first < 8; first += lines) {
        const int to = sum_of(t, first);
        const vi *factor = s->factor[first / 4];
        if (two_fit(t))
            tile_signed(t, u, x->q + at * QBLOCK, first, lines, n, factor, more);
        else
            tile_lines(t, u, x->q + at * QBLOCK, first, lines, n, factor, more);
        for (int k = 0; k < n; k++)
            for (int g = 0; g < GROUPS; g++)
                i[k][g][to] += more[k][g];
    }
    for (int k = 0; k < n; k++) {
        struct row32 r = row32(t, x, at + k);
        for (int g = 0; g < GROUPS; g++) {
            float *to = acc[k] + g * LANES;
            vf_store(to, add_block(t, i[k][g], s, g, &r, vf_load(to)));
        }
    }
}

#include "linear_amx.h" /* which uses what is above */

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
            const int bytes = panel_parts(t) > 1 ? panel_part_bytes(t) : panel_block_bytes(t);
            for (int i = 0; i < bytes; i += 64)
                __builtin_prefetch(from + PREFETCH + i, 0, 2);
            size_t at = (size_t)(b * panel_parts(t) + part) * x->qstride + t0;
            vub u[8 * GROUPS];
            struct scales s;
            for (int g = 0; g < GROUPS; g++)
                unpack(t, from, c, g, u + g * 8);
            load_scales(t, from, &h, &s);
            __asm__ volatile("" : : "r"(u) : "memory"); /* u belongs into memory, not registers */
            int k = amx_tiles(t, u, &s, x, at, acc, n);
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
