/* simd.h: vectors of the instruction set that a file of this folder is compiled for.
 *
 * LANES 32-bit lanes; a panel's 16 rows are GROUPS vectors. Written with the vector
 * extensions of gcc and clang, with intrinsics where these say it badly. Everything here is
 * exact or rounds once per operation that is written, so results are reproducible.
 *
 * SIMD_NEON is given for the sets of AArch64, so that `generic` stays portable there, too. */
#ifndef TOKEND_SIMD_H
#define TOKEND_SIMD_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#elif defined(SIMD_NEON)
#include <arm_neon.h>
#endif
#if defined(__AVX512BW__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif
#define GROUPS (16 / LANES)
#define VBYTES (4 * LANES)

#define INL static inline __attribute__((always_inline))
#define ISA_JOIN_(name, isa) name##_##isa
#define ISA_JOIN(name, isa) ISA_JOIN_(name, isa)
#define ISA_FN(name) ISA_JOIN(name, ISA) /* quantise -> quantise_avx2 */

typedef float vf __attribute__((vector_size(VBYTES)));
typedef int32_t vi __attribute__((vector_size(VBYTES)));
typedef uint32_t vu __attribute__((vector_size(VBYTES)));
typedef int16_t vh __attribute__((vector_size(VBYTES)));
typedef uint16_t vuh __attribute__((vector_size(VBYTES)));
typedef uint8_t vub __attribute__((vector_size(VBYTES)));
typedef float vf_any __attribute__((vector_size(VBYTES), aligned(4), may_alias));
typedef uint8_t vub_any __attribute__((vector_size(VBYTES), aligned(1), may_alias));
typedef uint16_t half_any __attribute__((vector_size(VBYTES / 2), aligned(2), may_alias));

/* Keeps the compiler from reordering a tile's sums into ones that do not fit the registers. */
#if LANES == 16
#define KEEP(v) __asm__ volatile("" : "+v"(v))
#elif defined(__x86_64__)
#define KEEP(v) __asm__ volatile("" : "+x"(v))
#elif defined(__aarch64__)
#define KEEP(v) __asm__ volatile("" : "+w"(v))
#else
#define KEEP(v) ((void)0)
#endif

/* Before a loop of up to 8 rounds: no loop is left. */
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

INL vf vf_load(const float *p)
{
    return *(const vf_any *)p;
}

INL void vf_store(float *p, vf v)
{
    *(vf_any *)p = v;
}

INL vub vub_load(const uint8_t *p)
{
    return *(const vub_any *)p;
}

/* Byte i of every 16 of the table for a q of i < 16; the table's 16 bytes are repeated. */
INL vub vub_lookup(vub table, vub q)
{
#if LANES == 16
    return (vub)_mm512_shuffle_epi8((__m512i)table, (__m512i)q);
#elif LANES == 8
    return (vub)_mm256_shuffle_epi8((__m256i)table, (__m256i)q);
#elif defined(SIMD_NEON)
    return (vub)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)q);
#else
    uint8_t from[VBYTES], at[VBYTES];
    memcpy(from, &table, sizeof from);
    memcpy(at, &q, sizeof at);
    for (int i = 0; i < VBYTES; i++)
        at[i] = from[at[i]];
    return vub_load(at);
#endif
}

INL vi vi_splat(int32_t x)
{
#if LANES == 16
    return (vi)_mm512_set1_epi32(x);
#elif LANES == 8
    return (vi){x, x, x, x, x, x, x, x};
#else
    return (vi){x, x, x, x};
#endif
}

INL vf vf_splat(float x)
{
#if LANES == 16
    return _mm512_set1_ps(x);
#elif LANES == 8
    return (vf){x, x, x, x, x, x, x, x};
#else
    return (vf){x, x, x, x};
#endif
}

/* Four int8 in every lane. */
INL vub splat4(const int8_t *p)
{
    int32_t x;
    memcpy(&x, p, 4);
    return (vub)vi_splat(x);
}

INL vf vf_select(vi mask, vf a, vf b)
{
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
}

