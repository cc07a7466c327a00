/* Random blocks of the quantised types, packed as GGUF files have them, value by value. */
#include "reference_blocks.h"

#include <math.h>
#include <string.h>

static int below(int n, uint64_t *seed)
{
    return (int)floor((ref_random(seed) + 1) / 2 * n);
}

/* A number of `bits` bits, from bit `at` of bytes that are zeroed */
static void put_bits(uint8_t *bytes, int at, int bits, int x)
{
    for (int i = 0; i < bits; i++)
        bytes[(at + i) / 8] |= (uint8_t)((x >> i & 1) << (at + i) % 8);
}

/* Value k of 32: its nibble is in byte k % 16, its fifth bit is bit k. */
static void put_q(uint8_t *low, uint8_t *fifth, int k, int q)
{
    put_bits(low, k % 16 * 8 + k / 16 * 4, 4, q);
    if (fifth)
        put_bits(fifth, k, 1, q >> 4);
}

struct block32 {
    int bits, offset, at_m, at_fifth, at_q; /* places in bytes, 0: none */
};

static void fill_32(uint8_t *at, double *values, const struct block32 *f, double scale,
                    uint64_t *seed)
{
    int n = 1 << f->bits;
    double d = ref_round(DTYPE_F16, scale * (1.5 + ref_random(seed)) / n * 2);
    double m = f->at_m ? ref_round(DTYPE_F16, -d * (n - 1.2) / 2) : 0;
    ref_put_half(at, d);
    if (f->at_m)
        ref_put_half(at + f->at_m, m);
    for (int k = 0; k < 32; k++) {
        int q = below(n, seed);
        values[k] = d * (q - f->offset) + m;
        if (f->bits == 8)
            at[f->at_q + k] = (uint8_t)(q - f->offset);
        else
            put_q(at + f->at_q, f->at_fifth ? at + f->at_fifth : NULL, k, q);
    }
}

/* The 12 bytes of scales: bits [0, 6) of byte i are scale i (i < 4) or minimum i - 4; of the other
 * four, the low nibbles fill bytes 8 to 11, the high bits the tops of the first eight. */
static void put_scales(uint8_t *at, int s, int scale, int minimum)
{
    if (s < 4) {
        put_bits(at + s, 0, 6, scale);
        put_bits(at + s + 4, 0, 6, minimum);
        return;
    }
    put_bits(at + s + 4, 0, 4, scale);
    put_bits(at + s + 4, 4, 4, minimum);
    put_bits(at + s - 4, 6, 2, scale >> 4);
    put_bits(at + s, 6, 2, minimum >> 4);
}

/* Value k of the 256 of Q4_K and Q5_K: 64 values share 32 bytes of nibbles; the fifth bits of 32
 * values lie side by side, one bit a byte. */
static void fill_k(uint8_t *at, double *values, bool five, double scale, uint64_t *seed)
{
    int n = five ? 32 : 16;
    double d = ref_round(DTYPE_F16, scale * (1.5 + ref_random(seed)) / n / 32);
    double m = ref_round(DTYPE_F16, d * (n - 1.2) / 2);
    ref_put_half(at, d);
    ref_put_half(at + 2, m);
    for (int s = 0; s < 8; s++) {
        int sc = below(64, seed), mn = sc + below(9, seed) - 4;
        mn = mn < 0 ? 0 : mn > 63 ? 63 : mn;
        put_scales(at + 4, s, sc, mn);
        for (int k = 0; k < 32; k++) {
            int q = below(n, seed);
            put_bits(at + (five ? 48 : 16) + s / 2 * 32 + k, s % 2 * 4, 4, q);
            if (five)
                put_bits(at + 16 + k, s, 1, q >> 4);
            values[s * 32 + k] = d * sc * q - m * mn;
        }
    }
}

/* Value k of Q6_K: of each 128, 32 values are the low nibbles of bytes 0 to 31, 32 those of bytes
 * 32 to 63, then the high ones of both; their upper pairs of bits share 32 bytes. */
static void fill_q6_k(uint8_t *at, double *values, double scale, uint64_t *seed)
{
    double d = ref_round(DTYPE_F16, scale * (1.5 + ref_random(seed)) / 32 / 64);
    ref_put_half(at + 208, d);
    for (int k = 0; k < 256; k++) {
        int half = k / 128, run = k % 128 / 32, i = k % 32, q = below(64, seed);
        if (k % 16 == 0)
            at[192 + k / 16] = (uint8_t)(below(256, seed) - 128);
        put_bits(at + half * 64 + run % 2 * 32 + i, run / 2 * 4, 4, q);
        put_bits(at + 128 + half * 32 + i, run * 2, 2, q >> 4);
        values[k] = d * (int8_t)at[192 + k / 16] * (q - 32);
    }
}

