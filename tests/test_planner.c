#include "planner.h"

#include "test.h"

#include <limits.h>
#include <string.h>

static const uint64_t MiB = 1 << 20;

/* 64 sequences of 1024 tokens in pages of 16 and 1 MiB want 4 GiB. */
static const struct engine_config usual = {.max_num_seqs = 64, .block_size = 16};

static struct memory_needs machine(uint64_t total, uint64_t weights, uint64_t activations)
{
    return (struct memory_needs){total * MiB, weights * MiB, activations * MiB, MiB};
}

static struct memory_plan planned(const struct engine_config *c, int len, struct memory_needs m)
{
    struct memory_plan p;
    struct err e;
    if (!planner_pool(c, len, &m, &p, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(p.kv_bytes, (uint64_t)p.n_pages * m.page);
    assert_true(p.kv_bytes + m.weights + m.activations <= m.total);
    return p;
}

static void refused(const struct engine_config *c, int len, struct memory_needs m,
                    const char *const *parts)
{
    struct memory_plan p;
    struct err e;
    assert_false(planner_pool(c, len, &m, &p, &e));
    assert_int_equal(e.code, ERR_MEMORY);
    for (; *parts; parts++)
        assert_contains(e.msg, *parts);
}

static void the_default_pool_holds_what_the_sequences_can_use(void **state)
{
    struct memory_plan p = planned(&usual, 1024, machine(65536, 1000, 100));
    assert_int_equal(p.n_pages, 64 * 64);
    assert_int_equal(p.max_model_len, 1024);
    struct engine_config one = usual;
    one.max_num_seqs = 1;
    assert_int_equal(planned(&one, 1000, machine(65536, 1000, 100)).n_pages, 63);
}

static void the_default_pool_is_at_most_a_quarter_of_the_machine(void **state)
{
    struct memory_plan p = planned(&usual, 1024, machine(8000, 100, 100));
    assert_int_equal(p.n_pages, 2000);
    assert_int_equal(p.max_model_len, 1024);
}

static void the_prefix_cache_has_half_of_the_pool_or_what_it_is_given(void **state)
{
    struct engine_config c = usual;
    c.kv_cache_memory = 101 * MiB;
    assert_int_equal(planned(&c, 1024, machine(8000, 100, 100)).max_cached_pages, 50);
    c.prefix_cache_memory = 20 * MiB + 1;
    assert_int_equal(planned(&c, 1024, machine(8000, 100, 100)).max_cached_pages, 20);
    c.prefix_cache_memory = 1;
    assert_int_equal(planned(&c, 1024, machine(8000, 100, 100)).max_cached_pages, 0);
    c.prefix_cache_memory = UINT64_MAX;
    assert_int_equal(planned(&c, 1024, machine(8000, 100, 100)).max_cached_pages, 101);
}

static void the_default_pool_fits_beside_the_model(void **state)
{
    assert_int_equal(planned(&usual, 1024, machine(8000, 6000, 1000)).n_pages, 750);
    struct memory_plan p = planned(&usual, 1024, machine(8000, 7900, 60));
    assert_int_equal(p.n_pages, 30);
    assert_int_equal(p.max_model_len, 30 * 16);
}

static void a_gpu_gives_the_pool_all_that_the_model_leaves(void **state)
{
    struct memory_needs m = machine(8000, 6000, 1000);
    m.dedicated = true;
    struct memory_plan p = planned(&usual, 1024, m);
    assert_int_equal(p.n_pages, 1000);
    assert_int_equal(p.max_cached_pages, 1000);
    struct engine_config c = usual;
    c.kv_cache_memory = 1001 * MiB;
    refused(&c, 1024, m,
            (const char *[]){"8000.0 MiB of the GPU's memory that may be used",
                             "at most 1000.0 MiB fits", NULL});
}

/* Of 10,000 MiB 9,000 may be used, of which others have 500. */
static struct memory_needs gpu(uint64_t weights, uint64_t activations)
{
    struct memory_needs m = machine(8500, weights, activations);
    m.dedicated = true;
    m.device = 10000 * MiB;
    m.others = 500 * MiB;
    return m;
}

static void silent_of(const struct engine_config *c, int len, struct memory_needs m,
                      const char *text)
{
    struct memory_plan p;
    struct err e;
    assert_false(planner_pool(c, len, &m, &p, &e));
    if (strstr(e.msg, text))
        fail_msg("\"%s\" advises %s", e.msg, text);
}

static void a_gpu_that_is_too_small_says_what_needs_how_much_and_what_would_fit(void **state)
{
    struct engine_config c = usual;
    c.max_model_len = 16000; /* 1,000 pages of 1 MiB */
    assert_int_equal(planned(&c, 16000, gpu(7000, 500)).n_pages, 1000);
    refused(&c, 16000, gpu(7000, 501),
            (const char *[]){"weights need 7000.0 MiB, activations 501.0, KV pages of 16000 tokens "
                             "1000.0, but of the GPU's 10000.0 MiB 8500.0 may be used",
                             "have 500.0", "--max-model-len 15984 fits",
                             "--gpu-memory-utilization 0.91 fits", NULL});
    c.max_model_len = 15984;
    assert_int_equal(planned(&c, 15984, gpu(7000, 501)).max_model_len, 15984);
    struct memory_needs more = gpu(7000, 501);
    more.total += 100 * MiB; /* --gpu-memory-utilization 0.91 */
    c.max_model_len = 16000;
    assert_int_equal(planned(&c, 16000, more).max_model_len, 16000);
}

static void a_gpu_is_advised_only_what_can_help(void **state)
{
    struct engine_config c = usual;
    c.max_model_len = 16000;
    silent_of(&c, 16000, gpu(9000, 500), "fits");
    silent_of(&usual, 16000, gpu(8400, 100), "--max-model-len"); /* which asks for a page only */
    refused(
        &usual, 16000, gpu(8400, 100),
        (const char *[]){"KV pages of 16 tokens 1.0", "--gpu-memory-utilization 0.91 fits", NULL});
    struct memory_needs m = gpu(12000, 500);
    refused(&c, 16000, m, (const char *[]){"it takes a smaller or quantised model", NULL});
    m.float_weights = true;
    refused(&c, 16000, m, (const char *[]){"(--quantization) needs less", NULL});
    m = gpu(7000, 501);
    silent_of(&c, 16000, m, "int8");
    m.wide_kv = true;
    refused(&c, 16000, m, (const char *[]){"--kv-cache-dtype int8", NULL});
    refused(&c, 16000, m, (const char *[]){"lower --max-num-batched-tokens", NULL});
    silent_of(&c, 16000, gpu(9000, 400), "--max-num-batched-tokens");
}

static void a_model_that_fills_the_machine_is_refused(void **state)
{
    refused(&usual, 1024, machine(8000, 8000, 10),
            (const char *[]){"weights of 8000.0 MiB", "the 8000.0 MiB of memory", "smaller model",
                             NULL});
    refused(&usual, 1024, machine(8000, 7000, 1000),
            (const char *[]){"activations of 1000.0 MiB", "lower --max-num-batched-tokens", NULL});
    struct memory_needs m = machine(8000, 0, 10);
    m.weights = UINT64_MAX;
    refused(&usual, 1024, m, (const char *[]){"do not fit", NULL});
}

static void a_pool_that_does_not_fit_beside_the_model_is_refused_with_what_fits(void **state)
{
    struct engine_config c = usual;
    c.kv_cache_memory = 2000 * MiB;
    assert_int_equal(planned(&c, 1024, machine(8000, 5000, 1000)).n_pages, 2000);
    refused(&c, 1024, machine(8000, 5000, 1001),
            (const char *[]){"--kv-cache-memory asks for 2000.0 MiB", "8000.0 MiB", "5000.0 MiB",
                             "1001.0 MiB", "at most 1999.0 MiB fits", NULL});
}

static void a_context_that_does_not_fit_shrinks_unless_it_was_asked_for(void **state)
{
    struct engine_config c = usual;
    c.kv_cache_memory = 10 * MiB;
    assert_int_equal(planned(&c, 161, machine(8000, 100, 100)).max_model_len, 160);
    c.max_model_len = 161;
    refused(&c, 161, machine(8000, 100, 100),
            (const char *[]){"--max-model-len 161", "160 tokens", "at most 7800.0 MiB fits", NULL});
    c.max_model_len = 160;
    assert_int_equal(planned(&c, 160, machine(8000, 100, 100)).max_model_len, 160);
    c.kv_cache_memory = 1;
    refused(&c, 160, machine(8000, 100, 100), (const char *[]){"holds no page", NULL});
}

static void huge_numbers_do_not_overflow(void **state)
{
    struct engine_config c = usual;
    struct memory_needs m = {UINT64_MAX, 1, 1, 1};
    c.max_num_seqs = INT_MAX;
    struct memory_plan p = planned(&c, INT_MAX, m);
    assert_int_equal(p.n_pages, INT_MAX / 16);
    m.page = UINT64_MAX / 2;
    refused(&c, INT_MAX, m, (const char *[]){"holds no page", NULL});
}

static void a_context_beyond_the_models_is_refused(void **state)
{
    struct engine_config c = usual;
    struct model_spec s = {.n_ctx_train = 2048};
    struct err e;
    int len;
    assert_true(planner_context(&c, &s, &len, &e));
    assert_int_equal(len, 2048);
    c.max_model_len = 100;
    assert_true(planner_context(&c, &s, &len, &e));
    assert_int_equal(len, 100);
    c.max_model_len = 2049;
    assert_false(planner_context(&c, &s, &len, &e));
    assert_contains(e.msg, "2048");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_pool_holds_what_the_sequences_can_use),
        cmocka_unit_test(the_default_pool_is_at_most_a_quarter_of_the_machine),
        cmocka_unit_test(the_prefix_cache_has_half_of_the_pool_or_what_it_is_given),
        cmocka_unit_test(the_default_pool_fits_beside_the_model),
        cmocka_unit_test(a_gpu_gives_the_pool_all_that_the_model_leaves),
        cmocka_unit_test(a_gpu_that_is_too_small_says_what_needs_how_much_and_what_would_fit),
        cmocka_unit_test(a_gpu_is_advised_only_what_can_help),
        cmocka_unit_test(a_model_that_fills_the_machine_is_refused),
        cmocka_unit_test(a_pool_that_does_not_fit_beside_the_model_is_refused_with_what_fits),
        cmocka_unit_test(a_context_that_does_not_fit_shrinks_unless_it_was_asked_for),
        cmocka_unit_test(huge_numbers_do_not_overflow),
        cmocka_unit_test(a_context_beyond_the_models_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
