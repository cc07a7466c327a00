/* Attention of one query over floats. */
#include "attention_one.h"

#define ROWS 3
#if LANES == 16
#define ABREAST(n) 4
#elif LANES == 8
#define ABREAST(n) ((n) == 1 ? 4 : 2) /* sub-pages, n heads: chains that hide the latency */
#else
#define ABREAST(n) ((n) == 1 ? 2 : 1)
#endif
#define MOST_ABREAST 4

INL size_t bytes_of(const enum dtype type)
{
    return type == DTYPE_F32 ? 4 : 2;
}

/* Scores of np sub-pages from p on, n heads: 16 tokens are the lanes. */
INL void scores(const struct span *u, const enum dtype type, int p, const int np, const float *q,
                int ldq, const int n, float (*s)[SEGMENT])
{
    const struct kv_view *kv = &u->unit->kv;
    const size_t row = PANEL * bytes_of(type);
    const uint8_t *k[MOST_ABREAST], *v[MOST_ABREAST], *k_after[MOST_ABREAST];
    int dims = kv->pool->head_dim;
    vf acc[ROWS][MOST_ABREAST * GROUPS];
    for (int i = 0; i < np; i++) {
        uint8_t *sub = unit_sub_page(u, p + i);
        k[i] = kv_k(kv->pool, sub, kv->head);
        v[i] = kv_v(kv->pool, sub, kv->head);
        k_after[i] = kv_k(kv->pool, unit_sub_page(u, p + np + i), kv->head);
    }
    for (int r = 0; r < n; r++)
        for (int i = 0; i < np * GROUPS; i++)
            acc[r][i] = vf_splat(0);
    for (int d = 0; d < dims; d++) {
        for (int i = 0; i < np && d * row % 64 == 0; i++) {
            fetch(v[i], d * row, row);
            fetch(k_after[i], d * row, row);
        }
        for (int i = 0; i < np * GROUPS; i++) {
            vf x = kv_load(k[i / GROUPS], (size_t)d * PANEL + i % GROUPS * LANES, type);
            for (int r = 0; r < n; r++)
                acc[r][i] = vf_fma(x, vf_splat(q[r * ldq + d]), acc[r][i]);
        }
    }
    for (int r = 0; r < n; r++)
        for (int i = 0; i < np * GROUPS; i++)
            vf_store(s[r] + p * PANEL + i * LANES, acc[r][i]);
}

/* nv vectors of V from dim `dim` on, n heads */
INL void values(const struct span *u, const enum dtype type, int dim, const int nv, const int n,
                float (*s)[SEGMENT], float *part, int ldp)
{
    const struct kv_view *kv = &u->unit->kv;
    vf acc[ROWS][CHUNK_VECS];
    const size_t elem = bytes_of(type), piece = nv * LANES * elem;
    int v_dim = kv->pool->v_dim;
    for (int r = 0; r < n; r++)
        for (int i = 0; i < nv; i++)
            acc[r][i] = vf_splat(0);
    for (int t = u->lo; t < u->hi;) {
        int first = t / PANEL * PANEL, end = first + PANEL < u->hi ? first + PANEL : u->hi;
        const uint8_t *v = kv_v(kv->pool, unit_sub_page(u, first / PANEL), kv->head);
        const uint8_t *v_after = kv_v(kv->pool, unit_sub_page(u, first / PANEL + 1), kv->head);
        const uint8_t *k_next = next_k(u, first / PANEL);
        for (; t < end; t++) {
            size_t at = ((size_t)(t % PANEL) * v_dim + dim) * elem;
            if (k_next) { /* first: what is dropped then will be asked for again */
                fetch(k_next, at, piece);
                __asm__ volatile("" ::: "memory"); /* keeps the order */
            }
            fetch(v_after, at, piece);
            for (int i = 0; i < nv; i++) {
                vf x = kv_load(v + at, (size_t)i * LANES, type);
                for (int r = 0; r < n; r++)
                    acc[r][i] = vf_fma(x, vf_splat(s[r][t]), acc[r][i]);
            }
        }
    }
    for (int r = 0; r < n; r++)
        for (int i = 0; i < nv; i++)
            vf_store(part + (size_t)r * ldp + PART_HEAD + dim + i * LANES, acc[r][i]);
}

