/* The CPU backend's experts: against each expert's MLP made of linears (test_cpu_ops.c compares
 * those with references), chosen and added up here in double precision. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_rig.h"
#include "test.h"

#define N(a) ((int)(sizeof(a) / sizeof *(a)))
#define MAX_EXPERTS 40
#define MAX_WIDTH 512

struct moe_case {
    enum dtype up, down, bias; /* bias: DTYPE_COUNT for none */
    int n_experts, n_used, n_embd, n_ff, n;
    bool renormalise, add;
    enum act_fn act;
    bool fine; /* 16-bit activations */
};

struct experts {
    const struct weight *gate[MAX_EXPERTS], *up[MAX_EXPERTS], *down[MAX_EXPERTS];
    const struct weight *biases[MAX_EXPERTS][3]; /* as vectors */
    struct moe_layer layer;
};

static const struct weight *make(struct backend *b, enum dtype t, int rows, int cols, double scale,
                                 uint64_t *seed)
{
    struct ref_matrix m = ref_matrix_new(t, rows, cols, scale, seed);
    const struct weight *w = rig_weight(b, &m);
    ref_matrix_free(&m);
    return w;
}

/* [n_experts][width] for the experts, and each row as a vector for the linears */
static const struct weight *make_bias(struct backend *b, const struct moe_case *c,
                                      struct experts *x, int which, int width, uint64_t *seed)
{
    struct err e;
    if (c->bias == DTYPE_COUNT)
        return NULL;
    struct ref_matrix m = ref_matrix_new(c->bias, c->n_experts, width, 1, seed);
    size_t row = dtype_row_bytes(c->bias, width);
    for (int i = 0; i < c->n_experts; i++)
        x->biases[i][which] =
            b->ops->weight_load(b, c->bias, 1, width, (uint8_t *)m.bytes + (size_t)i * row, &e);
    const struct weight *w = rig_weight(b, &m);
    ref_matrix_free(&m);
    return w;
}

static void make_experts(struct backend *b, const struct moe_case *c, struct experts *x,
                         uint64_t *seed)
{
    memset(x, 0, sizeof *x);
    for (int i = 0; i < c->n_experts; i++) {
        x->gate[i] = make(b, c->up, c->n_ff, c->n_embd, 2 / sqrt(c->n_embd), seed);
        x->up[i] = make(b, c->up, c->n_ff, c->n_embd, 2 / sqrt(c->n_embd), seed);
        x->down[i] = make(b, c->down, c->n_embd, c->n_ff, 2 / sqrt(c->n_ff), seed);
    }
    x->layer = (struct moe_layer){x->gate, x->up, x->down, NULL, NULL, NULL};
    x->layer.gate_bias = make_bias(b, c, x, 0, c->n_ff, seed);
    x->layer.up_bias = make_bias(b, c, x, 1, c->n_ff, seed);
    x->layer.down_bias = make_bias(b, c, x, 2, c->n_embd, seed);
}

struct rig {
    struct backend *b;
    struct experts experts;
    struct moe *moe;
    struct table x, before, logits;
    struct activation *plain, *in, *router, *out, *middle, *each[MAX_EXPERTS];
};

static struct rig *rig_of(const char *isa, const struct moe_case *c)
{
    uint64_t seed = 11;
    struct err e;
    struct rig *r = calloc(1, sizeof *r);
    struct backend *b = r->b = (c->fine ? rig_open_fine : rig_open)(isa, 2, c->n, 1, 1);
    make_experts(b, c, &r->experts, &seed);
    r->x = rig_table(b, c->n, c->n_embd, 1, &seed);
    r->before = rig_table(b, c->n, c->n_embd, 1, &seed);
    r->logits = rig_table(b, c->n, c->n_experts, 3, &seed);
    r->plain = rig_activation(b, c->n_embd, NULL, false);
    r->in = rig_activation(b, c->n_embd, r->experts.gate[0], false);
    r->router = rig_activation(b, c->n_experts, NULL, false);
    r->out = rig_activation(b, c->n_embd, NULL, false);
    r->middle = rig_activation(b, c->n_ff, r->experts.down[0], false);
    for (int i = 0; i < c->n_experts; i++)
        r->each[i] = rig_activation(b, c->n_embd, NULL, false);
    struct moe_config config = {c->n_experts,   c->n_used, c->n_embd,          c->n_ff,
                                c->renormalise, c->act,    r->experts.gate[0], r->experts.down[0]};
    r->moe = b->ops->moe_new(b, &config, &e);
    assert_non_null(r->moe);
    return r;
}

