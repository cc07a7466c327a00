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

/* --- experts --- */

/* n slots, from `slot` on, that are all of one expert (moe.cu) */
struct expert_tile {
    int32_t expert, slot, n;
};

/* Linears of experts: what w and bias of a cuda_linear are is said by the tile of tokens, which are
 * slots. tiles NULL: they are not of experts. */
struct linear_experts {
    const struct expert_tile *tiles; /* [max_tiles] */
    const int32_t *n_tiles;
    int max_tiles, tile_slots; /* of the host: what is launched for */
    bool same_x;               /* all slots read row 0 of x */
    const void *const *data[2];
    const void *bias[2]; /* [n_experts][rows] as of a cuda_matrix of a float type; NULL: none */
    enum dtype bias_type[2];
};

/* The block's tokens, planes counted: x from `x` on become results from `out` on, up to `end` */
struct token_tile {
    int expert;
    int x, out, end;
};

INLINE struct token_tile block_tokens(const struct linear_experts &e, int tokens, int planes,
                                      int n_rows)
{
    int first = blockIdx.y * tokens;
    struct token_tile t = {0, first, first, n_rows * planes};
    if (e.tiles) {
        const struct expert_tile tile = e.tiles[blockIdx.y];
        t.expert = tile.expert;
        t.out = tile.slot * planes;
        t.x = e.same_x ? 0 : t.out;
        t.end = t.out + tile.n * planes;
    }
    return t;
}

/* Whether the block is one beyond the last tile */
INLINE bool is_idle(const struct linear_experts &e)
{
    return e.tiles && (int)blockIdx.y >= *e.n_tiles;
}

/* The data of w[i] */
INLINE const void *data_of(const struct cuda_linear &l, const struct linear_experts &e, int i,
                           int expert)
{
    return e.tiles ? e.data[i][expert] : l.w[i].data;
}

INLINE float value_of(enum dtype type, const void *values, size_t at)
{
    if (type == DTYPE_F32)
        return ((const float *)values)[at];
    if (type == DTYPE_F16)
        return to_float(((const __half *)values)[at]);
    return to_float(((const __nv_bfloat16 *)values)[at]);
}

INLINE float biased(const struct cuda_linear &l, const struct linear_experts &e, int i, int expert,
                    int row, float y)
{
    if (l.bias[i])
        return y + l.bias[i][row];
    const void *values = e.tiles ? e.bias[i] : NULL;
    if (!values)
        return y;
    return y + value_of(e.bias_type[i], values, (size_t)expert * padded_width(l.w[i].rows) + row);
}

