/* attention.cuh: what the attention kernels of all types share: which work a block has, keys and
 * values on their way to shared memory, and how the softmax of two parts becomes one.
 *
 * The online softmax of FlashAttention (Dao 2023), by segments of SEGMENT tokens at absolute
 * positions. A warp has WARP_ROWS rows, one for each query head of one KV head and token; it goes
 * over the tokens in tiles of KEYS. At the end of a segment its result is joined to that of the
 * earlier ones, or written for combine_kernel, which joins in the same order: so a row's bits
 * depend neither on how segments are shared out nor on the rows beside it. What must not happen
 * for that: a product and a sum that the compiler fuses in one place only (fmaf says which are),
 * and a zero whose sign is seen (a tile that a row sees nothing of may turn -0 to +0). */
#ifndef TOKEND_ATTENTION_CUH
#define TOKEND_ATTENTION_CUH

#include "kv.cuh"

enum { SEGMENT = CUDA_ATTENTION_SEGMENT, KEYS = 32, WARP_ROWS = 16, MAX_WARPS = 4 };
enum { PARTIAL_EXTRA = 4 }; /* floats after a partial result: maximum, sum, 2 unused */

struct attention_args {
    struct cuda_kv kv;
    int layer, n_heads, group; /* query heads of a KV head */
    int window;                /* INT_MAX: none */
    float cap, into_cap; /* cap 0: none; else score = cap - 2 cap / (1 + exp2(q · k * into_cap)) */
    float to_log2;       /* the score (or q · k) times this is what exp2 takes */
    const float *q, *sinks;
    void *out;
    enum dtype out_type;
    const int32_t *page_tables;
    int max_pages;
    const struct cuda_attention_plan *plan;
    float *partials; /* [][head_dim + PARTIAL_EXTRA] */
};

typedef void (*attention_kernel)(struct attention_args, enum cuda_attention_kind, int n_stages);
/* The kernel for a head_dim (NULL: none) and the shared memory that it takes */
struct attention_code {
    attention_kernel kernel;
    size_t stage_bytes, warp_bytes; /* of each tile of keys on its way, and of each warp */
};
struct attention_code attention_f32(int head_dim);
struct attention_code attention_f16(int head_dim);
struct attention_code attention_bf16(int head_dim);
struct attention_code attention_int8(int head_dim);
struct attention_code attention_e4m3(int head_dim);
/* Wide tiles, after cuda_attention_use_wgmma */
cudaError_t attend_wgmma(cudaStream_t, const struct attention_args &, int n_blocks);

/* --- work --- */

/* Segments of one tile and KV head, for one block */
struct attention_run {
    const struct cuda_attention_tile *tile;
    int kv_head, segment, n_segments;
    int first, last; /* keys that some row of the tile sees */
};

/* The first key that a row sees; the last is at its own position. */
INLINE int first_seen(int position, int window)
{
    return max(position - window + 1, 0);
}

INLINE bool is_seen(int key, int position, int window)
{
    return key <= position && key > position - window;
}

/* The token of row r of a tile; of one past the end, of the last */
INLINE struct cuda_attention_member tile_member(const struct attention_args &a,
                                                const struct cuda_attention_tile *t, int r)
{
    const void *members = (const char *)a.plan + a.plan->members_at;
    return ((const struct cuda_attention_member *)
                members)[t->member + (t->head + min(r, t->n_rows - 1)) / a.group];
}

INLINE int tile_position(const struct attention_args &a, const struct cuda_attention_tile *t, int r)
{
    return tile_member(a, t, r).position;
}

INLINE int tile_row(const struct attention_args &a, const struct cuda_attention_tile *t, int r)
{
    return tile_member(a, t, r).row;
}

/* Whether a row sees something of a tile of keys, and whether it sees all */
INLINE bool sees_some(int key0, int position, int window)
{
    return key0 <= position && key0 + KEYS > first_seen(position, window);
}

INLINE bool sees_all(int key0, int position, int window)
{
    return key0 + KEYS - 1 <= position && key0 > position - window;
}

INLINE int tile_head(const struct attention_args &a, const struct attention_run &run, int r)
{
    return run.kv_head * a.group + (run.tile->head + r) % a.group;
}

/* The tile of a unit: the last whose first unit is not after it */
INLINE const struct cuda_attention_tile *find_tile(const struct cuda_attention_tile *tiles, int n,
                                                   int unit)
{
    while (n > 1) {
        int half = n / 2;
        if (tiles[half].unit <= unit) {
            tiles += half;
            n -= half;
        } else {
            n = half;
        }
    }
    return tiles;
}

/* The run that starts with `unit`; *unit becomes the one after it, `end` at most. */
INLINE struct attention_run next_run(const struct attention_args &a,
                                     const struct cuda_attention_tile *t, int *unit, int end)
{
    int per_head = t->split ? t->n_segments : 1, in_tile = *unit - t->unit;
    struct attention_run r = {t, in_tile / per_head, t->segment, t->n_segments};
    int in_head = in_tile % per_head, n = min(per_head - in_head, end - *unit);
    if (t->split) {
        r.segment += in_head;
        r.n_segments = n;
    }
    r.first = max(first_seen(t->low, a.window), r.segment * SEGMENT);
    r.last = min(t->high, (r.segment + r.n_segments) * SEGMENT - 1);
    *unit += n;
    return r;
}

