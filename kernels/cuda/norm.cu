/* Norms: a block a row. Bound by bytes; the row is read again from the first-level cache. */
#include "norm.cuh"

#include "quantise.cuh"

/* x[i] by the norm, or as it is */
INLINE float normed(float x, float mean, float scale, const struct cuda_norm &n, int i)
{
    if (!n.w)
        return x;
    float y = (x - mean) * scale * n.w[i];
    return n.bias ? y + n.bias[i] : y;
}

/* What the whole block multiplies its row with */
INLINE float row_scale(const float *x, int width, const struct cuda_norm &n, float *mean,
                       float *sums)
{
    *mean = 0;
    return n.w ? norm_scale(x, width, n.kind, n.eps, mean, sums) : 1;
}

INLINE const float *input_row(const float *x, int width, const int32_t *rows)
{
    return x + (size_t)(rows ? rows[blockIdx.x] : blockIdx.x) * width;
}

/* Rows `stride` apart, zeros beyond width */
template <class T>
static __global__ void __launch_bounds__(ROW_THREADS)
    norm_kernel(T *out, int stride, const float *x, int width, struct cuda_norm n,
                const int32_t *rows)
{
    SHARED(float, sums, [ROW_WARPS]);
    const float *from = input_row(x, width, rows);
    T *to = out + (size_t)blockIdx.x * stride;
    float mean, scale = row_scale(from, width, n, &mean, sums);
    for (int i = threadIdx.x; i < stride; i += ROW_THREADS)
        store_float(to + i, i < width ? normed(from[i], mean, scale, n, i) : 0);
}

static __global__ void __launch_bounds__(ROW_THREADS)
    norm_blocks_kernel(struct cuda_qrows out, const float *x, int width, struct cuda_norm n,
                       const int32_t *rows)
{
    SHARED(float, sums, [ROW_WARPS]);
    const float *from = input_row(x, width, rows);
    float mean, scale = row_scale(from, width, n, &mean, sums);
    const int first = threadIdx.x * LANE_VALUES,
              first_of_warp = threadIdx.x / 32 * 32 * LANE_VALUES;
    for (int at = 0; at + first_of_warp < width; at += ROW_THREADS * LANE_VALUES) {
        int k = at + first;
        float values[LANE_VALUES] = {};
        for (int i = 0; i < LANE_VALUES && k < width; i++)
            values[i] = normed(from[k + i], mean, scale, n, k + i);
        encode_planes(out, blockIdx.x, k / BLOCK_VALUES, k < width, values);
    }
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

static cudaError_t norm_values(cudaStream_t s, void *out, enum dtype type, int stride,
                               const float *x, int width, const struct cuda_norm *n,
                               const int32_t *rows, int n_rows)
{
    WITH_FLOAT_TYPE(type, T,
                    LAUNCH(norm_kernel<T>, n_rows, ROW_THREADS, 0, s)((T *)out, stride, x, width,
                                                                      n ? *n : no_norm, rows));
    return cudaGetLastError();
}

cudaError_t cuda_norm(cudaStream_t s, void *out, enum dtype type, const float *x, int width,
                      const struct cuda_norm *n, const int32_t *rows, int n_rows)
{
    return norm_values(s, out, type, width, x, width, n, rows, n_rows);
}

cudaError_t cuda_norm_rows(cudaStream_t s, const struct cuda_rows *out, const float *x, int width,
                           const struct cuda_norm *n, const int32_t *rows, int n_rows)
{
    if (out->values)
        return norm_values(s, out->values, out->type, padded_width(width), x, width, n, rows,
                           n_rows);
    if (!n && !rows) /* by more than a block a row */
        return cuda_quantise(s, &out->q, x, width, n_rows);
    LAUNCH(norm_blocks_kernel, n_rows, ROW_THREADS, 0, s)
    (out->q, x, width, n ? *n : no_norm, rows);
    return cudaGetLastError();
}

cudaError_t cuda_norm_add(cudaStream_t s, float *x, const float *y, int width,
                          const struct cuda_norm *n, int n_rows)
{
    LAUNCH(norm_add_kernel, n_rows, ROW_THREADS, 0, s)(x, y, width, *n);
    return cudaGetLastError();
}
