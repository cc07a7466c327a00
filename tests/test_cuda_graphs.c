/* Decode steps as CUDA graphs, on the emulated device: the same bits as kernel by kernel, whatever
 * sizes follow each other; graphs are used again; a capture that fails costs nothing but speed. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "test.h"

#include "backend_module.h"
#include "cuda_backend.h"
#include "emu_control.h"
#include "engine_rig.h"

static struct backend *open_emulated(const struct backend_config *c, struct err *e)
{
    return backend_module_of()->open(c, e);
}

static unsigned char *read_model(const char *name, size_t *n)
{
    char path[4200];
    unsigned char *model = test_read_data(name, n);
    snprintf(path, sizeof path, "%s/gguf/%s", test_corpus(), name);
    if (!model && !(model = test_read_file(path, n))) {
        printf("SKIPPED: no %s (set TOKEND_CORPUS)\n", path);
        skip();
    }
    return model;
}

/* --- histories --- */

enum { CROWD = 11, SHORT = 30, LONG = CUDA_ATTENTION_SEGMENT + 2 };

/* Answers of many lengths, so that sequences come and go and steps have 1 to CROWD of them.
 * `longest`: of the prompts; beyond CUDA_ATTENTION_SEGMENT attention is split. */
static struct request *asked(int i, int longest, int n_vocab)
{
    const int prompts[CROWD] = {3, 17, 40, 1, longest, 33, 5, 16, 20, 9, 2};
    static const int answers[CROWD] = {14, 2, 9, 22, 6, 3, 1, 12, 4, 17, 10};
    struct sampling_params p = rig_plain;
    p.n_logprobs = 2;
    p.n_prompt_logprobs = i % 4 == 2 ? 0 : -1;
    p.max_tokens = answers[i];
    return rig_request((uint64_t)i + 1, prompts[i], n_vocab, &p);
}

static struct engine_config config_of(enum dtype kv, bool eager)
{
    struct engine_config c = rig_defaults;
    c.open_backend = open_emulated;
    c.max_model_len = 320;
    c.max_num_seqs = CROWD;
    c.kv_dtype_auto = false;
    c.kv_dtype = kv;
    c.enforce_eager = eager;
    return c;
}

struct answers {
    struct request *q[CROWD];
    struct emu_graph_counts graphs;
};

static void run_crowd(struct rig *r, int longest, struct answers *a)
{
    for (int i = 0; i < CROWD; i++) {
        a->q[i] = asked(i, longest, engine_get_info(r->e)->spec.n_vocab);
        rig_submit(r, a->q[i]);
        if (i % 4 == 3) /* some later than others */
            rig_wait_tokens(r, a->q[i], 2);
    }
    rig_wait_ended(r, a->q, CROWD);
    for (int i = 0; i < CROWD; i++)
        if (atomic_load(&a->q[i]->choices[0].finish) != FINISH_LENGTH)
            fail_msg("%s", a->q[i]->error.msg);
}

static void answer(const unsigned char *model, size_t n, const struct engine_config *c, int longest,
                   struct answers *a)
{
    const struct emu_graph_counts before = emu_count_graphs();
    struct rig r;
    rig_open_copy(&r, model, n, c);
    run_crowd(&r, longest, a);
    rig_close(&r);
    a->graphs = emu_count_graphs();
    a->graphs.made -= before.made;
    a->graphs.launched -= before.launched;
    assert_int_equal(emu_reports(), 0);
}

static void compare_and_free(struct answers *a, struct answers *b)
{
    for (int i = 0; i < CROWD; i++) {
        rig_assert_equal(a->q[i], b->q[i]);
        request_free(a->q[i]);
        request_free(b->q[i]);
    }
}

static void check(const char *name, enum dtype kv, int longest, enum emu_streams streams)
{
    size_t n = 0;
    unsigned char *model = read_model(name, &n);
    const struct emu_options how = {.streams = streams, .seed = 7};
    const struct engine_config eager = config_of(kv, true), graphs = config_of(kv, false);
    struct answers a, b;
    emu_configure(&how);
    answer(model, n, &eager, longest, &a);
    answer(model, n, &graphs, longest, &b);
    printf("    %s: %d graphs, launched %d times\n", name, b.graphs.made, b.graphs.launched);
    assert_int_equal(a.graphs.made, 0);
    assert_true(b.graphs.made > 0);
    assert_true(b.graphs.launched > 0);
    /* sizes 1, 2, 4, 8 and 11, each with attention's partial results and without */
    assert_in_range(b.graphs.made, 1, 10);
    compare_and_free(&a, &b);
    free(model);
}

