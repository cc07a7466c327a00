/* Rows to int8 blocks: a warp a block, a lane a value. Bound by bytes. */
#include "kernels.h"

#include "linear.cuh"

enum { QUANTISE_WARPS = 8 };

INLINE float warp_largest(float x)
{
    int most = __float_as_int(fabsf(x)); /* as integers, so that NaN wins */
    for (int by = 16; by > 0; by /= 2)
        most = max(most, __shfl_xor_sync((unsigned)ALL_LANES, most, by));
    return __int_as_float(most);
}

/* Writes the warp's block; what it leaves of the lane's x */
INLINE float encode(struct cuda_qrows out, size_t at, float x)
{
    int lane = threadIdx.x % 32;
    float most = warp_largest(x);
    bool nought = most < 1e-30f; /* 127 / most would overflow */
    float d = nought ? 0 : most / 127, y = nought ? 0 : x * (127 / most);
    int q = y != y ? 0 : (int)rintf(y); /* NaN: d says so */
    int sum = q;
    for (int by = 8; by > 0; by /= 2)
        sum += __shfl_xor_sync((unsigned)ALL_LANES, sum, by);
    int high = __shfl_sync((unsigned)ALL_LANES, sum, 16);
    out.q[at * BLOCK_VALUES + value_at(lane)] = (int8_t)q;
    if (lane == 0)
        out.s[at] = pack_block_scale(d, sum, high);
    return fmaf(-d, (float)q, x);
}

static __global__ void __launch_bounds__(QUANTISE_WARPS * 32)
    quantise_kernel(struct cuda_qrows out, const float *x, int n_blocks, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * QUANTISE_WARPS + threadIdx.x / 32;
    if (i >= n) /* the whole warp */
        return;
    int row = (int)(i / n_blocks), block = (int)(i % n_blocks);
    float value = x[i * BLOCK_VALUES + threadIdx.x % 32];
    size_t at = (size_t)block * out.stride + (size_t)row * out.planes;
    for (int p = 0; p < out.planes; p++)
        value = encode(out, at + p, value);
}

int cuda_qrows_stride(int n_rows, int planes)
{
    int n = n_rows * planes, tile = TILE_TOKENS; /* whole tiles of the kernel that takes n */
    while (tile < n && tile < MAX_TILES * TILE_TOKENS)
        tile *= 2;
    return (n + tile - 1) / tile * tile;
}

cudaError_t cuda_quantise(cudaStream_t s, const struct cuda_qrows *out, const float *x, int width,
                          int n_rows)
{
    int n_blocks = width / BLOCK_VALUES;
    int64_t n = (int64_t)n_rows * n_blocks;
    unsigned grid = (unsigned)((n + QUANTISE_WARPS - 1) / QUANTISE_WARPS);
    LAUNCH(quantise_kernel, grid, QUANTISE_WARPS * 32, 0, s)(*out, x, n_blocks, n);
    return cudaGetLastError();
}