static void rig_free(struct rig *r)
{
    ref_matrix_free(&r->x.values);
    ref_matrix_free(&r->before.values);
    ref_matrix_free(&r->logits.values);
    r->b->ops->close(r->b);
    free(r);
}

static void run(struct rig *r, const struct moe_case *c)
{
    struct backend *b = r->b;
    const struct backend_ops *o = b->ops;
    const struct weight *gain = make(b, DTYPE_F32, 1, c->n_embd, 1, &(uint64_t){5});
    rig_one_sequence(b, c->n, 0, NULL, 0, 16);
    o->embed(b, r->plain, r->x.weight, 1);
    o->embed(b, r->out, r->before.weight, 1);
    o->embed(b, r->router, r->logits.weight, 1);
    o->norm(b, r->in, r->plain, &(struct norm){.w = gain, .eps = 1e-5f});
    o->moe(b, r->moe, &r->experts.layer, c->add ? INTO_ADD : INTO_STORE, r->in, r->router, r->out);
    for (int i = 0; i < c->n_experts; i++) {
        const struct weight *w[2] = {r->experts.gate[i], r->experts.up[i]};
        o->linear(b, INTO_ACT_MUL, c->act, r->in, 2, w, r->experts.biases[i], &r->middle);
        o->linear(b, INTO_STORE, c->act, r->middle, 1, &r->experts.down[i],
                  &r->experts.biases[i][2], &r->each[i]);
    }
    rig_submit(b);
}

static void moe_of(const char *isa, const struct moe_case *c)
{
    char what[160];
    double want[MAX_WIDTH], share[MAX_EXPERTS];
    int chosen[MAX_EXPERTS];
    struct rig *r = rig_of(isa, c);
    snprintf(what, sizeof what, "%s: %s and %s, %d of %d experts, %d x %d, %d rows", isa,
             dtype_info(c->up)->name, dtype_info(c->down)->name, c->n_used, c->n_experts, c->n_embd,
             c->n_ff, c->n);
    run(r, c);
    for (int row = 0; row < c->n; row++) {
        ref_route(r->logits.values.values + (size_t)row * c->n_experts, c->n_experts, c->n_used,
                  c->renormalise, chosen, share);
        for (int i = 0; i < c->n_embd; i++)
            want[i] = c->add ? r->before.values.values[(size_t)row * c->n_embd + i] : 0;
        for (int k = 0; k < c->n_used; k++) {
            const float *y = r->b->ops->read(r->b, r->each[chosen[k]], row);
            for (int i = 0; i < c->n_embd; i++)
                want[i] += share[k] * y[i];
        }
        assert_near(what, r->b->ops->read(r->b, r->out, row), want, c->n_embd, 3e-6, 1e-6);
    }
    rig_free(r);
}

static void moes(const char *isa)
{
    static const enum dtype none = DTYPE_COUNT;
    const struct moe_case cases[] = {
        {DTYPE_F32, DTYPE_F32, none, 4, 2, 64, 96, 7, true, true, ACT_SILU},
        {DTYPE_F16, DTYPE_BF16, DTYPE_F32, 5, 3, 50, 19, 30, false, false, ACT_GELU},
        {DTYPE_Q4_K, DTYPE_Q6_K, none, 8, 2, 256, 256, 1, true, true, ACT_SILU},
        {DTYPE_Q8_0, DTYPE_F32, DTYPE_BF16, 32, 4, 96, 32, 40, true, true, ACT_SWIGLU_CLAMPED},
        {DTYPE_MXFP4, DTYPE_MXFP4, DTYPE_BF16, 32, 4, 96, 96, 40, true, true, ACT_SWIGLU_CLAMPED},
        {DTYPE_BF16, DTYPE_Q4_0, DTYPE_F16, 33, 8, 48, 160, 9, false, true, ACT_GELU_TANH},
        {DTYPE_Q4_1, DTYPE_Q5_1, DTYPE_F32, 1, 1, 64, 64, 5, false, false, ACT_SILU},
        {DTYPE_Q5_0, DTYPE_Q8_0, none, 3, 2, 64, 96, 300, true, false, ACT_SILU},
        {DTYPE_F32, DTYPE_Q4_1, none, 6, 6, 32, 64, 130, true, true, ACT_SILU},
        {DTYPE_F32, DTYPE_Q4_1, none, 6, 6, 32, 64, 130, true, true, ACT_SILU, true},
        {DTYPE_Q8_0, DTYPE_BF16, DTYPE_F32, 3, 2, 64, 96, 200, true, true, ACT_SILU, true},
        {DTYPE_MXFP4, DTYPE_Q6_K, DTYPE_BF16, 32, 4, 96, 256, 40, true, true, ACT_GELU, true},
        {DTYPE_Q4_K, DTYPE_Q8_0, none, 8, 2, 256, 256, 1, true, false, ACT_SILU, true},
    };
    for (int i = 0; i < N(cases); i++)
        moe_of(isa, &cases[i]);
}