/* The larger; b where either is NaN. */
INL vf vf_max(vf a, vf b)
{
#if LANES == 16
    return _mm512_max_ps(a, b);
#elif LANES == 8
    return _mm256_max_ps(a, b);
#else
    return vf_select(a > b, a, b);
#endif
}

INL vf vf_min(vf a, vf b)
{
#if LANES == 16
    return _mm512_min_ps(a, b);
#elif LANES == 8
    return _mm256_min_ps(a, b);
#else
    return vf_select(a < b, a, b);
#endif
}

/* The larger, as signed integers */
INL vi vi_max(vi a, vi b)
{
#if LANES == 16
    return (vi)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif LANES == 8
    return (vi)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
    vi more = a > b;
    return (more & a) | (~more & b);
#endif
}

/* The largest lane */
INL int32_t vi_largest(vi m)
{
#if LANES >= 8
#if LANES == 16
    const __m256i e = _mm256_max_epi32(_mm512_castsi512_si256((__m512i)m),
                                       _mm512_extracti64x4_epi64((__m512i)m, 1));
#else
    const __m256i e = (__m256i)m;
#endif
    __m128i q = _mm_max_epi32(_mm256_castsi256_si128(e), _mm256_extracti128_si256(e, 1));
    q = _mm_max_epi32(q, _mm_shuffle_epi32(q, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
#else
    int32_t best = m[0];
    for (int i = 1; i < LANES; i++)
        best = m[i] > best ? m[i] : best;
    return best;
#endif
}

/* The bits of the largest |x[i]| of n, a multiple of LANES: compared as integers, so that a NaN or
 * an infinity wins */
INL int32_t largest_magnitude(const float *x, int n)
{
    vi most = {0};
    for (int i = 0; i < n; i += LANES)
        most = vi_max((vi)vf_load(x + i) & 0x7fffffff, most);
    return vi_largest(most);
}

/* a * b + c: rounded once where the set has it, twice where not. */
INL vf vf_fma(vf a, vf b, vf c)
{
#if LANES == 16
    return _mm512_fmadd_ps(a, b, c);
#elif LANES == 8
    return _mm256_fmadd_ps(a, b, c);
#elif defined(SIMD_NEON)
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

INL float f_fma(float a, float b, float c)
{
#if defined(__FMA__) || defined(SIMD_NEON)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

INL vf f16_load(const uint16_t *p)
{
#if LANES == 16
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif LANES == 8
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#elif defined(SIMD_NEON)
    return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
#else
    vu h = __builtin_convertvector(*(const half_any *)p, vu);
    vf magnitude = (vf)((h & 0x7fff) << 13) * 0x1p112f; /* exact, subnormals too */
    vu infinite = (vu)((h & 0x7c00) == 0x7c00) & 0x7f800000;
    return (vf)((vu)magnitude | infinite | (h & 0x8000) << 16);
#endif
}

INL vf bf16_load(const uint16_t *p)
{
#if LANES == 16
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16);
#elif LANES == 8
    return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16);
#else
    return (vf)(__builtin_convertvector(*(const half_any *)p, vu) << 16);
#endif
}

INL vi u8_ints(const uint8_t *p)
{
#if LANES == 16
    return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
#elif LANES == 8
    return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
#elif defined(SIMD_NEON)
    uint32_t four;
    memcpy(&four, p, 4);
    return (vi)vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(four))));
#else
    vi v;
    for (int i = 0; i < LANES; i++)
        v[i] = p[i];
    return v;
#endif
}

INL vf u8_load(const uint8_t *p)
{
    return __builtin_convertvector(u8_ints(p), vf);
}

/* 2^(e - 128), exact, subnormals too */
INL vf e8m0_half_load(const uint8_t *p)
{
    vi e = u8_ints(p), subnormal = e < 2;
    return vf_select(subnormal, (vf)((e + 1) << 21), (vf)((e - 1) << 23));
}

INL vi i8_ints(const uint8_t *p)
{
#if LANES == 16
    return (vi)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
#elif LANES == 8
    return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
#elif defined(SIMD_NEON)
    uint32_t four;
    memcpy(&four, p, 4);
    return (vi)vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(four))));
