/* Rows to int8 blocks. Per block: d = max|x| / 127, q = nearest integer (ties to even) of
 * x * (127 / max|x|). The maximum is taken over the bits of |x|, as integers, so that a NaN or
 * infinity wins and makes d, and with it every product, say so. A second plane holds what the
 * first leaves, rounded likewise. */
#include "table.h"

struct halves {
    int16_t of[2];
};

/* Eight bits of each value and the sum of each half */
INL struct halves round_block(int8_t *q, const float *x, float inverse)
{
    struct halves sums;
#if LANES == 16
    const __m128i low = _mm512_cvtepi32_epi8((__m512i)vf_round(vf_load(x) * inverse));
    const __m128i high = _mm512_cvtepi32_epi8((__m512i)vf_round(vf_load(x + 16) * inverse));
    const __m256i p = _mm256_set_m128i(high, low);
    _mm256_storeu_si256((__m256i *)q, p);
    /* q + 128, eight and eight added */
    __m256i eight = _mm256_sad_epu8(_mm256_xor_si256(p, _mm256_set1_epi8(-128)), (__m256i){0});
    eight = _mm256_add_epi32(eight, _mm256_shuffle_epi32(eight, 0x4e));
    sums.of[0] = (int16_t)(_mm256_extract_epi32(eight, 0) - 16 * 128);
    sums.of[1] = (int16_t)(_mm256_extract_epi32(eight, 4) - 16 * 128);
#elif LANES == 8
    vi r[4];
    for (int i = 0; i < 4; i++)
        r[i] = vf_round(vf_load(x + i * 8) * inverse);
    __m256i p = _mm256_packs_epi16(_mm256_packs_epi32((__m256i)r[0], (__m256i)r[1]),
                                   _mm256_packs_epi32((__m256i)r[2], (__m256i)r[3]));
    p = _mm256_permutevar8x32_epi32(p, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)q, p);
    vi four = add_pairs((vh)_mm256_maddubs_epi16(_mm256_set1_epi8(1), p));
    sums.of[0] = (int16_t)((four[0] + four[1]) + (four[2] + four[3]));
    sums.of[1] = (int16_t)((four[4] + four[5]) + (four[6] + four[7]));
#else
    for (int half = 0; half < 2; half++) {
        int sum = 0;
        for (int i = half * 16; i < half * 16 + 16; i += LANES) {
            vi r = vf_round(vf_load(x + i) * inverse);
            for (int j = 0; j < LANES; j++)
                sum += q[i + j] = (int8_t)r[j];
        }
        sums.of[half] = (int16_t)sum;
    }
#endif
    return sums;
}

INL void encode(const struct activation *a, size_t at, const float *x)
{
    union {
        int32_t bits;
        float value;
    } most = {largest_magnitude(x, QBLOCK)};
    /* Below this 127 / max overflows, and the products are lost in any sum: nought. */
    bool nought = most.value < 1e-30f;
    const float d = nought ? 0 : most.value / 127;
    struct halves sums = round_block(a->q + at * QBLOCK, x, nought ? 0 : 127 / most.value);
    memcpy(a->sums + 2 * at, sums.of, sizeof sums.of);
    a->d[at] = d;
    a->s[at] = d * (float)(sums.of[0] + sums.of[1]);
}

/* What block `at` leaves of x */
INL void remainder_of(const struct activation *a, size_t at, const float *x, float *rest)
{
    const int8_t *q = a->q + at * QBLOCK;
    vf minus_d = vf_splat(-a->d[at]);
    for (int i = 0; i < QBLOCK; i++)
        rest[i] = q[i];
    for (int i = 0; i < QBLOCK; i += LANES)
        vf_store(rest + i, vf_fma(minus_d, vf_load(rest + i), vf_load(x + i)));
}

void ISA_FN(quantise)(const struct activation *a, int stride, int row, int block, const float *x,
                      int n_blocks)
{
    for (int b = 0; b < n_blocks; b++, x += QBLOCK) {
        size_t at = (size_t)(block + b) * stride + (size_t)row * a->planes;
        encode(a, at, x);
        if (a->planes == 1)
            continue;
        float rest[QBLOCK];
        remainder_of(a, at, x, rest);
        encode(a, at + 1, rest);
    }
}
