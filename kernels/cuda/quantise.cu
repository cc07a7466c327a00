/* Rows to the forms that linears read: to int8 blocks, or rounded. Bound by bytes. */
#include "quantise.cuh"

enum { QUANTISE_THREADS = 256, BLOCKS_A_PASS = QUANTISE_THREADS / BLOCK_LANES };

static __global__ void __launch_bounds__(QUANTISE_THREADS)
    quantise_kernel(struct cuda_qrows out, const float *x, int n_blocks, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * BLOCKS_A_PASS + threadIdx.x / BLOCK_LANES;
    bool there = i < n;
    float4 from = make_float4(0, 0, 0, 0);
    if (there)
        from = ((const float4 *)x)[i * BLOCK_LANES + threadIdx.x % BLOCK_LANES];
    float values[LANE_VALUES] = {from.x, from.y, from.z, from.w};
    encode_planes(out, (int)(i / n_blocks), (int)(i % n_blocks), there, values);
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
    unsigned grid = (unsigned)((n + BLOCKS_A_PASS - 1) / BLOCKS_A_PASS);
    LAUNCH(quantise_kernel, grid, QUANTISE_THREADS, 0, s)(*out, x, n_blocks, n);
    return cudaGetLastError();
}
