/* Every operation of the CPU backend against its plain reference in double precision. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cpu_rig.h"
#include "test.h"

static const enum dtype kv_types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
#define N(a) ((int)(sizeof(a) / sizeof *(a)))

static bool quantised(enum dtype t)
{
    return dtype_info(t)->block_elems > 1;
}

/* cols, or where the type's blocks do not divide it, the next multiple */
static int whole_blocks(enum dtype t, int cols)
{
    int n = dtype_info(t)->block_elems;
    return (cols + n - 1) / n * n;
}

/* --- embed --- */

static void embed_of(const char *isa, enum dtype type, int rows, int cols)
{
    uint64_t seed = 1;
    struct backend *b = rig_open(isa, 2, rows, 1, 1);
    struct ref_matrix m = ref_matrix_new(type, rows, cols, 1, &seed);
    struct activation *x = rig_activation(b, cols, NULL, false);
    struct weight *w = rig_weight(b, &m);
    rig_one_sequence(b, rows, 0, NULL, 0, 16);
    b->ops->embed(b, x, w, 1.5f);
    rig_submit(b);
    for (int r = 0; r < rows; r++) {
        float *want = malloc((size_t)cols * sizeof *want);
        size_t row_bytes = dtype_row_bytes(type, cols);
        dtype_to_f32(type, (uint8_t *)m.bytes + r * row_bytes, want, cols);
        for (int k = 0; k < cols; k++)
            want[k] *= 1.5f;
        assert_memory_equal(want, b->ops->read(b, x, r), (size_t)cols * sizeof *want);
        free(want);
    }
    ref_matrix_free(&m);
    b->ops->close(b);
}

static void embeds(const char *isa)
{
    for (enum dtype t = 0; t < DTYPE_COUNT; t++) {
        embed_of(isa, t, 37, dtype_info(t)->block_elems * 3);
        embed_of(isa, t, 1, whole_blocks(t, 64));
        if (!quantised(t))
            embed_of(isa, t, 18, 51);
    }
}

static void an_embedding_is_the_row_of_the_table_to_the_bit(void **state)
{
    for_each_isa(embeds);
}

/* --- norm --- */

static void norm_of(const char *isa, enum dtype type, int n, int width)
{
    uint64_t seed = 2;
    double want[2048];
    struct backend *b = rig_open(isa, 2, n, 1, 1);
    struct table x = rig_table(b, n, width, 3, &seed);
    struct ref_matrix w = ref_matrix_new(type, 1, width, 1, &seed);
    const struct norm rms = {.w = rig_weight(b, &w), .eps = 1e-5f};
    struct activation *in = rig_activation(b, width, NULL, false);
    struct activation *out = rig_activation(b, width, NULL, false);
    struct activation *some = rig_activation(b, width, NULL, true);
    rig_one_sequence(b, n, 0, NULL, 0, 16);
    struct step_inputs *inputs = b->ops->step_begin(b);
    inputs->n_rows = n;
    inputs->n_logits = 1;
    inputs->logit_rows[0] = n - 1;
    b->ops->embed(b, in, x.weight, 1);
    b->ops->norm(b, out, in, &rms);
    b->ops->norm_logit_rows(b, some, in, &rms);
    rig_submit(b);
    for (int r = 0; r < n; r++) {
        const float *row = (const float *)x.values.bytes + (size_t)r * width;
        ref_norm(row, w.values, width, 1e-5f, want);
        assert_near("norm", b->ops->read(b, out, r), want, width, 1e-7, 2e-6);
    }
    assert_memory_equal(b->ops->read(b, some, 0), b->ops->read(b, out, n - 1),
                        (size_t)width * sizeof(float));
    ref_matrix_free(&w);
    ref_matrix_free(&x.values);
    b->ops->close(b);
}

