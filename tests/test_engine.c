/* The engine thread on a device that only remembers (fake_backend.h): scheduling, paging
 * and forks are exact here, and fast. How requests end: test_engine_ends.c. */
#include "request.h"

#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

#include "test.h"

#include "fake_rig.h"

static void answers_do_not_depend_on_the_crowd(void **state)
{
    rig_check_invariance(file, fake_config());
    assert_int_equal(atomic_load(&fake.misuse), 0);
}

static void answers_do_not_depend_on_the_crowd_with_pages_of_32(void **state)
{
    struct engine_config c = fake_config();
    c.block_size = 32;
    rig_check_invariance(file, c);
    assert_int_equal(atomic_load(&fake.misuse), 0);
}

/* What the fake's logits must give for one greedy sequence. */
static int32_t expected_greedy(const int32_t *ids, int n, int n_vocab)
{
    uint64_t h = 1;
    int32_t best = 0;
    for (int i = 0; i < n; i++)
        h = fake_mix(h, (uint64_t)ids[i] + 1);
    float *x = malloc((size_t)n_vocab * sizeof *x);
    fake_fill_logits(x, n_vocab, h | 1);
    for (int v = 1; v < n_vocab; v++)
        if (x[v] > x[best])
            best = v;
    free(x);
    return best;
}

static void a_greedy_answer_follows_from_all_tokens_before(void **state)
{
    struct rig r;
    struct engine_config c = fake_config();
    rig_open(&r, file, &c);
    struct sampling_params p = rig_plain;
    p.max_tokens = 40;
    struct request *q = rig_request(1, 70, 640, &p);
    int32_t all[110];
    memcpy(all, q->prompt, 70 * sizeof *all);
    rig_submit(&r, q);
    rig_wait_ended(&r, &q, 1);
    assert_int_equal(atomic_load(&q->choices[0].n_tokens), 40);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(q->choices[0].tokens[i], expected_greedy(all, 70 + i, 640));
        all[70 + i] = q->choices[0].tokens[i];
    }
    assert_int_equal(atomic_load(&q->choices[0].finish), FINISH_LENGTH);
    assert_true(q->t_submitted <= q->t_scheduled && q->t_scheduled <= q->t_first_token &&
                q->t_first_token <= q->t_ended);
    request_free(q);
    rig_close(&r);
}

/* Requests that are submitted while the device is held arrive together. */
static void hold(struct rig *r, struct request **first)
{
    atomic_store(&fake.hold, true);
    *first = rig_request(987654, 3, 640, &rig_plain);
    rig_submit(r, *first);
    while (!atomic_load(&fake.held))
        fake_sleep_us(100);
}

static void sixteen_cold_arrivals_compute_a_shared_prompt_once(void **state)
{
    enum { N = 16, SHARED = 320, OWN = 5 };
    struct rig r;
    struct engine_config c = fake_config();
    c.max_num_seqs = 20;
    c.max_num_batched_tokens = 128;
    rig_open(&r, file, &c);
    struct request *q[N + 1];
    hold(&r, &q[N]);
    uint64_t before = rig_stats(&r).computed_tokens;
    struct sampling_params p = rig_plain;
    p.max_tokens = 1;
    for (int i = 0; i < N; i++) {
        q[i] = rig_request(3, SHARED + OWN, 640, &p);
        for (int j = 0; j < OWN; j++)
            q[i]->prompt[SHARED + j] = i * OWN + j;
        rig_submit(&r, q[i]);
    }
    atomic_store(&fake.hold, false);
    rig_wait_ended(&r, q, N + 1);
    uint64_t computed = rig_stats(&r).computed_tokens - before;
    assert_int_equal(computed, SHARED + N * OWN + 3 + 7);
    int cached = 0;
    for (int i = 0; i < N; i++)
        cached += atomic_load(&q[i]->n_cached);
    assert_int_equal(cached, (N - 1) * SHARED);
    for (int i = 0; i <= N; i++)
        request_free(q[i]);
    rig_close(&r);
}

