/* quantise.cuh: values to int8 blocks: eight lanes a block, four values each. The operations of a
 * value do not depend on which kernel does it. */
#ifndef TOKEND_QUANTISE_CUH
#define TOKEND_QUANTISE_CUH

#include "linear.cuh"

enum { LANE_VALUES = 4, BLOCK_LANES = BLOCK_VALUES / LANE_VALUES };

/* The largest |x| of the block, to all of its lanes; as integers, so that NaN wins */
INLINE float block_largest(const float x[LANE_VALUES])
{
    int most = 0;
#pragma unroll
    for (int i = 0; i < LANE_VALUES; i++)
        most = max(most, __float_as_int(fabsf(x[i])));
    for (int by = BLOCK_LANES / 2; by > 0; by /= 2)
        most = max(most, __shfl_xor_sync((unsigned)ALL_LANES, most, by));
    return __int_as_float(most);
}

/* Writes the block at `at` if it is `there`, and leaves in x what it leaves of them. All lanes of
 * the warp come here. */
INLINE void encode(const struct cuda_qrows &out, size_t at, bool there, float x[LANE_VALUES])
{
    const int word = threadIdx.x % BLOCK_LANES;
    float most = block_largest(x);
    bool nought = most < 1e-30f; /* 127 / most would overflow */
    float d = nought ? 0 : most / 127, up = nought ? 0 : 127 / most;
    uint32_t packed = 0;
    int sum = 0;
#pragma unroll
    for (int i = 0; i < LANE_VALUES; i++) {
        float y = nought ? 0 : x[i] * up;
        int q = y != y ? 0 : (int)rintf(y); /* NaN: d says so */
        packed |= (uint32_t)(q & 0xff) << 8 * i;
        sum += q;
        x[i] = fmaf(-d, (float)q, x[i]);
    }
    for (int by = 2; by > 0; by /= 2) /* of the half */
        sum += __shfl_xor_sync((unsigned)ALL_LANES, sum, by);
    int high = __shfl_xor_sync((unsigned)ALL_LANES, sum, BLOCK_LANES / 2);
    if (!there)
        return;
    *(uint32_t *)(out.q + at * BLOCK_VALUES + value_at(word * LANE_VALUES)) = packed;
    if (word == 0)
        out.s[at] = pack_block_scale(d, sum, high);
}

/* The block's planes of a row */
INLINE void encode_planes(const struct cuda_qrows &out, int row, int block, bool there,
                          float x[LANE_VALUES])
{
    size_t at = (size_t)block * out.stride + (size_t)row * out.planes;
    for (int p = 0; p < out.planes; p++)
        encode(out, at + p, there, x);
}

#endif
