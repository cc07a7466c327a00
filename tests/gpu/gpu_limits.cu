#include "device.cuh"

#include "gpu_limits.h"

enum { THREADS = 256, AT_ONCE = 8 };

static __global__ void __launch_bounds__(THREADS)
    read_kernel(const uint4 *from, size_t n, float *sink)
{
    const size_t step = (size_t)gridDim.x * THREADS;
    uint32_t x = 0;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += AT_ONCE * step) {
        uint4 v[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            v[k] = i + (size_t)k * step < n ? from[i + (size_t)k * step] : uint4{0, 0, 0, 0};
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            x ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    if (x == 0x12345678) /* never: so that nothing is left out */
        *sink = 1;
}

/* Independent sums, so that a unit never waits for its own result */
static __global__ void __launch_bounds__(THREADS) mma_kernel(int int8, int n, float *sink)
{
    const uint32_t a[4] = {threadIdx.x, threadIdx.x * 3, 5, 7}, b[2] = {threadIdx.x * 11, 13};
    float d[AT_ONCE][4] = {};
    int e[AT_ONCE][4] = {};
    for (int i = 0; i < n; i++) {
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (int8)
                mma_s8(e[k], a, b);
            else
                mma_f16(d[k], a, b);
    }
    float sum = 0;
    for (int k = 0; k < AT_ONCE; k++)
        for (int i = 0; i < 4; i++)
            sum += d[k][i] + (float)e[k][i];
    if (sum == 0.12345f)
        *sink = sum;
}

cudaError_t limits_read(cudaStream_t s, const void *from, size_t n, float *sink, int blocks)
{
    LAUNCH(read_kernel, blocks, THREADS, 0, s)((const uint4 *)from, n, sink);
    return cudaGetLastError();
}

cudaError_t limits_mma(cudaStream_t s, int int8, int n, float *sink, int blocks)
{
    LAUNCH(mma_kernel, blocks, THREADS, 0, s)(int8, n, sink);
    return cudaGetLastError();
}

double limits_mma_ops(int int8, int n, int blocks)
{
    return 2.0 * 16 * 8 * (int8 ? 32 : 16) * AT_ONCE * n * blocks * (THREADS / 32);
}
