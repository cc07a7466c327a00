/* attention_mma.cuh: attention over K and V of 16 bits by tensor cores; F16 or BF16 as the
 * including file says. A warp's 16 rows are an mma's: q · K^T, its results become the left side of
 * p · V in registers. q and p are rounded to the type, sums are float32.
 *
 * With g = lane / 4 and t = lane % 4 a lane has rows g and g + 8 and, of each 8 columns, 2t and
 * 2t + 1. Bound by bytes where a sequence has one token, by the tensor cores where it has many. */
#ifndef TOKEND_ATTENTION_MMA_CUH
#define TOKEND_ATTENTION_MMA_CUH

#include "attention.cuh"

INLINE uint32_t pack(__half, float x, float y)
{
    __half2 both = __floats2half2_rn(x, y);
    return *(uint32_t *)&both;
}

INLINE uint32_t pack(__nv_bfloat16, float x, float y)
{
    __nv_bfloat162 both = __floats2bfloat162_rn(x, y);
    return *(uint32_t *)&both;
}

INLINE float largest(__half)
{
    return 65504;
}

INLINE float largest(__nv_bfloat16)
{
    return 3.3895313892515355e38f;
}

/* 1 in each half of a pair that is NaN */
INLINE uint32_t nan_halves(__half, uint32_t pair)
{
    return ((pair & 0x7fff7fff) + 0x03ff03ff) >> 15 & 0x00010001;
}

INLINE uint32_t nan_halves(__nv_bfloat16, uint32_t pair)
{
    return ((pair & 0x7fff7fff) + 0x007f007f) >> 15 & 0x00010001;
}

enum { Q_PAD = 8 }; /* 8 rows start in 8 groups of banks */

template <class T, int D> struct mma_state {
    T *q; /* [WARP_ROWS][D + Q_PAD], the warp's queries, shared */
    float acc[D / 8][4];
    float most[2], sum[2]; /* of the segment: of q · k or the capped score; the lane's part */
    float run_most[2], run_sum[2]; /* of the segments joined so far, in units of exp2 */
    float4 *run_acc; /* [D / 8][32 lanes] of theirs, shared; each lane's are its own */
    int position[2]; /* -1: the warp has no rows */
};

INLINE int warp_row(int half)
{
    return (int)threadIdx.x / 32 * WARP_ROWS + (int)threadIdx.x % 32 / 4 + 8 * half;
}

template <class T, int D> INLINE void segment_begin(struct mma_state<T, D> *s)
{
#pragma unroll
    for (int n = 0; n < D / 8; n++)
        s->acc[n][0] = s->acc[n][1] = s->acc[n][2] = s->acc[n][3] = 0;
    s->most[0] = s->most[1] = -INFINITY;
    s->sum[0] = s->sum[1] = 0;
}

/* Two dims of a query, rounded; NULL: zeros */
template <class T> INLINE uint32_t query_pair(T, const float *at)
{
    float2 pair = make_float2(0, 0);
    if (at)
        pair = *(const float2 *)at;
    return pack(T(), within(pair.x, largest(T())), within(pair.y, largest(T())));
}

/* The queries of the warp's rows, rounded; zeros after the last row and dim */
template <class T, int D>
INLINE void read_queries(const struct mma_state<T, D> *s, const struct attention_args &a,
                         const struct attention_run &run)
{
    int first = (int)threadIdx.x / 32 * WARP_ROWS;
    __syncwarp(); /* the last run's have been read */
    for (int r = 0; r < WARP_ROWS; r++) {
        const float *q = a.q;
        bool there = first + r < run.tile->n_rows;
        if (there)
            q += out_at(a, tile_row(a, run.tile, first + r), tile_head(a, run, first + r));
        for (int d = (int)threadIdx.x % 32 * 2; d < D; d += 64) {
            *(uint32_t *)(s->q + r * (D + Q_PAD) + d) =
                query_pair(T(), there && d < a.kv.head_dim ? q + d : NULL);
        }
    }
    __syncwarp();
}

