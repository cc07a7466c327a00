/* Promise 1 on real kernels: tokens and log probabilities of 24 varied requests do not depend,
 * bit for bit, on what else runs, on chunks, caches, preemptions or threads. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "test.h"

#include "engine_rig.h"
#include "variant_build.h"

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

static void int8_keys_and_values_answer_the_same_alone_and_in_every_crowd(void **state)
{
    struct engine_config c = rig_defaults;
    c.kv_dtype_auto = false;
    c.kv_dtype = DTYPE_INT8;
    rig_check_invariance("llama_k.Q4_1.gguf", c);
    rig_check_invariance("gemma3.Q8_0.gguf", c);
}

/* --- models made here --- */

static float random_weight(uint64_t *rng)
{
    return (float)(random_next(rng) >> 40) / (1 << 23) - 1; /* within -1 .. 1 */
}

/* Norm weights around 1, matrices that keep their input's size */
static void fill_tensor(unsigned char *to, const struct gguf_tensor *t, uint64_t *rng)
{
    const int64_t n = t->dims[0] * t->dims[1] * t->dims[2];
    const bool norm = t->n_dims == 1 && strstr(gguf_show(t->name).text, "norm.weight");
    const float size = t->n_dims == 1 ? 0.5f : 3 / sqrtf((float)t->dims[0]);
    for (int64_t i = 0; t->dtype == DTYPE_F32 && i < n; i++) {
        const float w = size * random_weight(rng) + (float)norm;
        memcpy(to + i * 4, &w, sizeof w);
    }
    for (int64_t i = 0; t->dtype == DTYPE_Q8_0 && i < n / 32; i++) {
        const uint16_t d = f32_to_f16(size / 127);
        memcpy(to + i * 34, &d, sizeof d);
        for (int k = 0; k < 32; k++)
            to[i * 34 + 2 + k] = (unsigned char)random_next(rng);
    }
}

static void check_made(struct variant *v)
{
    struct err e;
    uint64_t rng = 7;
    build_variant(v);
    struct gguf *g = build_open(&v->b, &e);
    if (!g)
        fail_msg("%s", e.msg);
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        fill_tensor((unsigned char *)v->b.file.data + t->offset, t, &rng);
    }
    gguf_close(g);
    rig_check_invariance_of((unsigned char *)v->b.file.data, v->b.file.len, rig_defaults);
    build_free(&v->b);
}

/* Experts with biases, sinks, windows in every other layer */
static void experts_and_sinks_answer_the_same_alone_and_in_every_crowd(void **state)
{
    struct variant v = {
        .arch = "gpt-oss", .times = 8, .without = {"gpt-oss.attention.sliding_window"}};
    build_u32(&v.b, "gpt-oss.attention.sliding_window", 24);
    check_made(&v);
}

/* Experts beside a shared one that is weighed, all of 8 bits */
static void quantised_experts_answer_the_same_alone_and_in_every_crowd(void **state)
{
    struct variant v = {.arch = "qwen2moe", .times = 8, .type = 8};
    check_made(&v);
}

/* One norm for attention and MLP, layers that do not turn, LayerNorm */
static void parallel_blocks_answer_the_same_alone_and_in_every_crowd(void **state)
{
    struct variant v = {.arch = "cohere2",
                        .times = 8,
                        .n_layers = 4,
                        .without = {"cohere2.attention.sliding_window"}};
    build_u32(&v.b, "cohere2.attention.sliding_window", 24);
    check_made(&v);
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
        cmocka_unit_test(int8_keys_and_values_answer_the_same_alone_and_in_every_crowd),
        cmocka_unit_test(experts_and_sinks_answer_the_same_alone_and_in_every_crowd),
        cmocka_unit_test(quantised_experts_answer_the_same_alone_and_in_every_crowd),
        cmocka_unit_test(parallel_blocks_answer_the_same_alone_and_in_every_crowd),
        cmocka_unit_test(a_poisoned_token_harms_nobody_else),
        cmocka_unit_test(a_model_with_a_nan_weight_fails_its_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
