/* Linears of F16 and BF16 weights by mma, with sums in float32, and of F32 weights by plain fma (no
 * TF32). Bound: small batches by the weights' bytes; large ones by mma.
 *
 * k runs in units of 32: with g = lane / 4 and t = lane % 4 a lane loads k = 8t…8t+7 of rows g and
 * g + 8 and of token g, 16 bytes each, which two mma take in the same order on both sides. F32:
 * lane l has k = l, l + 32, …, ascending; then the tree of warp_sum. */
#include "linear.cuh"

enum { UNIT_VALUES = 32, F32_TOKENS = 8 };

/* The lane's 16 bytes of unit `unit` of a row */
template <class T> INLINE uint4 load_unit(const T *row, int unit)
{
    return *(const uint4 *)(row + (size_t)unit * UNIT_VALUES + threadIdx.x % 4 * 8);
}

/* The operand */
template <class T> struct float_operand {
    static const int SETS = 1;
    const T *x;
    int planes; /* 1 */
};

INLINE int units_of(const struct cuda_matrix &w)
{
    return padded_width(w.cols) / UNIT_VALUES;
}

template <class T> INLINE int n_units(const float_operand<T> &, const struct cuda_matrix &w)
{
    return units_of(w);
}

template <int NT, class T>
INLINE void add_units(tile_sums<NT> &sums, const float_operand<T> &o, const struct cuda_matrix &w,
                      const void *data, int panel, int from, int end, int token)
{
    const int g = threadIdx.x % 32 / 4, width = padded_width(w.cols);
    const T *x = o.x + (size_t)(token + g) * width, *rows[2];
#pragma unroll
    for (int h = 0; h < 2; h++) /* what is beyond the last is computed and not stored */
        rows[h] = (const T *)data + (size_t)min(panel * PANEL_ROWS + g + 8 * h, w.rows - 1) * width;
    uint4 next[2];
    for (int h = 0; h < 2 && from < end; h++)
        next[h] = load_unit(rows[h], from);
#pragma unroll 1
    for (int u = from; u < end; u++) {
        const uint4 w0 = next[0], w1 = next[1];
        for (int h = 0; h < 2 && u + 1 < end; h++) /* on its way while this one is multiplied */
            next[h] = load_unit(rows[h], u + 1);
        const uint32_t a[2][4] = {{w0.x, w1.x, w0.y, w1.y}, {w0.z, w1.z, w0.w, w1.w}};
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const uint4 v = load_unit(x + (size_t)n * TILE_TOKENS * width, u);
            const uint32_t b[2][2] = {{v.x, v.y}, {v.z, v.w}};
            mma(T(), sums.at[n], a[0], b[0]);
            mma(T(), sums.at[n], a[1], b[1]);
        }
    }
}

/* A warp an output row and 8 tokens */
static __global__ void __launch_bounds__(LINEAR_THREADS)
    linear_f32_kernel(struct cuda_linear l, const __grid_constant__ struct linear_experts e,
                      const float *x, int n_rows)
{
    const bool paired = l.into == INTO_ACT_MUL;
    int row = blockIdx.x * LINEAR_WARPS + threadIdx.x / 32, job = 0, n_jobs = paired ? 1 : l.n_w;
    for (; job < n_jobs && row >= l.w[job].rows; job++)
        row -= l.w[job].rows;
    if (job == n_jobs || is_idle(e)) /* the whole warp */
        return;
    const struct token_tile tokens = block_tokens(e, F32_TOKENS, 1, n_rows);
    const int n = min(F32_TOKENS, tokens.end - tokens.out), cols = l.w[0].cols;
    const int width = padded_width(cols);
    const float *w = (const float *)data_of(l, e, job, tokens.expert) + (size_t)row * width;
    const float *w2 = w;
    if (paired)
        w2 = (const float *)data_of(l, e, 1, tokens.expert) + (size_t)row * width;
    for (int i = 0; i < n; i++) {
        const float *from = x + (size_t)(tokens.x + i) * width;
        float y = 0, y2 = 0;
        for (int k = threadIdx.x % 32; k < cols; k += 32) {
            y = fmaf(w[k], from[k], y);
            if (paired)
                y2 = fmaf(w2[k], from[k], y2);
        }
        y = warp_sum(y);
        y2 = warp_sum(y2);
        if (threadIdx.x % 32 == 0)
            store_result(l, e, tokens.expert, job, tokens.out + i, row, y, y2);
    }
}

static cudaError_t launch_f32(cudaStream_t s, const struct cuda_linear &l,
                              const struct linear_experts &e, const float *x, int n_rows)
{
    int rows = 0;
    for (int i = 0; i < (l.into == INTO_ACT_MUL ? 1 : l.n_w); i++)
        rows += l.w[i].rows;
    dim3 grid((rows + LINEAR_WARPS - 1) / LINEAR_WARPS,
              e.tiles ? e.max_tiles : (n_rows + F32_TOKENS - 1) / F32_TOKENS);
    LAUNCH(linear_f32_kernel, grid, LINEAR_THREADS, 0, s)(l, e, x, n_rows);
    return cudaGetLastError();
}

cudaError_t linear_float(cudaStream_t s, const struct cuda_linear &l,
                         const struct linear_experts &e, const void *x, int n_rows)
{
    if (l.w[0].type == DTYPE_F32)
        return launch_f32(s, l, e, (const float *)x, n_rows);
    if (l.w[0].type == DTYPE_F16)
        return launch_linear(s, l, e, float_operand<__half>{(const __half *)x, 1}, n_rows);
    if (l.w[0].type == DTYPE_BF16)
        return launch_linear(s, l, e, float_operand<__nv_bfloat16>{(const __nv_bfloat16 *)x, 1},
                             n_rows);
    return cudaErrorInvalidValue;
}

cudaError_t cuda_linear_float(cudaStream_t s, const struct cuda_linear *l, const void *x,
                              int n_rows)
{
    return linear_float(s, *l, linear_experts(), x, n_rows);
}