template <class T, int D>
INLINE void run_begin(struct mma_state<T, D> *s, const struct attention_args &a,
                      const struct attention_run &run)
{
    int first = (int)threadIdx.x / 32 * WARP_ROWS;
    bool none = first >= run.tile->n_rows;
    s->position[0] = none ? -1 : tile_position(a, run.tile, warp_row(0));
    s->position[1] = none ? -1 : tile_position(a, run.tile, warp_row(1));
    read_queries(s, a, run);
    segment_begin(s);
}

/* scores[KEYS / 8][4] = q · K^T */
template <class T, int D> INLINE void score_keys(float scores[KEYS / 8][4], const T *q, const T *k)
{
    int lane = threadIdx.x % 32;
    const T *left_row = q + lane % 16 * (D + Q_PAD) + lane / 16 * 8;
    const T *row = k + (lane / 16 * 8 + lane % 8) * tile_layout<T, D>::PITCH + lane / 8 % 2 * 8;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
        scores[n][0] = scores[n][1] = scores[n][2] = scores[n][3] = 0;
#pragma unroll
    for (int d = 0; d < D / 16; d++) {
        uint32_t left[4];
        ldmatrix_x4(left, left_row + d * 16);
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
            uint32_t b[4];
            ldmatrix_x4(b, row + n * 16 * tile_layout<T, D>::PITCH + d * 16);
            mma(T(), scores[2 * n], left, b);
            mma(T(), scores[2 * n + 1], left, b + 2);
        }
    }
}

/* The key of element e of scores[n] */
INLINE int key_of(int key0, int n, int e)
{
    return key0 + 8 * n + (int)threadIdx.x % 4 * 2 + e % 2;
}

INLINE void cap_scores(float scores[KEYS / 8][4], const struct attention_args &a)
{
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            scores[n][e] = capped(scores[n][e], a);
}

INLINE void mask_scores(float scores[KEYS / 8][4], const int position[2], int window, int key0)
{
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (!is_seen(key_of(key0, n, e), position[e / 2], window))
                scores[n][e] = -INFINITY;
}

/* Turns the scores of row half `half` to weights relative to the greatest so far; what the sums so
 * far are to be multiplied with. */
template <int N>
INLINE float weigh(float (&scores)[N][4], int half, float to_log2, float *most, float *sum)
{
    float now = *most;
#pragma unroll
    for (int n = 0; n < N; n++)
        now = fmaxf(now, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
    now = fmaxf(now, __shfl_xor_sync((unsigned)ALL_LANES, now, 1));
    now = fmaxf(now, __shfl_xor_sync((unsigned)ALL_LANES, now, 2));
    bool none = now == -INFINITY;
    float base = none ? 0 : now * to_log2;
    float scale = none ? 1 : exp2_approx((*most - now) * to_log2), total = *sum * scale;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; e++) {
            scores[n][e] = exp2_approx(fmaf(scores[n][e], to_log2, -base));
            total += scores[n][e];
        }
    *most = now;
    *sum = total;
    return scale;
}

/* The left side of p · V for keys 16 n … */
template <class T> INLINE void weights_of(uint32_t left[4], const float p[KEYS / 8][4], int n)
{
    left[0] = pack(T(), p[2 * n][0], p[2 * n][1]);
    left[1] = pack(T(), p[2 * n][2], p[2 * n][3]);
    left[2] = pack(T(), p[2 * n + 1][0], p[2 * n + 1][1]);
    left[3] = pack(T(), p[2 * n + 1][2], p[2 * n + 1][3]);
}

template <class T, int D> INLINE const T *value_row(const T *v)
{
    int lane = threadIdx.x % 32;
    return v + lane % 16 * tile_layout<T, D>::PITCH + lane / 16 * 8;
}

/* acc += p · V, a V that is NaN taken as 0 if CLEAN; whether there was one, then */
template <bool CLEAN, class T, int D>
INLINE bool add_values(float acc[D / 8][4], const float p[KEYS / 8][4], const T *v)
{
    const T *row = value_row<T, D>(v);
    uint32_t any = 0;
#pragma unroll
    for (int n = 0; n < KEYS / 16; n++) {
        uint32_t left[4];
        weights_of<T>(left, p, n);
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, row + n * 16 * tile_layout<T, D>::PITCH + d * 16);
            for (int i = 0; CLEAN && i < 4; i++) {
                uint32_t nan = nan_halves(T(), b[i]);
                any |= nan;
                b[i] &= ~(nan * 0xffff);
            }
            mma(T(), acc[2 * d], left, b);
            mma(T(), acc[2 * d + 1], left, b + 2);
        }
    }
    return any != 0;
}

