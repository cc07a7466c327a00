/* bf16_rows.h: rows rounded to bf16 as linear_bf16.c multiplies them. */
#ifndef TOKEND_BF16_ROWS_H
#define TOKEND_BF16_ROWS_H

#include "linear_tile.h"

#define OF_A_PAIR (BF16_PAIRS ? 1 : 2) /* 32-bit values of a rounded row; so lines of a panel */
#define ROUNDED (9 * 16 * TOKEN_TILE)  /* such values of all rows of a piece */

/* Rows that a piece of k of some panels is multiplied with */
struct rounded {
    const float *x; /* [n][ld] */
    int n, ld;
    bool first; /* of all pieces */
};

/* As float32 */
INL vf round_to_bf16(vf x)
{
    const vu u = (vu)x, top = (vu)vf_splat(0) + 0xffff0000u;
    const vi nan = (u & 0x7fffffff) > 0x7f800000, subnormal = (u & 0x7f800000) == 0;
    vf rounded = (vf)((u + 0x7fff + (u >> 16 & 1)) & top);
    rounded = vf_select(nan, (vf)((u | 0x400000) & top), rounded);
    return vf_select(subnormal, (vf)(u & 0x80000000), rounded);
}

#if BF16_PAIRS
INL half_any halves(vf x)
{
#ifdef __AVX512BF16__
    return (half_any)_mm512_cvtneps_pbh(x);
#else
    return (half_any)_mm512_cvtepi32_epi16(_mm512_srli_epi32((__m512i)round_to_bf16(x), 16));
#endif
}

/* n values of x, up to 15 more being there; zeros up to a multiple of 32 */
INL void round_row(const float *x, int n, float *to)
{
    for (int i = 0; i < n; i += 16)
        *(half_any *)(to + i / 2) = halves(vf_load(x + i));
    const size_t missing = (size_t)((n + 31) / 32 * 32 - n);
    memset((uint16_t *)(void *)to + n, 0, missing * sizeof(uint16_t));
}
#else
INL vf swap_neighbours(vf v)
{
#if LANES == 16
    return _mm512_permute_ps(v, 0xb1);
#elif LANES == 8
    return _mm256_permute_ps(v, 0xb1);
#else
    return (vf){v[1], v[0], v[3], v[2]};
#endif
}

/* n values of x, up to 15 more being there, the odd one of each pair first; of an odd number the
 * last one has a zero before it. */
INL void round_row(const float *x, int n, float *to)
{
    for (int i = 0; i < n; i += LANES)
        vf_store(to + i, swap_neighbours(round_to_bf16(vf_load(x + i))));
    if (n % 2)
        to[n - 1] = 0;
}
#endif

/* Of this thread, for all but vdpbf16ps and tdpbf16ps, which do so anyway. The mode as it was. */
INL unsigned flush_subnormals(void)
{
#if defined(__x86_64__)
    enum { FLUSH_TO_ZERO = 0x8000, SUBNORMALS_ARE_ZERO = 0x40 };
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | FLUSH_TO_ZERO | SUBNORMALS_ARE_ZERO);
    return mode;
#elif defined(__aarch64__)
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    __asm__ volatile("msr fpcr, %0" : : "r"(mode | 1 << 24));
    return (unsigned)mode;
#else
    return 0;
#endif
}

INL void restore_subnormals(unsigned mode)
{
#if defined(__x86_64__)
    _mm_setcsr(mode);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)mode));
#else
    (void)mode;
#endif
}

#endif
