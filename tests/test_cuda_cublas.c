/* Linears by cuBLASLt, whose calls have stand-ins here: against double-precision references, what
 * happens without the library and when it fails, and the engine's answers with it and without. */
#include "cublas_linear.h"
#include "cuda_rig.h"
#include "panel.h"
#include "reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test.h"

#include "backend_module.h"
#include "engine_rig.h"

enum { MAX_ROWS = 64 };

static struct cublas *opened(void)
{
    enum { WORKSPACE = 1 << 20 };
    struct err e;
    emu_cublas(&(struct emu_cublas_options){0});
    struct cublas *c = cublas_open(MAX_ROWS, &e);
    if (!c)
        fail_msg("%s", e.msg);
    cublas_set_workspace(c, rig_device(WORKSPACE), WORKSPACE);
    return c;
}

static void closed(struct cublas *c)
{
    cuda_ok(cudaDeviceSynchronize());
    cublas_close(c);
    assert_int_equal(emu_cublas_alive(), 0);
    rig_free_all();
}

/* --- products --- */

struct shape {
    enum dtype type;
    int rows, cols, tokens;
    bool biased, added;
};
/* A linear, what it reads on both sides, and what is there before it */
struct problem {
    struct ref_matrix w, x;
    struct cuda_linear l;
    void *rows;
    float *bias, *old;
};

static size_t result_bytes(struct shape s)
{
    return sizeof(float) * (size_t)s.rows * (size_t)s.tokens;
}

/* Memory of x ends with its last row: nothing beyond may be read. */
static struct problem problem_new(struct shape s)
{
    uint64_t seed = (uint64_t)(s.rows + s.cols);
    struct problem p = {
        .w = ref_matrix_new(s.type, s.rows, s.cols, 1, &seed),
        .x = ref_matrix_new(s.type, s.tokens, s.cols, 2, &seed),
        .bias = rig_randoms(s.rows, 1, &seed),
        .old = rig_randoms((int64_t)s.rows * s.tokens, 1, &seed),
    };
    p.rows = rig_float_rows(s.type, p.x.bytes, s.tokens, s.tokens, s.cols);
    p.l = (struct cuda_linear){.into = s.added ? INTO_ADD : INTO_STORE, .n_w = 1};
    p.l.w[0] = rig_matrix(&p.w);
    p.l.out[0] = rig_upload(p.old, result_bytes(s));
    if (s.biased)
        p.l.bias[0] = rig_upload(p.bias, sizeof(float) * (size_t)s.rows);
    return p;
}

static void problem_free(struct problem *p)
{
    ref_matrix_free(&p->w);
    ref_matrix_free(&p->x);
}

static void check_results(const struct problem *p, struct shape s)
{
    float *got = malloc(result_bytes(s));
    double *want = malloc(sizeof *want * (size_t)s.rows);
    rig_download(got, p->l.out[0], result_bytes(s));
    for (int t = 0; t < s.tokens; t++) {
        ref_linear(&p->w, p->x.values + t * s.cols, want);
        for (int r = 0; r < s.rows; r++) {
            const int at = t * s.rows + r;
            want[r] += (s.biased ? p->bias[r] : 0) + (s.added ? p->old[at] : 0);
            if (!(fabs(got[at] - want[r]) <= 1e-5 * s.cols))
                fail_msg("product %s: row %d of token %d is %.9g, not %.9g",
                         dtype_info(s.type)->name, r, t, got[at], want[r]);
        }
    }
    free(got);
    free(want);
}

