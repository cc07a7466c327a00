/* The CPU backend's operations on single rows against their references in double precision:
 * norms, activations, soft caps, gated additions. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_rig.h"
#include "test.h"

#define N(a) ((int)(sizeof(a) / sizeof *(a)))
#define MAX_WIDTH 1056

/* --- norms --- */

struct norm_case {
    enum norm_kind kind;
    enum dtype type; /* of weight and bias */
    bool bias;
    int n, width;
    double mean; /* of the rows */
};

/* n rows in [mean - 3, mean + 3) */
static struct table rows_around(struct backend *b, int n, int width, double mean, uint64_t *seed)
{
    struct table t = {ref_matrix_new(DTYPE_F32, n, width, 3, seed), NULL};
    for (int i = 0; i < n * width; i++)
        t.values.values[i] = ((float *)t.values.bytes)[i] += (float)mean;
    t.weight = rig_weight(b, &t.values);
    return t;
}

struct norm_rig {
    struct backend *b;
    struct ref_matrix w, bias;
    struct norm norm;
    struct table x, y;
    struct activation *in, *out, *stream, *some, *after;
};

static struct norm_rig norm_open(const char *isa, const struct norm_case *c)
{
    uint64_t seed = 2;
    struct norm_rig r = {.b = rig_open(isa, 2, c->n, 1, 1)};
    r.w = ref_matrix_new(c->type, 1, c->width, 1, &seed);
    r.bias = ref_matrix_new(c->type, 1, c->width, 1, &seed);
    r.norm = (struct norm){c->kind, rig_weight(r.b, &r.w),
                           c->bias ? rig_weight(r.b, &r.bias) : NULL, 1e-5f};
    r.x = rows_around(r.b, c->n, c->width, c->mean, &seed);
    r.y = rows_around(r.b, c->n, c->width, 0, &seed);
    r.in = rig_activation(r.b, c->width, NULL, false);
    r.out = rig_activation(r.b, c->width, NULL, false);
    r.stream = rig_activation(r.b, c->width, NULL, false);
    r.after = rig_activation(r.b, c->width, NULL, false);
    r.some = rig_activation(r.b, c->width, NULL, true);
    return r;
}

static void norm_close(struct norm_rig *r)
{
    ref_matrix_free(&r->w);
    ref_matrix_free(&r->bias);
    ref_matrix_free(&r->x.values);
    ref_matrix_free(&r->y.values);
    r->b->ops->close(r->b);
}

static void norm_of(const char *isa, const struct norm_case *c)
{
    double want[MAX_WIDTH];
    struct norm_rig r = norm_open(isa, c);
    const struct backend_ops *o = r.b->ops;
    rig_one_sequence(r.b, c->n, 0, NULL, 0, 16);
    struct step_inputs *inputs = o->step_begin(r.b);
    inputs->n_rows = c->n;
    inputs->n_logits = 1;
    inputs->logit_rows[0] = c->n - 1;
    o->embed(r.b, r.in, r.x.weight, 1);
    o->embed(r.b, r.stream, r.y.weight, 1);
    o->norm(r.b, r.out, r.in, &r.norm);
    o->norm_logit_rows(r.b, r.some, r.in, &r.norm);
    o->norm_add(r.b, r.stream, r.in, &r.norm);
    o->norm(r.b, r.after, r.stream, &r.norm);
    rig_submit(r.b);
    double atol = c->mean != 0 ? 2e-5 : 1e-6;
    for (int i = 0; i < c->n; i++) {
        const float *row = (const float *)r.x.values.bytes + (size_t)i * c->width;
        ref_norm(c->kind, row, r.w.values, c->bias ? r.bias.values : NULL, c->width, 1e-5f, want);
        assert_near("norm", o->read(r.b, r.out, i), want, c->width, atol, 2e-6);
        for (int k = 0; k < c->width; k++)
            want[k] += r.y.values.values[(size_t)i * c->width + k];
        assert_near("norm_add", o->read(r.b, r.stream, i), want, c->width, atol, 2e-6);
        ref_norm(c->kind, o->read(r.b, r.stream, i), r.w.values, c->bias ? r.bias.values : NULL,
                 c->width, 1e-5f, want);
        assert_near("norm after it", o->read(r.b, r.after, i), want, c->width, atol, 2e-6);
        assert_memory_equal(o->read(r.b, r.in, i), row, (size_t)c->width * sizeof *row);
    }
    assert_memory_equal(o->read(r.b, r.some, 0), o->read(r.b, r.out, c->n - 1),
                        (size_t)c->width * sizeof(float));
    norm_close(&r);
}