#else
    vi v;
    for (int i = 0; i < LANES; i++)
        v[i] = (int8_t)p[i];
    return v;
#endif
}

INL vf i8_load(const uint8_t *p)
{
    return __builtin_convertvector(i8_ints(p), vf);
}

/* The fixed tree that adds up 16 lanes. */
INL float sum16(const vf *v)
{
#if LANES >= 8
#if LANES == 16
    const __m256 e = _mm512_castps512_ps256(v[0]) + _mm512_extractf32x8_ps(v[0], 1);
#else
    const __m256 e = v[0] + v[1];
#endif
    __m128 q = _mm256_castps256_ps128(e) + _mm256_extractf128_ps(e, 1);
    q += _mm_movehl_ps(q, q);
    return q[0] + q[1];
#else
    const vf q = (v[0] + v[2]) + (v[1] + v[3]);
    return (q[0] + q[2]) + (q[1] + q[3]);
#endif
}

/* To the nearest integer, ties to even, for |x| < 2^22; anything else gives some number. */
INL vi vf_round(vf x)
{
    return (vi)(x + 0x1.8p23f) - 0x4B400000;
}

/* 2^x for x <= 127, 0 below -126, NaN for NaN. Polynomial of degree 6 on [-0.5, 0.5]
 * (coefficients of Cephes' exp2f); relative error below 2e-7. The only exponential here. */
INL vf vf_exp2(vf x)
{
#if LANES == 16
    const __mmask16 ok = _mm512_cmp_ps_mask(x, vf_splat(-126), _CMP_NLT_US); /* NaN, too */
    x = vf_max(vf_splat(-126), x);
#else
    vi ok = x >= vf_splat(-126), nan = x != x;
    x = vf_max(x, vf_splat(-126));
#endif
    vf whole = (x + 0x1.8p23f) - 0x1.8p23f, f = x - whole;
    vf p = vf_splat(1.535336188319500E-4f);
    p = vf_fma(p, f, vf_splat(1.339887440266574E-3f));
    p = vf_fma(p, f, vf_splat(9.618437357674640E-3f));
    p = vf_fma(p, f, vf_splat(5.550332471162809E-2f));
    p = vf_fma(p, f, vf_splat(2.402264791363012E-1f));
    p = vf_fma(p, f, vf_splat(6.931472028550421E-1f));
    p = vf_fma(p, f, vf_splat(1));
#if LANES == 16
    return _mm512_maskz_scalef_ps(ok, p, whole); /* normal numbers: exact */
#else
    p = (vf)((vu)p + ((vu)vf_round(x) << 23));
    return (vf)(((vi)p & ok) | nan);
#endif
}

#define LOG2E 1.44269504088896341f

/* 1 / (1 + e^-x) */
INL vf vf_sigmoid(vf x)
{
    vf t = vf_min(vf_splat(126), x * -LOG2E); /* NaN stays */
    return 1.0f / (1.0f + vf_exp2(t));
}

/* --- int8 products; a lane's four bytes belong to one output row --- */

/* int16 sums of two neighbouring products; 2 * 128 * 127 fits. */
INL vh madd_s8s8(vub w, vub x)
{
#if LANES == 16
    const __m512i v = (__m512i)x;
    const __mmask64 negative = _mm512_movepi8_mask((__m512i)w);
    return (vh)_mm512_maddubs_epi16(_mm512_abs_epi8((__m512i)w),
                                    _mm512_mask_sub_epi8(v, negative, _mm512_setzero_si512(), v));
#elif LANES == 8
    return (vh)_mm256_maddubs_epi16(_mm256_abs_epi8((__m256i)w),
                                    _mm256_sign_epi8((__m256i)x, (__m256i)w));
#elif defined(SIMD_NEON)
    const int8x16_t a = (int8x16_t)w, b = (int8x16_t)x;
    return (vh)vpaddq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)), vmull_high_s8(a, b));