/* --- keys and values --- */

/* Keys and values in shared memory, in values */
template <class T, int D> struct tile_layout {
    enum {
        CHUNK = 16 / sizeof(T), /* of 16 bytes */
        PITCH = D + CHUNK,      /* from a row to the next: 8 rows start in 8 groups of banks */
        V = KEYS * PITCH,       /* from K to V */
        SCALES = 2 * V,         /* of 8-bit values: bf16 [K, V][KEYS] */
        STAGE = SCALES + (sizeof(T) == 1 ? 4 * KEYS : 0),
        LANES = D / CHUNK > 4 ? 8 : 4 /* that copy a row */
    };
};

template <class T>
INLINE size_t block_of_keys(const struct attention_args &a, const int32_t *pages, int key, int head)
{
    int page = pages[key / a.kv.block_size];
    return kv_at<T>(a.kv, a.layer, page * a.kv.block_size + key % a.kv.block_size, KV_K, head);
}

/* The scales of a block of keys whose K is at `k`; `any`: one of them is seen */
template <class T, int D>
INLINE void load_scales(T *stage, const struct attention_args &a, const T *k, size_t v_after, int b,
                        bool any)
{
    const int part = threadIdx.x % 2 * 16, which = threadIdx.x / 2;
    if (which > 1)
        return;
    const T *from = any ? k + which * v_after + KV_BLOCK * a.kv.head_dim + part : k;
    cp_async16(stage + tile_layout<T, D>::SCALES + (which * KEYS + b) * 2 + part, from,
               any ? 16 : 0);
}

/* Sends the tile's keys and values (K, then V) on their way; zeros for those that no row sees and
 * dims that the model lacks. 8 lanes copy 128 bytes of a row, 4 where it has no more than 64. */
template <class T, int D>
INLINE void load_keys(T *stage, const struct attention_args &a, const struct attention_run &run,
                      int key0)
{
    enum {
        CHUNK = tile_layout<T, D>::CHUNK,
        PITCH = tile_layout<T, D>::PITCH,
        LANES = tile_layout<T, D>::LANES
    };
    const int32_t *pages = a.page_tables + (size_t)run.tile->seq * a.max_pages;
    int dim = a.kv.head_dim;
    size_t v_after = a.kv.n_kv_heads * kv_head_values<T>(a.kv);
#pragma unroll 1
    for (int b = 0; b < KEYS; b += KV_BLOCK) {
        bool any = key0 + b <= run.last && key0 + b + KV_BLOCK > run.first;
        const T *k = (const T *)a.kv.pool;
        if (any)
            k += block_of_keys<T>(a, pages, key0 + b, run.kv_head);
        if (sizeof(T) == 1)
            load_scales<T, D>(stage, a, k, v_after, b, any);
        for (int i = threadIdx.x / LANES; i < KV_BLOCK; i += blockDim.x / LANES) {
            int key = key0 + b + i;
            bool there = key >= run.first && key <= run.last;
#pragma unroll(D > 128 ? 1 : 4)
            for (int c = 0; c < D; c += LANES * CHUNK) {
                int d = c + (int)threadIdx.x % LANES * CHUNK;
                if (D % (LANES * CHUNK) != 0 && d >= D)
                    continue;
                int n = there && d < dim ? 16 : 0;
                const T *from = n ? k + i * dim + d : (const T *)a.kv.pool;
                T *to = stage + (b + i) * PITCH + d;
                cp_async16(to, from, n);
                cp_async16(to + tile_layout<T, D>::V, n ? from + v_after : from, n);
            }
        }
    }
}

/* --- softmax --- */

/* How two parts are joined: maxima in units of exp2; *old becomes that of both. A part without
 * keys has the maximum -INFINITY and leaves the other as it is. */
INLINE void join_weights(float *old, float more, float *w_old, float *w_more)
{
    float most = fmaxf(*old, more);
    *w_old = most == -INFINITY ? 1 : exp2_approx(*old - most);
    *w_more = most == -INFINITY ? 1 : exp2_approx(more - most);
    *old = most;
}

/* cap * tanh(q · k * scale / cap) */
INLINE float capped(float product, const struct attention_args &a)
{
    return fmaf(-2 * a.cap, __frcp_rn(1 + exp2_approx(product * a.into_cap)), a.cap);
}

INLINE float joined(float old, float w_old, float more, float w_more)
{
    return fmaf(more, w_more, old * w_old);
}

/* What the row is multiplied with in the end; the sink joins here. */
INLINE float final_weight(const struct attention_args &a, float most, float sum, int head)
{
    if (!a.sinks)
        return 1 / sum;
    float sink = a.sinks[head] * 1.4426950408889634f, w, w_sink;
    join_weights(&most, sink, &w, &w_sink);
    return w / joined(sum, w, 1, w_sink);
}

