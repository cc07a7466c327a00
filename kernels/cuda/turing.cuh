/* turing.cuh: the instructions that compute capability 7.5 lacks, of those that it has. device.cuh
 * includes it, and takes these where it compiles for 7.5; so they are tested on every device and
 * under emulation (tests/cuda_emu/wrappers.cu).
 *
 * With g = lane / 4 and t = lane % 4: a register of A has row g or, every second one, g + 8, of B
 * column g; k is 2t and 2t + 1 (16 bits) or 4t … 4t + 3 (int8), 8 or 16 more in later ones. */
#ifndef TOKEND_TURING_CUH
#define TOKEND_TURING_CUH

/* d[16][8] += a[16][16] * b[16][8]: half of k at a time */
INLINE void mma_f16_by_halves(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    mma_f16_k8(d, a[0], a[1], b[0]);
    mma_f16_k8(d, a[2], a[3], b[1]);
}

INLINE float bf16_low(uint32_t pair)
{
    return __uint_as_float(pair << 16);
}

INLINE float bf16_high(uint32_t pair)
{
    return __uint_as_float(pair & 0xffff0000);
}

INLINE float dot2_bf16(uint32_t a, uint32_t b, float sum)
{
    return fmaf(bf16_high(a), bf16_high(b), fmaf(bf16_low(a), bf16_low(b), sum));
}

/* The same of bf16, without tensor cores: a lane collects its two rows and columns from those that
 * have them. k ascends. */
INLINE void mma_bf16_by_fma(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    const unsigned all = 0xffffffffu;
    int lane = threadIdx.x % 32, row = lane / 4 * 4, column = lane % 4 * 8;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll 1 /* a kernel has hundreds of these */
        for (int k = 0; k < 4; k++) {
            uint32_t up = __shfl_sync(all, a[2 * half], row + k);
            uint32_t down = __shfl_sync(all, a[2 * half + 1], row + k);
            uint32_t left = __shfl_sync(all, b[half], column + k);
            uint32_t right = __shfl_sync(all, b[half], column + 4 + k);
            d[0] = dot2_bf16(up, left, d[0]);
            d[1] = dot2_bf16(up, right, d[1]);
            d[2] = dot2_bf16(down, left, d[2]);
            d[3] = dot2_bf16(down, right, d[3]);
        }
}

/* d[16][8] += a[16][16] * b[16][8] of int8: half of the rows at a time */
INLINE void mma_s8_half_by_rows(int d[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    mma_s8_m8(d, a0, b);
    mma_s8_m8(d + 2, a1, b);
}

/* d[16][8] += a[16][32] * b[32][8] of int8 */
INLINE void mma_s8_by_rows(int d[4], const uint32_t a[4], const uint32_t b[2])
{
    mma_s8_half_by_rows(d, a[0], a[1], b[0]);
    mma_s8_half_by_rows(d, a[2], a[3], b[1]);
}

/* cp_async16, at once */
INLINE void copy16(void *shared, const void *global, int n_source)
{
    uint4 value = make_uint4(0, 0, 0, 0);
    if (n_source == 16)
        value = *(const uint4 *)global;
    *(uint4 *)shared = value;
    for (int i = 0; n_source < 16 && i < n_source; i++)
        ((unsigned char *)shared)[i] = ((const unsigned char *)global)[i];
}

#endif
