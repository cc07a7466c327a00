/* The CUDA backend on the emulated device, under the real engine: near the CPU backend, the same
 * bits in every batch, and clear errors when the device fails. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "test.h"

#include "backend_module.h"
#include "emu_control.h"
#include "engine_rig.h"
#include "wrappers.h"

static struct backend *open_emulated(const struct backend_config *c, struct err *e)
{
    return backend_module_of()->open(c, e);
}

static struct engine_config config_of(enum dtype kv)
{
    struct engine_config c = rig_defaults;
    c.open_backend = open_emulated;
    c.max_model_len = 96;
    c.kv_dtype_auto = false;
    c.kv_dtype = kv;
    return c;
}

/* A prompt whose tokens are all scored, and a few drawn ones */
static struct request *scored(uint64_t seed, int n_prompt, int max_tokens, int n_vocab)
{
    struct sampling_params p = rig_plain;
    p.n_prompt_logprobs = 0;
    p.n_logprobs = 3;
    p.max_tokens = max_tokens;
    return rig_request(seed, n_prompt, n_vocab, &p);
}

static int vocabulary(const struct rig *r)
{
    return engine_get_info(r->e)->spec.n_vocab;
}

static struct request *answer(struct rig *r, struct request *q)
{
    rig_submit(r, q);
    rig_wait_ended(r, &q, 1);
    return q;
}

static struct request *answer_of(const unsigned char *model, size_t n,
                                 const struct engine_config *c)
{
    struct rig r;
    rig_open_copy(&r, model, n, c);
    struct request *q = answer(&r, scored(11, 24, 2, vocabulary(&r)));
    if (atomic_load(&q->choices[0].finish) != FINISH_LENGTH)
        fail_msg("%s", q->error.msg);
    rig_close(&r);
    return q;
}

/* Prompts' log probabilities of both backends */
static void check_near_of(const char *name, unsigned char *model, size_t n, enum dtype kv, int bits,
                          double limit)
{
    struct engine_config c = config_of(kv);
    c.activation_bits = bits;
    c.batch_invariant = false; /* with all that it has */
    struct request *cuda = answer_of(model, n, &c);
    c.open_backend = NULL;
    if (kv == DTYPE_F8_E4M3)
        c.kv_dtype = DTYPE_F32;
    struct request *cpu = answer_of(model, n, &c);
    double worst = 0;
    for (int i = 1; i < cpu->n_prompt; i++)
        worst =
            fmax(worst, fabs((double)cuda->prompt_logprobs[i] - (double)cpu->prompt_logprobs[i]));
    printf("    %s, KV %s, %d bits: log probabilities differ by %.5f\n", name, dtype_info(kv)->name,
           bits, worst);
    if (!(worst <= limit))
        fail_msg("%s: log probabilities differ by %g, more than %g", name, worst, limit);
    request_free(cuda);
    request_free(cpu);
    free(model);
}

static unsigned char *of_corpus(const char *name, size_t *n)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/gguf/%s.gguf", test_corpus(), name);
    unsigned char *model = test_read_file(path, n);
    if (!model) {
        printf("SKIPPED: no %s (set TOKEND_CORPUS)\n", path);
        skip();
    }
    return model;
}

static void check_near(const char *file, enum dtype kv, int bits, double limit)
{
    size_t n = 0;
    unsigned char *model = test_read_data(file, &n);
    assert_non_null(model);
    check_near_of(file, model, n, kv, bits, limit);
}

static void a_float_model_is_near_the_cpu(void **state)
{
    (void)state;
    check_near("llama3.F16.gguf", DTYPE_F32, 0, 0.01);
    check_near("llama3.F16.gguf", DTYPE_F16, 0, 0.02);
}

/* Where the last bit of a K differs, its code may, too. fp8, which the CPU lacks, against f32. */
static void caches_of_8_bits_are_near_the_cpu(void **state)
{
    (void)state;
    check_near("llama3.F16.gguf", DTYPE_INT8, 0, 0.2);
    check_near("gemma3.Q8_0.gguf", DTYPE_INT8, 16, 0.2);
    check_near("llama3.F16.gguf", DTYPE_F8_E4M3, 0, 1);
}