static void norms(const char *isa)
{
    static const int widths[] = {1, 15, 16, 64, 100, 576, 1056};
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    for (int i = 0; i < N(widths); i++)
        for (int t = 0; t < N(types); t++) {
            struct norm_case c = {NORM_RMS, types[t], t == 1, 1 + 3 * i, widths[i], 0};
            norm_of(isa, &c);
            c.kind = NORM_LAYER;
            norm_of(isa, &c);
            c.bias = !c.bias;
            c.mean = 20; /* twelve times the deviation */
            norm_of(isa, &c);
        }
}

static void a_norm_centres_or_not_and_is_stored_or_added(void **state)
{
    for_each_isa(norms);
}

/* --- activations --- */

#define SWEEP 4003

/* Every x from -20 to 20, then what is not a number or not finite */
static void sweep(float *x)
{
    for (int i = 0; i < SWEEP; i++)
        x[i] = -20 + 0.01f * (float)i;
    x[SWEEP - 2] = NAN;
    x[SWEEP - 1] = 3e38f;
}

/* A row of 1 times the weights [SWEEP][1]: the weights themselves are what is activated. */
static void act_of(const char *isa, enum act_fn fn, bool gated)
{
    static float gate[SWEEP], up[SWEEP];
    const float one = 1;
    struct err e;
    struct backend *b = rig_open(isa, 2, 1, 1, 1);
    sweep(gate);
    for (int i = 0; i < SWEEP; i++)
        up[i] = -9 + (float)(i % 181) * 0.1f;
    const struct weight *w[2] = {b->ops->weight_load(b, DTYPE_F32, SWEEP, 1, gate, &e),
                                 b->ops->weight_load(b, DTYPE_F32, SWEEP, 1, up, &e)};
    struct weight *table = b->ops->weight_load(b, DTYPE_F32, 1, 1, &one, &e);
    struct activation *x = rig_activation(b, 1, NULL, false);
    struct activation *out = rig_activation(b, SWEEP, NULL, false);
    rig_one_sequence(b, 1, 0, NULL, 0, 16);
    b->ops->embed(b, x, table, 1);
    b->ops->linear(b, gated ? INTO_ACT_MUL : INTO_ACT, fn, x, gated ? 2 : 1, w, NULL, &out);
    rig_submit(b);
    const float *got = b->ops->read(b, out, 0);
    assert_true(isnan(got[SWEEP - 2]));
    assert_false(isnan(got[SWEEP - 1]));
    for (int i = 0; i < SWEEP - 2; i++) {
        double want = ref_act(fn, gate[i], gated ? up[i] : 1);
        if (!(fabs(got[i] - want) <= 1e-6 * (gated ? 10 : 1) + 4e-7 * fabs(want)))
            fail_msg("%s: act %d of %g is %.9g, expected %.9g", isa, fn, (double)gate[i], got[i],
                     want);
    }
    b->ops->close(b);
}

static void acts(const char *isa)
{
    for (int gated = 0; gated < 2; gated++)
        for (int fn = 0; fn < 3; fn++)
            act_of(isa, (enum act_fn[]){ACT_SILU, ACT_GELU, ACT_GELU_TANH}[fn], gated);
    act_of(isa, ACT_SWIGLU_CLAMPED, true);
}

static void an_activation_is_within_a_millionth(void **state)
{
    for_each_isa(acts);
}

/* --- soft caps --- */

