/* Steps that run ahead of their results, on a device that only remembers and does nothing before it
 * must (fake_backend.h): answers are those of steps that wait, whatever happens meanwhile. What the
 * other engine tests check is run in both modes there. */
#include <stdio.h>

#include "test.h"

#include "fake_rig.h"

enum { N_KINDS = 36, N_VOCAB = 640 };

/* Requests that often end by a token, of all that a device can and cannot draw. */
static struct request *kind(int i, const struct model_spec *spec)
{
    struct sampling_params p = rig_plain;
    struct logit_bias bias[600];
    for (int k = 0; k < 600; k++)
        bias[k] = (struct logit_bias){k, k % 7 ? 0 : 0.5f};
    p.n_bias = i % 9 == 8 ? 600 : i % 3 ? 1 : 0; /* 600: more than the device takes */
    if (p.n_bias == 1)
        bias[0] = (struct logit_bias){spec->eos[0], 3.9f};
    p.bias = bias;
    p.ignore_eos = i % 5 == 0;
    p.max_tokens = 1 + i * 7 % 40;
    p.min_tokens = i % 4;
    p.temperature = i % 4 == 3 ? 0 : 1;
    p.seed = (uint64_t)i;
    p.top_k = i % 5 == 1 ? 30 : 0;
    p.top_p = i % 5 == 2 ? 0.8f : 1;
    p.frequency_penalty = i % 3 == 1 ? 0.7f : 0;
    p.repetition_penalty = i % 8 == 3 ? 1.3f : 1;
    p.n_logprobs = i % 6 - 2 < 0 ? -1 : i % 6 - 2;
    p.n_prompt_logprobs = i % 11 == 10 ? 2 : -1;
    const int n = 1 + i * 13 % 80;
    int32_t *ids = rig_ids(i % 2 ? 5 : 100 + (uint64_t)i, n, N_VOCAB);
    struct request *q = request_new(ids, n, i % 4 == 1 ? 3 : 1, &p);
    q->priority = i % 10 == 9 ? -1 : 0;
    return q;
}

static const struct model_spec *spec_of(const struct rig *r)
{
    return &engine_get_info(r->e)->spec;
}

/* Each alone, steps one after the other */
static void answer_all(struct request **q)
{
    struct rig r;
    struct engine_config c = fake_config();
    c.async_scheduling = false;
    rig_open(&r, file, &c);
    for (int i = 0; i < N_KINDS; i++) {
        q[i] = kind(i, spec_of(&r));
        rig_submit(&r, q[i]);
        rig_wait_ended(&r, &q[i], 1);
    }
    assert_int_equal(atomic_load(&fake.ahead), 0);
    rig_close(&r);
}

/* What there is of a choice that did not end by itself is the beginning. */
static void assert_begins(const struct request *whole, const struct request *q, int k)
{
    const struct choice *x = &whole->choices[k], *y = &q->choices[k];
    const int n = atomic_load(&y->n_tokens);
    assert_in_range(n, 0, atomic_load(&x->n_tokens));
    assert_memory_equal(x->tokens, y->tokens, (size_t)n * sizeof *x->tokens);
    if (q->params.n_logprobs >= 0)
        assert_memory_equal(x->logprobs, y->logprobs, (size_t)n * sizeof *x->logprobs);
}

static void check_answer(const struct request *whole, const struct request *q, bool disturbed)
{
    if (!disturbed) {
        rig_assert_equal(whole, q);
        return;
    }
    for (int k = 0; k < q->n_choices; k++)
        assert_begins(whole, q, k);
}

static void run_round(struct rig *r, uint64_t *rng, struct request *const *whole)
{
    enum { N = 10 };
    struct request *q[N];
    int of[N];
    bool disturbed[N] = {false};
    for (int i = 0; i < N; i++) {
        of[i] = random_below(rng, N_KINDS);
        q[i] = kind(of[i], spec_of(r));
        rig_submit(r, q[i]);
        if (random_below(rng, 4) == 0)
            fake_sleep_us(random_below(rng, 200));
        const int k = random_below(rng, i + 1), what = random_below(rng, 8);
        if (what == 0)
            engine_cancel(r->e, q[k]);
        if (what == 1)
            engine_stop_choice(r->e, q[k], random_below(rng, q[k]->n_choices));
        disturbed[k] = disturbed[k] || what < 2;
    }
    rig_wait_ended(r, q, N);
    for (int i = 0; i < N; i++) {
        check_answer(whole[of[i]], q[i], disturbed[i]);
        request_free(q[i]);
    }
    struct engine_stats s = rig_stats(r);
    assert_int_equal(s.pages_in_use + s.n_running + s.n_waiting, 0);
    assert_int_equal(s.pages_free + s.pages_cached, s.pages_total);
}

