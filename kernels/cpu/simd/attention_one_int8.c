/* Attention of one query over INT8. */
#include "attention_int8.h"
#include "attention_one.h"

#define ROWS 4
#if LANES == 16
#define ABREAST(n) ((n) == 1 ? 4 : 2) /* sub-pages, n heads: chains that hide the latency */
#define VALUE_VECS 4
#elif LANES == 8
#define ABREAST(n) ((n) == 1 ? 2 : 1)
#define VALUE_VECS 2
#else
#define ABREAST(n) 1
#define VALUE_VECS 4
#endif
#define MOST_ABREAST 4

/* The queries of some heads, then the weights of their scores */
struct rows {
    uint8_t digits[ROWS][2 * INT8_MAX_DIM];
    struct digit_row q[ROWS], p[ROWS];
    float s[ROWS][SEGMENT] __attribute__((aligned(64)));
    float k_scale[SEGMENT], v_scale[SEGMENT];
};

/* Scores of np sub-pages from p on, n heads: 16 tokens are the lanes. */
INL void scores(const struct span *u, int p, const int np, const int n, struct rows *rows)
{
    const struct kv_view *kv = &u->unit->kv;
    const size_t scales_at = kv->pool->k_bytes - 64;
    const uint8_t *k[MOST_ABREAST], *v[MOST_ABREAST], *k_after[MOST_ABREAST];
    vi acc[ROWS][MOST_ABREAST * GROUPS];
    for (int i = 0; i < np; i++) {
        uint8_t *sub = unit_sub_page(u, p + i), *own = kv_k(kv->pool, sub, kv->head);
        int at = (p + i) * PANEL;
        k[i] = own;
        v[i] = kv_v(kv->pool, sub, kv->head);
        k_after[i] = kv_k(kv->pool, unit_sub_page(u, p + np + i), kv->head);
        fetch(k_after[i], scales_at, 64);
        load_scales(kv->pool, own, rows->k_scale + at, rows->v_scale + at);
    }
    for (int r = 0; r < n; r++)
        for (int i = 0; i < np * GROUPS; i++)
            acc[r][i] = vi_splat(rows->q[r].start);
    for (size_t at = 0, d = 0; at < scales_at; at += QUAD, d += QUAD_DIGIT_BYTES) {
        for (int i = 0; i < np; i++) {
            fetch(v[i], at, QUAD);
            fetch(k_after[i], at, QUAD);
        }
        struct quad_digits q[ROWS];
        for (int r = 0; r < n; r++)
            q[r] = digits_splat(rows->digits[r] + d);
        for (int i = 0; i < np * GROUPS; i++) {
            struct quads x = quads_load(k[i / GROUPS] + at + i % GROUPS * VBYTES);
            for (int r = 0; r < n; r++)
                acc[r][i] = quads_add(acc[r][i], x, q[r]);
        }
    }
    for (int r = 0; r < n; r++)
        for (int i = 0; i < np * GROUPS; i++) {
            int at = p * PANEL + i * LANES;
            vf_store(rows->s[r] + at,
                     score_of(acc[r][i], vf_load(rows->k_scale + at), rows->q[r].scale));
        }
}

/* nv vectors of V from dim `dim` on, n heads */
INL void values(const struct span *u, int dim, const int nv, const int n, const struct rows *rows,
                float *part, int ldp)
{
    const struct kv_view *kv = &u->unit->kv;
    const int v_dim = kv->pool->v_dim;
    vi acc[ROWS][VALUE_VECS];
    for (int r = 0; r < n; r++)
        for (int i = 0; i < nv; i++)
            acc[r][i] = vi_splat(rows->p[r].start);
    for (int p = u->lo / PANEL; p * PANEL < u->hi; p++) {
        const uint8_t *v = kv_v(kv->pool, unit_sub_page(u, p), kv->head);
        const uint8_t *v_after = kv_v(kv->pool, unit_sub_page(u, p + 1), kv->head);
        const uint8_t *k_next = next_k(u, p);
        if (k_next && dim == 0)
            fetch(k_next, kv->pool->k_bytes - 64, 64);
        for (int j = 0; j < PANEL / 4; j++) {
            size_t at = ((size_t)j * v_dim + dim) * 4;
            if (k_next) { /* first: what is dropped then will be asked for again */
                fetch(k_next, at, nv * VBYTES);
                __asm__ volatile("" ::: "memory"); /* keeps the order */
            }
            fetch(v_after, at, nv * VBYTES);
            struct quad_digits d[ROWS];
            for (int r = 0; r < n; r++)
                d[r] = digits_splat((const uint8_t *)rows->s[r] +
                                    (p * (PANEL / 4) + j) * QUAD_DIGIT_BYTES);
            for (int i = 0; i < nv; i++) {
                struct quads x = quads_load(v + at + i * VBYTES);
                for (int r = 0; r < n; r++)
                    acc[r][i] = quads_add(acc[r][i], x, d[r]);
            }
        }
    }
    for (int r = 0; r < n; r++)
        for (int i = 0; i < nv; i++)
            vf_store(part + (size_t)r * ldp + PART_HEAD + dim + i * LANES,
                     __builtin_convertvector(acc[r][i], vf) * rows->p[r].scale);
}

INL void heads(const struct span *u, float soft_cap, const float *q, int ldq, const int n,
               float *part, int ldp)
{
    struct rows rows;
    int p0 = u->lo / PANEL, p1 = (u->hi + PANEL - 1) / PANEL, p = p0, dim = 0;
    const struct kv_pool *pool = u->unit->kv.pool;
    for (int r = 0; r < n; r++)
        rows.q[r] = query_digits(q + (size_t)r * ldq, pool->head_dim, rows.digits[r]);
    for (; p + ABREAST(n) <= p1; p += ABREAST(n))
        scores(u, p, ABREAST(n), n, &rows);
    for (; p < p1; p++)
        scores(u, p, 1, n, &rows);
    for (int r = 0; r < n; r++) {
        softmax_row(rows.s[r], p0, p1, u->lo, u->hi, soft_cap, part + (size_t)r * ldp);
        rows.p[r] = weight_digits(rows.s[r], rows.v_scale, p0, p1, u->lo, u->hi);
    }
    for (; dim + VALUE_VECS * LANES <= pool->v_dim; dim += VALUE_VECS * LANES)
        values(u, dim, VALUE_VECS, n, &rows, part, ldp);
    for (; dim < pool->v_dim; dim += 16)
        values(u, dim, 16 / LANES, n, &rows, part, ldp);
}

void ISA_FN(attend_one_int8)(const struct span *all, float soft_cap, const float *q, int ldq,
                             int rows, float *part, int ldp)
{
    struct span u = *all;
    while (rows > 0) {
        int passes = (rows + ROWS - 1) / ROWS, n = (rows + passes - 1) / passes;
        switch (n) {
        case 4:
            heads(&u, soft_cap, q, ldq, 4, part, ldp);
            break;
        case 3:
            heads(&u, soft_cap, q, ldq, 3, part, ldp);
            break;
        case 2:
            heads(&u, soft_cap, q, ldq, 2, part, ldp);
            break;
        default:
            heads(&u, soft_cap, q, ldq, 1, part, ldp);
        }
        rows -= n;
        q += (size_t)n * ldq;
        part += (size_t)n * ldp;
        u.next = NULL; /* was fetched */
    }
}