#else
    vh we = (vh)((vuh)w << 8) >> 8, wo = (vh)w >> 8;
    return we * ((vh)((vuh)x << 8) >> 8) + wo * ((vh)x >> 8);
#endif
}

/* The same of u < 128. */
INL vh madd_u8s8(vub u, vub x)
{
#if LANES == 16
    return (vh)_mm512_maddubs_epi16((__m512i)u, (__m512i)x);
#elif LANES == 8
    return (vh)_mm256_maddubs_epi16((__m256i)u, (__m256i)x);
#elif defined(SIMD_NEON)
    return madd_s8s8(u, x);
#else
    vh even = (vh)((vuh)u & 0xff), odd = (vh)((vuh)u >> 8);
    return even * ((vh)((vuh)x << 8) >> 8) + odd * ((vh)x >> 8);
#endif
}

/* Of the two int16 of each lane the products with b's, added as int32 */
INL vi madd_pairs(vh a, vi b)
{
#if LANES == 16
    return (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif LANES == 8
    return (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (vi)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    vi low = ((vi)((vu)a << 16) >> 16) * ((vi)((vu)b << 16) >> 16);
    return low + ((vi)a >> 16) * (b >> 16);
#endif
}

/* sum + madd_pairs(a, b), which wraps */
INL vi madd_pairs_add(vi sum, vh a, vi b)
{
#if defined(__AVX512VNNI__) && LANES == 16
    return (vi)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#elif defined(__AVX512VNNI__)
    return (vi)_mm256_dpwssd_epi32((__m256i)sum, (__m256i)a, (__m256i)b);
#elif defined(__AVXVNNI__)
    return (vi)_mm256_dpwssd_avx_epi32((__m256i)sum, (__m256i)a, (__m256i)b);
#else
    return (vi)((vu)sum + (vu)madd_pairs(a, b));
#endif
}

/* Both added as int32 */
INL vi add_pairs(vh v)
{
#if LANES > 4
    return madd_pairs(v, vi_splat(0x10001));
#elif defined(SIMD_NEON)
    return (vi)vpaddlq_s16((int16x8_t)v);
#else
    return ((vi)((vu)v << 16) >> 16) + ((vi)v >> 16);
#endif
}

/* Sums of u8 times s8 over lines. Either int16, to be widened before they overflow, or with
 * instructions that add four products the int32 at once. DOT_SIGNED: these take signed bytes only,
 * so that u < 128, or both are signed. */
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__) || defined(__ARM_FEATURE_DOTPROD)
#define SUM_BITS 32
typedef vi vsum;
#else
#define SUM_BITS 16
typedef vh vsum;
#endif
#if defined(__ARM_FEATURE_DOTPROD) && !defined(__ARM_FEATURE_MATMUL_INT8)
#define DOT_SIGNED 1
#else
#define DOT_SIGNED 0
#endif

INL vsum sum_add(vsum sum, vub u, vub x)
{
#if defined(__AVX512VNNI__) && LANES == 16
    return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)u, (__m512i)x);
#elif defined(__AVX512VNNI__)
    return (vi)_mm256_dpbusd_epi32((__m256i)sum, (__m256i)u, (__m256i)x);
#elif defined(__AVXVNNI__)
    return (vi)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)u, (__m256i)x);
#elif defined(__ARM_FEATURE_MATMUL_INT8)
    return (vi)vusdotq_s32((int32x4_t)sum, (uint8x16_t)u, (int8x16_t)x);
#elif defined(__ARM_FEATURE_DOTPROD)
    return (vi)vdotq_s32((int32x4_t)sum, (int8x16_t)u, (int8x16_t)x);
#else
    return sum + madd_u8s8(u, x);
#endif
}

INL vsum sum_first(vub u, vub x)
{
#if SUM_BITS == 32
    return sum_add(vi_splat(0), u, x);
#else
    return madd_u8s8(u, x);
#endif
}

INL vi sum_wide(vsum sum)
{
#if SUM_BITS == 32
    return sum;
#else
    return add_pairs(sum);
#endif
}

#endif
