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

/* A head's values, whose block is at `block` */
template <class T> INLINE void write_head(T *block, int in_block, const float *x, int dim)
{
    for (int i = threadIdx.x % 32; i < dim; i += 32)
        store_kv(block + in_block * dim + i, x[i]);
}

/* --- values of 8 bits --- */

static const float KV_MOST = 3e38f; /* its scale times the largest code, rounded up, is finite */

INLINE float largest_code(struct kv_int8)
{
    return 127;
}

INLINE float largest_code(struct kv_e4m3)
{
    return 448;
}

/* x is at most the largest code, or so little above that it rounds to it */
INLINE unsigned code_of(struct kv_int8, float x)
{
    return (unsigned)((int)rintf(x) + 128);
}

/* Below 2^-6 steps of 2^-9, above three bits of fraction: rounded as float32's upper bits */
INLINE unsigned code_of(struct kv_e4m3, float x)
{
    unsigned sign = (unsigned)__float_as_int(x) >> 24 & 0x80, bits = __float_as_int(x) & 0x7fffffff;
    unsigned normal = ((bits + 0x7ffff + (bits >> 20 & 1)) >> 20) - ((127 - 7) << 3);
    return sign | (bits < (127 - 6) << 23 ? (unsigned)(int)rintf(fabsf(x) * 512) : normal);
}

/* The bf16 that is not below x > 0: what is divided by it is not above what x was made for */
INLINE unsigned bf16_not_below(float x)
{
    return ((unsigned)__float_as_int(x) + 0xffff) >> 16;
}

/* The largest |x| of a warp's head; a NaN is larger than all numbers */
INLINE float largest_of(const float *x, int dim)
{
    int most = 0; /* of float32's bits without the sign: ordered as whole numbers */
    for (int i = threadIdx.x % 32; i < dim; i += 32)
        most = max(most, __float_as_int(within(x[i], KV_MOST)) & 0x7fffffff);
#pragma unroll
    for (int by = 16; by > 0; by /= 2)
        most = max(most, __shfl_xor_sync((unsigned)ALL_LANES, most, by));
    return __int_as_float(most);
}

template <class T> INLINE void write_codes(T *block, int in_block, const float *x, int dim)
{
    const float most = largest_of(x, dim);
    unsigned scale = most != most ? 0x7fc0 : 0;
    float inverse = 0;
    if (most >= 1e-30f) { /* of less the inverse overflows */
        scale = bf16_not_below(most / largest_code(T()));
        inverse = 1 / __int_as_float((int)(scale << 16));
    }
    for (int i = threadIdx.x % 32; i < dim / 2; i += 32) {
        const float *pair = x + i / 8 * 16 + i % 8; /* and 8 dims behind it */
        unsigned low = code_of(T(), inverse > 0 ? within(pair[0], KV_MOST) * inverse : 0);
        unsigned high = code_of(T(), inverse > 0 ? within(pair[8], KV_MOST) * inverse : 0);
        ((uint16_t *)(block + in_block * dim))[i] = (uint16_t)(low | high << 8);
    }
    if (threadIdx.x % 32 == 0)
        ((uint16_t *)(block + KV_BLOCK * dim))[in_block] = (uint16_t)scale;
}

INLINE void write_head(struct kv_int8 *block, int in_block, const float *x, int dim)
{
    write_codes(block, in_block, x, dim);
}

INLINE void write_head(struct kv_e4m3 *block, int in_block, const float *x, int dim)
{
    write_codes(block, in_block, x, dim);
}

template <class T>
INLINE void write_heads(struct cuda_kv kv, int layer, int slot, enum kv_which which, const float *x)
{
    for (int head = threadIdx.x / 32; head < kv.n_kv_heads; head += ROW_WARPS)
        write_head((T *)kv.pool + kv_block_at<T>(kv, layer, slot, which, head), slot % KV_BLOCK,
                   x + (size_t)head * kv.head_dim, kv.head_dim);
}

struct rope_rows {
    float *q, *k;
    const float *v;
    const int32_t *positions, *slots;
    int n_heads;
};

template <class T>
static __global__ void __launch_bounds__(ROW_THREADS, 4) /* for 10.0: 48 registers do not do */
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
    WITH_KV_TYPE(kv->dtype, T,
                 LAUNCH(rope_kernel<T>, n_rows, ROW_THREADS, 0, s)(*kv, layer, *n, *rope, rows));
    return cudaGetLastError();
}