/* Types whose meaning golden vectors hold to (test_dtype.c): random codes, with d and m where the
 * type has them, and values as dtype_to_f32 reads them. */
static const struct golden_form {
    int at_d;   /* f16, -1: elsewhere */
    int at_m;   /* f16, 0: none */
    double top; /* the largest value if d is 1 */
} golden_forms[DTYPE_COUNT] = {
    [DTYPE_Q2_K] = {80, 82, 45},  [DTYPE_Q3_K] = {108, 0, 128},  [DTYPE_Q4_Z] = {0, 0, 15},
    [DTYPE_IQ4_NL] = {0, 0, 127}, [DTYPE_IQ4_XS] = {0, 0, 4064}, [DTYPE_IQ2_XXS] = {0, 0, 167},
    [DTYPE_IQ2_XS] = {0, 0, 167}, [DTYPE_IQ2_S] = {0, 0, 167},   [DTYPE_IQ3_XXS] = {0, 0, 480},
    [DTYPE_IQ3_S] = {0, 0, 465},  [DTYPE_IQ1_S] = {0, 0, 17},    [DTYPE_IQ1_M] = {-1, 0, 17},
    [DTYPE_TQ1_0] = {52, 0, 1},   [DTYPE_TQ2_0] = {64, 0, 2},    [DTYPE_Q1_0] = {0, 0, 1},
    [DTYPE_MXFP4] = {-1, 0, 12},  [DTYPE_NVFP4] = {-1, 0, 12},
};

/* d of the types that do not have it as one f16 */
static void put_odd_d(enum dtype t, uint8_t *at, double d, uint64_t *seed)
{
    uint8_t half[2];
    ref_put_half(half, ref_round(DTYPE_F16, d));
    uint16_t bits = (uint16_t)(half[0] | half[1] << 8);
    if (t == DTYPE_IQ1_M)
        for (int i = 0; i < 4; i++)
            at[49 + 2 * i] = (uint8_t)((at[49 + 2 * i] & 15) | (bits >> 4 * i & 15) << 4);
    else if (t == DTYPE_MXFP4)
        at[0] = (uint8_t)(127 + floor(log2(d)) + below(3, seed));
    else
        for (int i = 0; i < 4; i++) { /* twice d; exponents 8 less far from 0 than f16's */
            int x = (bits >> 7) - (7 << 3) - below(12, seed);
            at[i] = (uint8_t)(x < 1 ? 1 : x);
        }
}

static void fill_golden(enum dtype t, uint8_t *at, double *values, double scale, uint64_t *seed)
{
    const struct golden_form *f = &golden_forms[t];
    float floats[256];
    double d = ref_round(DTYPE_F16, scale * (1.5 + ref_random(seed)) / 2 / f->top);
    for (int i = 0; i < dtype_info(t)->block_bytes; i++)
        at[i] = (uint8_t)below(256, seed);
    if (t == DTYPE_Q4_Z)
        at[2] &= 15;
    if (f->at_d >= 0)
        ref_put_half(at + f->at_d, d);
    else
        put_odd_d(t, at, d, seed);
    if (f->at_m)
        ref_put_half(at + f->at_m, ref_round(DTYPE_F16, d * 1.5));
    dtype_to_f32(t, at, floats, dtype_info(t)->block_elems);
    for (int i = 0; i < dtype_info(t)->block_elems; i++)
        values[i] = floats[i];
}

void ref_blocks_fill(struct ref_matrix *m, double scale, uint64_t *seed)
{
    static const struct block32 forms[DTYPE_COUNT] = {
        [DTYPE_Q8_0] = {8, 128, 0, 0, 2}, [DTYPE_Q4_0] = {4, 8, 0, 0, 2},
        [DTYPE_Q4_1] = {4, 0, 2, 0, 4},   [DTYPE_Q5_0] = {5, 16, 0, 2, 6},
        [DTYPE_Q5_1] = {5, 0, 2, 4, 8},
    };
    size_t n = (size_t)m->rows * m->cols, elems = (size_t)dtype_info(m->type)->block_elems;
    size_t bytes = (size_t)dtype_info(m->type)->block_bytes;
    memset(m->bytes, 0, n / elems * bytes);
    for (size_t i = 0; i < n / elems; i++) {
        uint8_t *at = (uint8_t *)m->bytes + i * bytes;
        double *values = m->values + i * elems;
        if (golden_forms[m->type].top > 0)
            fill_golden(m->type, at, values, scale, seed);
        else if (m->type == DTYPE_Q6_K)
            fill_q6_k(at, values, scale, seed);
        else if (elems == 256)
            fill_k(at, values, m->type == DTYPE_Q5_K, scale, seed);
        else
            fill_32(at, values, &forms[m->type], scale, seed);
    }
}
