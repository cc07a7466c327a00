/* Norms and rotation of q and k, the KV pool and attention of the CPU backend, together, against
 * references in double precision. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_rig.h"
#include "test.h"

static const enum dtype kv_types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_INT8};
#define N(a) ((int)(sizeof(a) / sizeof *(a)))

struct attention_case {
    struct attention_config c;
    struct rope_config rope;
    enum dtype kv;
    int block_size, n, chunk;
    bool norm; /* q and k, by … */
    enum norm_kind norm_kind;
    enum qk_norm_span span;
    bool sinks;
};

struct qkv {
    struct table q, k, v; /* [n][heads * dim] */
};

static int norm_width(const struct attention_case *a, int heads)
{
    return a->span == QK_NORM_HEAD ? a->c.head_dim : heads * a->c.head_dim;
}

/* One row of q or k */
static void norm_row(const struct attention_case *a, int heads, const struct ref_matrix *norm,
                     const float *row, double *out)
{
    int dim = a->span == QK_NORM_ALL ? heads * a->c.head_dim : a->c.head_dim;
    for (int at = 0; at < heads * a->c.head_dim; at += dim)
        ref_norm(a->norm_kind, row + at, norm->values + (a->span == QK_NORM_HEADS ? at : 0), NULL,
                 dim, 1e-5f, out + at);
}

/* Normed and rotated q; normed and rotated k, and v, as the pool has them (norm NULL: neither);
 * all double, [n][heads][dim] */
static double *turned(const struct attention_case *a, const struct table *t, int heads, bool kv,
                      const struct ref_matrix *norm)
{
    int dim = a->c.head_dim;
    size_t n = (size_t)a->n * heads * dim;
    double *out = malloc(n * sizeof *out);
    memcpy(out, t->values.values, n * sizeof *out);
    for (int i = 0; norm && a->norm && i < a->n; i++)
        norm_row(a, heads, norm, (const float *)t->values.bytes + (size_t)i * heads * dim,
                 out + (size_t)i * heads * dim);
    for (int i = 0; norm && i < a->n * heads; i++)
        ref_rotate(&a->rope, i / heads, out + (size_t)i * dim);
    for (size_t i = 0; kv && i < n; i += dim) {
        if (a->kv == DTYPE_INT8)
            ref_round_codes(DTYPE_INT8, out + i, dim);
        for (int d = 0; a->kv != DTYPE_INT8 && d < dim; d++)
            out[i + d] = ref_round(a->kv, out[i + d]);
    }
    return out;
}

static void compare_row(const char *what, const struct attention_case *a, int pos,
                        const double *sinks, const float *got, const double *q, const double *k,
                        const double *v)
{
    int dim = a->c.head_dim, kv_heads = a->c.n_kv_heads, group = a->c.n_heads / kv_heads;
    double *hk = malloc((size_t)(pos + 1) * dim * sizeof *hk), want[512];
    double *hv = malloc((size_t)(pos + 1) * dim * sizeof *hv);
    for (int h = 0; h < a->c.n_heads; h++) {
        for (int t = 0; t <= pos; t++) {
            size_t from = ((size_t)t * kv_heads + h / group) * dim;
            memcpy(hk + (size_t)t * dim, k + from, (size_t)dim * sizeof *hk);
            memcpy(hv + (size_t)t * dim, v + from, (size_t)dim * sizeof *hv);
        }
        ref_attend(&a->c, pos, sinks ? sinks + h : NULL, q + ((size_t)pos * a->c.n_heads + h) * dim,
                   hk, hv, want);
        /* K rounds to another neighbour here and there: float32 against double rotation */
        static const double loose[] = {
            [DTYPE_F32] = 1e-5, [DTYPE_F16] = 1e-3, [DTYPE_BF16] = 8e-3, [DTYPE_INT8] = 8e-3};
        assert_near(what, got + h * dim, want, dim, loose[a->kv], 1e-4);
    }
    free(hk);
    free(hv);
}