static void norm_add_of(const char *isa, int n, int width)
{
    uint64_t seed = 8;
    double want[2048];
    struct backend *b = rig_open(isa, 2, n, 1, 1);
    struct table x = rig_table(b, n, width, 3, &seed), y = rig_table(b, n, width, 3, &seed);
    struct ref_matrix w = ref_matrix_new(DTYPE_F32, 1, width, 1, &seed);
    const struct norm rms = {.w = rig_weight(b, &w), .eps = 1e-5f};
    struct activation *stream = rig_activation(b, width, NULL, false);
    struct activation *added = rig_activation(b, width, NULL, false);
    rig_one_sequence(b, n, 0, NULL, 0, 16);
    b->ops->embed(b, stream, x.weight, 1);
    b->ops->embed(b, added, y.weight, 1);
    b->ops->norm_add(b, stream, added, &rms);
    rig_submit(b);
    for (int r = 0; r < n; r++) {
        ref_norm((const float *)y.values.bytes + (size_t)r * width, w.values, width, 1e-5f, want);
        for (int i = 0; i < width; i++)
            want[i] += x.values.values[(size_t)r * width + i];
        assert_near("norm_add", b->ops->read(b, stream, r), want, width, 1e-6, 2e-6);
        for (int i = 0; i < width; i++)
            want[i] = y.values.values[(size_t)r * width + i];
        assert_near("what was added", b->ops->read(b, added, r), want, width, 0, 0);
    }
    ref_matrix_free(&w);
    ref_matrix_free(&x.values);
    ref_matrix_free(&y.values);
    b->ops->close(b);
}

static void norms(const char *isa)
{
    static const int widths[] = {1, 15, 16, 64, 100, 576, 1056};
    for (int i = 0; i < N(widths); i++) {
        for (int t = 0; t < 3; t++)
            norm_of(isa, kv_types[t], 1 + 3 * i, widths[i]);
        norm_add_of(isa, 1 + 3 * i, widths[i]);
    }
}

static void a_norm_divides_by_the_root_mean_square_and_is_stored_or_added(void **state)
{
    for_each_isa(norms);
}

/* --- linear --- */

struct linear_case {
    enum dtype type;
    int rows, cols, n;
    enum linear_into into;
    enum act_fn act;
    bool bias;
};

#define MAX_WIDTH 1600

/* What the backend's reader reads, from the float32 row: `tight` quantised as it does. */
static void reader_row(const struct linear_case *c, const float *row, bool tight, double *out)
{
    if (tight && quantised(c->type))
        ref_quantise(row, c->cols, out);
    else
        for (int k = 0; k < c->cols; k++)
            out[k] = row[k];
}

static void linear_want(const struct linear_case *c, const struct ref_matrix *w,
                        const struct ref_matrix *bias, const float *row, const double *before,
                        bool tight, double *want)
{
    double x[MAX_WIDTH], up[MAX_WIDTH];
    reader_row(c, row, tight, x);
    ref_linear(&w[0], x, want);
    for (int r = 0; r < c->rows; r++)
        want[r] += (c->bias ? bias[0].values[r] : 0) + (c->into == INTO_ADD ? before[r] : 0);
    if (c->into != INTO_ACT_MUL)
        return;
    ref_linear(&w[1], x, up);
    for (int r = 0; r < c->rows; r++)
        want[r] = ref_act(c->act, want[r], up[r] + (c->bias ? bias[1].values[r] : 0));
}