static void quantised_models_are_near_the_cpu(void **state)
{
    (void)state;
    check_near("llama_k.Q4_1.gguf", DTYPE_F32, 16, 0.01);
    check_near("gemma3.Q8_0.gguf", DTYPE_F32, 16, 0.01);
    /* a last bit that differs makes another value of 8 bits */
    check_near("gemma3.Q8_0.gguf", DTYPE_F16, 8, 0.5);
}

/* Experts with biases and sinks, of one that all go through; norms of other kinds and places,
 * windows, soft caps, blocks in parallel, types mixed */
static void models_of_other_architectures_are_near_the_cpu(void **state)
{
    static const char *const names[] = {
        "gpt_oss.MXFP4", "qwen2moe.F16", "gemma2.F16",     "olmo2.F16",
        "phi2.F16",      "cohere2.F16",  "llama_k.Q4_K_M", "llama2.BF16",
    };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = 0;
        unsigned char *model = of_corpus(names[i], &n);
        check_near_of(names[i], model, n, DTYPE_F32, 16, strstr(names[i], "BF16") ? 0.1 : 0.02);
    }
}

enum { CROWD = 5 };

static void make_crowd(struct request **q, int n_vocab)
{
    static const int lengths[CROWD] = {1, 18, 33, 40, 40};
    for (int i = 0; i < CROWD; i++)
        q[i] = scored(i == 4 ? 3 : (uint64_t)i, lengths[i], 3, n_vocab);
}

/* Alone and uncached first, then at once, in steps of few tokens and of many */
static void check_invariance_of(const unsigned char *model, size_t n, enum dtype kv)
{
    static const int budgets[] = {8, 64};
    struct engine_config c = config_of(kv);
    struct request *alone[CROWD], *crowd[CROWD];
    struct rig r;
    c.prefix_caching = false;
    rig_open_copy(&r, model, n, &c);
    make_crowd(alone, vocabulary(&r));
    for (int i = 0; i < CROWD; i++)
        answer(&r, alone[i]);
    rig_close(&r);
    for (int b = 0; b < 2; b++) {
        c.prefix_caching = true;
        c.max_num_batched_tokens = budgets[b];
        rig_open_copy(&r, model, n, &c);
        make_crowd(crowd, vocabulary(&r));
        for (int i = 0; i < CROWD; i++)
            rig_submit(&r, crowd[i]);
        rig_wait_ended(&r, crowd, CROWD);
        for (int i = 0; i < CROWD; i++) {
            assert_int_equal(atomic_load(&crowd[i]->choices[0].finish), FINISH_LENGTH);
            rig_assert_equal(alone[i], crowd[i]);
            request_free(crowd[i]);
        }
        rig_close(&r);
    }
    for (int i = 0; i < CROWD; i++)
        request_free(alone[i]);
}

static void check_invariance(const char *file, enum dtype kv)
{
    size_t n = 0;
    unsigned char *model = test_read_data(file, &n);
    assert_non_null(model);
    check_invariance_of(model, n, kv);
    free(model);
}

static void a_float_model_answers_the_same_alone_and_in_a_crowd(void **state)
{
    (void)state;
    check_invariance("llama3.F16.gguf", DTYPE_F16);
}

static void a_quantised_model_answers_the_same_alone_and_in_a_crowd(void **state)
{
    (void)state;
    check_invariance("gemma3.Q8_0.gguf", DTYPE_BF16);
}

static void caches_of_8_bits_answer_the_same_alone_and_in_a_crowd(void **state)
{
    (void)state;
    check_invariance("gemma3.Q8_0.gguf", DTYPE_INT8);
    check_invariance("llama3.F16.gguf", DTYPE_F8_E4M3);
}

static void experts_answer_the_same_alone_and_in_a_crowd(void **state)
{
    (void)state;
    size_t n = 0;
    unsigned char *model = of_corpus("gpt_oss.MXFP4", &n);
    check_invariance_of(model, n, DTYPE_F16);
    free(model);
}

/* --- failures --- */

/* The emulated device with a kernel of another program's that fails before the last of n_left steps */
static struct {
    struct backend_ops ops;
    bool (*submit)(struct backend *, struct err *);
    int n_left; /* 0: it does not fail */
} faulty;

