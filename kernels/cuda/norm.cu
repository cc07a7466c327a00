/* Norms: a block a row. Bound by bytes; the row is read again from the first-level cache. */
#include "kernels.h"

#include "norm.cuh"

INLINE float normed(float x, float mean, float scale, struct cuda_norm n, int i)
{
    float y = (x - mean) * scale * n.w[i];
    return n.bias ? y + n.bias[i] : y;
}

template <class T>
static __global__ void __launch_bounds__(ROW_THREADS)
    norm_kernel(T *out, const float *x, int width, struct cuda_norm n, const int32_t *rows)
{
    SHARED(float, sums, [ROW_WARPS]);
    const float *from = x + (size_t)(rows ? rows[blockIdx.x] : blockIdx.x) * width;
    T *to = out + (size_t)blockIdx.x * width;
    float mean = 0, scale = 1;
    if (n.w)
        scale = norm_scale(from, width, n.kind, n.eps, &mean, sums);
    for (int i = threadIdx.x; i < width; i += ROW_THREADS)
        store_float(to + i, n.w ? normed(from[i], mean, scale, n, i) : from[i]);
}

static __global__ void __launch_bounds__(ROW_THREADS)
    norm_add_kernel(float *x, const float *y, int width, struct cuda_norm n)
{
    SHARED(float, sums, [ROW_WARPS]);
    const float *from = y + (size_t)blockIdx.x * width;
    float *to = x + (size_t)blockIdx.x * width, mean;
    float scale = norm_scale(from, width, n.kind, n.eps, &mean, sums);
    for (int i = threadIdx.x; i < width; i += ROW_THREADS)
        to[i] += normed(from[i], mean, scale, n, i);
}

static const struct cuda_norm no_norm = {NORM_RMS, NULL, NULL, 0};

cudaError_t cuda_norm(cudaStream_t s, void *out, enum dtype type, const float *x, int width,
                      const struct cuda_norm *n, const int32_t *rows, int n_rows)
{
    if (!n)
        n = &no_norm;
    WITH_FLOAT_TYPE(type, T,
                    LAUNCH(norm_kernel<T>, n_rows, ROW_THREADS, 0, s)((T *)out, x, width, *n, rows));
    return cudaGetLastError();
}

cudaError_t cuda_norm_add(cudaStream_t s, float *x, const float *y, int width,
                          const struct cuda_norm *n, int n_rows)
{
    LAUNCH(norm_add_kernel, n_rows, ROW_THREADS, 0, s)(x, y, width, *n);
    return cudaGetLastError();
}
