/* Norms of q and k, rotary embedding, and writing K and V to their page: a block a row, a warp a
 * head. Bound by bytes: q, k and v are read, q, k and the pages written. */
#include "kernels.h"

#include "kv.cuh"
#include "norm.cuh"

#include <float.h>

/* The norm of one head, or of a whole projection */
struct head_norm {
    const float *w; /* of the head's dims; NULL: no norm */
    float mean, scale;
};

/* Never infinite, so that what a later row outshines stays finite */
INLINE void store_kv(float *at, float x)
{
    *at = within(x, FLT_MAX);
}

INLINE void store_kv(__half *at, float x)
{
    store_float(at, x);
}

INLINE void store_kv(__nv_bfloat16 *at, float x)
{
    *at = __float2bfloat16_rn(within(x, 3.3895313892515355e38f)); /* its largest */
}

/* Over `width` values: by the whole block, or, sums NULL, by the warp */
INLINE struct head_norm head_norm_of(const float *x, int width, struct cuda_qk_norm n,
                                     const float *w, float *sums)
{
    struct head_norm h = {w, 0, 1};
    h.scale = norm_scale(x, width, n.kind, n.eps, &h.mean, sums);
    return h;
}

INLINE float normed(const float *x, int i, struct head_norm h)
{
    return h.w ? (x[i] - h.mean) * h.scale * h.w[i] : x[i];
}

/* Norms and turns a head in place: a lane has whole pairs. `turns` [n_dims / 2][2]. */
INLINE void turn_head(float *x, int dim, struct head_norm h, struct cuda_rope rope,
                      const float *turns)
{
    int half = rope.style == ROPE_NONE ? 0 : rope.n_dims / 2;
    for (int i = threadIdx.x % 32; i < half; i += 32) {
        int a = rope.style == ROPE_NORMAL ? 2 * i : i;
        int b = rope.style == ROPE_NORMAL ? 2 * i + 1 : i + half;
        float u = normed(x, a, h), v = normed(x, b, h), c = turns[2 * i], s = turns[2 * i + 1];
        x[a] = fmaf(u, c, -(v * s));
        x[b] = fmaf(v, c, u * s);
    }
    for (int i = 2 * half + threadIdx.x % 32; h.w && i < dim; i += 32)
        x[i] = normed(x, i, h);
}

/* All heads of a projection: norms, turns. A warp takes every ROW_WARPS-th head. */
INLINE void turn_heads(float *x, int n_heads, int dim, struct cuda_qk_norm n, const float *w,
                       struct cuda_rope rope, const float *turns, float *sums)
{
    struct head_norm h = {NULL, 0, 1};
    bool all = w && n.span == QK_NORM_ALL;
    if (all)
        h = head_norm_of(x, n_heads * dim, n, w, sums);
    for (int head = threadIdx.x / 32; head < n_heads; head += ROW_WARPS) {
        float *at = x + (size_t)head * dim;
        if (all)
            h.w = w + (size_t)head * dim;
        else if (w)
            h = head_norm_of(at, dim, n, n.span == QK_NORM_HEAD ? w : w + (size_t)head * dim, NULL);
        __syncwarp(); /* what other lanes read for the norm is written now */
        turn_head(at, dim, h, rope, turns);
    }
}

template <class T>
INLINE void write_heads(struct cuda_kv kv, int layer, int slot, enum kv_which which, const float *x)
{
    T *pool = (T *)kv.pool;
    for (int head = threadIdx.x / 32; head < kv.n_kv_heads; head += ROW_WARPS) {
        T *to = pool + kv_at(kv, layer, slot, which, head);
        const float *from = x + (size_t)head * kv.head_dim;
        for (int i = threadIdx.x % 32; i < kv.head_dim; i += 32)
            store_kv(to + i, from[i]);
    }
}

struct rope_rows {
    float *q, *k;
    const float *v;
    const int32_t *positions, *slots;
    int n_heads;
};

template <class T>
static __global__ void __launch_bounds__(ROW_THREADS)
    rope_kernel(struct cuda_kv kv, int layer, struct cuda_qk_norm n, struct cuda_rope rope,
                struct rope_rows rows)
{
    SHARED(float, sums, [ROW_WARPS]);
    int row = blockIdx.x, slot = rows.slots[row];
    size_t kv_width = (size_t)kv.n_kv_heads * kv.head_dim;
    float *q = rows.q + (size_t)row * rows.n_heads * kv.head_dim, *k = rows.k + row * kv_width;
    const float *turns = rope.table + (size_t)rows.positions[row] * rope.n_dims;
    turn_heads(q, rows.n_heads, kv.head_dim, n, n.q, rope, turns, sums);
    turn_heads(k, kv.n_kv_heads, kv.head_dim, n, n.k, rope, turns, sums);
    if (slot < 0)
        return;
    __syncwarp(); /* a warp writes the heads that it turned, and other lanes' dims */
    write_heads<T>(kv, layer, slot, KV_K, k);
    write_heads<T>(kv, layer, slot, KV_V, rows.v + row * kv_width);
}

static const struct cuda_qk_norm no_norm = {NORM_RMS, QK_NORM_HEAD, NULL, NULL, 0};
static const struct cuda_rope no_rope = {ROPE_NONE, 0, NULL};

cudaError_t cuda_rope_write_kv(cudaStream_t s, const struct cuda_kv *kv, int layer,
                               const struct cuda_qk_norm *n, const struct cuda_rope *rope,
                               int n_heads, float *q, float *k, const float *v,
                               const int32_t *positions, const int32_t *slots, int n_rows)
{
    struct rope_rows rows = {q, k, v, positions, slots, n_heads};
    n = n ? n : &no_norm;
    rope = rope ? rope : &no_rope;
    WITH_FLOAT_TYPE(kv->dtype, T,
                    LAUNCH(rope_kernel<T>, n_rows, ROW_THREADS, 0, s)(*kv, layer, *n, *rope, rows));
    return cudaGetLastError();
}
