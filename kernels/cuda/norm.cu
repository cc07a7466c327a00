/* Norms: a block a row. LayerNorm takes two passes, so that a large mean cancels nothing. Bound by
 * bytes; the row is read again from the first-level cache. */
#include "kernels.h"

#include "block_sum.cuh"

/* What (x - mean) of the row is multiplied with; *mean is 0 for RMS. */
INLINE float row_scale(const float *x, int width, struct cuda_norm n, float *mean, float *sums)
{
    float sum = 0;
    *mean = 0;
    if (n.kind == NORM_LAYER) {
        for (int i = threadIdx.x; i < width; i += ROW_THREADS)
            sum += x[i];
        *mean = block_sum(sum, sums) / width;
        sum = 0;
    }
    for (int i = threadIdx.x; i < width; i += ROW_THREADS) {
        float v = x[i] - *mean;
        sum = fmaf(v, v, sum);
    }
    return 1 / sqrtf(block_sum(sum, sums) / width + n.eps);
}

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
        scale = row_scale(from, width, n, &mean, sums);
    for (int i = threadIdx.x; i < width; i += ROW_THREADS)
        store_float(to + i, n.w ? normed(from[i], mean, scale, n, i) : from[i]);
}

static __global__ void __launch_bounds__(ROW_THREADS)
    norm_add_kernel(float *x, const float *y, int width, struct cuda_norm n)
{
    SHARED(float, sums, [ROW_WARPS]);
    const float *from = y + (size_t)blockIdx.x * width;
    float *to = x + (size_t)blockIdx.x * width, mean;
    float scale = row_scale(from, width, n, &mean, sums);
    for (int i = threadIdx.x; i < width; i += ROW_THREADS)
        to[i] += normed(from[i], mean, scale, n, i);
}

static const struct cuda_norm no_norm = {NORM_RMS, NULL, NULL, 0};

cudaError_t cuda_norm(cudaStream_t s, void *out, enum dtype type, const float *x, int width,
                      const struct cuda_norm *n, const int32_t *rows, int n_rows)
{
    if (!n)
        n = &no_norm;
    if (type == DTYPE_F32)
        LAUNCH(norm_kernel<float>, n_rows, ROW_THREADS, 0, s)
    ((float *)out, x, width, *n, rows);
    else if (type == DTYPE_F16)
        LAUNCH(norm_kernel<__half>, n_rows, ROW_THREADS, 0, s)((__half *)out, x, width, *n, rows);
    else if (type == DTYPE_BF16) LAUNCH(norm_kernel<__nv_bfloat16>, n_rows, ROW_THREADS, 0,
                                        s)((__nv_bfloat16 *)out, x, width, *n, rows);
    else return cudaErrorInvalidValue;
    return cudaGetLastError();
}

cudaError_t cuda_norm_add(cudaStream_t s, float *x, const float *y, int width,
                          const struct cuda_norm *n, int n_rows)
{
    LAUNCH(norm_add_kernel, n_rows, ROW_THREADS, 0, s)(x, y, width, *n);
    return cudaGetLastError();
}
