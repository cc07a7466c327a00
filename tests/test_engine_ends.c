/* How requests end: cancelled, stopped, failed, with the device or the engine. The device only
 * remembers (fake_backend.h). */

#include "test.h"

#include "fake_rig.h"

static void a_cancelled_request_frees_its_pages_within_a_step(void **state)
{
    enum { WAITING, PREFILLING, DECODING, N };
    struct rig r;
    struct engine_config c = fake_config();
    c.max_num_seqs = 2;
    c.max_num_batched_tokens = 16;
    c.prefix_caching = false;
    rig_open(&r, file, &c);
    struct sampling_params p = rig_plain;
    p.max_tokens = 500;
    atomic_store(&fake.delay_us, 2000);
    struct request *q[N];
    q[DECODING] = rig_request(20, 4, 640, &p);
    rig_submit(&r, q[DECODING]);
    rig_wait_tokens(&r, q[DECODING], 1);
    q[PREFILLING] = rig_request(21, 900, 640, &p);
    q[WAITING] = rig_request(22, 4, 640, &p);
    rig_submit(&r, q[PREFILLING]);
    rig_submit(&r, q[WAITING]);
    rig_wait_tokens(&r, q[DECODING], 10);
    assert_int_equal(rig_stats(&r).n_waiting, 1);
    for (int i = 0; i < N; i++) {
        /* The step under way ends, one more is begun at most: then the request has ended. */
        atomic_store(&fake.hold, true);
        while (!atomic_load(&fake.held))
            fake_sleep_us(200);
        engine_cancel(r.e, q[i]);
        atomic_store(&fake.pass, 2);
        rig_wait_ended(&r, &q[i], 1);
        struct engine_stats s = rig_stats(&r);
        assert_int_equal(atomic_load(&q[i]->choices[0].finish), FINISH_CANCELLED);
        if (i != WAITING)
            assert_true(s.pages_in_use <= (i == DECODING ? 0 : 40));
        atomic_store(&fake.pass, 0);
        atomic_store(&fake.held, false);
        atomic_store(&fake.hold, false);
    }
    assert_int_equal(rig_stats(&r).pages_in_use, 0);
    assert_int_equal(rig_stats(&r).n_running, 0);
    for (int i = 0; i < N; i++)
        request_free(q[i]);
    rig_close(&r);
}

/* The flag is set and rung before the engine takes the request from its inbox. */
static void a_cancellation_may_overtake_its_request(void **state)
{
    struct rig r;
    struct engine_config c = fake_config();
    rig_open(&r, file, &c);
    struct request *q = rig_request(1, 20, 640, &rig_plain);
    atomic_store(&q->cancel_asked, true);
    rig_submit(&r, q);
    rig_wait_ended(&r, &q, 1);
    assert_int_equal(atomic_load(&q->choices[0].finish), FINISH_CANCELLED);
    request_free(q);
    rig_close(&r);
}

static void a_request_wakes_an_idle_engine_at_once(void **state)
{
    enum { N = 12 };
    struct rig r;
    struct engine_config c = fake_config();
    rig_open(&r, file, &c);
    double waited = 0;
    for (int i = 0; i < N; i++) {
        struct request *q = rig_request((uint64_t)i, 5, 640, &rig_plain);
        fake_sleep_us(5000); /* it parks */
        double from = rig_now();
        rig_submit(&r, q);
        rig_wait_ended(&r, &q, 1);
        waited += rig_now() - from;
        request_free(q);
    }
    assert_true(waited < N * 0.2); /* asleep it would take 0.4 s each */
    rig_close(&r);
}