/* NaN to the sums of rows that see a V that is NaN; rare, so short and in few registers. */
template <class T, int D>
INLINE void poison(float acc[D / 8][4], const int position[2], int window, int key0, const T *v)
{
    const T *at = v + threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
        uint32_t seen[2] = {0, 0}; /* NaN, of the two columns */
#pragma unroll 1
        for (int key = 0; key < KEYS; key++) {
            uint32_t nan =
                nan_halves(T(), *(const uint32_t *)(at + key * tile_layout<T, D>::PITCH + 8 * n));
            for (int half = 0; half < 2; half++)
                seen[half] |= is_seen(key0 + key, position[half], window) ? nan : 0;
        }
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (seen[e / 2] >> e % 2 * 16 & 1)
                acc[n][e] = NAN;
    }
}

INLINE bool rows_see_some(const int position[2], int key0, int window)
{
    return __any_sync((unsigned)ALL_LANES,
                      sees_some(key0, position[0], window) || sees_some(key0, position[1], window));
}

INLINE bool rows_see_all(const int position[2], int key0, int window)
{
    return __all_sync((unsigned)ALL_LANES,
                      sees_all(key0, position[0], window) && sees_all(key0, position[1], window));
}

template <int D> INLINE void scale_sums(float acc[D / 8][4], const float scale[2])
{
    if (!__any_sync((unsigned)ALL_LANES, scale[0] != 1 || scale[1] != 1))
        return;
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            acc[n][e] *= scale[e / 2];
}

template <class T, int D>
INLINE void tile_of_keys(struct mma_state<T, D> *s, const struct attention_args &a, const T *k,
                         int key0)
{
    const T *v = k + tile_layout<T, D>::V;
    float scores[KEYS / 8][4], scale[2];
    if (!rows_see_some(s->position, key0, a.window))
        return;
    bool whole = rows_see_all(s->position, key0, a.window);
    score_keys<T, D>(scores, s->q, k);
    if (a.cap > 0)
        cap_scores(scores, a);
    if (!whole)
        mask_scores(scores, s->position, a.window, key0);
#pragma unroll
    for (int half = 0; half < 2; half++)
        scale[half] = weigh(scores, half, a.to_log2, &s->most[half], &s->sum[half]);
    scale_sums<D>(s->acc, scale);
    if (whole)
        add_values<false, T, D>(s->acc, scores, v);
    else if (__any_sync((unsigned)ALL_LANES, add_values<true, T, D>(s->acc, scores, v)))
        poison<T, D>(s->acc, s->position, a.window, key0, v);
}

/* Writes the segment's result of a row for combine_kernel, if the row sees some of it. */
template <class T, int D>
INLINE void write_partial(const struct mma_state<T, D> *s, const struct attention_args &a,
                          const struct attention_run &run, int segment, int half)
{
    int r = warp_row(half), t = threadIdx.x % 4;
    if (r >= run.tile->n_rows || !sees_segment(a, s->position[half], segment))
        return;
    float *to = partial_at(a, plan_row(a, tile_row(a, run.tile, r)), tile_head(a, run, r), segment);
#pragma unroll
    for (int n = 0; n < D / 8; n++)
        if (8 * n < a.kv.head_dim)
            *(float2 *)(to + 8 * n + 2 * t) =
                make_float2(s->acc[n][2 * half], s->acc[n][2 * half + 1]);
    if (t == 0)
        *(float2 *)(to + a.kv.head_dim) = make_float2(s->run_most[half], s->run_sum[half]);
}

template <class T, int D>
INLINE void write_row(const struct mma_state<T, D> *s, const struct attention_args &a,
                      const struct attention_run &run, int half)
{
    int r = warp_row(half);
    if (r >= run.tile->n_rows)
        return;
    int head = tile_head(a, run, r);
    size_t at = out_at(a, tile_row(a, run.tile, r), head) + threadIdx.x % 4 * 2;
    float w = final_weight(a, s->run_most[half], s->run_sum[half], head);
#pragma unroll
    for (int n = 0; n < D / 8; n++)
        if (8 * n < a.kv.head_dim)
            store_pair(a, at + 8 * n, s->acc[n][2 * half] * w, s->acc[n][2 * half + 1] * w);
}

