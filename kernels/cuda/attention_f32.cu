/* Attention over K and V of F32, in FP32 without tensor cores: for exactness rather than speed. For
 * q · K^T a lane has one key of a tile, for p · V pairs of dims; scores and weights of a warp's
 * rows go through shared memory. */
#include "attention.cuh"

enum { P_PITCH = KEYS + 4, HALF_KEYS = KEYS / 2 };

template <int D> struct float_state {
    float2 acc[WARP_ROWS][D / 64]; /* of dims 2 * lane + 64 * j */
    float most, sum;               /* of row lane % 16, of the segment */
    float run_most, run_sum;       /* of the segments joined so far, in units of exp2 */
    float *q, *p;                  /* [WARP_ROWS][D] and [WARP_ROWS][P_PITCH], the warp's, shared */
    float2 *run_acc; /* [WARP_ROWS * D / 64][32 lanes], shared; a lane's are its own */
    int position;    /* of row lane % 16; -1: the warp has none */
    int n_rows;
};

INLINE int first_row()
{
    return (int)threadIdx.x / 32 * WARP_ROWS;
}

template <int D> INLINE void segment_begin(struct float_state<D> *s)
{
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++)
#pragma unroll
        for (int j = 0; j < D / 64; j++)
            s->acc[r][j] = make_float2(0, 0);
    s->most = -INFINITY;
    s->sum = 0;
}

template <int D>
INLINE void run_begin(struct float_state<D> *s, const struct attention_args &a,
                      const struct attention_run &run)
{
    int lane = threadIdx.x % 32, first = first_row();
    s->n_rows = max(min(run.tile->n_rows - first, (int)WARP_ROWS), 0);
    s->position = s->n_rows ? tile_position(a, run.tile, first + lane % WARP_ROWS) : -1;
    __syncwarp(); /* the last run's queries have been read */
    for (int r = 0; r < s->n_rows; r++) {
        const float *q =
            a.q + out_at(a, tile_row(a, run.tile, first + r), tile_head(a, run, first + r));
        for (int d = lane; d < D; d += 32)
            s->q[r * D + d] = d < a.kv.head_dim ? q[d] : 0;
    }
    for (int i = s->n_rows * D + lane; i < WARP_ROWS * D; i += 32)
        s->q[i] = 0;
    __syncwarp();
    segment_begin(s);
}

INLINE float dot4(float4 x, float4 y, float sum)
{
    return fmaf(x.w, y.w, fmaf(x.z, y.z, fmaf(x.y, y.y, fmaf(x.x, y.x, sum))));
}

/* p[row][lane] = q[row] · K[lane] */
template <int D> INLINE void score_keys(const struct float_state<D> *s, const float *k)
{
    int lane = threadIdx.x % 32;
    const float *key = k + lane * tile_layout<float, D>::PITCH;
    float scores[WARP_ROWS] = {};
    for (int d = 0; d < D; d += 4) {
        float4 values = *(const float4 *)(key + d);
#pragma unroll
        for (int r = 0; r < WARP_ROWS; r++)
            scores[r] = dot4(*(const float4 *)(s->q + r * D + d), values, scores[r]);
    }
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++)
        s->p[r * P_PITCH + lane] = scores[r];
}

/* Turns the scores of row lane % 16, half of the keys a lane, to weights relative to the greatest
 * so far; what the sums so far are to be multiplied with. */
template <int D>
INLINE float weigh(struct float_state<D> *s, const struct attention_args &a, int key0)
{
    int lane = threadIdx.x % 32, half = lane / WARP_ROWS * HALF_KEYS;
    float *p = s->p + lane % WARP_ROWS * P_PITCH + half, now = s->most, total = 0;
    for (int i = 0; i < HALF_KEYS; i++) {
        int key = key0 + half + i;
        float score = a.cap > 0 ? capped(p[i], a) : p[i];
        p[i] = is_seen(key, s->position, a.window) ? score : -INFINITY;
        now = fmaxf(now, p[i]);
    }
    now = fmaxf(now, __shfl_xor_sync((unsigned)ALL_LANES, now, WARP_ROWS));
    bool none = now == -INFINITY;
    float base = none ? 0 : now * a.to_log2;
    float scale = none ? 1 : exp2_approx((s->most - now) * a.to_log2);
    for (int i = 0; i < HALF_KEYS; i++) {
        p[i] = exp2_approx(fmaf(p[i], a.to_log2, -base));
        total += p[i];
    }
    total += __shfl_xor_sync((unsigned)ALL_LANES, total, WARP_ROWS);
    s->most = now;
    s->sum = fmaf(s->sum, scale, total);
    return scale;
}

INLINE void add_pair(float2 *acc, float w, float2 v)
{
    acc->x = fmaf(w, v.x, acc->x);
    acc->y = fmaf(w, v.y, acc->y);
}

/* acc += p · V, a row only over keys that it sees; `whole`: they all see all */
template <int D>
INLINE void add_values(struct float_state<D> *s, const float *v, int key0, int window, bool whole)
{
    int lane = threadIdx.x % 32;
    for (int key = 0; key < KEYS; key++) {
        float2 values[D / 64];
        bool seen = is_seen(key0 + key, s->position, window);
        unsigned rows = whole ? (unsigned)ALL_LANES : __ballot_sync((unsigned)ALL_LANES, seen);
#pragma unroll
        for (int j = 0; j < D / 64; j++)
            values[j] =
                *(const float2 *)(v + key * tile_layout<float, D>::PITCH + 2 * lane + 64 * j);
#pragma unroll
        for (int r = 0; r < WARP_ROWS; r++)
            if (rows >> r & 1)
#pragma unroll
                for (int j = 0; j < D / 64; j++)
                    add_pair(&s->acc[r][j], s->p[r * P_PITCH + key], values[j]);
    }
}