static void linear_of(const char *isa, const struct linear_case *c)
{
    uint64_t seed = 3;
    char what[160];
    double want[MAX_WIDTH];
    snprintf(what, sizeof what, "%s: %s %dx%d, %d rows, into %d act %d bias %d", isa,
             dtype_info(c->type)->name, c->rows, c->cols, c->n, c->into, c->act, c->bias);
    struct backend *b = rig_open(isa, 2, c->n, 1, 1);
    struct table x = rig_table(b, c->n, c->cols, 2, &seed);
    struct table before = rig_table(b, c->n, c->rows, 1, &seed);
    struct ref_matrix gain = ref_matrix_new(DTYPE_F32, 1, c->cols, 1, &seed), w[2], bias[2];
    const struct weight *weights[2], *biases[2], *gain_weight = rig_weight(b, &gain);
    const struct norm norm = {.w = gain_weight, .eps = 1e-5f};
    for (int i = 0; i < 2; i++) {
        w[i] = ref_matrix_new(c->type, c->rows, c->cols, 1 / sqrt(c->cols), &seed);
        bias[i] = ref_matrix_new(DTYPE_F32, 1, c->rows, 1, &seed);
        weights[i] = rig_weight(b, &w[i]);
        biases[i] = rig_weight(b, &bias[i]);
    }
    struct activation *in = rig_activation(b, c->cols, NULL, false);
    struct activation *plain = rig_activation(b, c->cols, NULL, false);
    struct activation *read = rig_activation(b, c->cols, weights[0], false);
    struct activation *out = rig_activation(b, c->rows, NULL, false), *outs[2] = {out, NULL};
    rig_one_sequence(b, c->n, 0, NULL, 0, 16);
    b->ops->embed(b, in, x.weight, 1);
    b->ops->embed(b, out, before.weight, 1);
    b->ops->norm(b, plain, in, &norm);
    b->ops->norm(b, read, in, &norm);
    b->ops->linear(b, c->into, c->act, read, c->into == INTO_ACT_MUL ? 2 : 1, weights,
                   c->bias ? biases : NULL, outs);
    rig_submit(b);
    for (int r = 0; r < c->n; r++) {
        const double *old = before.values.values + (size_t)r * c->rows;
        const float *row = b->ops->read(b, plain, r), *got = b->ops->read(b, out, r);
        linear_want(c, w, bias, row, old, true, want);
        assert_near(what, got, want, c->rows, 2e-5, 1e-5);
        linear_want(c, w, bias, row, old, false, want);
        assert_near(what, got, want, c->rows, 0.05, 0.03);
    }
    for (int i = 0; i < 2; i++) {
        ref_matrix_free(&w[i]);
        ref_matrix_free(&bias[i]);
    }
    ref_matrix_free(&gain);
    ref_matrix_free(&x.values);
    ref_matrix_free(&before.values);
    b->ops->close(b);
}

static void linears(const char *isa)
{
    static const int shapes[][3] = {{16, 32, 1},   {17, 64, 2},    {33, 96, 3},
                                    {100, 576, 4}, {160, 1056, 7}, {8, 320, 16},
                                    {64, 64, 131}, {576, 1536, 5}, {1, 160, 6}};
    static const enum linear_into into[] = {INTO_STORE, INTO_ADD, INTO_ACT_MUL};
    for (enum dtype t = 0; t < DTYPE_COUNT; t++) {
        for (int s = 0; s < N(shapes); s++)
            for (int i = 0; i < 3; i++) {
                struct linear_case c = {t,
                                        shapes[s][0],
                                        whole_blocks(t, shapes[s][1]),
                                        shapes[s][2],
                                        into[i],
                                        s % 2 ? ACT_GELU_TANH : ACT_SILU,
                                        s % 3 == 0};
                linear_of(isa, &c);
            }
        struct linear_case odd = {t, 19, 53, 9, INTO_STORE, ACT_SILU, true};
        if (!quantised(odd.type))
            linear_of(isa, &odd);
    }
}

static void a_linear_of_every_type_matches_the_reference(void **state)
{
    for_each_isa(linears);
}

/* Three weights at once, as q, k and v of a layer */
static void three(const char *isa)
{
    uint64_t seed = 4;
    double x[64], want[64];
    struct backend *b = rig_open(isa, 2, 5, 1, 1);
    struct table t = rig_table(b, 5, 64, 1, &seed);
    struct activation *in = rig_activation(b, 64, NULL, false), *outs[3];
    struct ref_matrix m[3];
    const struct weight *w[3];
    for (int i = 0; i < 3; i++) {
        m[i] = ref_matrix_new(DTYPE_F16, i ? 24 : 50, 64, 1, &seed);
        w[i] = rig_weight(b, &m[i]);
        outs[i] = rig_activation(b, m[i].rows, NULL, false);
    }
    rig_one_sequence(b, 5, 0, NULL, 0, 16);
    b->ops->embed(b, in, t.weight, 1);
    b->ops->linear(b, INTO_STORE, ACT_SILU, in, 3, w, NULL, outs);
    rig_submit(b);
    for (int r = 0; r < 5; r++)
        for (int i = 0; i < 3; i++) {
            for (int k = 0; k < 64; k++)
                x[k] = t.values.values[r * 64 + k];
            ref_linear(&m[i], x, want);
            assert_near("three weights", b->ops->read(b, outs[i], r), want, m[i].rows, 1e-5, 1e-5);
        }
    for (int i = 0; i < 3; i++)
        ref_matrix_free(&m[i]);
    ref_matrix_free(&t.values);
    b->ops->close(b);
}

