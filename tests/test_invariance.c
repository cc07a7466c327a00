/* Promise 1 on real kernels: tokens and log probabilities of 24 varied requests do not depend,
 * bit for bit, on what else runs, on chunks, caches, preemptions or threads. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "test.h"

#include "engine_rig.h"

static void quantised_weights_answer_the_same_alone_and_in_every_crowd(void **state)
{
    rig_check_invariance("llama_k.Q4_1.gguf", rig_defaults);
}

static void float_weights_answer_the_same_alone_and_in_every_crowd(void **state)
{
    rig_check_invariance("llama3.F16.gguf", rig_defaults);
}

/* Windows of 32, norms of q and k, norms of what is added */
static void windowed_layers_answer_the_same_alone_and_in_every_crowd(void **state)
{
    rig_check_invariance("gemma3.Q8_0.gguf", rig_defaults);
}

/* A lone row a wave */
static struct backend *open_tight(const struct backend_config *config, struct err *e)
{
    struct backend_config c = *config;
    c.attention_partials = 1;
    return backend_cpu_open(&c, e);
}

static void pages_of_32_answer_the_same_alone_and_in_every_crowd(void **state)
{
    struct engine_config c = rig_defaults;
    c.open_backend = open_tight;
    c.block_size = 32;
    c.kv_dtype_auto = false;
    c.kv_dtype = DTYPE_BF16;
    rig_check_invariance("llama3.F16.gguf", c);
}

/* The embedding row of one token is NaN in this file. */
static void a_poisoned_token_harms_nobody_else(void **state)
{
    struct rig r;
    struct err e;
    size_t n = 0;
    const int bad = 123;
    unsigned char *bytes = test_read_data("llama3.F16.gguf", &n);
    struct gguf *g = gguf_open_memory(bytes, n, &e);
    const struct gguf_tensor *t = gguf_find_tensor(g, "token_embd.weight");
    size_t row = (size_t)t->dims[0] * 2;
    memset((unsigned char *)bytes + t->offset + bad * row, 0xFF, row);
    gguf_close(g);
    rig_open_bytes(&r, bytes, n, &rig_defaults);
    struct request *q[12], *alone[12];
    struct sampling_params p = rig_plain;
    p.n_logprobs = 3;
    for (int i = 0; i < 12; i++) {
        q[i] = rig_request((uint64_t)(i / 2), 30 + i, bad, &p);
        alone[i] = rig_request((uint64_t)(i / 2), 30 + i, bad, &p);
        if (i % 4 == 3)
            q[i]->prompt[q[i]->n_prompt - 1] = bad;
        if (i % 4 == 0) /* behind a page that the next request shares and waits for */
            q[i]->prompt[20] = bad;
    }
    for (int i = 0; i < 12; i++) {
        rig_submit(&r, alone[i]);
        rig_wait_ended(&r, &alone[i], 1);
    }
    for (int i = 0; i < 12; i++)
        rig_submit(&r, q[i]);
    rig_wait_ended(&r, q, 12);
    for (int i = 0; i < 12; i++) {
        if (i % 4 == 3 || i % 4 == 0)
            assert_int_equal(atomic_load(&q[i]->choices[0].finish), FINISH_ERROR);
        else if (atomic_load(&alone[i]->choices[0].finish) != FINISH_ERROR)
            rig_assert_equal(alone[i], q[i]);
        request_free(q[i]);
        request_free(alone[i]);
    }
    assert_true(rig_stats(&r).corrupted_requests >= 6);
    rig_close(&r);
}

/* One value of one weight, whatever it is multiplied with. */
static void check_nan_weight(const char *name)
{
    struct rig r;
    struct err e;
    size_t n = 0;
    unsigned char *bytes = test_read_data("llama3.F16.gguf", &n);
    struct gguf *g = gguf_open_memory(bytes, n, &e);
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    assert_non_null(t);
    memset(bytes + t->offset, 0xFF, t->dtype == DTYPE_F32 ? 4 : 2);
    gguf_close(g);
    rig_open_bytes(&r, bytes, n, &rig_defaults);
    struct request *q = rig_request(1, 40, engine_get_info(r.e)->spec.n_vocab, &rig_plain);
    rig_submit(&r, q);
    rig_wait_ended(&r, &q, 1);
    if (atomic_load(&q->choices[0].finish) != FINISH_ERROR)
        fail_msg("a NaN in %s goes unnoticed", name);
    assert_contains(q->error.msg, "numerical_error");
    request_free(q);
    rig_close(&r);
}

static void a_model_with_a_nan_weight_fails_its_requests(void **state)
{
    static const char *const names[] = {
        "blk.0.attn_norm.weight", "blk.0.attn_q.weight",      "blk.0.attn_k.weight",
        "blk.0.attn_v.weight",    "blk.0.attn_output.weight", "blk.0.ffn_gate.weight",
        "blk.0.ffn_up.weight",    "blk.0.ffn_down.weight",    "output_norm.weight",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_nan_weight(names[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantised_weights_answer_the_same_alone_and_in_every_crowd),
        cmocka_unit_test(float_weights_answer_the_same_alone_and_in_every_crowd),
        cmocka_unit_test(windowed_layers_answer_the_same_alone_and_in_every_crowd),
        cmocka_unit_test(pages_of_32_answer_the_same_alone_and_in_every_crowd),
        cmocka_unit_test(a_poisoned_token_harms_nobody_else),
        cmocka_unit_test(a_model_with_a_nan_weight_fails_its_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