static void attention_of(const char *isa, const struct attention_case *a)
{
    uint64_t seed = 5;
    char what[200];
    const struct attention_config *c = &a->c;
    int dim = c->head_dim, n_pages = (a->n + a->block_size - 1) / a->block_size;
    snprintf(what, sizeof what,
             "%s: %d heads, %d kv, %d dims, window %d, cap %g, kv %s, block %d, norm %d %d, "
             "sinks %d",
             isa, c->n_heads, c->n_kv_heads, dim, c->window, c->soft_cap, dtype_info(a->kv)->name,
             a->block_size, a->norm ? (int)a->norm_kind : -1, a->span, a->sinks);
    struct backend *b = rig_open(isa, 2, a->chunk, 1, n_pages);
    struct err e;
    struct kv_config kv = {2, c->n_kv_heads, dim, a->block_size, n_pages + 3, a->kv};
    assert_true(b->ops->kv_open(b, &kv, &e));
    struct rope *rope = b->ops->rope_new(b, &a->rope, &e);
    struct qkv t = {rig_table(b, a->n, c->n_heads * dim, 2, &seed),
                    rig_table(b, a->n, c->n_kv_heads * dim, 2, &seed),
                    rig_table(b, a->n, c->n_kv_heads * dim, 2, &seed)};
    struct activation *q = rig_activation(b, c->n_heads * dim, NULL, false);
    struct activation *k = rig_activation(b, c->n_kv_heads * dim, NULL, false);
    struct activation *v = rig_activation(b, c->n_kv_heads * dim, NULL, false);
    struct activation *out = rig_activation(b, c->n_heads * dim, NULL, false);
    int32_t pages[256];
    for (int i = 0; i < n_pages; i++)
        pages[i] = n_pages + 2 - i;
    for (int i = 0; i < kv.n_pages; i++)
        b->ops->page_fill(b, i, 0xFF);
    struct ref_matrix norm_q = ref_matrix_new(DTYPE_F32, 1, norm_width(a, c->n_heads), 2, &seed);
    struct ref_matrix norm_k = ref_matrix_new(DTYPE_F32, 1, norm_width(a, c->n_kv_heads), 2, &seed);
    struct ref_matrix sinks = ref_matrix_new(DTYPE_BF16, 1, c->n_heads, 4, &seed);
    const struct weight *sink_weight = a->sinks ? rig_weight(b, &sinks) : NULL;
    const struct qk_norm norm = {
        .kind = a->norm_kind,
        .span = a->span,
        .q = rig_weight(b, &norm_q),
        .k = rig_weight(b, &norm_k),
        .eps = 1e-5f,
    };
    double *rq = turned(a, &t.q, c->n_heads, false, &norm_q);
    double *rk = turned(a, &t.k, c->n_kv_heads, true, &norm_k);
    double *rv = turned(a, &t.v, c->n_kv_heads, true, NULL);
    for (int at = 0; at < a->n; at += a->chunk) {
        int n = a->n - at < a->chunk ? a->n - at : a->chunk;
        rig_one_sequence(b, n, at, pages, n_pages, a->block_size);
        b->ops->embed(b, q, t.q.weight, 1);
        b->ops->embed(b, k, t.k.weight, 1);
        b->ops->embed(b, v, t.v.weight, 1);
        b->ops->rope_write_kv(b, 1, a->norm ? &norm : NULL, rope, c->n_heads, q, k, v);
        b->ops->attention(b, 1, c, sink_weight, out, q);
        rig_submit(b);
        for (int r = 0; r<n; r += n> 20 ? 7 : 1)
            compare_row(what, a, at + r, a->sinks ? sinks.values : NULL, b->ops->read(b, out, r),
                        rq, rk, rv);
    }
    free(rq);
    free(rk);
    free(rv);
    ref_matrix_free(&sinks);
    ref_matrix_free(&norm_q);
    ref_matrix_free(&norm_k);
    ref_matrix_free(&t.q.values);
    ref_matrix_free(&t.k.values);
    ref_matrix_free(&t.v.values);
    b->ops->close(b);
}

