/* Attention of a tile of queries: the segment's K and V become float32 once, then two small
 * matrix products, FlashAttention's blocking over the segments being the caller's loop (Dao et
 * al. 2022). K stays page by page and V in slices of 16 dims, so that the right-hand side of
 * every product is [n][16] and lies in L1. Bound by multiplications. */
#include "attention_tile.h"

#if defined(__AVX2__) || defined(SIMD_NEON)
#define ROWS 6
#else
#define ROWS 3
#endif

/* c[r][0..16) = sum over i of b[i][0..16) * a[r][i], i ascending */
INL void product(const float *a, int lda, const float *b, int n, float *c, int ldc, const int rows)
{
    vf acc[ROWS][GROUPS];
    for (int r = 0; r < rows; r++)
        for (int g = 0; g < GROUPS; g++)
            acc[r][g] = vf_splat(0);
    for (int i = 0; i < n; i++) {
        vf v[GROUPS];
        for (int g = 0; g < GROUPS; g++)
            v[g] = vf_load(b + (size_t)i * 16 + g * LANES);
        for (int r = 0; r < rows; r++) {
            vf x = vf_splat(a[(size_t)r * lda + i]);
            for (int g = 0; g < GROUPS; g++)
                acc[r][g] = vf_fma(v[g], x, acc[r][g]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int g = 0; g < GROUPS; g++)
            vf_store(c + (size_t)r * ldc + g * LANES, acc[r][g]);
}

static void product_rows(const float *a, int lda, const float *b, int n, float *c, int ldc,
                         int rows)
{
    WITH_ROWS(rows, ROWS, N, product(a, lda, b, n, c, ldc, N));
}

/* K [sub-page][dim][16], V [v_dim / 16][token][16] of tokens [lo, hi). True: V has a NaN. */
INL bool convert(const struct kv_view *kv, const enum dtype type, int segment, int lo, int hi,
                 float *k, float *v)
{
    const struct kv_pool *pool = kv->pool;
    int n_k = pool->head_dim * PANEL;
    vi nan = {0};
    for (int p = lo / PANEL; p * PANEL < hi; p++) {
        uint8_t *sub = sub_page_at(kv, segment + p * PANEL);
        const uint8_t *from_k = kv_k(pool, sub, kv->head), *from_v = kv_v(pool, sub, kv->head);
        for (int i = 0; i < n_k; i += LANES)
            vf_store(k + p * n_k + i, kv_load(from_k, i, type));
        int first = lo > p * PANEL ? lo : p * PANEL, end = p * PANEL + PANEL;
        end = end < hi ? end : hi;
        for (int t = first; t < end; t++)
            for (int d = 0; d < pool->v_dim; d += LANES) {
                vf x = kv_load(from_v, (size_t)(t % PANEL) * pool->v_dim + d, type);
                nan |= x != x;
                vf_store(v + ((size_t)(d / 16) * SEGMENT + t) * 16 + d % 16, x);
            }
    }
    int32_t any = 0;
    for (int i = 0; i < LANES; i++)
        any |= nan[i];
    return any;
}

static bool convert_any(const struct kv_view *kv, int segment, int lo, int hi, float *k, float *v)
{
    if (kv->pool->type == DTYPE_F16)
        return convert(kv, DTYPE_F16, segment, lo, hi, k, v);
    if (kv->pool->type == DTYPE_BF16)
        return convert(kv, DTYPE_BF16, segment, lo, hi, k, v);
    return convert(kv, DTYPE_F32, segment, lo, hi, k, v);
}

static void weights(const struct score_config *c, const struct band *b, int segment, const int *lo,
                    const int *hi, float *s, float *part, int ldp)
{
    int p0 = b->lo / PANEL, p1 = (b->hi + PANEL - 1) / PANEL;
    for (int r = b->row; r < b->row + b->rows; r++)
        softmax_row(s + (size_t)r * SEGMENT, p0, p1 > p0 ? p1 : p0, lo[r] - segment,
                    hi[r] - segment, c->soft_cap, part + (size_t)r * ldp);
}

void ISA_FN(attend_tile)(const struct kv_view *kv, const struct score_config *c, int segment,
                         const int *lo, const int *hi, const float *q, int ldq, int rows,
                         float *part, int ldp, float *scratch)
{
    const struct kv_pool *pool = kv->pool;
    if (pool->type == DTYPE_INT8) {
        ISA_FN(attend_tile_int8)(kv, c, segment, lo, hi, q, ldq, rows, part, ldp, scratch);
        return;
    }
    int dims = pool->head_dim, first = SEGMENT, last = 0;
    float *k = scratch, *v = k + (size_t)SEGMENT * pool->v_dim;
    float *s = v + (size_t)SEGMENT * pool->v_dim;
    struct band bands[TILE_ROWS];
    int n = make_bands(bands, rows, ROWS, segment, lo, hi);
    for (const struct band *b = bands; b < bands + n; b++) {
        first = b->lo < first ? b->lo : first;
        last = b->hi > last ? b->hi : last;
    }
    if (convert_any(kv, segment, first, last, k, v)) /* 0 * NaN is not 0: each row by itself */
        n = make_bands(bands, rows, 1, segment, lo, hi);
    for (int p = first / PANEL; p * PANEL < last; p++) /* one sub-page of K, all rows */
        for (const struct band *b = bands; b < bands + n; b++)
            if (p >= b->lo / PANEL && p * PANEL < b->hi)
                product_rows(q + (size_t)b->row * ldq, ldq, k + (size_t)p * dims * PANEL, dims,
                             s + (size_t)b->row * SEGMENT + p * PANEL, SEGMENT, b->rows);
    for (const struct band *b = bands; b < bands + n; b++)
        weights(c, b, segment, lo, hi, s, part, ldp);
    for (int d = 0; d < pool->v_dim; d += 16) /* one slice of V, all rows */
        for (const struct band *b = bands; b < bands + n; b++)
            if (b->lo < b->hi)
                product_rows(s + (size_t)b->row * SEGMENT + b->lo, SEGMENT,
                             v + (size_t)d * SEGMENT + (size_t)b->lo * 16, b->hi - b->lo,
                             part + (size_t)b->row * ldp + PART_HEAD + d, ldp, b->rows);
}