/* Tokens that the same prompt finds in the cache; its greedy answer never changes. */
static int found_again(struct rig *r, struct request *first)
{
    struct request *q = rig_request(5, 70, 640, &rig_plain);
    rig_submit(r, q);
    rig_wait_ended(r, &q, 1);
    int n = atomic_load(&q->n_cached);
    rig_assert_equal(first, q);
    request_free(q);
    return n;
}

static void a_reset_cache_holds_nothing_for_what_is_submitted_later(void **state)
{
    struct rig r;
    struct engine_config c = fake_config();
    rig_open(&r, file, &c);
    struct request *first = rig_request(5, 70, 640, &rig_plain), *held;
    rig_submit(&r, first);
    rig_wait_ended(&r, &first, 1);
    assert_int_equal(found_again(&r, first), 64);
    engine_reset_prefix_cache(r.e);
    assert_int_equal(found_again(&r, first), 0);
    assert_int_equal(found_again(&r, first), 64);
    hold(&r, &held); /* asked for in the middle of a step, as is what follows */
    struct request *running = rig_request(5, 70, 640, &rig_plain);
    engine_reset_prefix_cache(r.e);
    rig_submit(&r, running);
    atomic_store(&fake.hold, false);
    struct request *both[] = {held, running};
    rig_wait_ended(&r, both, 2);
    assert_int_equal(atomic_load(&running->n_cached), 0);
    rig_assert_equal(first, running);
    request_free(first);
    request_free(held);
    request_free(running);
    rig_close(&r);
}

/* Seven choices of a prompt of 100 tokens; most_extra: tokens that may be computed again. */
static void check_choices(int places, int most_extra)
{
    struct rig r;
    struct engine_config c = fake_config();
    c.max_num_seqs = places;
    rig_open(&r, file, &c);
    struct sampling_params p = rig_plain;
    p.temperature = 1;
    p.max_tokens = 20;
    struct request *q = request_new(rig_ids(4, 100, 640), 100, 7, &p);
    rig_submit(&r, q);
    rig_wait_ended(&r, &q, 1);
    int extra = (int)rig_stats(&r).computed_tokens - (100 + 7 * 19);
    assert_in_range(extra, 0, most_extra);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(atomic_load(&q->choices[i].n_tokens), 20);
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(q->choices[i].tokens, q->choices[j].tokens, 20 * 4);
    }
    assert_int_equal(rig_stats(&r).prompt_tokens, 100);
    assert_int_equal(rig_stats(&r).generated_tokens, 140);
    request_free(q);
    rig_close(&r);
}

static void choices_share_the_prompt_and_differ_by_their_index(void **state)
{
    check_choices(8, 0);
    /* A choice without a place is queued and finds the prompt's six full pages in the cache. */
    check_choices(3, 4 * 5);
}

static void penalties_see_what_was_generated(void **state)
{
    struct rig r;
    struct engine_config c = fake_config();
    rig_open(&r, file, &c);
    struct logit_bias up[] = {{7, 1000}, {9, 1500}};
    struct sampling_params p = rig_plain;
    p.bias = up;
    p.n_bias = 2;
    p.presence_penalty = 600;
    p.frequency_penalty = 1;
    struct request *q = rig_request(1, 20, 7, &p);
    rig_submit(&r, q);
    rig_wait_ended(&r, &q, 1);
    /* 9 leads by 500 until it was there once; then 7 until it costs 600, and so on down. */
    const int32_t *t = q->choices[0].tokens;
    const int32_t want[] = {9, 7, 9, 9, 9};
    assert_memory_equal(t, want, sizeof want);
    request_free(q);
    p.frequency_penalty = 300;
    p.presence_penalty = 0;
    q = request_new(rig_ids(1, 20, 7), 20, 3, &p);
    rig_submit(&r, q);
    rig_wait_ended(&r, &q, 1);
    const int32_t alternating[] = {9, 9, 7, 9, 7, 9, 7};
    for (int i = 0; i < 3; i++) /* each counts its own */
        assert_memory_equal(q->choices[i].tokens, alternating, sizeof alternating);
    request_free(q);
    p.frequency_penalty = 0;
    p.repetition_penalty = 2;
    q = request_new(rig_ids(1, 20, 7), 20, 3, &p);
    q->prompt[19] = 9; /* halves it, to 750 */
    rig_submit(&r, q);
    rig_wait_ended(&r, &q, 1);
    const int32_t halved[] = {7, 9, 9, 9};
    for (int i = 0; i < 3; i++)
        assert_memory_equal(q->choices[i].tokens, halved, sizeof halved);
    request_free(q);
    rig_close(&r);
}