INL void heads(const struct span *u, const enum dtype type, float soft_cap, const float *q, int ldq,
               const int n, float *part, int ldp)
{
    float s[ROWS][SEGMENT] __attribute__((aligned(64)));
    int p0 = u->lo / PANEL, p1 = (u->hi + PANEL - 1) / PANEL, p = p0, dim = 0;
    int v_dim = u->unit->kv.pool->v_dim;
    for (; p + ABREAST(n) <= p1; p += ABREAST(n))
        scores(u, type, p, ABREAST(n), q, ldq, n, s);
    for (; p < p1; p++)
        scores(u, type, p, 1, q, ldq, n, s);
    for (int r = 0; r < n; r++)
        softmax_row(s[r], p0, p1, u->lo, u->hi, soft_cap, part + (size_t)r * ldp);
    for (; dim + CHUNK_VECS * LANES <= v_dim; dim += CHUNK_VECS * LANES)
        values(u, type, dim, CHUNK_VECS, n, s, part, ldp);
    for (; dim < v_dim; dim += 16)
        values(u, type, dim, 16 / LANES, n, s, part, ldp);
}

INL void all_heads(const struct span *all, const enum dtype type, float soft_cap, const float *q,
                   int ldq, int rows, float *part, int ldp)
{
    struct span u = *all;
    while (rows > 0) {
        int n = rows == 4 ? 2 : rows < ROWS ? rows : ROWS;
        switch (n) {
        case 3:
            heads(&u, type, soft_cap, q, ldq, 3, part, ldp);
            break;
        case 2:
            heads(&u, type, soft_cap, q, ldq, 2, part, ldp);
            break;
        default:
            heads(&u, type, soft_cap, q, ldq, 1, part, ldp);
        }
        rows -= n;
        q += (size_t)n * ldq;
        part += (size_t)n * ldp;
        u.next = NULL; /* was fetched */
    }
}

void ISA_FN(attend_one)(const struct attend_unit *unit, const struct attend_unit *next,
                        const struct score_config *c, const float *q, int ldq, int rows,
                        float *part, int ldp)
{
    int segment = unit->lo / SEGMENT * SEGMENT;
    struct span u = {unit, next, segment, unit->lo - segment, unit->hi - segment};
    if (unit->kv.pool->type == DTYPE_INT8)
        ISA_FN(attend_one_int8)(&u, c->soft_cap, q, ldq, rows, part, ldp);
    else if (unit->kv.pool->type == DTYPE_F16)
        all_heads(&u, DTYPE_F16, c->soft_cap, q, ldq, rows, part, ldp);
    else if (unit->kv.pool->type == DTYPE_BF16)
        all_heads(&u, DTYPE_BF16, c->soft_cap, q, ldq, rows, part, ldp);
    else
        all_heads(&u, DTYPE_F32, c->soft_cap, q, ldq, rows, part, ldp);
}

void ISA_FN(part_join)(float *acc, const float *part, int n)
{
    if (part[1] == 0)
        return;
    if (acc[1] == 0) {
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

/* 1 / sum. With a sink the maximum may be its: then what was seen weighs less by exp2(seen). */
static float inverse_sum(const float *part, const float *sink)
{
    if (!sink)
        return 1 / part[1];
    float s = *sink * LOG2E, most = s > part[0] ? s : part[0];
    float seen = vf_exp2(vf_splat(part[0] - most))[0], own = vf_exp2(vf_splat(s - most))[0];
    return seen / f_fma(part[1], seen, own);
}

/* + 0: a sum of products that all vanish is -0 or +0 by which unseen tokens went into it. */
void ISA_FN(part_finish)(float *out, const float *part, const float *sink, int n)
{
    float inverse = inverse_sum(part, sink);
    for (int i = 0; i < n; i++)
        out[i] = part[PART_HEAD + i] * inverse + 0.0f;
}