template <int D>
INLINE void tile_of_keys(struct float_state<D> *s, const struct attention_args &a, const float *k,
                         int key0)
{
    if (!__any_sync((unsigned)ALL_LANES, sees_some(key0, s->position, a.window)))
        return;
    score_keys(s, k);
    __syncwarp();
    float scale = weigh(s, a, key0);
    __syncwarp();
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++) {
        float w = __shfl_sync((unsigned)ALL_LANES, scale, r);
#pragma unroll
        for (int j = 0; j < D / 64; j++) {
            s->acc[r][j].x *= w;
            s->acc[r][j].y *= w;
        }
    }
    add_values(s, k + tile_layout<float, D>::V, key0, a.window,
               __all_sync((unsigned)ALL_LANES, sees_all(key0, s->position, a.window)));
}

/* Writes the segment's result of row r for combine_kernel, if the row sees some of it. */
template <int D>
INLINE void write_partial(const struct float_state<D> *s, const struct attention_args &a,
                          const struct attention_run &run, int segment, int r)
{
    int i = first_row() + r, lane = threadIdx.x % 32;
    int position = __shfl_sync((unsigned)ALL_LANES, s->position, r);
    float most = __shfl_sync((unsigned)ALL_LANES, s->run_most, r);
    float sum = __shfl_sync((unsigned)ALL_LANES, s->run_sum, r);
    if (r >= s->n_rows || !sees_segment(a, position, segment))
        return;
    float *to = partial_at(a, plan_row(a, tile_row(a, run.tile, i)), tile_head(a, run, i), segment);
#pragma unroll
    for (int j = 0; j < D / 64; j++)
        if (2 * lane + 64 * j < a.kv.head_dim)
            *(float2 *)(to + 2 * lane + 64 * j) = s->acc[r][j];
    if (lane == 0)
        *(float2 *)(to + a.kv.head_dim) = make_float2(most, sum);
}

template <int D>
INLINE void write_row(const struct float_state<D> *s, const struct attention_args &a,
                      const struct attention_run &run, int r)
{
    int i = first_row() + r, lane = threadIdx.x % 32;
    float most = __shfl_sync((unsigned)ALL_LANES, s->run_most, r);
    float sum = __shfl_sync((unsigned)ALL_LANES, s->run_sum, r);
    if (r >= s->n_rows)
        return;
    int head = tile_head(a, run, i);
    size_t at = out_at(a, tile_row(a, run.tile, i), head) + 2 * lane;
    float w = final_weight(a, most, sum, head);
#pragma unroll
    for (int j = 0; j < D / 64; j++)
        if (2 * lane + 64 * j < a.kv.head_dim)
            store_pair(a, at + 64 * j, s->acc[r][j].x * w, s->acc[r][j].y * w);
}

/* Joins row r of the segment to that of the run, which waits in shared memory, and leaves it there
 * unless this is the last. */
template <int D>
INLINE void join_row(struct float_state<D> *s, int r, bool first, bool last, float w_run, float w)
{
    w_run = __shfl_sync((unsigned)ALL_LANES, w_run, r);
    w = __shfl_sync((unsigned)ALL_LANES, w, r);
#pragma unroll
    for (int j = 0; j < D / 64; j++) {
        float2 *at = s->run_acc + (r * (D / 64) + j) * 32 + threadIdx.x % 32;
        if (!first) {
            s->acc[r][j].x = joined(at->x, w_run, s->acc[r][j].x, w);
            s->acc[r][j].y = joined(at->y, w_run, s->acc[r][j].y, w);
        }
        if (!last)
            *at = s->acc[r][j];
    }
}

template <int D>
INLINE void segment_end(struct float_state<D> *s, const struct attention_args &a,
                        const struct attention_run &run, int segment, bool first, bool last)
{
    float most = s->most * a.to_log2, w_run = 0, w = 1;
    bool split = run.tile->split;
    if (first || split) {
        s->run_most = most;
        s->run_sum = s->sum;
    } else {
        join_weights(&s->run_most, most, &w_run, &w);
        s->run_sum = joined(s->run_sum, w_run, s->sum, w);
    }
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++) {
        if (split)
            write_partial(s, a, run, segment, r);
        else
            join_row(s, r, first, last, w_run, w);
        if (!split && last)
            write_row(s, a, run, r);
    }
    segment_begin(s);
}

template <int D>
static __global__ void __launch_bounds__(32 * MAX_WARPS, D > 64 ? 1 : 2)
    attention_f32_kernel(struct attention_args a, enum cuda_attention_kind kind, int n_stages)
{
    DYN_SHARED(float, stages);
    struct float_state<D> s;
    float *of_warp = stages + n_stages * tile_layout<float, D>::STAGE +
                     threadIdx.x / 32 * WARP_ROWS * (2 * D + P_PITCH);
    s.q = of_warp;
    s.run_acc = (float2 *)(of_warp + WARP_ROWS * D);
    s.p = of_warp + 2 * WARP_ROWS * D;
    attend_share<float, D>(&s, a, kind, stages, n_stages);
}

template <int D> static struct attention_code code_of()
{
    struct attention_code c = {attention_f32_kernel<D>,
                               tile_layout<float, D>::STAGE * sizeof(float),
                               WARP_ROWS * (2 * D + P_PITCH) * sizeof(float)};
    return c;
}

struct attention_code attention_f32(int head_dim)
{
    if (head_dim <= 64)
        return code_of<64>();
    return head_dim <= 128 ? code_of<128>() : code_of<256>();
}
