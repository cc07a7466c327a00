/* The CPU backend against plain references in double precision: embeddings and linears, and what
 * is no operation of a step. test_cpu_rows.c, test_cpu_attention.c and test_cpu_moe.c have the
 * other operations. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cpu_rig.h"
#include "test.h"

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

/* --- linear --- */

struct linear_case {
    enum dtype type;
    int rows, cols, n;
    enum linear_into into;
    enum act_fn act;
    bool bias;
    bool fine; /* 16-bit activations */
};

#define MAX_WIDTH 3200

/* To bf16; a matrix of one row is kept as float32. */
static bool rounded(const struct linear_case *c)
{
    return c->type == DTYPE_BF16 && !c->fine && c->rows > 1;
}

/* What the backend's reader reads, from the float32 row: `tight` rounded as it does. */
static void reader_row(const struct linear_case *c, const float *row, bool tight, double *out)
{
    if (tight && quantised(c->type))
        ref_quantise(row, c->cols, out);
    else
        for (int k = 0; k < c->cols; k++)
            out[k] = tight && rounded(c) ? ref_round(DTYPE_BF16, row[k]) : row[k];
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
    for (int r = 0; c->into == INTO_ACT && r < c->rows; r++)
        want[r] = ref_act(c->act, want[r], 1);
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
    snprintf(what, sizeof what, "%s: %s %dx%d, %d rows, into %d act %d bias %d%s", isa,
             dtype_info(c->type)->name, c->rows, c->cols, c->n, c->into, c->act, c->bias,
             c->fine ? ", fine" : "");
    struct backend *b = (c->fine ? rig_open_fine : rig_open)(isa, 2, c->n, 1, 1);
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
        linear_want(c, w, bias, row, old, false, want);
        assert_near(what, got, want, c->rows, c->fine ? 2e-4 : 0.05, c->fine ? 1e-4 : 0.03);
        if (c->fine && quantised(c->type))
            continue;
        linear_want(c, w, bias, row, old, true, want);
        assert_near(what, got, want, c->rows, 2e-5, 1e-5);
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
    static const int shapes[][3] = {{16, 32, 1},    {17, 64, 2},  {33, 96, 3},   {100, 576, 4},
                                    {160, 1056, 7}, {8, 320, 16}, {64, 64, 131}, {576, 1536, 5},
                                    {1, 160, 6},    {515, 32, 9}, {23, 480, 130}};
    static const enum linear_into into[] = {INTO_STORE, INTO_ADD, INTO_ACT_MUL, INTO_ACT};
    static const enum act_fn act[] = {ACT_SILU, ACT_GELU_TANH, ACT_GELU, ACT_SWIGLU_CLAMPED};
    for (enum dtype t = 0; t < DTYPE_COUNT; t++) {
        for (int s = 0; s < N(shapes); s++) {
            if (rig_emulated() && shapes[s][0] * shapes[s][1] * shapes[s][2] > 1000000)
                continue;
            for (int i = 0; i < N(into); i++) {
                if (t >= DTYPE_Q2_K && i != s % N(into))
                    continue; /* the first types show that all kinds of results fit together */
                struct linear_case c = {t,
                                        shapes[s][0],
                                        whole_blocks(t, shapes[s][1]),
                                        shapes[s][2],
                                        into[i],
                                        act[s % (into[i] == INTO_ACT_MUL ? 4 : 3)],
                                        s % 3 == 0};
                linear_of(isa, &c);
            }
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

/* Two planes: nearly the product with float rows. Tiles of 64 rows, and one of a few */
static void fine_linears(const char *isa)
{
    static const int shapes[][3] = {{33, 96, 1}, {100, 576, 3}, {160, 320, 16}, {40, 64, 131}};
    static const enum linear_into into[] = {INTO_STORE, INTO_ADD, INTO_ACT_MUL, INTO_ACT};
    for (enum dtype t = 0; t < DTYPE_COUNT; t++)
        for (int s = 0; s < N(shapes); s++) {
            struct linear_case c = {t,
                                    shapes[s][0],
                                    whole_blocks(t, shapes[s][1]),
                                    shapes[s][2],
                                    into[(s + t) % 4],
                                    0,
                                    s % 2 == 0,
                                    true};
            linear_of(isa, &c);
        }
}

static void rows_of_two_planes_give_nearly_the_float_product(void **state)
{
    for_each_isa(fine_linears);
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
    kv = (struct kv_config){1, 1, 513, 16, 1, DTYPE_INT8};
    assert_false(b->ops->kv_open(b, &kv, &e));
    assert_contains(e.msg, "int8 with heads of 513 dims: at most 512");
    b->ops->close(b);
}

/* Attention's output is staged, which is as wide as its queries. */
static void a_wide_middle_takes_no_staging(void **state)
{
    enum { WIDE = 32 * 256, ROWS = 64 };
    static uint8_t bytes[2 * WIDE / 32 * 34];
    struct err e;
    struct backend_memory before, after;
    struct backend *b = rig_open("generic", 1, ROWS, 1, 1);
    assert_non_null(b->ops->activation_new(b, 256, NULL, false, &e));
    b->ops->memory(b, &before);
    struct weight *w = b->ops->weight_load(b, DTYPE_Q8_0, 2, WIDE, bytes, &e);
    assert_non_null(b->ops->activation_new(b, WIDE, w, false, &e));
    b->ops->memory(b, &after);
    assert_true(after.activations - before.activations < (uint64_t)ROWS * WIDE * 2);
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
    kv.dtype = DTYPE_INT8; /* and two scales of 16 bits a token */
    assert_int_equal(b->ops->kv_page_bytes(b, &kv), 2 * 3 * (64 + 64 + 4) * 16);
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
        cmocka_unit_test(a_linear_of_every_type_matches_the_reference),
        cmocka_unit_test(rows_of_two_planes_give_nearly_the_float_product),
        cmocka_unit_test(three_weights_of_different_sizes_share_an_input),
        cmocka_unit_test(columns_that_do_not_fill_blocks_are_refused),
        cmocka_unit_test(an_unknown_instruction_set_is_refused_by_name),
        cmocka_unit_test(a_pool_of_a_wrong_shape_is_refused),
        cmocka_unit_test(a_wide_middle_takes_no_staging),
        cmocka_unit_test(memory_counts_what_was_taken),
        cmocka_unit_test(host_work_runs_each_item_once),
        cmocka_unit_test(idle_helpers_take_no_processor_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