static bool faulty_submit(struct backend *b, struct err *e)
{
    if (faulty.n_left > 0 && --faulty.n_left == 0) {
        emu_quiet(true);
        wrap_diverge(NULL);
    }
    return faulty.submit(b, e);
}

static struct backend *open_faulty(const struct backend_config *c, struct err *e)
{
    struct backend *b = open_emulated(c, e);
    assert_non_null(b);
    faulty.ops = *b->ops;
    faulty.submit = b->ops->submit;
    faulty.ops.submit = faulty_submit;
    faulty.n_left = 0;
    b->ops = &faulty.ops;
    return b;
}

static void a_failed_device_fails_what_runs_and_what_comes(void **state)
{
    (void)state;
    struct engine_config c = config_of(DTYPE_F16);
    struct rig r;
    struct err e;
    c.open_backend = open_faulty;
    rig_open(&r, "llama3.F16.gguf", &c);
    faulty.n_left = 2;
    struct request *q = answer(&r, scored(1, 5, 8, vocabulary(&r)));
    assert_int_equal(atomic_load(&q->choices[0].finish), FINISH_ERROR);
    assert_int_equal(q->error.code, ERR_DEVICE);
    assert_contains(q->error.msg, "the device failed: CUDA: ");
    assert_contains(q->error.msg, "cudaErrorLaunchFailure");
    assert_int_equal(atomic_load(&q->choices[0].n_tokens), 1);
    assert_true(rig_stats(&r).dead);
    struct request *late = scored(1, 5, 8, vocabulary(&r));
    assert_false(engine_submit(r.e, late, &e));
    assert_contains(e.msg, "the device failed");
    request_free(late);
    request_free(q);
    rig_close(&r);
    emu_forgive();
    emu_quiet(false);
}

/* --- refusals --- */

static void assert_refused(struct backend *b, struct kv_config kv, const char *part)
{
    struct err e = {0};
    if (kv.n_pages < 1 << 20) { /* it is not memory that lacks: refused before loading, too */
        assert_false(b->ops->kv_check(b, &kv, &e));
        assert_contains(e.msg, part);
    }
    assert_false(b->ops->kv_open(b, &kv, &e));
    assert_contains(e.msg, part);
}

static void what_the_kernels_do_not_have_is_refused(void **state)
{
    (void)state;
    struct err e;
    const struct backend_config c = {1, 16, 2, 4, 2};
    const struct kv_config kv = {1, 1, 64, 16, 4, DTYPE_F16, 2};
    struct kv_config other = kv;
    static const uint8_t w[80];
    struct backend *b = open_emulated(&c, &e);
    assert_non_null(b);
    other.dtype = DTYPE_Q8_0;
    assert_refused(b, other, "KV type Q8_0: the CUDA backend has f32, f16, bf16, int8, fp8");
    other = kv;
    other.head_dim = 40;
    assert_refused(b, other, "heads of 40 dims");
    assert_null(b->ops->weight_load(b, DTYPE_Q8_0, 2, 20, w, &e));
    assert_contains(e.msg, "expected a multiple of 32");
    other = kv;
    other.n_pages = 1 << 20; /* 4 GiB where the device has 1 */
    assert_refused(b, other, "KV pool: 4096.0 MiB of the GPU's memory are wanted, of which");
    b->ops->close(b);
    assert_int_equal(emu_memory_held(), 0);
    assert_int_equal(emu_reports(), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_float_model_is_near_the_cpu),
        cmocka_unit_test(quantised_models_are_near_the_cpu),
        cmocka_unit_test(models_of_other_architectures_are_near_the_cpu),
        cmocka_unit_test(a_float_model_answers_the_same_alone_and_in_a_crowd),
        cmocka_unit_test(a_quantised_model_answers_the_same_alone_and_in_a_crowd),
        cmocka_unit_test(caches_of_8_bits_are_near_the_cpu),
        cmocka_unit_test(caches_of_8_bits_answer_the_same_alone_and_in_a_crowd),
        cmocka_unit_test(experts_answer_the_same_alone_and_in_a_crowd),
        cmocka_unit_test(a_failed_device_fails_what_runs_and_what_comes),
        cmocka_unit_test(what_the_kernels_do_not_have_is_refused),
    };
    if (argc > 1) /* a part of the names */
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