static void cancelling_at_any_moment_ends_a_request_once(void **state)
{
    struct rig r;
    struct engine_config c = fake_config();
    c.kv_cache_memory = 40 * 64;
    c.max_model_len = 300;
    c.max_num_seqs = 4;
    c.max_num_batched_tokens = 32;
    rig_open(&r, file, &c);
    uint64_t rng = random_seed("cancelling_at_any_moment");
    for (int round = 0; round < 150; round++) {
        struct request *q[6];
        for (int i = 0; i < 6; i++) {
            struct sampling_params p = rig_plain;
            p.max_tokens = 1 + random_below(&rng, 40);
            p.temperature = 1;
            p.n_prompt_logprobs = random_below(&rng, 4) ? -1 : 1;
            int n = 1 + random_below(&rng, 90);
            q[i] = request_new(rig_ids((uint64_t)random_below(&rng, 3), n, 640), n,
                               1 + random_below(&rng, 3), &p);
            rig_submit(&r, q[i]);
            if (random_below(&rng, 3) == 0)
                engine_cancel(r.e, q[random_below(&rng, i + 1)]);
            if (random_below(&rng, 3) == 0)
                engine_stop_choice(r.e, q[i], random_below(&rng, q[i]->n_choices));
        }
        fake_sleep_us(random_below(&rng, 300));
        engine_cancel(r.e, q[random_below(&rng, 6)]);
        rig_wait_ended(&r, q, 6);
        for (int i = 0; i < 6; i++)
            request_free(q[i]);
    }
    assert_int_equal(rig_stats(&r).pages_in_use, 0);
    assert_int_equal(atomic_load(&fake.misuse), 0);
    rig_close(&r);
}

static void stopping_one_choice_leaves_the_others_running(void **state)
{
    struct rig r;
    struct engine_config c = fake_config();
    rig_open(&r, file, &c);
    struct sampling_params p = rig_plain;
    p.temperature = 1;
    p.max_tokens = 60;
    atomic_store(&fake.delay_us, 1000);
    struct request *q = request_new(rig_ids(9, 20, 640), 20, 3, &p);
    rig_submit(&r, q);
    rig_wait_tokens(&r, q, 3);
    engine_stop_choice(r.e, q, 1);
    rig_wait_ended(&r, &q, 1);
    assert_int_equal(atomic_load(&q->choices[1].finish), FINISH_STOP);
    assert_true(atomic_load(&q->choices[1].n_tokens) < 60);
    assert_int_equal(q->choices[1].stop_id, -1);
    assert_int_equal(atomic_load(&q->choices[0].n_tokens), 60);
    assert_int_equal(atomic_load(&q->choices[2].n_tokens), 60);
    request_free(q);
    rig_close(&r);
}

static void bad_numbers_fail_their_request_alone_and_leave_the_cache(void **state)
{
    struct rig r;
    struct engine_config c = fake_config();
    rig_open(&r, file, &c);
    atomic_store(&fake.nan_token, 600);
    struct request *q[3];
    for (int i = 0; i < 3; i++)
        q[i] = rig_request(10, 40, 600, &rig_plain);
    q[1]->prompt[38] = 600;
    q[2]->prompt[0] = 1;
    for (int i = 1; i < 3; i++)
        rig_submit(&r, q[i]);
    rig_wait_ended(&r, q + 1, 2);
    assert_int_equal(atomic_load(&q[1]->choices[0].finish), FINISH_ERROR);
    assert_int_equal(q[1]->error.code, ERR_DEVICE);
    assert_contains(q[1]->error.msg, "numerical_error");
    assert_int_equal(atomic_load(&q[2]->choices[0].finish), FINISH_LENGTH);
    struct engine_stats s = rig_stats(&r);
    assert_int_equal(s.corrupted_requests, 1);
    assert_int_equal(s.pages_in_use, 0);
    /* The first request shares two pages with the one that failed: they are not found. */
    rig_submit(&r, q[0]);
    rig_wait_ended(&r, q, 1);
    assert_int_equal(atomic_load(&q[0]->n_cached), 0);
    assert_int_equal(atomic_load(&q[0]->choices[0].finish), FINISH_LENGTH);
    for (int i = 0; i < 3; i++)
        request_free(q[i]);
    rig_close(&r);
}