static long resident_bytes(void)
{
    long all = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &all, &resident) != 2)
        fail_msg("no /proc/self/statm");
    fclose(f);
    return resident * sysconf(_SC_PAGESIZE);
}

/* The loop makes the run: with 256 choices of their own copies it would touch 230 MB. */
static void the_submitter_reads_a_prompt_once_however_many_choices_want_it(void **state)
{
    enum { N_PROMPT = 100000, N_VOCAB = 1 << 18 };
    struct sampling_params p = rig_plain;
    mallopt(M_PERTURB, 0); /* Meson has malloc fill what it gives out */
    p.repetition_penalty = 1.5f;
    struct request *q = request_new(rig_ids(1, N_PROMPT, N_VOCAB), N_PROMPT, 256, &p);
    long before = resident_bytes();
    struct request_run *run = request_run_new(q, N_VOCAB, N_PROMPT + 100, 16);
    assert_non_null(run);
    assert_true(resident_bytes() - before < 64 << 20);
    request_run_free(run);
    request_free(q);
}

static void a_prompt_can_be_scored_without_generating(void **state)
{
    struct rig r;
    struct engine_config c = fake_config();
    c.max_num_seqs = 4;
    c.max_num_batched_tokens = 60;
    rig_open(&r, file, &c);
    struct sampling_params p = rig_plain;
    p.max_tokens = 0;
    p.n_prompt_logprobs = 2;
    struct request *warm = rig_request(5, 100, 640, &rig_plain);
    rig_submit(&r, warm);
    rig_wait_ended(&r, &warm, 1);
    struct request *q = rig_request(5, 100, 640, &p);
    rig_submit(&r, q);
    rig_wait_ended(&r, &q, 1);
    assert_int_equal(atomic_load(&q->choices[0].finish), FINISH_LENGTH);
    assert_int_equal(atomic_load(&q->choices[0].n_tokens), 0);
    assert_true(isnan(q->prompt_logprobs[0]));
    for (int i = 1; i < 100; i++) {
        assert_true(q->prompt_logprobs[i] < 0 && isfinite(q->prompt_logprobs[i]));
        assert_int_equal(q->prompt_tops[2 * i].id, expected_greedy(q->prompt, i, 640));
    }
    /* Memory is bounded: never more rows of logits at once than sequences. */
    assert_true(atomic_load(&fake.most_logits) <= 4);
    request_free(warm);
    request_free(q);
    rig_close(&r);
}

