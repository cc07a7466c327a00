/* Decode steps as CUDA graphs, on the emulated device: the same bits as kernel by kernel, whatever
 * sizes follow each other; graphs are used again; a capture that fails costs nothing but speed. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "test.h"

#include "backend_module.h"
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

enum { CROWD = 11 };

/* Answers of many lengths, so that sequences come and go and steps have 1 to CROWD of them; one
 * sees enough tokens for its attention to be split. */
static struct request *asked(int i, int n_vocab)
{
    static const int prompts[CROWD] = {3, 17, 40, 1, 270, 33, 5, 16, 20, 9, 2};
    static const int answers[CROWD] = {9, 2, 5, 12, 6, 3, 1, 8, 4, 7, 10};
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

static void run_crowd(struct rig *r, struct answers *a)
{
    for (int i = 0; i < CROWD; i++) {
        a->q[i] = asked(i, engine_get_info(r->e)->spec.n_vocab);
        rig_submit(r, a->q[i]);
        if (i % 4 == 3) /* some later than others */
            rig_wait_tokens(r, a->q[i], 2);
    }
    rig_wait_ended(r, a->q, CROWD);
    for (int i = 0; i < CROWD; i++)
        if (atomic_load(&a->q[i]->choices[0].finish) != FINISH_LENGTH)
            fail_msg("%s", a->q[i]->error.msg);
}

static void answer(const unsigned char *model, size_t n, const struct engine_config *c,
                   struct answers *a)
{
    const struct emu_graph_counts before = emu_count_graphs();
    struct rig r;
    rig_open_copy(&r, model, n, c);
    run_crowd(&r, a);
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

static void check(const char *name, enum dtype kv, enum emu_streams streams)
{
    size_t n = 0;
    unsigned char *model = read_model(name, &n);
    const struct emu_options how = {.streams = streams, .seed = 7};
    const struct engine_config eager = config_of(kv, true), graphs = config_of(kv, false);
    struct answers a, b;
    emu_configure(&how);
    answer(model, n, &eager, &a);
    answer(model, n, &graphs, &b);
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
    check("llama3.F16.gguf", DTYPE_F16, EMU_LAZY);
}

static void a_quantised_model_with_windows_answers_the_same_by_graphs(void **state)
{
    (void)state;
    check("gemma3.Q8_0.gguf", DTYPE_BF16, EMU_MIXED);
}

static void experts_answer_the_same_by_graphs(void **state)
{
    (void)state;
    check("gpt_oss.MXFP4.gguf", DTYPE_F16, EMU_EAGER);
}

static void weights_of_mixed_types_answer_the_same_by_graphs(void **state)
{
    (void)state;
    check("llama_k.Q4_K_M.gguf", DTYPE_F32, EMU_LAZY);
}

/* --- failures --- */

static void a_capture_that_fails_changes_no_answer(void **state)
{
    (void)state;
    size_t n = 0;
    unsigned char *model = read_model("llama3.F16.gguf", &n);
    const struct engine_config eager = config_of(DTYPE_F16, true),
                               graphs = config_of(DTYPE_F16, false);
    struct answers a, b;
    answer(model, n, &eager, &a);
    emu_fail_captures(true);
    answer(model, n, &graphs, &b);
    emu_fail_captures(false);
    assert_int_equal(b.graphs.launched, 0);
    compare_and_free(&a, &b);
    free(model);
}

static void graphs_are_given_back(void **state)
{
    (void)state;
    assert_int_equal(emu_memory_held(), 0);
    assert_int_equal(emu_count_graphs().held, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_float_model_answers_the_same_by_graphs),
        cmocka_unit_test(a_quantised_model_with_windows_answers_the_same_by_graphs),
        cmocka_unit_test(experts_answer_the_same_by_graphs),
        cmocka_unit_test(weights_of_mixed_types_answer_the_same_by_graphs),
        cmocka_unit_test(a_capture_that_fails_changes_no_answer),
        cmocka_unit_test(graphs_are_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