static void three_weights_of_different_sizes_share_an_input(void **state)
{
    for_each_isa(three);
}

/* --- rope, KV and attention --- */

struct attention_case {
    struct attention_config c;
    struct rope_config rope;
    enum dtype kv;
    int block_size, n, chunk;
    bool norm; /* q and k by head */
};

struct qkv {
    struct table q, k, v; /* [n][heads * dim] */
};

/* Normed and rotated q; normed and rotated k, and v, as the pool has them (norm NULL: neither);
 * all double, [n][heads][dim] */
static double *turned(const struct attention_case *a, const struct table *t, int heads, bool kv,
                      const struct ref_matrix *norm)
{
    int dim = a->c.head_dim;
    size_t n = (size_t)a->n * heads * dim;
    double *out = malloc(n * sizeof *out);
    memcpy(out, t->values.values, n * sizeof *out);
    for (int i = 0; norm && i < a->n * heads; i++) {
        if (a->norm)
            ref_norm((const float *)t->values.bytes + (size_t)i * dim, norm->values, dim, 1e-5f,
                     out + (size_t)i * dim);
        ref_rotate(&a->rope, i / heads, out + (size_t)i * dim);
    }
    for (size_t i = 0; kv && i < n; i++)
        out[i] = ref_round(a->kv, out[i]);
    return out;
}

static void compare_row(const char *what, const struct attention_case *a, int pos, const float *got,
                        const double *q, const double *k, const double *v)
{
    int dim = a->c.head_dim, kv_heads = a->c.n_kv_heads, group = a->c.n_heads / kv_heads;
    double *hk = malloc((size_t)(pos + 1) * dim * sizeof *hk), want[256];
    double *hv = malloc((size_t)(pos + 1) * dim * sizeof *hv);
    for (int h = 0; h < a->c.n_heads; h++) {
        for (int t = 0; t <= pos; t++) {
            size_t from = ((size_t)t * kv_heads + h / group) * dim;
            memcpy(hk + (size_t)t * dim, k + from, (size_t)dim * sizeof *hk);
            memcpy(hv + (size_t)t * dim, v + from, (size_t)dim * sizeof *hv);
        }
        ref_attend(&a->c, pos, q + ((size_t)pos * a->c.n_heads + h) * dim, hk, hv, want);
        /* K rounds to another neighbour here and there: float32 against double rotation */
        double loose = a->kv == DTYPE_F32 ? 1e-5 : a->kv == DTYPE_F16 ? 1e-3 : 8e-3;
        assert_near(what, got + h * dim, want, dim, loose, 1e-4);
    }
    free(hk);
    free(hv);
}