static void in_any_history_answers_are_those_of_steps_that_wait(void **state)
{
    static const struct {
        int pages, seqs, budget;
        bool caching;
    } shapes[] = {{10, 4, 16, true}, {9, 8, 64, true}, {8, 3, 8, false}, {200, 16, 256, true}};
    uint64_t rng = random_seed("steps ahead");
    struct request *whole[N_KINDS];
    uint64_t preemptions = 0;
    answer_all(whole);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct rig r;
        struct engine_config c = fake_config();
        c.max_model_len = 120;
        c.kv_cache_memory = (uint64_t)shapes[i].pages * 64;
        c.max_num_seqs = shapes[i].seqs;
        c.max_num_batched_tokens = shapes[i].budget;
        c.prefix_caching = shapes[i].caching;
        rig_open(&r, file, &c);
        for (int round = 0; round < 40; round++)
            run_round(&r, &rng, whole);
        preemptions += rig_stats(&r).preemptions;
        rig_close(&r);
    }
    assert_true(preemptions > 100);
    assert_true(atomic_load(&fake.ahead) > 1000);
    assert_int_equal(atomic_load(&fake.misuse), 0);
    for (int i = 0; i < N_KINDS; i++)
        request_free(whole[i]);
}

/* Rows that all steps of one request compute */
static int rows_of(struct rig *r, const struct sampling_params *p, int n_choices)
{
    const uint64_t before = rig_stats(r).computed_tokens;
    struct request *q = request_new(rig_ids(9, 10, N_VOCAB), 10, n_choices, p);
    rig_submit(r, q);
    rig_wait_ended(r, &q, 1);
    /* A row in vain may still be under way: the next request's steps come after it. */
    struct request *next = rig_request(10, 1, N_VOCAB, &rig_plain);
    rig_submit(r, next);
    rig_wait_ended(r, &next, 1);
    request_free(next);
    request_free(q);
    return (int)(rig_stats(r).computed_tokens - before) - 8;
}

static void only_a_token_that_ends_the_answer_costs_a_row_in_vain(void **state)
{
    struct rig r;
    struct engine_config c = fake_config();
    c.prefix_caching = false;
    rig_open(&r, file, &c);
    struct sampling_params p = rig_plain;
    p.max_tokens = 20;
    assert_int_equal(rows_of(&r, &p, 1), 10 + 19);
    p.temperature = 1;
    assert_int_equal(rows_of(&r, &p, 3), 10 + 3 * 19);
    struct logit_bias up = {spec_of(&r)->eos[0], 1000};
    p.bias = &up;
    p.n_bias = 1;
    p.ignore_eos = false;
    p.min_tokens = 5;
    assert_int_equal(rows_of(&r, &p, 1), 10 + 5 + 1);
    rig_close(&r);
}

static void what_the_device_draws_never_waits(void **state)
{
    struct rig r;
    struct engine_config c = fake_config();
    rig_open(&r, file, &c);
    struct sampling_params p = rig_plain;
    p.max_tokens = 40;
    p.temperature = 0.7f;
    p.top_k = 50;
    p.top_p = 0.9f;
    p.min_p = 0.01f;
    p.frequency_penalty = 0.5f;
    p.repetition_penalty = 1.1f;
    p.min_tokens = 3;
    p.n_logprobs = 20;
    struct request *q = request_new(rig_ids(1, 30, N_VOCAB), 30, 3, &p);
    rig_submit(&r, q);
    rig_wait_ended(&r, &q, 1);
    assert_int_equal(atomic_load(&q->choices[2].n_tokens), 40);
    assert_int_equal(rig_stats(&r).steps, 40);
    assert_int_equal(atomic_load(&fake.ahead), 39);
    request_free(q);
    rig_close(&r);
}

static void tokens_are_told_while_the_next_step_runs(void **state)
{
    struct rig r;
    struct engine_config c = fake_config();
    atomic_store(&fake.hold, true);
    rig_open(&r, file, &c);
    struct request *q = rig_request(1, 30, N_VOCAB, &rig_plain);
    rig_submit(&r, q);
    for (int i = 1; i <= 4; i++) {
        atomic_store(&fake.pass, 1);
        rig_wait_tokens(&r, q, i);
        assert_int_equal(atomic_load(&q->choices[0].n_tokens), i);
    }
    atomic_store(&fake.hold, false);
    rig_wait_ended(&r, &q, 1);
    request_free(q);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(in_any_history_answers_are_those_of_steps_that_wait, setup_ahead),
        cmocka_unit_test_setup(only_a_token_that_ends_the_answer_costs_a_row_in_vain, setup_ahead),
        cmocka_unit_test_setup(what_the_device_draws_never_waits, setup_ahead),
        cmocka_unit_test_setup(tokens_are_told_while_the_next_step_runs, setup_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