static void stop_ids_eos_and_the_context_end_an_answer(void **state)
{
    struct rig r;
    struct engine_config c = fake_config();
    c.max_model_len = 64;
    rig_open(&r, file, &c);
    struct sampling_params p = rig_plain;
    p.max_tokens = 20;
    struct request *q[4];
    q[0] = rig_request(6, 10, 640, &p);
    rig_submit(&r, q[0]);
    rig_wait_ended(&r, q, 1);
    const int32_t third = q[0]->choices[0].tokens[2];
    p.stop_ids[0] = third;
    p.n_stop_ids = 1;
    q[1] = rig_request(6, 10, 640, &p);
    p.min_tokens = 5;
    q[2] = rig_request(6, 10, 640, &p);
    p = rig_plain;
    p.max_tokens = 1000;
    q[3] = rig_request(7, 60, 640, &p);
    for (int i = 1; i < 4; i++)
        rig_submit(&r, q[i]);
    rig_wait_ended(&r, q, 4);
    assert_int_equal(atomic_load(&q[1]->choices[0].n_tokens), 3);
    assert_int_equal(atomic_load(&q[1]->choices[0].finish), FINISH_STOP);
    assert_int_equal(q[1]->choices[0].stop_id, third);
    assert_true(atomic_load(&q[2]->choices[0].n_tokens) > 3);
    assert_int_not_equal(q[2]->choices[0].tokens[2], third); /* masked */
    assert_int_equal(atomic_load(&q[3]->choices[0].n_tokens), 4);
    assert_int_equal(atomic_load(&q[3]->choices[0].finish), FINISH_LENGTH);
    for (int i = 0; i < 4; i++)
        request_free(q[i]);
    rig_close(&r);
}

static void the_models_end_token_stops_unless_ignored(void **state)
{
    struct rig r;
    struct engine_config c = fake_config();
    rig_open(&r, file, &c);
    const struct model_spec *spec = &engine_get_info(r.e)->spec;
    assert_true(spec->n_eos > 0);
    struct logit_bias up = {spec->eos[0], 1000};
    struct sampling_params p = rig_plain;
    p.bias = &up;
    p.n_bias = 1;
    p.ignore_eos = false;
    struct request *q[3];
    q[0] = rig_request(8, 10, 640, &p);
    p.min_tokens = 3;
    q[1] = rig_request(8, 10, 640, &p);
    p.ignore_eos = true;
    p.min_tokens = 0;
    q[2] = rig_request(8, 10, 640, &p);
    for (int i = 0; i < 3; i++)
        rig_submit(&r, q[i]);
    rig_wait_ended(&r, q, 3);
    assert_int_equal(atomic_load(&q[0]->choices[0].n_tokens), 1);
    assert_int_equal(q[0]->choices[0].stop_id, up.id);
    assert_int_equal(atomic_load(&q[1]->choices[0].n_tokens), 4);
    assert_int_equal(atomic_load(&q[2]->choices[0].n_tokens), 8);
    assert_int_equal(atomic_load(&q[2]->choices[0].finish), FINISH_LENGTH);
    for (int i = 0; i < 3; i++)
        request_free(q[i]);
    rig_close(&r);
}

/* --- refusals --- */