static void attention_of(const char *isa, const struct attention_case *a)
{
    uint64_t seed = 5;
    char what[160];
    const struct attention_config *c = &a->c;
    int dim = c->head_dim, n_pages = (a->n + a->block_size - 1) / a->block_size;
    snprintf(what, sizeof what, "%s: %d heads, %d kv, %d dims, window %d, cap %g, kv %s, block %d",
             isa, c->n_heads, c->n_kv_heads, dim, c->window, c->soft_cap, dtype_info(a->kv)->name,
             a->block_size);
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
    struct ref_matrix norm_q = ref_matrix_new(DTYPE_F32, 1, dim, 2, &seed);
    struct ref_matrix norm_k = ref_matrix_new(DTYPE_F32, 1, dim, 2, &seed);
    const struct qk_norm norm = {
        .q = rig_weight(b, &norm_q), .k = rig_weight(b, &norm_k), .eps = 1e-5f};
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
        b->ops->attention(b, 1, c, NULL, out, q);
        rig_submit(b);
        for (int r = 0; r<n; r += n> 20 ? 7 : 1)
            compare_row(what, a, at + r, b->ops->read(b, out, r), rq, rk, rv);
    }
    free(rq);
    free(rk);
    free(rv);
    ref_matrix_free(&norm_q);
    ref_matrix_free(&norm_k);
    ref_matrix_free(&t.q.values);
    ref_matrix_free(&t.k.values);
    ref_matrix_free(&t.v.values);
    b->ops->close(b);
}

static void attentions(const char *isa)
{
    static const struct {
        int heads, kv_heads, dim, window, block, n, chunk;
        float cap;
        enum rope_style style;
    } shapes[] = {
        {3, 1, 16, 0, 16, 40, 40, 0, ROPE_NEOX},    {9, 3, 64, 0, 16, 330, 70, 0, ROPE_NORMAL},
        {4, 4, 80, 0, 32, 50, 9, 0, ROPE_NEOX},     {8, 2, 128, 30, 16, 90, 33, 0, ROPE_NORMAL},
        {2, 1, 256, 0, 16, 35, 20, 5, ROPE_NEOX},   {3, 3, 32, 17, 32, 300, 45, 4, ROPE_NONE},
        {16, 2, 20, 0, 48, 60, 60, 0, ROPE_NORMAL}, {7, 1, 64, 100, 16, 620, 620, 0, ROPE_NEOX},
        {4, 1, 64, 0, 16, 30, 1, 0, ROPE_NEOX},     {5, 1, 64, 260, 16, 600, 300, 0, ROPE_NEOX},
        {6, 2, 8, 0, 16, 21, 3, 2, ROPE_NORMAL},    {4, 1, 256, 40, 16, 330, 60, 0, ROPE_NEOX},
    };
    for (int t = 0; t < N(kv_types); t++)
        for (int i = 0; i < N(shapes); i++) {
            float inv_freq[128];
            int dims = shapes[i].dim >= 64 ? shapes[i].dim / 2 : shapes[i].dim;
            for (int d = 0; d < dims / 2; d++)
                inv_freq[d] = (float)pow(10000, -2.0 * d / dims);
            struct attention_case a = {
                .c = {shapes[i].heads, shapes[i].kv_heads, shapes[i].dim,
                      (float)(1 / sqrt(shapes[i].dim)), shapes[i].window, shapes[i].cap},
                .rope = {shapes[i].style, dims, inv_freq, 1.25f, 700},
                .kv = kv_types[t],
                .block_size = shapes[i].block,
                .n = shapes[i].n,
                .chunk = shapes[i].chunk,
                .norm = i % 3 == 2,
            };
            attention_of(isa, &a);
        }
}

static void attention_over_pages_matches_the_reference(void **state)
{
    for_each_isa(attentions);
}

/* --- memory, errors, host work --- */

static void columns_that_do_not_fill_blocks_are_refused(void **state)
{
    uint8_t bytes[64] = {0};
    struct err e;
    struct backend *b = rig_open("generic", 1, 1, 1, 1);
    assert_null(b->ops->weight_load(b, DTYPE_Q8_0, 1, 40, bytes, &e));
    assert_contains(e.msg, "40 columns of type Q8_0: expected a multiple of 32");
    assert_null(b->ops->weight_load(b, DTYPE_Q5_K, 1, 288, bytes, &e));
    assert_contains(e.msg, "288 columns of type Q5_K: expected a multiple of 256");
    assert_null(b->ops->weight_load(b, DTYPE_F32, 0, 40, bytes, &e));
    assert_int_equal(e.code, ERR_INVALID);
    b->ops->close(b);
}