INLINE void store_pair(const struct attention_args &a, size_t at, float x, float y)
{
    x += 0.0f; /* -0 becomes +0 */
    y += 0.0f;
    if (a.out_type == DTYPE_F32)
        *(float2 *)((float *)a.out + at) = make_float2(x, y);
    else if (a.out_type == DTYPE_F16)
        *(__half2 *)((__half *)a.out + at) = __floats2half2_rn(x, y);
    else
        *(__nv_bfloat162 *)((__nv_bfloat16 *)a.out + at) = __floats2bfloat162_rn(x, y);
}

INLINE size_t out_at(const struct attention_args &a, int row, int head)
{
    return ((size_t)row * a.n_heads + head) * a.kv.head_dim;
}

INLINE bool sees_segment(const struct attention_args &a, int position, int segment)
{
    return segment >= first_seen(position, a.window) / SEGMENT && segment <= position / SEGMENT;
}

INLINE struct cuda_attention_row plan_row(const struct attention_args &a, int row)
{
    return ((const struct cuda_attention_row *)((const char *)a.plan + a.plan->rows_at))[row];
}

/* The partial result of a row, a head and a segment; only segments that the row sees some of have
 * one. */
INLINE float *partial_at(const struct attention_args &a, struct cuda_attention_row row, int head,
                         int segment)
{
    int from = first_seen(row.position, a.window) / SEGMENT, n = row.position / SEGMENT - from + 1;
    size_t at = (size_t)row.partial + (size_t)head * n + (segment - from);
    return a.partials + at * (a.kv.head_dim + PARTIAL_EXTRA);
}

/* --- a run --- */

/* For the state S of a warp, which a file has for its type:
 *   run_begin(s, a, run)        reads the rows' queries
 *   tile_of_keys(s, a, stage, key0)  adds a tile
 *   segment_end(s, a, run, segment, first, last)  joins or writes the segment's result */
template <class T, int D, class S>
INLINE void attend(S *s, const struct attention_args &a, const struct attention_run &run, T *stages,
                   int n_stages)
{
    enum { STAGE = tile_layout<T, D>::STAGE };
    int tile = run.first / KEYS, end = run.last / KEYS + 1, stage = 0, first = tile;
    for (int i = 0; i < n_stages - 1; i++) {
        if (tile + i < end)
            load_keys<T, D>(stages + i * STAGE, a, run, (tile + i) * KEYS);
        cp_async_commit();
    }
    run_begin(s, a, run);
    for (; tile < end; tile++) {
        if (n_stages > 2)
            cp_async_wait<1>();
        else
            cp_async_wait<0>();
        __syncthreads(); /* the tile is there, and all are done with the one before */
        int ahead = tile + n_stages - 1, into = stage ? stage - 1 : n_stages - 1;
        if (ahead < end)
            load_keys<T, D>(stages + into * STAGE, a, run, ahead * KEYS);
        cp_async_commit();
        if (n_stages == 1) {
            cp_async_wait<0>();
            __syncthreads(); /* the tile is there */
        }
        tile_of_keys(s, a, stages + stage * STAGE, tile * KEYS);
        if ((tile + 1) % (SEGMENT / KEYS) == 0 || tile + 1 == end)
            segment_end(s, a, run, tile / (SEGMENT / KEYS),
                        tile / (SEGMENT / KEYS) == first / (SEGMENT / KEYS), tile + 1 == end);
        stage = stage + 1 < n_stages ? stage + 1 : 0;
    }
    __syncthreads(); /* all are done with the stages */
}

/* The first unit of block b's share; shares are equal. */
INLINE int share_begin(const struct attention_args &a, enum cuda_attention_kind kind, unsigned b)
{
    return (int)((int64_t)a.plan->n_units[kind] * b / gridDim.x);
}

/* The block's next run, from *unit on; false: there is none. What this takes is read from the plan
 * each time: kept, it would take registers that large head_dims lack. */
INLINE bool take_run(const struct attention_args &a, enum cuda_attention_kind kind, int *unit,
                     struct attention_run *run)
{
    int end = share_begin(a, kind, blockIdx.x + 1);
    if (*unit >= end)
        return false;
    const void *tiles = (const char *)a.plan + a.plan->tiles_at[kind];
    *run = next_run(
        a, find_tile((const struct cuda_attention_tile *)tiles, a.plan->n_tiles[kind], *unit), unit,
        end);
    return true;
}

/* All of a block's work */
template <class T, int D, class S>
INLINE void attend_share(S *s, const struct attention_args &a, enum cuda_attention_kind kind,
                         T *stages, int n_stages)
{
    int unit = share_begin(a, kind, blockIdx.x);
    struct attention_run run;
    while (take_run(a, kind, &unit, &run))
        attend<T, D>(s, a, run, stages, n_stages);
}

#endif