/* Joins the segment's maximum and sum to those of the run; its weights */
template <class T, int D>
INLINE void join_sums(struct mma_state<T, D> *s, bool first, const float most[2],
                      const float sum[2], float w_run[2], float w[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (first) {
            s->run_most[half] = most[half];
            s->run_sum[half] = sum[half];
        } else {
            join_weights(&s->run_most[half], most[half], &w_run[half], &w[half]);
            s->run_sum[half] = joined(s->run_sum[half], w_run[half], sum[half], w[half]);
        }
    }
}

/* Joins the segment's sums to the run's, which wait in shared memory, and leaves them there unless
 * this is the last. */
template <class T, int D>
INLINE void join_values(struct mma_state<T, D> *s, bool first, bool last, const float w_run[2],
                        const float w[2])
{
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
        float4 *at = s->run_acc + n * 32 + threadIdx.x % 32;
        float *acc = s->acc[n];
        if (n % 4 == 0)
            __syncwarp(); /* for the compiler: lest it reads all at once, into too many registers */
        if (!first) {
            float4 run = *at;
            acc[0] = joined(run.x, w_run[0], acc[0], w[0]);
            acc[1] = joined(run.y, w_run[0], acc[1], w[0]);
            acc[2] = joined(run.z, w_run[1], acc[2], w[1]);
            acc[3] = joined(run.w, w_run[1], acc[3], w[1]);
        }
        if (!last)
            *at = make_float4(acc[0], acc[1], acc[2], acc[3]);
    }
}

template <class T, int D>
INLINE void segment_end(struct mma_state<T, D> *s, const struct attention_args &a,
                        const struct attention_run &run, int segment, bool first, bool last)
{
    float most[2], sum[2], w_run[2], w[2];
    if (s->position[0] < 0)
        return;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        most[half] = s->most[half] * a.to_log2;
        sum[half] = s->sum[half] + __shfl_xor_sync((unsigned)ALL_LANES, s->sum[half], 1);
        sum[half] += __shfl_xor_sync((unsigned)ALL_LANES, sum[half], 2);
    }
    join_sums(s, first || run.tile->split, most, sum, w_run, w);
    if (!run.tile->split)
        join_values(s, first, last, w_run, w);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (run.tile->split)
            write_partial(s, a, run, segment, half);
        else if (last)
            write_row(s, a, run, half);
    }
    segment_begin(s);
}

template <class T, int D>
static __global__ void __launch_bounds__(32 * MAX_WARPS, D > 64 ? 2 : 3)
    attention_mma_kernel(struct attention_args a, enum cuda_attention_kind kind, int n_stages)
{
    DYN_SHARED(unsigned char, bytes);
    struct mma_state<T, D> s;
    T *stages = (T *)bytes, *q = stages + n_stages * tile_layout<T, D>::STAGE;
    int n_warps = blockDim.x / 32, warp = threadIdx.x / 32;
    s.q = q + warp * WARP_ROWS * (D + Q_PAD);
    s.run_acc = (float4 *)(q + n_warps * WARP_ROWS * (D + Q_PAD)) + warp * D * 4;
    if constexpr (has_mma<T>) /* cuda_attention_open refuses the others */
        attend_share<T, D>(&s, a, kind, stages, n_stages);
}

template <class T, int D> static struct attention_code mma_code_of()
{
    struct attention_code c = {attention_mma_kernel<T, D>, tile_layout<T, D>::STAGE * sizeof(T),
                               WARP_ROWS * (D * sizeof(float) + (D + Q_PAD) * sizeof(T))};
    return c;
}

template <class T> static struct attention_code mma_code(int head_dim)
{
    if (head_dim <= 64)
        return mma_code_of<T, 64>();
    if (head_dim <= 96)
        return mma_code_of<T, 96>();
    return head_dim <= 128 ? mma_code_of<T, 128>() : mma_code_of<T, 256>();
}

#endif