static void an_unknown_instruction_set_is_refused_by_name(void **state)
{
    struct backend_config c = {1, 1, 1, 1, 1};
    struct err e;
    setenv("TOKEND_ISA", "quantum", 1);
    assert_null(backend_cpu_open(&c, &e));
    assert_contains(e.msg, "TOKEND_ISA=quantum");
    assert_contains(e.msg, "generic");
    unsetenv("TOKEND_ISA");
}

static void a_pool_of_a_wrong_shape_is_refused(void **state)
{
    struct err e;
    struct backend *b = rig_open("generic", 1, 1, 1, 1);
    struct kv_config kv = {1, 1, 16, 24, 1, DTYPE_F16};
    assert_false(b->ops->kv_open(b, &kv, &e));
    assert_contains(e.msg, "block size 24");
    kv.block_size = 16;
    kv.dtype = DTYPE_Q8_0;
    assert_false(b->ops->kv_open(b, &kv, &e));
    assert_contains(e.msg, "Q8_0");
    b->ops->close(b);
}

static void memory_counts_what_was_taken(void **state)
{
    uint64_t seed = 6;
    struct err e;
    struct backend_memory before, before_kv, after;
    struct backend *b = rig_open("generic", 1, 4, 1, 1);
    struct ref_matrix m = ref_matrix_new(DTYPE_Q4_1, 64, 96, 1, &seed);
    struct kv_config kv = {2, 3, 64, 16, 5, DTYPE_F16};
    b->ops->memory(b, &before);
    rig_weight(b, &m);
    rig_activation(b, 3 * 64, NULL, false);
    b->ops->memory(b, &before_kv);
    uint64_t extra = b->ops->kv_extra_bytes(b, &kv);
    assert_true(b->ops->kv_open(b, &kv, &e));
    b->ops->memory(b, &after);
    assert_int_equal(after.activations - before_kv.activations, extra);
    assert_int_equal(after.weights - before.weights, 4 * 3 * 320);
    assert_int_equal(after.kv, 5 * b->ops->kv_page_bytes(b, &kv));
    assert_int_equal(b->ops->kv_page_bytes(b, &kv), 2 * 3 * 64 * 16 * 2 * 2);
    assert_true(after.total > after.weights + after.kv + after.activations);
    ref_matrix_free(&m);
    b->ops->close(b);
}

static void count_call(void *arg, int i)
{
    __atomic_fetch_add((int *)arg + i, 1, __ATOMIC_RELAXED);
}

static void host_work_runs_each_item_once(void **state)
{
    struct backend *b = rig_open("generic", 3, 1, 1, 1);
    for (int round = 0; round < 50; round++) {
        int calls[100] = {0};
        b->ops->host_for(b, count_call, calls, round * 2);
        for (int i = 0; i < 100; i++)
            assert_int_equal(calls[i], i < round * 2);
    }
    b->ops->close(b);
}

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void idle_helpers_take_no_processor_time(void **state)
{
    struct backend *b = rig_open("generic", 3, 1, 1, 1);
    int calls[9] = {0};
    b->ops->host_for(b, count_call, calls, 9);
    usleep(50000); /* they spin a little first */
    double before = processor_seconds();
    usleep(300000);
    assert_true(processor_seconds() - before < 0.03);
    b->ops->close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_embedding_is_the_row_of_the_table_to_the_bit),
        cmocka_unit_test(a_norm_divides_by_the_root_mean_square_and_is_stored_or_added),
        cmocka_unit_test(a_linear_of_every_type_matches_the_reference),
        cmocka_unit_test(three_weights_of_different_sizes_share_an_input),
        cmocka_unit_test(attention_over_pages_matches_the_reference),
        cmocka_unit_test(columns_that_do_not_fill_blocks_are_refused),
        cmocka_unit_test(an_unknown_instruction_set_is_refused_by_name),
        cmocka_unit_test(a_pool_of_a_wrong_shape_is_refused),
        cmocka_unit_test(memory_counts_what_was_taken),
        cmocka_unit_test(host_work_runs_each_item_once),
        cmocka_unit_test(idle_helpers_take_no_processor_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