static void any_other_failure_leaves_the_prompts_pages_in_the_cache(void **state)
{
    struct rig r;
    struct engine_config c = fake_config();
    rig_open(&r, file, &c);
    struct logit_bias never[640];
    for (int i = 0; i < 640; i++)
        never[i] = (struct logit_bias){i, -INFINITY};
    struct sampling_params p = rig_plain;
    p.bias = never;
    p.n_bias = 640;
    struct request *q[2] = {rig_request(10, 40, 600, &p), rig_request(10, 40, 600, &rig_plain)};
    for (int i = 0; i < 2; i++) {
        rig_submit(&r, q[i]);
        rig_wait_ended(&r, &q[i], 1);
    }
    assert_int_equal(atomic_load(&q[0]->choices[0].finish), FINISH_ERROR);
    assert_int_equal(rig_stats(&r).corrupted_requests, 0);
    assert_int_equal(atomic_load(&q[1]->n_cached), 32);
    for (int i = 0; i < 2; i++)
        request_free(q[i]);
    rig_close(&r);
}

static void a_dead_device_ends_everything_with_an_error(void **state)
{
    struct rig r;
    struct err e;
    struct engine_config c = fake_config();
    rig_open(&r, file, &c);
    struct sampling_params p = rig_plain;
    p.max_tokens = 1000;
    atomic_store(&fake.delay_us, 500);
    struct request *q[12];
    for (int i = 0; i < 12; i++) {
        q[i] = rig_request((uint64_t)i, 20, 640, &p);
        rig_submit(&r, q[i]);
    }
    rig_wait_tokens(&r, q[0], 2);
    atomic_store(&fake.fail, 1);
    rig_wait_ended(&r, q, 12);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(atomic_load(&q[i]->choices[0].finish), FINISH_ERROR);
        assert_int_equal(q[i]->error.code, ERR_DEVICE);
        assert_contains(q[i]->error.msg, "pulled the plug");
    }
    assert_true(rig_stats(&r).dead);
    assert_false(engine_submit(r.e, q[0], &e));
    assert_int_equal(e.code, ERR_DEVICE);
    for (int i = 0; i < 12; i++)
        request_free(q[i]);
    rig_close(&r);
}

static void closing_ends_requests_in_flight_as_cancelled(void **state)
{
    struct rig r;
    struct engine_config c = fake_config();
    c.max_num_seqs = 2;
    rig_open(&r, file, &c);
    struct sampling_params p = rig_plain;
    p.max_tokens = 1500;
    struct request *q[5];
    atomic_store(&fake.delay_us, 2000);
    for (int i = 0; i < 5; i++) {
        q[i] = rig_request((uint64_t)i, 20, 640, &p);
        rig_submit(&r, q[i]);
    }
    rig_wait_tokens(&r, q[0], 1);
    rig_close(&r);
    for (int i = 0; i < 5; i++) {
        assert_true(atomic_load(&q[i]->ended));
        assert_int_equal(atomic_load(&q[i]->choices[0].finish), FINISH_CANCELLED);
        request_free(q[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_AND_WITHOUT_AHEAD(a_cancelled_request_frees_its_pages_within_a_step),
        WITH_AND_WITHOUT_AHEAD(a_cancellation_may_overtake_its_request),
        WITH_AND_WITHOUT_AHEAD(a_request_wakes_an_idle_engine_at_once),
        WITH_AND_WITHOUT_AHEAD(cancelling_at_any_moment_ends_a_request_once),
        WITH_AND_WITHOUT_AHEAD(stopping_one_choice_leaves_the_others_running),
        WITH_AND_WITHOUT_AHEAD(bad_numbers_fail_their_request_alone_and_leave_the_cache),
        WITH_AND_WITHOUT_AHEAD(any_other_failure_leaves_the_prompts_pages_in_the_cache),
        WITH_AND_WITHOUT_AHEAD(a_dead_device_ends_everything_with_an_error),
        WITH_AND_WITHOUT_AHEAD(closing_ends_requests_in_flight_as_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
