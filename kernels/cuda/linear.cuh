/* linear.cuh: what the kernels of linears share.
 *
 * out[token][row] = sum over k of w[row][k] * x[token][k], by mma, 16 rows of weights being its A
 * and 8 tokens its B, for one token as for a thousand: at small batches reading the weights takes
 * so long that the padding to 8 costs nothing.
 *
 * Order (promise 1): k is cut into at most LINEAR_CHUNKS ranges, which its width alone decides.
 * Within one, blocks ascending; then the ranges' sums, ascending, from 0. Small batches give each
 * warp of a block one range, large ones each warp a panel, all of whose ranges it walks. */
#ifndef TOKEND_LINEAR_CUH
#define TOKEND_LINEAR_CUH

#include "kernels.h"

#include "act.cuh"
#include "panel.h"

enum {
    LINEAR_CHUNKS = 8,
    LINEAR_WARPS = 8,
    LINEAR_THREADS = LINEAR_WARPS * 32,
    TILE_TOKENS = 8,
    MAX_TILES = 8, /* of a warp */
};

/* Where value k of a block lies: a lane's two words of mma's B side by side */
INLINE int value_at(int k)
{
    return k % 16 / 4 * 8 + k / 16 * 4 + k % 4;
}

INLINE struct cuda_block_scale pack_block_scale(float d, int low, int high)
{
    struct cuda_block_scale s = {d, 0};
    s.sums = __half_as_ushort(__float2half_rn((float)low)) |
             (uint32_t)__half_as_ushort(__float2half_rn((float)high)) << 16;
    return s;
}

INLINE float block_sum_of(struct cuda_block_scale s, int half)
{
    return __half2float(__ushort_as_half((unsigned short)(s.sums >> 16 * half)));
}

/* Ranges of n units of k, each of this many */
INLINE int chunk_units(int n)
{
    return (n + LINEAR_CHUNKS - 1) / LINEAR_CHUNKS;
}

/* From row to row of a float matrix */
static __host__ __device__ inline int padded_width(int width)
{
    return (width + 31) / 32 * 32;
}

/* Panel `panel` of all jobs' */
struct linear_place {
    int job; /* n_w: none */
    int panel;
};

INLINE struct linear_place place_of(const struct cuda_linear &l, int panel, int n_jobs)
{
    struct linear_place p = {0, panel};
    for (; p.job < n_jobs; p.job++) {
        int n = (l.w[p.job].rows + PANEL_ROWS - 1) / PANEL_ROWS;
        if (p.panel < n)
            break;
        p.panel -= n;
    }
    return p;
}

/* One result, with what it needs of its kind: y of w[job], y2 of w[1] */
INLINE void store_result(const struct cuda_linear &l, int job, int token, int row, float y,
                         float y2)
{
    float *out = l.out[job] + (size_t)token * l.w[job].rows + row;
    if (l.bias[job])
        y += l.bias[job][row];
    if (l.into == INTO_ADD)
        *out += y;
    else if (l.into == INTO_ACT)
        *out = act_value(l.act, y, 1);
    else if (l.into == INTO_ACT_MUL)
        *out = act_value(l.act, y, l.bias[1] ? y2 + l.bias[1][row] : y2);
    else
        *out = y;
}

/* A warp's sums of 16 rows and NT tiles of tokens, as mma has D: [tile][row g, g + 8][token 2t, 2t
 * + 1] */
template <int NT> struct tile_sums {
    float at[NT][4];
};

/* Stores what a warp has of a panel. planes 2: tokens are pairs of planes, which are added. */
template <int NT>
INLINE void store_sums(const struct cuda_linear &l, int job, int panel, int first_token,
                       int n_tokens, int planes, const tile_sums<NT> &y, const tile_sums<NT> &y2)
{
    int lane = threadIdx.x % 32, row = panel * PANEL_ROWS + lane / 4;
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int token = first_token + n * TILE_TOKENS + lane % 4 * 2 + i % 2, r = row + i / 2 * 8;
            float a = y.at[n][i], b = y2.at[n][i];
            if (planes == 2) {
                if (i % 2)
                    continue;
                a += y.at[n][i + 1];
                b += y2.at[n][i + 1];
            }
            if (token < n_tokens * planes && r < l.w[job].rows)
                store_result(l, job, token / planes, r, a, b);
        }
}

/* The sums of the block's warps, of which each had a range, to warp 0. `parts`: a float for each
 * thread of the block and sum. */
template <int NT>
INLINE void join_ranges(tile_sums<NT> &y, float (*parts)[NT * 4][32], int n_ranges)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __syncthreads(); /* all are done with it */
#pragma unroll
    for (int i = 0; i < NT * 4; i++)
        parts[warp][i][lane] = y.at[i / 4][i % 4];
    __syncthreads();
    if (warp > 0)
        return;