static void a_float_model_answers_the_same_by_graphs(void **state)
{
    (void)state;
    check("llama3.F16.gguf", DTYPE_F16, SHORT, EMU_LAZY);
}

static void a_quantised_model_with_windows_answers_the_same_by_graphs(void **state)
{
    (void)state;
    check("gemma3.Q8_0.gguf", DTYPE_BF16, LONG, EMU_MIXED);
}

static void experts_answer_the_same_by_graphs(void **state)
{
    (void)state;
    check("gpt_oss.MXFP4.gguf", DTYPE_F16, SHORT, EMU_EAGER);
}

static void weights_of_mixed_types_answer_the_same_by_graphs(void **state)
{
    (void)state;
    check("llama_k.Q4_K_M.gguf", DTYPE_F32, SHORT, EMU_LAZY);
}

/* --- walks of our own --- */

enum { WIDTH = 64, ROWS = 3, TOKENS = 8 };

/* x = embedding * scale + W · embedding; then what was read of W's float16 rows in float32 */
struct toy {
    struct backend *b;
    struct weight *table, *w, *vector;
    struct activation *x, *halves, *y, *out;
};

static struct weight *weight(struct toy *t, enum dtype type, int rows, uint64_t seed)
{
    static union {
        float f[WIDTH * WIDTH];
        uint16_t h[WIDTH * WIDTH]; /* float16 of 1 to 2 */
    } values;
    struct err e;
    for (int i = 0; i < rows * WIDTH; i++)
        if (type == DTYPE_F16)
            values.h[i] = (uint16_t)(0x3c00 + random_below(&seed, 1024));
        else
            values.f[i] = (float)random_below(&seed, 1000) / 1000;
    struct weight *w = t->b->ops->weight_load(t->b, type, rows, WIDTH, &values, &e);
    assert_non_null(w);
    return w;
}

static struct activation *buffer(struct toy *t, const struct weight *reader, bool logit_rows)
{
    struct err e;
    struct activation *a = t->b->ops->activation_new(t->b, WIDTH, reader, logit_rows, &e);
    assert_non_null(a);
    return a;
}

static struct toy toy_open(bool eager)
{
    const struct backend_config c = {
        .threads = 1,
        .max_rows = 16,
        .max_seqs = 4,
        .max_pages = 4,
        .max_logits = 4,
        .enforce_eager = eager,
    };
    const struct kv_config kv = {1, 1, 64, 16, 4, DTYPE_F16, 2};
    struct toy t = {0};
    struct err e;
    t.b = open_emulated(&c, &e);
    assert_non_null(t.b);
    t.table = weight(&t, DTYPE_F32, TOKENS, 1);
    t.w = weight(&t, DTYPE_F16, WIDTH, 2);
    t.vector = weight(&t, DTYPE_F32, 1, 3);
    t.x = buffer(&t, NULL, false);
    t.halves = buffer(&t, t.w, false);
    t.y = buffer(&t, NULL, false);
    t.out = buffer(&t, NULL, true);
    assert_true(t.b->ops->kv_open(t.b, &kv, &e));
    return t;
}

static void toy_begin(struct toy *t, int first)
{
    struct step_inputs *in = t->b->ops->step_begin(t->b);
    for (int i = 0; i < ROWS; i++) {
        in->ids[i] = (first + i) % TOKENS;
        in->positions[i] = 0;
        in->kv_slots[i] = i;
        in->logit_rows[i] = i;
        in->seqs[i] = (struct step_seq){i, 1, 0};
    }
    in->n_rows = in->n_seqs = in->n_logits = ROWS;
}

static void toy_end(struct toy *t, float *got)
{
    struct err e;
    t->b->ops->norm_logit_rows(t->b, t->out, t->x, NULL);
    if (!t->b->ops->submit(t->b, &e))
        fail_msg("%s", e.msg);
    for (int i = 0; i < ROWS; i++)
        memcpy(got + i * WIDTH, t->b->ops->read(t->b, t->out, i), WIDTH * sizeof *got);
}

static void toy_walk(struct toy *t, int first, float scale, float *got)
{
    const struct backend_ops *ops = t->b->ops;
    toy_begin(t, first);
    ops->embed(t->b, t->x, t->table, scale);
    ops->norm(t->b, t->halves, t->x, NULL);
    ops->linear(t->b, INTO_STORE, ACT_SILU, t->halves, 1, (const struct weight *const[]){t->w},
                NULL, &t->y);
    toy_end(t, got);
}