/* --- panels and results --- */

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
INLINE void store_result(const struct cuda_linear &l, const struct linear_experts &e, int expert,
                         int job, int token, int row, float y, float y2)
{
    float *out = l.out[job] + (size_t)token * l.w[job].rows + row;
    y = biased(l, e, job, expert, row, y);
    if (l.into == INTO_ADD)
        *out += y;
    else if (l.into == INTO_ACT)
        *out = act_value(l.act, y, 1);
    else if (l.into == INTO_ACT_MUL)
        *out = act_value(l.act, y, biased(l, e, 1, expert, row, y2));
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
INLINE void store_sums(const struct cuda_linear &l, const struct linear_experts &e, int job,
                       int panel, const struct token_tile &tokens, int planes,
                       const tile_sums<NT> &y, const tile_sums<NT> &y2)
{
    int lane = threadIdx.x % 32, row = panel * PANEL_ROWS + lane / 4;
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int token = tokens.out + n * TILE_TOKENS + lane % 4 * 2 + i % 2, r = row + i / 2 * 8;
            float a = y.at[n][i], b = y2.at[n][i];
            if (planes == 2) {
                if (i % 2)
                    continue;
                a += y.at[n][i + 1];
                b += y2.at[n][i + 1];
            }
            if (token < tokens.end && r < l.w[job].rows)
                store_result(l, e, tokens.expert, job, token / planes, r, a, b);
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
 * units of k that w has, and add_units(sums, o, w, data, panel, from, end, token) adds units [from,
 * end) of the tiles of tokens from `token` on; the matrix is as w, but its data. */

/* A panel of one matrix: its ranges from `first` on, `step` apart, added */
template <int NT, class O>
INLINE tile_sums<NT> panel_sums(const O &o, const struct cuda_matrix &w, const void *data,
                                int panel, int first, int step, int token)
{
    tile_sums<NT> total = {};
    const int n = n_units(o, w), units = chunk_units(n);
    for (int c = first; c * units < n; c += step) {
        tile_sums<NT> sums = {};
        add_units(sums, o, w, data, panel, c * units, min((c + 1) * units, n), token);
#pragma unroll
        for (int i = 0; i < NT * 4; i++)
            total.at[i / 4][i % 4] += sums.at[i / 4][i % 4];
    }
    return total;
}

/* SPLIT: a block is a panel, a warp one of its ranges; else a warp is a panel. Padding rows of x
 * and tokens beyond the last are computed and not stored. */
template <class O, int NT, bool SPLIT>
static __global__ void __launch_bounds__(LINEAR_THREADS, NT *O::SETS >= 8 ? 1 : 2)
    linear_kernel(struct cuda_linear l, const __grid_constant__ struct linear_experts e, O o,
                  int n_rows)
{
    SHARED(float, parts, [SPLIT ? LINEAR_WARPS : 1][NT * 4][32]);
    const bool paired = l.into == INTO_ACT_MUL;
    const int warp = threadIdx.x / 32;
    struct linear_place at =
        place_of(l, SPLIT ? blockIdx.x : blockIdx.x * LINEAR_WARPS + warp, paired ? 1 : l.n_w);
    if (is_idle(e)) /* the whole block */
        return;
    if (at.job == (paired ? 1 : l.n_w)) /* the whole warp; of a split block none */
        return;
    tile_sums<NT> y = {};
    tile_sums<NT> y2 = {};
#pragma unroll 1
    for (int i = paired ? 1 : 0; i >= 0; i--) {
        /* read each time, lest it takes registers meanwhile */
        const struct token_tile tokens = block_tokens(e, NT * TILE_TOKENS, o.planes, n_rows);
        y2 = y;
        y = panel_sums<NT>(o, l.w[at.job + i], data_of(l, e, at.job + i, tokens.expert), at.panel,
                           SPLIT ? warp : 0, SPLIT ? LINEAR_WARPS : 1, tokens.x);
        if (SPLIT)
            join_ranges<NT>(y, parts, LINEAR_WARPS);
    }
    if (!SPLIT || warp == 0)
        store_sums<NT>(l, e, at.job, at.panel, block_tokens(e, NT * TILE_TOKENS, o.planes, n_rows),
                       o.planes, y, y2);
}

template <int NT, bool SPLIT, class O>
static void launch_tiles(cudaStream_t s, const struct cuda_linear &l,
                         const struct linear_experts &e, const O &o, int n_rows)
{
    int panels = linear_panels(&l), tokens = n_rows * o.planes;
    dim3 grid(SPLIT ? panels : (panels + LINEAR_WARPS - 1) / LINEAR_WARPS,
              e.tiles ? e.max_tiles : (tokens + NT * TILE_TOKENS - 1) / (NT * TILE_TOKENS));
    auto kernel = linear_kernel<O, NT, SPLIT>;
    LAUNCH(kernel, grid, LINEAR_THREADS, 0, s)(l, e, o, n_rows);
}

/* By the kernel for so many tokens; cuda_qrows_stride has as many rows as it reads. */
template <class O>
static cudaError_t launch_linear(cudaStream_t s, const struct cuda_linear &l,
                                 const struct linear_experts &e, const O &o, int n_rows)
{
    int tokens = (e.tiles ? e.tile_slots : n_rows) * o.planes;
    if (tokens <= TILE_TOKENS)
        launch_tiles<1, true>(s, l, e, o, n_rows);
    else if (tokens <= 2 * TILE_TOKENS)
        launch_tiles<2, true>(s, l, e, o, n_rows);
    else if (tokens <= 4 * TILE_TOKENS)
        launch_tiles<4, true>(s, l, e, o, n_rows);
    else
        launch_tiles<MAX_TILES, false>(s, l, e, o, n_rows);
    return cudaGetLastError();
}

/* cuda_linear_quantised and cuda_linear_float, of experts or not; n_rows is not read of experts. */
cudaError_t linear_quantised(cudaStream_t, const struct cuda_linear &,
                             const struct linear_experts &, const struct cuda_qrows &x, int n_rows);
cudaError_t linear_float(cudaStream_t, const struct cuda_linear &, const struct linear_experts &,
                         const void *x, int n_rows);

#endif
