#include <math.h>
#include <stdlib.h>

#include "step_cost.h"

#include "test.h"

/* A machine: 2 ms a step, 0.5 ms a decode row, 1 ms a prompt token, 1 us a pair. */
static double takes(const struct step_work *w)
{
    return 2e-3 + 0.5e-3 * w->decode_rows + 1e-3 * w->prefill_tokens + 1e-6 * w->pairs;
}

static struct step_work any_work(void)
{
    struct step_work w = {.decode_rows = 1 + rand() % 32,
                          .prefill_tokens = rand() % 4 ? 0 : rand() % 512};
    w.pairs = w.decode_rows * (rand() % 2000) + step_cost_pairs(rand() % 2000, w.prefill_tokens);
    return w;
}

/* Between 0.9 and 1.1 */
static double noise(void)
{
    return 0.9 + 0.2 * rand() / RAND_MAX;
}

static void learn(struct step_cost *c, int n, double machine)
{
    for (int i = 0; i < n; i++) {
        struct step_work w = any_work();
        step_cost_learn(c, &w, machine * noise() * takes(&w));
    }
}

static void check(const struct step_cost *c, double machine, double within)
{
    for (int i = 0; i < 100; i++) {
        struct step_work w = any_work();
        double ratio = step_cost_seconds(c, &w) / takes(&w) / machine;
        if (ratio < 1 - within || ratio > 1 + within)
            fail_msg("%d decode rows, %d tokens of prompts, %g pairs: %.2f of the true time",
                     w.decode_rows, w.prefill_tokens, w.pairs, ratio);
    }
}

static void what_steps_cost_is_learnt_from_a_few_dozen(void **state)
{
    struct step_cost c;
    srand(1);
    step_cost_init(&c);
    learn(&c, 60, 1);
    check(&c, 1, 0.25);
    learn(&c, 1000, 1);
    check(&c, 1, 0.1);
}

static void a_machine_that_becomes_slower_is_noticed(void **state)
{
    struct step_cost c;
    srand(2);
    step_cost_init(&c);
    learn(&c, 1000, 1);
    learn(&c, 600, 3);
    check(&c, 3, 0.25);
    learn(&c, 600, 0.5);
    check(&c, 0.5, 0.25);
}

static void an_hour_of_decoding_does_not_lose_what_a_prompt_costs(void **state)
{
    struct step_cost c;
    srand(3);
    step_cost_init(&c);
    learn(&c, 500, 1);
    for (int i = 0; i < 200000; i++) {
        struct step_work w = {.decode_rows = 16, .pairs = 16 * 700};
        step_cost_learn(&c, &w, noise() * takes(&w));
    }
    check(&c, 1, 0.35);
    learn(&c, 50, 1);
    check(&c, 1, 0.25);
}

static void one_stalled_step_changes_little(void **state)
{
    struct step_cost c;
    srand(4);
    step_cost_init(&c);
    learn(&c, 1000, 1);
    struct step_work w = any_work();
    step_cost_learn(&c, &w, 30);
    check(&c, 1, 0.3);
}

static void times_that_cannot_be_are_ignored(void **state)
{
    struct step_cost c;
    srand(5);
    step_cost_init(&c);
    learn(&c, 200, 1);
    const struct step_cost before = c;
    struct step_work w = any_work();
    step_cost_learn(&c, &w, 0);
    step_cost_learn(&c, &w, -1);
    step_cost_learn(&c, &w, NAN);
    step_cost_learn(&c, &w, INFINITY);
    assert_memory_equal(&c, &before, sizeof c);
}

static void as_many_tokens_are_given_as_fit_the_time(void **state)
{
    struct step_cost c;
    step_cost_init(&c);
    assert_int_equal(step_cost_tokens_within(&c, 0, 0.01, 512), 512); /* nothing is known */
    c.of[2] = 1e-3;
    assert_int_equal(step_cost_tokens_within(&c, 0, 0.0105, 512), 10);
    assert_int_equal(step_cost_tokens_within(&c, 0, 0.0105, 7), 7);
    assert_int_equal(step_cost_tokens_within(&c, 0, -1, 512), 0);
    c.of[3] = 1e-6; /* 1,000 tokens before: each costs 1 ms more */
    assert_int_equal(step_cost_tokens_within(&c, 1000, 0.0105, 512), 5);
    assert_true(step_cost_pairs(1000, 2) == 1001 + 1002);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_steps_cost_is_learnt_from_a_few_dozen),
        cmocka_unit_test(a_machine_that_becomes_slower_is_noticed),
        cmocka_unit_test(an_hour_of_decoding_does_not_lose_what_a_prompt_costs),
        cmocka_unit_test(one_stalled_step_changes_little),
        cmocka_unit_test(times_that_cannot_be_are_ignored),
        cmocka_unit_test(as_many_tokens_are_given_as_fit_the_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