/* x += sigmoid(the rows of W's reader · vector) * y, of what the last step left */
static void toy_gate(struct toy *t, float *got)
{
    toy_begin(t, 0);
    t->b->ops->gated_add(t->b, t->x, t->y, t->halves, t->vector);
    toy_end(t, got);
}

static void same(const float *a, const float *b, const char *what)
{
    if (memcmp(a, b, ROWS * WIDTH * sizeof *a) != 0)
        fail_msg("%s: graphs make other bits", what);
}

static void a_changed_walk_runs_no_old_graph(void **state)
{
    (void)state;
    struct toy t[2] = {toy_open(true), toy_open(false)};
    const int before = emu_count_graphs().launched;
    for (int step = 0; step < 12; step++) {
        float got[2][ROWS * WIDTH];
        for (int i = 0; i < 2; i++)
            toy_walk(&t[i], step, step / 2 % 2 ? 2 : 1, got[i]);
        same(got[0], got[1], "another scale");
    }
    assert_int_equal(emu_count_graphs().launched - before, 8);
    for (int i = 0; i < 2; i++)
        t[i].b->ops->close(t[i].b);
}

/* The first gate finds what no step wrote; from then on every step must write it. */
static void a_buffer_with_another_reader_runs_no_old_graph(void **state)
{
    (void)state;
    struct toy t[2] = {toy_open(true), toy_open(false)};
    for (int step = 0; step < 8; step++) {
        float got[2][ROWS * WIDTH];
        for (int i = 0; i < 2; i++) {
            toy_walk(&t[i], step, 1, got[i]);
            if (step == 3 || step > 4)
                toy_gate(&t[i], got[i]);
        }
        if (step != 3)
            same(got[0], got[1], "another reader");
    }
    for (int i = 0; i < 2; i++)
        t[i].b->ops->close(t[i].b);
}

/* --- steps ahead --- */

/* Nothing waits for a step but what packs the one after the next. */
static void inputs_of_a_step_stay_until_they_are_copied(void **state)
{
    (void)state;
    enum { STEPS = 7 };
    const struct emu_options lazy = {.streams = EMU_LAZY};
    struct toy t = toy_open(false);
    struct cuda_backend *b = cuda_of(t.b);
    struct err e;
    int32_t(*ids)[ROWS] = cuda_pinned_take(b, STEPS * sizeof *ids, "ids", &e);
    emu_configure(&lazy);
    for (int step = 0; step < STEPS; step++) {
        toy_begin(&t, step);
        assert_int_equal(cuda_inputs_upload(b), cudaSuccess);
        assert_int_equal(cudaMemcpyAsync(ids[step], b->step.ids, sizeof ids[step],
                                         cudaMemcpyDeviceToHost, b->stream),
                         cudaSuccess);
    }
    assert_int_equal(cudaStreamSynchronize(b->stream), cudaSuccess);
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < ROWS; i++)
            if (ids[step][i] != (step + i) % TOKENS)
                fail_msg("row %d of step %d has id %d", i, step, ids[step][i]);
    t.b->ops->close(t.b);
}

/* --- failures --- */

static void a_capture_that_fails_changes_no_answer(void **state)
{
    (void)state;
    struct toy t[2] = {toy_open(true), toy_open(false)};
    const struct emu_graph_counts before = emu_count_graphs();
    for (int step = 0; step < 4; step++) {
        float got[2][ROWS * WIDTH];
        emu_fail_captures(step < 2);
        for (int i = 0; i < 2; i++)
            toy_walk(&t[i], step, 1, got[i]);
        same(got[0], got[1], "without a graph");
    }
    assert_int_equal(emu_count_graphs().made, before.made);
    assert_int_equal(emu_count_graphs().launched, before.launched);
    for (int i = 0; i < 2; i++)
        t[i].b->ops->close(t[i].b);
}

static void graphs_are_given_back(void **state)
{
    (void)state;
    assert_int_equal(emu_memory_held(), 0);
    assert_int_equal(emu_count_graphs().held, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_float_model_answers_the_same_by_graphs),
        cmocka_unit_test(a_quantised_model_with_windows_answers_the_same_by_graphs),
        cmocka_unit_test(experts_answer_the_same_by_graphs),
        cmocka_unit_test(weights_of_mixed_types_answer_the_same_by_graphs),
        cmocka_unit_test(a_changed_walk_runs_no_old_graph),
        cmocka_unit_test(a_buffer_with_another_reader_runs_no_old_graph),
        cmocka_unit_test(inputs_of_a_step_stay_until_they_are_copied),
        cmocka_unit_test(a_capture_that_fails_changes_no_answer),
        cmocka_unit_test(graphs_are_given_back),
    };
    if (argc > 1) /* a part of the names */
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
