/* attention_int8.h: attention over a pool of INT8, what the kernels of one query and of a tile of
 * queries share.
 *
 * K and V are bytes times a scale of the token and head. What they are multiplied with, a query or
 * a row's weights, becomes digits: int16 times a scale of the row, so that sums are exact and their
 * order does not matter:
 *   score   s = (sum over dims of k * digit) * (scale of the token's K * scale of q); soft cap
 *   max, weights p and their sum as over floats
 *   output  o = (sum over the segment's tokens of v * digit) * scale, digits of p * scale of V
 * A digit is off by at most 1/65,534 of the row's largest value, so nearly all of the error is the
 * cache's own, 1/254 of a token's largest value. The digit of a token that the row does not see is
 * 0: nothing that lies in its slot changes a bit, so a tile takes any rows together. A NaN is in a
 * scale: of K it makes the score NaN, of V the scale of the row's digits. */
#ifndef TOKEND_SIMD_ATTENTION_INT8_H
#define TOKEND_SIMD_ATTENTION_INT8_H

#include <float.h>

#include "attention.h"

#define DIGIT_MAX 32767
#define QUAD (4 * PANEL)   /* bytes of 4 dims of 16 tokens, or of 4 tokens of 16 dims */
#define QUAD_DIGIT_BYTES 8 /* of 4 values */

/* What belongs to a row's digits */
struct digit_row {
    float scale;
    int32_t start; /* -128 * their sum: what the bytes' offset adds */
};

/* The bytes of each lane as 0 … 255: first and third, second and fourth */
struct quads {
    vh even, odd;
};

INL struct quads quads_load(const uint8_t *p)
{
    vuh x = (vuh)vub_load(p);
    return (struct quads){(vh)(x & 0xff), (vh)(x >> 8)};
}

/* The digits of four values: 0 and 2 in one int32, 1 and 3 in the next */
struct quad_digits {
    vi even, odd;
};

INL struct quad_digits digits_splat(const uint8_t *p)
{
    return (struct quad_digits){(vi)splat4((const int8_t *)p), (vi)splat4((const int8_t *)p + 4)};
}

INL vi quads_add(vi sum, struct quads x, struct quad_digits d)
{
    return madd_pairs_add(madd_pairs_add(sum, x.even, d.even), x.odd, d.odd);
}

/* 16 digits, by fours */
INL void digits_store(uint8_t *to, const vi *r)
{
#if LANES >= 8
#if LANES == 16
    __m256i h = _mm512_cvtepi32_epi16((__m512i)r[0]);
#else
    __m256i h = _mm256_packs_epi32((__m256i)r[0], (__m256i)r[1]);
    h = _mm256_permute4x64_epi64(h, _MM_SHUFFLE(3, 1, 2, 0));
#endif
    h = _mm256_shufflelo_epi16(h, _MM_SHUFFLE(3, 1, 2, 0));
    h = _mm256_shufflehi_epi16(h, _MM_SHUFFLE(3, 1, 2, 0));
    _mm256_storeu_si256((__m256i *)to, h);
#else
    int16_t h[16];
    for (int i = 0; i < 16; i++)
        h[i / 4 * 4 + (i % 2 * 2 + i % 4 / 2)] = (int16_t)r[i / LANES][i % LANES];
    memcpy(to, h, sizeof h);
#endif
}

INL float largest_of(const float *x, int n)
{
    union {
        int32_t bits;
        float value;
    } top = {largest_magnitude(x, n)};
    return top.value;
}

/* The digits of x[n], n a multiple of 16. `to` may be x, or less far behind it than x goes on. */
INL struct digit_row digits_of(const float *x, int n, uint8_t *to)
{
    const float most = largest_of(x, n);
    const bool nought = most < 1e-30f; /* its inverse overflows; lost in any sum */
    const float inverse = nought ? 0 : DIGIT_MAX / most;
    vu sum = {0};
    for (int i = 0; i < n; i += 16) {
        vi r[GROUPS];
        for (int g = 0; g < GROUPS; g++) {
            r[g] = vf_round(vf_load(x + i + g * LANES) * inverse);
            sum += (vu)r[g];
        }
        digits_store(to + i / 4 * QUAD_DIGIT_BYTES, r);
    }
    uint32_t all = 0;
    for (int i = 0; i < LANES; i++) /* of NaN it may wrap, which their scale outlives */
        all += sum[i];
    const float scale = most <= FLT_MAX ? most / DIGIT_MAX : NAN;
    return (struct digit_row){nought ? 0 : scale, (int32_t)(0u - 128 * all)};
}

INL int round_up_16(int n)
{
    return (n + 15) / 16 * 16;
}

/* Digits of a query of n <= INT8_MAX_DIM dims, filled up with zeros to a multiple of 16 */
INL struct digit_row query_digits(const float *q, int n, uint8_t *to)
{
    float padded[INT8_MAX_DIM];
    if (n % 16 == 0)
        return digits_of(q, n, to);
    memcpy(padded, q, (size_t)n * sizeof *q);
    memset(padded + n, 0, (size_t)(round_up_16(n) - n) * sizeof *q);
    return digits_of(padded, round_up_16(n), to);
}

/* A group of 16 scores from their sum */
INL vf score_of(vi sum, vf k_scale, float q_scale)
{
    return __builtin_convertvector(sum, vf) * (k_scale * q_scale);
}

/* Weights of sub-pages [p0, p1) of a row that sees tokens [lo, hi) become, in place, digits: of
 * p times the token's scale of V. Sub-page p's are at byte 32 p. */
INL struct digit_row weight_digits(float *p, const float *v_scale, int p0, int p1, int lo, int hi)
{
    int first = p0 * PANEL, end = p1 * PANEL;
    for (int i = first; i < end; i += LANES)
        vf_store(p + i, vf_load(p + i) * vf_load(v_scale + i));
    if (lo >= hi)
        lo = hi = first;
    for (int i = first; i < lo; i++) /* 0 times what nobody wrote */
        p[i] = 0;
    for (int i = hi; i < end; i++)
        p[i] = 0;
    uint8_t *to = (uint8_t *)p + first / 4 * QUAD_DIGIT_BYTES;
    return digits_of(p + first, end - first, to);
}

/* The 16 tokens' scales of K and of V, given their K */
INL void load_scales(const struct kv_pool *kv, uint8_t *k, float *k_scale, float *v_scale)
{
    const uint16_t *from = kv_scales(kv, k);
    for (int i = 0; i < PANEL; i += LANES) {
        vf_store(k_scale + i, bf16_load(from + i));
        vf_store(v_scale + i, bf16_load(from + PANEL + i));
    }
}

#endif
