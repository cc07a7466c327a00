/* block_sum.cuh: sums over a row by a block, always in the same order. */
#ifndef TOKEND_BLOCK_SUM_CUH
#define TOKEND_BLOCK_SUM_CUH

#include "device.cuh"

enum { ROW_THREADS = 256, ROW_WARPS = ROW_THREADS / 32 };

/* The sum of x over the block's ROW_THREADS threads, to all of them. `sums` [ROW_WARPS] is shared
 * memory that may be used again at once. */
INLINE float block_sum(float x, float *sums)
{
    int lane = threadIdx.x % 32;
    x = warp_sum(x);
    if (lane == 0)
        sums[threadIdx.x / 32] = x;
    __syncthreads();
    x = warp_sum(lane < ROW_WARPS ? sums[lane] : 0);
    __syncthreads();
    return x;
}

#endif