#pragma unroll
    for (int i = 0; i < NT * 4; i++) {
        float sum = 0;
        for (int w = 0; w < n_ranges; w++)
            sum += parts[w][i][lane];
        y.at[i / 4][i % 4] = sum;
    }
}

/* The panels of all matrices that are computed on their own */
static inline int linear_panels(const struct cuda_linear *l)
{
    int n = 0;
    for (int i = 0; i < (l->into == INTO_ACT_MUL ? 1 : l->n_w); i++)
        n += (l->w[i].rows + PANEL_ROWS - 1) / PANEL_ROWS;
    return n;
}

/* --- the kernel, of any operand --- */

/* An operand O says how a panel is multiplied with x. It has SETS: how many times as many registers
 * are taken as plain sums take; and planes: the rows of x that a row has. n_units(o, w) is the
 * units of k that w has, and add_units(sums, o, w, panel, from, end, token) adds units [from, end)
 * of the tiles of tokens from `token` on. */

/* A panel of one matrix: its ranges from `first` on, `step` apart, added */
template <int NT, class O>
INLINE tile_sums<NT> panel_sums(const O &o, const struct cuda_matrix &w, int panel, int first,
                                int step, int token)
{
    tile_sums<NT> total = {};
    const int n = n_units(o, w), units = chunk_units(n);
    for (int c = first; c * units < n; c += step) {
        tile_sums<NT> sums = {};
        add_units(sums, o, w, panel, c * units, min((c + 1) * units, n), token);
#pragma unroll
        for (int i = 0; i < NT * 4; i++)
            total.at[i / 4][i % 4] += sums.at[i / 4][i % 4];
    }
    return total;
}

/* SPLIT: a block is a panel, a warp one of its ranges; else a warp is a panel. Padding rows of x
 * and tokens beyond n_rows are computed and not stored. */
template <class O, int NT, bool SPLIT>
static __global__ void __launch_bounds__(LINEAR_THREADS, NT *O::SETS >= 8 ? 1 : 2)
    linear_kernel(struct cuda_linear l, O o, int n_rows)
{
    SHARED(float, parts, [SPLIT ? LINEAR_WARPS : 1][NT * 4][32]);
    const bool paired = l.into == INTO_ACT_MUL;
    int warp = threadIdx.x / 32, token = blockIdx.y * NT * TILE_TOKENS;
    struct linear_place at =
        place_of(l, SPLIT ? blockIdx.x : blockIdx.x * LINEAR_WARPS + warp, paired ? 1 : l.n_w);
    if (at.job == (paired ? 1 : l.n_w)) /* the whole warp; of a split block none */
        return;
    tile_sums<NT> y = {};
    tile_sums<NT> y2 = {};
#pragma unroll 1
    for (int i = paired ? 1 : 0; i >= 0; i--) {
        y2 = y;
        y = panel_sums<NT>(o, l.w[at.job + i], at.panel, SPLIT ? warp : 0, SPLIT ? LINEAR_WARPS : 1,
                           token);
        if (SPLIT)
            join_ranges<NT>(y, parts, LINEAR_WARPS);
    }
    if (!SPLIT || warp == 0)
        store_sums<NT>(l, at.job, at.panel, token, n_rows, o.planes, y, y2);
}

template <int NT, bool SPLIT, class O>
static void launch_tiles(cudaStream_t s, const struct cuda_linear &l, const O &o, int n_rows)
{
    int panels = linear_panels(&l), tokens = n_rows * o.planes;
    dim3 grid(SPLIT ? panels : (panels + LINEAR_WARPS - 1) / LINEAR_WARPS,
              (tokens + NT * TILE_TOKENS - 1) / (NT * TILE_TOKENS));
    auto kernel = linear_kernel<O, NT, SPLIT>;
    LAUNCH(kernel, grid, LINEAR_THREADS, 0, s)(l, o, n_rows);
}

/* By the kernel for so many tokens; cuda_qrows_stride has as many rows as it reads. */
template <class O>
static cudaError_t launch_linear(cudaStream_t s, const struct cuda_linear &l, const O &o,
                                 int n_rows)
{
    int tokens = n_rows * o.planes;
    if (tokens <= TILE_TOKENS)
        launch_tiles<1, true>(s, l, o, n_rows);
    else if (tokens <= 2 * TILE_TOKENS)
        launch_tiles<2, true>(s, l, o, n_rows);
    else if (tokens <= 4 * TILE_TOKENS)
        launch_tiles<4, true>(s, l, o, n_rows);
    else
        launch_tiles<MAX_TILES, false>(s, l, o, n_rows);
    return cudaGetLastError();
}

#endif
