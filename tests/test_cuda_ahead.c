/* Draws on the emulated device, and steps that are started before the last one has finished: the
 * tokens and log probabilities of the host's sampler, bit for bit, whatever the streams do when. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "test.h"

#include "backend_module.h"
#include "emu_control.h"
#include "engine_rig.h"
#include "wrappers.h"

static const char *const file = "llama3.F16.gguf";

/* The emulated device, counting what it is asked for; one step may be made to fail. */
static struct {
    struct backend_ops ops;
    const struct backend_ops *real;
    int n_submits, n_starts, n_started, most_started;
    int fail_at; /* a kernel of another program's fails before that start */
} counted;

static bool counted_submit(struct backend *b, struct err *e)
{
    counted.n_submits++;
    return counted.real->submit(b, e);
}

static bool counted_start(struct backend *b, struct err *e)
{
    if (++counted.n_starts == counted.fail_at) {
        emu_quiet(true);
        wrap_diverge(NULL);
    }
    if (++counted.n_started > counted.most_started)
        counted.most_started = counted.n_started;
    return counted.real->start(b, e);
}

static bool counted_finish(struct backend *b, const struct drawn **out, struct err *e)
{
    counted.n_started--;
    return counted.real->finish(b, out, e);
}

static struct backend *open_counted(const struct backend_config *c, struct err *e)
{
    struct backend *b = backend_module_of()->open(c, e);
    assert_non_null(b);
    counted.real = b->ops;
    counted.ops = *b->ops;
    counted.ops.submit = counted_submit;
    counted.ops.start = counted_start;
    counted.ops.finish = counted_finish;
    counted.n_submits = counted.n_starts = counted.n_started = counted.most_started = 0;
    b->ops = &counted.ops;
    return b;
}

static struct engine_config config_of(bool ahead)
{
    struct engine_config c = rig_defaults;
    c.open_backend = open_counted;
    c.max_model_len = 64;
    c.async_scheduling = ahead;
    return c;
}

enum { CROWD = 9 };

/* All that a draw can be; most end by the context, some by a token. */
static struct request *asked(int i, const struct model_spec *spec)
{
    struct sampling_params p = rig_plain;
    struct logit_bias bias[2] = {{3, -INFINITY}, {spec->eos[0], 6}};
    p.max_tokens = 5 + i % 4;
    p.temperature = i % 3 == 0 ? 0 : 1.2f;
    p.seed = (uint64_t)i;
    p.top_k = i % 4 == 1 ? 20 : 0;
    p.top_p = i % 4 == 2 ? 0.9f : 1;
    p.min_p = i % 4 == 3 ? 0.01f : 0;
    p.frequency_penalty = i % 3 == 1 ? 1.5f : 0;
    p.repetition_penalty = i % 4 == 2 ? 1.4f : 1;
    p.min_tokens = i % 3;
    p.ignore_eos = i % 2;
    p.bias = bias;
    p.n_bias = i % 2 ? 1 : 2;
    p.n_logprobs = i % 4 - 1;
    p.n_prompt_logprobs = i == 7 ? 1 : -1; /* which the device does not do */
    const int n = 1 + i * 5 % 20;
    return request_new(rig_ids((uint64_t)i / 2, n, spec->n_vocab), n, i % 4 == 2 ? 3 : 1, &p);
}

static void answer(struct rig *r, struct request **q, bool at_once)
{
    const struct model_spec *spec = &engine_get_info(r->e)->spec;
    for (int i = 0; i < CROWD; i++) {
        q[i] = asked(i, spec);
        rig_submit(r, q[i]);
        if (!at_once)
            rig_wait_ended(r, &q[i], 1);
    }
    rig_wait_ended(r, q, CROWD);
    for (int i = 0; i < CROWD; i++)
        if (atomic_load(&q[i]->choices[0].finish) == FINISH_ERROR)
            fail_msg("%s", q[i]->error.msg);
}

static void steps_ahead_answer_as_steps_that_wait(void **state)
{
    static const enum emu_streams streams[] = {EMU_LAZY, EMU_EAGER, EMU_MIXED};
    struct rig r;
    struct request *plain[CROWD], *ahead[CROWD];
    struct engine_config c = config_of(false);
    (void)state;
    rig_open(&r, file, &c);
    answer(&r, plain, false);
    assert_int_equal(counted.n_starts, 0);
    const uint64_t page = engine_get_info(r.e)->kv_bytes_per_token * 16;
    rig_close(&r);
    for (int i = 0; i < 3; i++) {
        const struct emu_options how = {.streams = streams[i], .seed = 5};
        c = config_of(true);
        c.enforce_eager = i == 1;
        c.kv_cache_memory = i == 2 ? 5 * page : 0;
        emu_configure(&how);
        const int before = emu_count_graphs().launched;
        rig_open(&r, file, &c);
        answer(&r, ahead, true);
        assert_true(counted.n_starts > counted.n_submits);
        assert_int_equal(counted.most_started, 2);
        assert_int_equal(counted.n_started, 0);
        assert_int_equal(rig_stats(&r).preemptions > 0, i == 2);
        assert_int_equal(emu_count_graphs().launched > before, i != 1);
        for (int k = 0; k < CROWD; k++) {
            rig_assert_equal(plain[k], ahead[k]);
            request_free(ahead[k]);
        }
        rig_close(&r);
        assert_int_equal(emu_reports(), 0);
    }
    for (int k = 0; k < CROWD; k++)
        request_free(plain[k]);
}

static void a_device_that_fails_with_steps_under_way_fails_what_runs(void **state)
{
    struct engine_config c = config_of(true);
    struct sampling_params p = rig_plain;
    struct rig r;
    (void)state;
    rig_open(&r, file, &c);
    counted.fail_at = counted.n_starts + 3; /* those of the first steps have passed */
    p.max_tokens = 30;
    struct request *q = rig_request(1, 5, 100, &p);
    rig_submit(&r, q);
    rig_wait_ended(&r, &q, 1);
    assert_int_equal(atomic_load(&q->choices[0].finish), FINISH_ERROR);
    assert_contains(q->error.msg, "the device failed: CUDA: ");
    assert_contains(q->error.msg, "cudaErrorLaunchFailure");
    assert_true(atomic_load(&q->choices[0].n_tokens) < 3);
    assert_true(rig_stats(&r).dead);
    request_free(q);
    rig_close(&r);
    emu_forgive();
    emu_quiet(false);
    counted.fail_at = 0;
}

static void closing_waits_for_what_runs(void **state)
{
    const struct emu_options how = {.streams = EMU_LAZY};
    struct engine_config c = config_of(true);
    struct sampling_params p = rig_plain;
    struct rig r;
    (void)state;
    emu_configure(&how);
    rig_open(&r, file, &c);
    p.max_tokens = 50;
    struct request *q = rig_request(1, 5, 100, &p);
    rig_submit(&r, q);
    rig_wait_tokens(&r, q, 2);
    rig_close(&r);
    assert_int_equal(atomic_load(&q->choices[0].finish), FINISH_CANCELLED);
    assert_int_equal(emu_memory_held(), 0);
    assert_int_equal(emu_reports(), 0);
    request_free(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_ahead_answer_as_steps_that_wait),
        cmocka_unit_test(a_device_that_fails_with_steps_under_way_fails_what_runs),
        cmocka_unit_test(closing_waits_for_what_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