static void soft_cap_of(const char *isa, float cap)
{
    static float values[SWEEP];
    const float one = 1;
    struct err e;
    struct backend *b = rig_open(isa, 2, 2, 1, 1);
    sweep(values);
    const struct weight *w = b->ops->weight_load(b, DTYPE_F32, SWEEP, 1, values, &e);
    struct weight *unit = b->ops->weight_load(b, DTYPE_F32, 1, 1, &one, &e);
    struct activation *x = rig_activation(b, 1, NULL, false);
    struct activation *last = rig_activation(b, 1, NULL, true);
    struct activation *logits = rig_activation(b, SWEEP, NULL, true);
    rig_one_sequence(b, 1, 0, NULL, 0, 16);
    b->ops->embed(b, x, unit, 1);
    b->ops->norm_logit_rows(b, last, x, &(struct norm){.w = unit, .eps = 0});
    b->ops->linear(b, INTO_STORE, ACT_SILU, last, 1, &w, NULL, &logits);
    b->ops->soft_cap(b, logits, cap);
    rig_submit(b);
    const float *got = b->ops->read(b, logits, 0);
    for (int i = 0; i < SWEEP - 2; i++) {
        double want = cap * tanh(values[i] / (double)cap);
        if (!(fabs(got[i] - want) <= 3e-7 * cap))
            fail_msg("%s: %g capped to %.9g, expected %.9g", isa, (double)values[i], got[i], want);
    }
    assert_true(isnan(got[SWEEP - 2]));
    assert_true(got[SWEEP - 1] == cap);
    b->ops->close(b);
}

static void soft_caps(const char *isa)
{
    soft_cap_of(isa, 30);
    soft_cap_of(isa, 2.5f);
}

static void a_soft_cap_bends_every_logit_and_passes_nan(void **state)
{
    for_each_isa(soft_caps);
}

/* --- gated additions --- */

static void gated_add_of(const char *isa, int n, int width, int n_in)
{
    uint64_t seed = 9;
    double want[MAX_WIDTH];
    struct backend *b = rig_open(isa, 2, n, 1, 1);
    struct table x = rig_table(b, n, width, 2, &seed), y = rig_table(b, n, width, 2, &seed);
    struct table in = rig_table(b, n, n_in, 1, &seed);
    struct ref_matrix w = ref_matrix_new(DTYPE_BF16, 1, n_in, 1, &seed);
    struct activation *to = rig_activation(b, width, NULL, false);
    struct activation *added = rig_activation(b, width, NULL, false);
    struct activation *from = rig_activation(b, n_in, NULL, false);
    rig_one_sequence(b, n, 0, NULL, 0, 16);
    b->ops->embed(b, to, x.weight, 1);
    b->ops->embed(b, added, y.weight, 1);
    b->ops->embed(b, from, in.weight, 1);
    b->ops->gated_add(b, to, added, from, rig_weight(b, &w));
    rig_submit(b);
    for (int r = 0; r < n; r++) {
        double gate;
        ref_linear(&w, in.values.values + (size_t)r * n_in, &gate);
        gate = 1 / (1 + exp(-gate));
        for (int i = 0; i < width; i++)
            want[i] = x.values.values[(size_t)r * width + i] +
                      gate * y.values.values[(size_t)r * width + i];
        assert_near("gated_add", b->ops->read(b, to, r), want, width, 2e-6, 1e-6);
    }
    ref_matrix_free(&w);
    ref_matrix_free(&x.values);
    ref_matrix_free(&y.values);
    ref_matrix_free(&in.values);
    b->ops->close(b);
}

static void gated_adds(const char *isa)
{
    gated_add_of(isa, 1, 64, 64);
    gated_add_of(isa, 5, 19, 53);
    gated_add_of(isa, 130, 48, 7);
}

static void a_row_is_added_as_far_as_its_gate_opens(void **state)
{
    for_each_isa(gated_adds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_norm_centres_or_not_and_is_stored_or_added),
        cmocka_unit_test(an_activation_is_within_a_millionth),
        cmocka_unit_test(a_soft_cap_bends_every_logit_and_passes_nan),
        cmocka_unit_test(a_row_is_added_as_far_as_its_gate_opens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