static void a_request_that_can_never_run_is_refused_with_the_numbers(void **state)
{
    struct rig r;
    struct err e;
    struct engine_config c = fake_config();
    c.max_model_len = 100;
    rig_open(&r, file, &c);
    struct request *q = rig_request(1, 100, 640, &rig_plain);
    assert_false(engine_submit(r.e, q, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    assert_contains(e.msg, "100 tokens");
    q->n_prompt = 99;
    q->prompt[5] = 640;
    assert_false(engine_submit(r.e, q, &e));
    assert_contains(e.msg, "token 5 is 640");
    q->prompt[5] = -1;
    assert_false(engine_submit(r.e, q, &e));
    q->prompt[5] = 0;
    q->params.temperature = -1;
    assert_false(engine_submit(r.e, q, &e));
    assert_contains(e.msg, "temperature");
    q->params.temperature = 0;
    rig_submit(&r, q);
    rig_wait_ended(&r, &q, 1);
    assert_int_equal(atomic_load(&q->choices[0].n_tokens), 1);
    request_free(q);
    rig_close(&r);
}

static struct engine *try_open(const struct engine_config *c, struct err *e)
{
    size_t n = 0;
    unsigned char *bytes = test_read_data(file, &n);
    struct model_file *f = model_file_open_memory(bytes, n, e);
    struct engine *engine = engine_open(c, f, NULL, NULL, e);
    model_file_close(f);
    free(bytes);
    return engine;
}

static void a_context_that_does_not_fit_is_refused_and_a_default_one_shrinks(void **state)
{
    struct err e;
    struct engine_config c = fake_config();
    c.kv_cache_memory = 10 * 64; /* ten pages of the fake */
    struct engine *engine = try_open(&c, &e);
    assert_non_null(engine);
    assert_int_equal(engine_get_info(engine)->max_model_len, 160);
    assert_int_equal(engine_get_info(engine)->n_pages, 10);
    engine_close(engine);
    c.max_model_len = 161;
    assert_null(try_open(&c, &e));
    assert_int_equal(e.code, ERR_MEMORY);
    assert_contains(e.msg, "--max-model-len 161");
    assert_contains(e.msg, "160 tokens");
    c.max_model_len = 1 << 30;
    assert_null(try_open(&c, &e));
    assert_contains(e.msg, "trained for");
    c = fake_config();
    c.kv_cache_memory = 63;
    assert_null(try_open(&c, &e));
    assert_contains(e.msg, "no page");
    c.block_size = 24;
    assert_null(try_open(&c, &e));
    assert_contains(e.msg, "--block-size 24");
    c = fake_config();
    c.max_num_batched_tokens = 7;
    assert_null(try_open(&c, &e));
    assert_contains(e.msg, "at least --max-num-seqs");
}

static void memory_is_counted_whoever_takes_it_and_must_fit_the_machine(void **state)
{
    struct err e;
    struct engine_config c = fake_config();
    c.threads = 3; /* the fake's helpers, each with its own working memory for sampling */
    struct engine *engine = try_open(&c, &e);
    assert_non_null(engine);
    assert_int_equal(engine_get_info(engine)->activation_bytes,
                     3 * sampling_scratch_bytes(640) + FAKE_KV_EXTRA);
    engine_close(engine);
    c.kv_cache_memory = 2ull << 30; /* the fake has one GiB */
    assert_null(try_open(&c, &e));
    assert_int_equal(e.code, ERR_MEMORY);
    assert_contains(e.msg, "--kv-cache-memory asks for 2048.0 MiB");
}

/* --- pace --- */

static void sixty_four_streams_run_together_and_waste_little(void **state)
{
    enum { N = 64 };
    struct rig r;
    struct engine_config c = fake_config();
    c.max_num_seqs = N;
    c.max_num_batched_tokens = 256;
    c.check_pages = false;
    rig_open(&r, file, &c);
    struct request *q[N];
    struct sampling_params p = rig_plain;
    p.temperature = 1;
    for (int i = 0; i < N; i++) {
        p.max_tokens = 512 + i * 6;
        p.seed = (uint64_t)i;
        q[i] = rig_request((uint64_t)i, 20 + i, 640, &p);
        rig_submit(&r, q[i]);
    }
    double worst_waste = 0;
    bool all = false;
    while (!all) {
        rig_pump(&r, 0.01);
        all = true;
        for (int i = 0; i < N; i++)
            all = all && atomic_load(&q[i]->ended);
        struct engine_stats s = rig_stats(&r);
        if (s.n_running == N && s.slots_written > (uint64_t)N * 220)
            worst_waste = fmax(worst_waste, 1.0 - (double)s.slots_written / (double)s.slots_in_use);
    }
    double last_begin = q[0]->t_first_token, first_end = q[0]->t_ended;
    for (int i = 1; i < N; i++) {
        last_begin = fmax(last_begin, q[i]->t_first_token);
        first_end = fmin(first_end, q[i]->t_ended);
    }
    assert_true(last_begin < first_end);
    if (worst_waste <= 0 || worst_waste >= 0.04)
        fail_msg("KV waste %g", worst_waste);
    assert_int_equal(rig_stats(&r).pages_in_use, 0);
    for (int i = 0; i < N; i++)
        request_free(q[i]);
    rig_close(&r);
}

static void an_idle_engine_says_that_it_lives(void **state)
{
    struct rig r;
    struct engine_config c = fake_config();
    rig_open(&r, file, &c);
    for (int i = 0; i < 8; i++) {
        fake_sleep_us(150000);
        assert_true(rig_stats(&r).heartbeat_age < 1.0);
    }
    rig_close(&r);
}

/* --- allocation: the program is linked with --wrap for these --- */

static _Atomic long allocations;
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n)
{
    atomic_fetch_add(&allocations, 1);
    return __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __real_calloc(n, size);
}
void *__wrap_realloc(void *p, size_t n)
{
    atomic_fetch_add(&allocations, 1);
    return __real_realloc(p, n);
}

static void check_decode_allocates_nothing(struct engine_config c)
{
    enum { N = 6 };
    struct rig r;
    rig_open(&r, file, &c);
    struct request *q[N];
    for (int i = 0; i < N; i++) {
        struct sampling_params p = rig_plain;
        p.max_tokens = 400;
        p.temperature = i % 2;
        p.top_p = 0.9f;
        p.frequency_penalty = i % 3 ? 0 : 0.5f;
        p.n_logprobs = i % 4 ? -1 : 5;
        q[i] = rig_request((uint64_t)i, 30, 640, &p);
        rig_submit(&r, q[i]);
    }
    for (int i = 0; i < N; i++)
        rig_wait_tokens(&r, q[i], 3);
    long before = atomic_load(&allocations);
    assert_true(before > 0);
    rig_wait_tokens(&r, q[0], 150);
    assert_int_equal(atomic_load(&allocations), before);
    for (int i = 0; i < N; i++)
        engine_cancel(r.e, q[i]);
    rig_wait_ended(&r, q, N);
    for (int i = 0; i < N; i++)
        request_free(q[i]);
    rig_close(&r);
}

static void a_decode_step_allocates_nothing(void **state)
{
    struct engine_config c = fake_config();
    check_decode_allocates_nothing(c);
    c.open_backend = NULL;
    c.threads = 2;
    check_decode_allocates_nothing(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_AND_WITHOUT_AHEAD(answers_do_not_depend_on_the_crowd),
        WITH_AND_WITHOUT_AHEAD(answers_do_not_depend_on_the_crowd_with_pages_of_32),
        WITH_AND_WITHOUT_AHEAD(a_greedy_answer_follows_from_all_tokens_before),
        WITH_AND_WITHOUT_AHEAD(sixteen_cold_arrivals_compute_a_shared_prompt_once),
        WITH_AND_WITHOUT_AHEAD(a_reset_cache_holds_nothing_for_what_is_submitted_later),
        WITH_AND_WITHOUT_AHEAD(choices_share_the_prompt_and_differ_by_their_index),
        WITH_AND_WITHOUT_AHEAD(penalties_see_what_was_generated),
        cmocka_unit_test(the_submitter_reads_a_prompt_once_however_many_choices_want_it),
        WITH_AND_WITHOUT_AHEAD(a_prompt_can_be_scored_without_generating),
        WITH_AND_WITHOUT_AHEAD(stop_ids_eos_and_the_context_end_an_answer),
        WITH_AND_WITHOUT_AHEAD(the_models_end_token_stops_unless_ignored),
        WITH_AND_WITHOUT_AHEAD(a_request_that_can_never_run_is_refused_with_the_numbers),
        WITH_AND_WITHOUT_AHEAD(a_context_that_does_not_fit_is_refused_and_a_default_one_shrinks),
        WITH_AND_WITHOUT_AHEAD(memory_is_counted_whoever_takes_it_and_must_fit_the_machine),
        WITH_AND_WITHOUT_AHEAD(sixty_four_streams_run_together_and_waste_little),
        WITH_AND_WITHOUT_AHEAD(an_idle_engine_says_that_it_lives),
        WITH_AND_WITHOUT_AHEAD(a_decode_step_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