static void run(struct cublas *c, struct shape s)
{
    struct problem p = problem_new(s);
    struct err e = {0};
    const int before = emu_cublas_products();
    assert_true(cublas_takes(c, &p.l, s.tokens));
    if (!cublas_linear(c, NULL, &p.l, p.rows, s.tokens, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(emu_cublas_products(), before + 1);
    check_results(&p, s);
    problem_free(&p);
}

static void all_shapes(void)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    struct cublas *c = opened();
    for (int i = 0; i < 3; i++) {
        run(c, (struct shape){types[i], 5, 70, 17, false, false});
        run(c, (struct shape){types[i], 33, 300, 19, true, false});
        run(c, (struct shape){types[i], 33, 300, 18, true, true});   /* by the same plan */
        run(c, (struct shape){types[i], 33, 300, 24, false, false}); /* by another */
        run(c, (struct shape){types[i], 1, 1, 33, false, true});
        run(c, (struct shape){types[i], 130, 64, 65, true, true});
    }
    run(c, (struct shape){DTYPE_F32, 7, 40, 9, false, false});
    run(c, (struct shape){DTYPE_F16, 24, 33, 517, true, false});
    closed(c);
}

static void products_agree_with_the_reference(void **state)
{
    (void)state;
    rig_in_all_orders(all_shapes);
}

static void several_weights_are_each_a_product(void **state)
{
    (void)state;
    enum { TOKENS = 20, COLS = 96 };
    static const int rows[] = {48, 16, 24};
    struct cublas *c = opened();
    struct problem p[3];
    struct cuda_linear all = {.into = INTO_STORE, .n_w = 3};
    struct err e;
    for (int i = 0; i < 3; i++) {
        p[i] = problem_new((struct shape){DTYPE_BF16, rows[i], COLS, TOKENS, i == 1, false});
        all.w[i] = p[i].l.w[0];
        all.bias[i] = p[i].l.bias[0];
        all.out[i] = p[i].l.out[0];
    }
    assert_true(cublas_takes(c, &all, TOKENS));
    for (int i = 1; i < 3; i++) { /* all read the first one's x */
        memcpy(p[i].x.values, p[0].x.values, sizeof(double) * TOKENS * COLS);
        memcpy(p[i].x.bytes, p[0].x.bytes, 2 * TOKENS * COLS);
    }
    assert_true(cublas_linear(c, NULL, &all, p[0].rows, TOKENS, &e));
    assert_int_equal(emu_cublas_products(), 3);
    for (int i = 0; i < 3; i++) {
        check_results(&p[i], (struct shape){DTYPE_BF16, rows[i], COLS, TOKENS, i == 1, false});
        problem_free(&p[i]);
    }
    closed(c);
}

static void few_rows_are_our_own_kernels(void **state)
{
    (void)state;
    struct cublas *c = opened();
    struct problem half = problem_new((struct shape){DTYPE_F16, 32, 64, 32, false, false});
    struct problem full = problem_new((struct shape){DTYPE_F32, 32, 64, 32, false, false});
    assert_false(cublas_takes(c, &half.l, CUBLAS_LEAST_ROWS - 1));
    assert_true(cublas_takes(c, &half.l, CUBLAS_LEAST_ROWS));
    assert_false(cublas_takes(c, &full.l, CUBLAS_LEAST_ROWS_F32 - 1));
    assert_true(cublas_takes(c, &full.l, CUBLAS_LEAST_ROWS_F32));
    assert_false(cublas_takes(NULL, &half.l, 512));
    problem_free(&half);
    problem_free(&full);
    closed(c);
}

/* What a graph has captured is what the call was made with, whatever the plan serves meanwhile. */
static void captured(void)
{
    const struct shape s = {DTYPE_F16, 40, 64, 24, true, true},
                       other = {DTYPE_F16, 40, 64, 18, true, false};
    struct cublas *c = opened();
    struct problem p = problem_new(s);
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    struct err e;
    cuda_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_true(cublas_takes(c, &p.l, s.tokens));
    cuda_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    assert_true(cublas_linear(c, stream, &p.l, p.rows, s.tokens, &e));
    cuda_ok(cudaStreamEndCapture(stream, &graph));
    cuda_ok(cudaGraphInstantiate(&exec, graph, 0));
    run(c, other);
    cuda_ok(cudaGraphLaunch(exec, stream));
    cuda_ok(cudaStreamSynchronize(stream));
    check_results(&p, s);
    cuda_ok(cudaGraphExecDestroy(exec));
    cuda_ok(cudaGraphDestroy(graph));
    cuda_ok(cudaStreamDestroy(stream));
    problem_free(&p);
    closed(c);
}

static void a_graph_keeps_a_product_as_it_was(void **state)
{
    (void)state;
    rig_in_all_orders(captured);
}

/* --- bounds and failures --- */

static void plans_are_made_once_and_their_number_is_bounded(void **state)
{
    (void)state;
    struct cublas *c = opened();
    struct problem p = problem_new((struct shape){DTYPE_F16, 32, 64, 17, false, false});
    const int before = emu_cublas_alive();
    assert_true(cublas_takes(c, &p.l, 20));
    const int each = emu_cublas_alive() - before;
    assert_true(each > 0);
    for (int n = CUBLAS_LEAST_ROWS; n <= MAX_ROWS; n++) /* made for all of these */
        assert_true(cublas_takes(c, &p.l, n));
    assert_int_equal(emu_cublas_alive() - before, each);
    assert_true(cublas_takes(c, &p.l, MAX_ROWS + 1)); /* and one more */
    assert_true(emu_cublas_alive() - before > each);
    assert_true(cublas_can(c, &p.l, 1));
    int made = 0;
    for (int cols = 1; cols <= 3000; cols++) {
        p.l.w[0].cols = cols * 32;
        made += cublas_takes(c, &p.l, 17);
    }
    assert_in_range(made, 100, 1100);
    assert_true(emu_cublas_alive() <= before + 1100 * 4);
    p.l.w[0].cols = 64; /* an early one is still there */
    assert_true(cublas_takes(c, &p.l, 20));
    problem_free(&p);
    closed(c);
}

static void what_the_library_has_no_way_for_is_not_taken(void **state)
{
    (void)state;
    struct cublas *c = opened();
    struct problem p = problem_new((struct shape){DTYPE_F16, 32, 64, 32, false, false});
    emu_cublas(&(struct emu_cublas_options){.no_way = 1});
    assert_false(cublas_takes(c, &p.l, 32));
    assert_false(cublas_takes(c, &p.l, 32)); /* and is not asked for again */
    p.l.w[0].data = (const uint8_t *)p.l.w[0].data + 64;
    emu_cublas(&(struct emu_cublas_options){0});
    assert_false(cublas_takes(c, &p.l, 512)); /* not aligned */
    problem_free(&p);
    closed(c);
}

static void a_product_that_fails_is_told_by_name(void **state)
{
    (void)state;
    struct cublas *c = opened();
    struct problem p = problem_new((struct shape){DTYPE_F16, 32, 64, 32, false, false});
    struct err e;
    assert_true(cublas_takes(c, &p.l, 32));
    emu_cublas(&(struct emu_cublas_options){.fail_at = 1});
    assert_false(cublas_linear(c, NULL, &p.l, p.rows, 32, &e));
    assert_contains(e.msg, "cublasLtMatmul: CUBLAS_STATUS_EXECUTION_FAILED");
    problem_free(&p);
    closed(c);
}

static void a_missing_library_is_named(void **state)
{
    (void)state;
    struct err e;
    emu_cublas(&(struct emu_cublas_options){.missing = 1});
    assert_null(cublas_open(MAX_ROWS, &e));
    assert_contains(e.msg, "is missing");
    cublas_close(NULL);
    assert_int_equal(emu_cublas_alive(), 0);
}

/* --- under the engine --- */

static struct backend *open_emulated(const struct backend_config *c, struct err *e)
{
    return backend_module_of()->open(c, e);
}

static struct engine_config config_of(bool batch_invariant)
{
    struct engine_config c = rig_defaults;
    c.open_backend = open_emulated;
    c.max_model_len = 96;
    c.batch_invariant = batch_invariant;
    return c;
}

static struct request *scored(uint64_t seed, int n_prompt, struct rig *r)
{
    struct sampling_params p = rig_plain;
    p.n_prompt_logprobs = 0;
    p.n_logprobs = 3;
    p.max_tokens = 2;
    return rig_request(seed, n_prompt, engine_get_info(r->e)->spec.n_vocab, &p);
}

/* Its answer to a prompt that is computed at once; what `info` says meanwhile */
static struct request *answer(const char *file, const struct engine_config *c,
                              struct engine_info *info)
{
    struct rig r;
    rig_open(&r, file, c);
    *info = *engine_get_info(r.e);
    static char warning[1024];
    snprintf(warning, sizeof warning, "%s", info->warning ? info->warning : "");
    info->warning = warning;
    struct request *q = scored(11, 40, &r);
    rig_submit(&r, q);
    rig_wait_ended(&r, &q, 1);
    rig_close(&r);
    assert_int_equal(emu_cublas_alive(), 0);
    assert_int_equal(emu_memory_held(), 0);
    return q;
}

static void check_near(const struct request *a, const struct request *b, double limit)
{
    double worst = 0;
    for (int i = 1; i < a->n_prompt; i++)
        worst = fmax(worst, fabs((double)a->prompt_logprobs[i] - (double)b->prompt_logprobs[i]));
    printf("    log probabilities differ by %.6f\n", worst);
    assert_true(worst <= limit && worst > 0);
}

static void an_engine_takes_it_unless_answers_must_be_batch_invariant(void **state)
{
    (void)state;
    struct engine_config with = config_of(false), without = config_of(true);
    struct engine_info info;
    emu_cublas(&(struct emu_cublas_options){0});
    struct request *fast = answer("llama3.F16.gguf", &with, &info);
    assert_true(emu_cublas_products() > 0 && info.batch_dependent);
    emu_cublas(&(struct emu_cublas_options){0});
    struct request *same = answer("llama3.F16.gguf", &without, &info);
    assert_true(emu_cublas_products() == 0 && !info.batch_dependent);
    assert_string_equal(info.warning, "");
    assert_int_equal(emu_reports(), 0);
    check_near(fast, same, 0.01);
    request_free(fast);
    request_free(same);
}

static void without_the_library_answers_are_those_of_our_kernels(void **state)
{
    (void)state;
    static const struct emu_cublas_options how[] = {{.missing = 1}, {.no_way = 1}};
    struct engine_config c = config_of(true);
    struct engine_info info;
    struct request *want = answer("llama3.F16.gguf", &c, &info);
    c.batch_invariant = false;
    for (int i = 0; i < 2; i++) {
        emu_cublas(&how[i]);
        struct request *got = answer("llama3.F16.gguf", &c, &info);
        assert_int_equal(emu_cublas_products(), 0);
        assert_int_equal(info.batch_dependent, !how[i].missing);
        if (how[i].missing)
            assert_contains(info.warning, "is missing");
        rig_assert_equal(want, got);
        request_free(got);
    }
    request_free(want);
}

static void a_quantised_model_does_not_ask_for_it(void **state)
{
    (void)state;
    struct engine_config c = config_of(false);
    struct engine_info info;
    emu_cublas(&(struct emu_cublas_options){.missing = 1});
    struct request *q = answer("gemma3.Q8_0.gguf", &c, &info);
    assert_string_equal(info.warning, "");
    assert_false(info.batch_dependent);
    request_free(q);
}

static void a_product_that_fails_fails_the_request(void **state)
{
    (void)state;
    const struct engine_config c = config_of(false);
    struct rig r;
    emu_cublas(&(struct emu_cublas_options){0});
    rig_open(&r, "llama3.F16.gguf", &c);
    emu_cublas(&(struct emu_cublas_options){.fail_at = 3});
    struct request *q = scored(11, 40, &r);
    rig_submit(&r, q);
    rig_wait_ended(&r, &q, 1);
    rig_close(&r);
    assert_int_equal(atomic_load(&q->choices[0].finish), FINISH_ERROR);
    assert_int_equal(q->error.code, ERR_DEVICE);
    assert_contains(q->error.msg, "a linear");
    assert_contains(q->error.msg, "CUBLAS_STATUS_EXECUTION_FAILED");
    request_free(q);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_agree_with_the_reference),
        cmocka_unit_test(several_weights_are_each_a_product),
        cmocka_unit_test(few_rows_are_our_own_kernels),
        cmocka_unit_test(a_graph_keeps_a_product_as_it_was),
        cmocka_unit_test(plans_are_made_once_and_their_number_is_bounded),
        cmocka_unit_test(what_the_library_has_no_way_for_is_not_taken),
        cmocka_unit_test(a_product_that_fails_is_told_by_name),
        cmocka_unit_test(a_missing_library_is_named),
        cmocka_unit_test(an_engine_takes_it_unless_answers_must_be_batch_invariant),
        cmocka_unit_test(without_the_library_answers_are_those_of_our_kernels),
        cmocka_unit_test(a_quantised_model_does_not_ask_for_it),
        cmocka_unit_test(a_product_that_fails_fails_the_request),
    };
    if (argc > 1) /* a pattern of names */
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
