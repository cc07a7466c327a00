/* Activations and what else works value by value, and the gated addition. Bound by bytes. */
#include "kernels.h"

#include "act.cuh"
#include "block_sum.cuh"
#include "quantise.cuh"

enum { ACT_THREADS = 256 };

INLINE int64_t value_index()
{
    return (int64_t)blockIdx.x * ACT_THREADS + threadIdx.x;
}

template <class T>
static __global__ void __launch_bounds__(ACT_THREADS)
    act_kernel(enum act_fn fn, T *out, const float *gate, const float *up, int64_t n)
{
    int64_t i = value_index();
    if (i < n)
        store_float(out + i, act_value(fn, gate[i], up ? up[i] : 1));
}

/* Rows of [n][width], to rows `stride` apart with zeros beyond width; n values are written */
template <class T>
static __global__ void __launch_bounds__(ACT_THREADS)
    act_rows_kernel(enum act_fn fn, T *out, int stride, const float *gate, const float *up,
                    int width, int64_t n)
{
    const int64_t i = value_index(), row = i / stride, k = i % stride;
    if (i < n)
        store_float(out + i,
                    k < width ? act_value(fn, gate[row * width + k], up ? up[row * width + k] : 1)
                              : 0);
}

/* Four values a thread; n of them have some */
static __global__ void __launch_bounds__(ACT_THREADS)
    act_blocks_kernel(enum act_fn fn, struct cuda_qrows out, const float *gate, const float *up,
                      int width, int64_t n)
{
    const int64_t i = value_index(), at = i * LANE_VALUES;
    float values[LANE_VALUES] = {};
    for (int j = 0; j < LANE_VALUES && i < n; j++)
        values[j] = act_value(fn, gate[at + j], up ? up[at + j] : 1);
    encode_planes(out, (int)(at / width), (int)(at % width) / BLOCK_VALUES, i < n, values);
}

static __global__ void __launch_bounds__(ACT_THREADS)
    soft_cap_kernel(float *x, int64_t n, float cap)
{
    int64_t i = value_index();
    if (i < n)
        x[i] = cap * tanhf(x[i] / cap);
}

static __global__ void __launch_bounds__(ROW_THREADS)
    gated_add_kernel(float *x, const float *y, int width, const float *in, const float *w,
                     int in_width)
{
    SHARED(float, sums, [ROW_WARPS]);
    const float *row = in + (size_t)blockIdx.x * in_width;
    float sum = 0;
    for (int i = threadIdx.x; i < in_width; i += ROW_THREADS)
        sum = fmaf(row[i], w[i], sum);
    float gate = sigmoid(block_sum(sum, sums));
    const float *from = y + (size_t)blockIdx.x * width;
    float *to = x + (size_t)blockIdx.x * width;
    for (int i = threadIdx.x; i < width; i += ROW_THREADS)
        to[i] = fmaf(gate, from[i], to[i]);
}

static unsigned blocks_of(int64_t n)
{
    return (unsigned)((n + ACT_THREADS - 1) / ACT_THREADS);
}

cudaError_t cuda_act(cudaStream_t s, enum act_fn fn, void *out, enum dtype type, const float *gate,
                     const float *up, int64_t n)
{
    WITH_FLOAT_TYPE(
        type, T, LAUNCH(act_kernel<T>, blocks_of(n), ACT_THREADS, 0, s)(fn, (T *)out, gate, up, n));
    return cudaGetLastError();
}

cudaError_t cuda_act_rows(cudaStream_t s, enum act_fn fn, const struct cuda_rows *out,
                          const float *gate, const float *up, int width, int n_rows)
{
    const int stride = padded_width(width);
    int64_t n = (int64_t)n_rows * stride;
    if (!out->values) {
        n /= LANE_VALUES;
        LAUNCH(act_blocks_kernel, blocks_of(n), ACT_THREADS, 0, s)
        (fn, out->q, gate, up, width, n);
        return cudaGetLastError();
    }
    WITH_FLOAT_TYPE(out->type, T,
                    LAUNCH(act_rows_kernel<T>, blocks_of(n), ACT_THREADS, 0,
                           s)(fn, (T *)out->values, stride, gate, up, width, n));
    return cudaGetLastError();
}

cudaError_t cuda_soft_cap(cudaStream_t s, float *x, int64_t n, float cap)
{
    LAUNCH(soft_cap_kernel, blocks_of(n), ACT_THREADS, 0, s)(x, n, cap);
    return cudaGetLastError();
}

cudaError_t cuda_gated_add(cudaStream_t s, float *x, const float *y, int width, const float *in,
                           const float *w, int in_width, int n_rows)
{
    LAUNCH(gated_add_kernel, n_rows, ROW_THREADS, 0, s)(x, y, width, in, w, in_width);
    return cudaGetLastError();
}
