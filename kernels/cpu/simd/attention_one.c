/* Attention of one query: K and V are read once, as they lie, for up to ROWS heads at a time.
 * Bound by memory. */
#include "attention.h"

#define ROWS 3

/* Scores of one sub-page, n heads: 16 tokens are the lanes. */
INL void scores(const uint8_t *k, const enum dtype type, int head_dim, const float *q, int ldq,
                const int n, float (*s)[SEGMENT], int at)
{
    vf acc[ROWS][GROUPS];
    for (int r = 0; r < n; r++)
        for (int g = 0; g < GROUPS; g++)
            acc[r][g] = vf_splat(0);
    for (int d = 0; d < head_dim; d++) {
        for (int g = 0; g < GROUPS; g++) {
            vf v = kv_load(k, (size_t)d * PANEL + g * LANES, type);
            for (int r = 0; r < n; r++)
                acc[r][g] = vf_fma(v, vf_splat(q[r * ldq + d]), acc[r][g]);
        }
    }
    for (int r = 0; r < n; r++)
        for (int g = 0; g < GROUPS; g++)
            vf_store(s[r] + at + g * LANES, acc[r][g]);
}

/* nv vectors of V from dim `dim` on, n heads, tokens [lo, hi) of the segment */
INL void values(const struct kv_view *kv, const enum dtype type, int segment, int lo, int hi,
                int dim, const int nv, const int n, float (*s)[SEGMENT], float *part, int ldp)
{
    vf acc[ROWS][CHUNK_VECS];
    int v_dim = kv->pool->v_dim;
    for (int r = 0; r < n; r++)
        for (int i = 0; i < nv; i++)
            acc[r][i] = vf_splat(0);
    for (int t = lo; t < hi;) {
        int end = t / PANEL * PANEL + PANEL;
        end = end < hi ? end : hi;
        const uint8_t *v = kv_v(kv->pool, sub_page_at(kv, segment + t / PANEL * PANEL), kv->head);
        for (; t < end; t++) {
            for (int i = 0; i < nv; i++) {
                vf x = kv_load(v, (size_t)(t % PANEL) * v_dim + dim + i * LANES, type);
                for (int r = 0; r < n; r++)
                    acc[r][i] = vf_fma(x, vf_splat(s[r][t]), acc[r][i]);
            }
        }
    }
    for (int r = 0; r < n; r++)
        for (int i = 0; i < nv; i++)
            vf_store(part + (size_t)r * ldp + PART_HEAD + dim + i * LANES, acc[r][i]);
}

INL void heads(const struct kv_view *kv, const enum dtype type, const struct score_config *c,
               int segment, int lo, int hi, const float *q, int ldq, const int n, float *part,
               int ldp)
{
    float s[ROWS][SEGMENT] __attribute__((aligned(64)));
    const struct kv_pool *pool = kv->pool;
    int p0 = lo / PANEL, p1 = (hi + PANEL - 1) / PANEL, dim = 0;
    for (int p = p0; p < p1; p++) {
        uint8_t *sub = sub_page_at(kv, segment + p * PANEL);
        scores(kv_k(pool, sub, kv->head), type, pool->head_dim, q, ldq, n, s, p * PANEL);
    }
    for (int r = 0; r < n; r++)
        softmax_row(s[r], p0, p1, lo, hi, c->soft_cap, part + (size_t)r * ldp);
    for (; dim + CHUNK_VECS * LANES <= pool->v_dim; dim += CHUNK_VECS * LANES)
        values(kv, type, segment, lo, hi, dim, CHUNK_VECS, n, s, part, ldp);
    if (dim < pool->v_dim)
        values(kv, type, segment, lo, hi, dim, 16 / LANES, n, s, part, ldp);
}

INL void all_heads(const struct kv_view *kv, const enum dtype type, const struct score_config *c,
                   int lo, int hi, const float *q, int ldq, int rows, float *part, int ldp)
{
    int segment = lo / SEGMENT * SEGMENT;
    lo -= segment;
    hi -= segment;
    while (rows > 0) {
        int n = rows == 4 ? 2 : rows < ROWS ? rows : ROWS;
        switch (n) {
        case 3:
            heads(kv, type, c, segment, lo, hi, q, ldq, 3, part, ldp);
            break;
        case 2:
            heads(kv, type, c, segment, lo, hi, q, ldq, 2, part, ldp);
            break;
        default:
            heads(kv, type, c, segment, lo, hi, q, ldq, 1, part, ldp);
        }
        rows -= n;
        q += (size_t)n * ldq;
        part += (size_t)n * ldp;
    }
}

void ISA_FN(attend_one)(const struct kv_view *kv, const struct score_config *c, int lo, int hi,
                        const float *q, int ldq, int rows, float *part, int ldp)
{
    if (kv->pool->type == DTYPE_F16)
        all_heads(kv, DTYPE_F16, c, lo, hi, q, ldq, rows, part, ldp);
    else if (kv->pool->type == DTYPE_BF16)
        all_heads(kv, DTYPE_BF16, c, lo, hi, q, ldq, rows, part, ldp);
    else
        all_heads(kv, DTYPE_F32, c, lo, hi, q, ldq, rows, part, ldp);
}

void ISA_FN(part_join)(float *acc, const float *part, int n)
{
    if (part[0] == -INFINITY)
        return;
    if (acc[0] == -INFINITY) {
        memcpy(acc, part, (size_t)(PART_HEAD + n) * sizeof *acc);
        return;
    }
    float m = acc[0] > part[0] ? acc[0] : part[0];
    vf x = vf_exp2(vf_splat(acc[0] - m)), y = vf_exp2(vf_splat(part[0] - m));
    acc[0] = m;
    acc[1] = f_fma(part[1], y[0], acc[1] * x[0]);
    for (int i = PART_HEAD; i < PART_HEAD + n; i += LANES)
        vf_store(acc + i, vf_fma(vf_load(part + i), y, vf_load(acc + i) * x));
}

/* + 0: a sum of products that all vanish is -0 or +0 by which unseen tokens went into it. */
void ISA_FN(part_finish)(float *out, const float *part, int n)
{
    float inverse = 1 / part[1];
    for (int i = 0; i < n; i++)
        out[i] = part[PART_HEAD + i] * inverse + 0.0f;
}