static void experts_are_chosen_by_their_logits_and_mixed_by_their_shares(void **state)
{
    for_each_isa(moes);
}

/* Equal logits, then one NaN, then one infinite: rows of 4 experts */
static void strange_logits(const char *isa)
{
    static const struct moe_case c = {DTYPE_F32, DTYPE_F32, DTYPE_COUNT, 4,     2,       16,
                                      16,        6,         true,        false, ACT_SILU};
    static const float logits[6][4] = {{1, 1, 1, 1},
                                       {0, 2, NAN, 1},
                                       {0, 2, 2, 2},
                                       {0, INFINITY, 1, 1},
                                       {-INFINITY, 3, -INFINITY, -INFINITY},
                                       {0, 0, 0, -1}};
    static const int first[6] = {0, -1, 1, -1, 1, 0}, second[6] = {1, -1, 2, -1, 0, 1};
    struct err e;
    struct rig *r = rig_of(isa, &c);
    r->logits.weight = r->b->ops->weight_load(r->b, DTYPE_F32, 6, 4, logits, &e);
    run(r, &c);
    for (int row = 0; row < 6; row++) {
        const float *got = r->b->ops->read(r->b, r->out, row);
        double a = row == 4 ? 1 : 0.5, want[16];
        for (int i = 0; i < 16 && first[row] >= 0; i++)
            want[i] = a * r->b->ops->read(r->b, r->each[first[row]], row)[i] +
                      (1 - a) * r->b->ops->read(r->b, r->each[second[row]], row)[i];
        for (int i = 0; i < 16 && first[row] < 0; i++)
            assert_true(isnan(got[i]));
        if (first[row] >= 0)
            assert_near("strange logits", got, want, 16, 3e-6, 1e-6);
    }
    rig_free(r);
}

static void of_equal_logits_the_first_wins_and_a_nan_spoils_its_row_only(void **state)
{
    for_each_isa(strange_logits);
}

static void wrong_shapes_are_refused(void **state)
{
    struct err e;
    uint64_t seed = 1;
    struct backend *b = rig_open("generic", 1, 4, 1, 1);
    const struct weight *up = make(b, DTYPE_F32, 32, 16, 1, &seed);
    const struct weight *down = make(b, DTYPE_F32, 16, 32, 1, &seed);
    struct moe_config c = {4, 5, 16, 32, true, ACT_SILU, up, down};
    assert_null(b->ops->moe_new(b, &c, &e));
    assert_contains(e.msg, "5 of 4 experts");
    c.n_experts = 1 << 16;
    assert_null(b->ops->moe_new(b, &c, &e));
    assert_contains(e.msg, "at most 64 of 4096");
    c = (struct moe_config){4, 2, 16, 64, true, ACT_SILU, up, down};
    assert_null(b->ops->moe_new(b, &c, &e));
    assert_contains(e.msg, "width 16 and 64");
    c.n_ff = 32;
    assert_non_null(b->ops->moe_new(b, &c, &e));
    b->ops->close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_are_chosen_by_their_logits_and_mixed_by_their_shares),
        cmocka_unit_test(of_equal_logits_the_first_wins_and_a_nan_spoils_its_row_only),
        cmocka_unit_test(wrong_shapes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