struct attention_shape {
    int heads, kv_heads, dim, window, block, n, chunk;
    float cap;
    enum rope_style style;
    int rope_dims; /* 0: all */
    bool sinks, norm;
    enum norm_kind norm_kind;
    enum qk_norm_span span;
};

static const struct attention_shape shapes[] = {
    {3, 1, 16, 0, 16, 40, 40, 0, ROPE_NEOX, 0},
    {9, 3, 64, 0, 16, 330, 70, 0, ROPE_NORMAL, 32},
    {4, 4, 80, 0, 32, 50, 9, 0, ROPE_NEOX, 40, false, true, NORM_RMS, QK_NORM_HEAD},
    {8, 2, 128, 30, 16, 90, 33, 0, ROPE_NORMAL, 64, true},
    {2, 1, 256, 0, 16, 35, 20, 5, ROPE_NEOX, 128},
    {3, 3, 32, 17, 32, 300, 45, 4, ROPE_NONE, 0, true, true, NORM_RMS, QK_NORM_ALL},
    {16, 2, 20, 0, 48, 60, 60, 0, ROPE_NORMAL, 10},
    {7, 1, 64, 100, 16, 620, 620, 0, ROPE_NEOX, 32, true},
    {4, 1, 64, 0, 16, 30, 1, 0, ROPE_NEOX, 32, true, true, NORM_LAYER, QK_NORM_HEADS},
    {5, 1, 64, 260, 16, 600, 300, 0, ROPE_NEOX, 0},
    {6, 2, 8, 0, 16, 21, 3, 2, ROPE_NORMAL, 4, true},
    {4, 1, 256, 40, 16, 330, 60, 0, ROPE_NEOX, 0, false, true, NORM_LAYER, QK_NORM_HEAD},
    {7, 7, 96, 0, 16, 45, 4, 0, ROPE_NEOX, 0, false, true, NORM_LAYER, QK_NORM_ALL},
    {5, 5, 18, 9, 16, 40, 40, 3, ROPE_NORMAL, 6, true, true, NORM_RMS, QK_NORM_HEADS},
    {6, 1, 34, 0, 16, 300, 7, 3, ROPE_NEOX, 14, true, true, NORM_LAYER, QK_NORM_HEADS},
    {3, 1, 290, 20, 16, 40, 33, 0, ROPE_NEOX, 72, true},
    {25, 5, 112, 0, 16, 40, 40, 0, ROPE_NORMAL, 0, false, true, NORM_RMS, QK_NORM_ALL},
    {10, 2, 2, 0, 16, 40, 20, 0, ROPE_NORMAL, 0, true},
};

static void attentions(const char *isa)
{
    for (int t = 0; t < N(kv_types); t++)
        for (int i = 0; i < N(shapes); i++) {
            const struct attention_shape *s = &shapes[i];
            if (rig_emulated() && s->n * s->dim > 20000) /* few, and half of the time */
                continue;
            float inv_freq[256];
            int dims = s->rope_dims ? s->rope_dims : s->dim;
            for (int d = 0; d < dims / 2; d++)
                inv_freq[d] = (float)pow(10000, -2.0 * d / dims);
            struct attention_case a = {
                .c = {s->heads, s->kv_heads, s->dim, (float)(1 / sqrt(s->dim)), s->window, s->cap},
                .rope = {s->style, dims, inv_freq, 1.25f, 700},
                .kv = kv_types[t],
                .block_size = s->block,
                .n = s->n,
                .chunk = s->chunk,
                .norm = s->norm,
                .norm_kind = s->norm_kind,
                .span = s->span,
                .sinks = s->sinks,
            };
            attention_of(isa, &a);
        }
}

static void attention_over_pages_matches_the_reference(void **state)
{
    for_each_isa(attentions);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_over_pages_matches_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
