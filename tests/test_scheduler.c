/* Single behaviours of the scheduler; test_scheduler_history has the random ones. */
#include "sim.h"

static const struct sim_config roomy = {
    .n_pages = 400, .block_size = 16, .max_seqs = 32, .max_step_tokens = 256};

static void end_all(struct sim *m, struct sequence **seqs, int n)
{
    for (int i = 0; i < n; i++)
        sim_end(m, seqs[i]);
    sim_check(m);
    sim_close(m);
}

static void run_until_complete(struct sim *m, struct sequence **seqs, int n)
{
    for (int i = 0, steps = 0; i < n; i++)
        while (!sim_is_complete(seqs[i])) {
            assert_true(steps++ < 10000);
            assert_true(sim_step(m) > 0);
        }
}

/* --- the prefix cache --- */

/* One after the other, none alike: each leaves three full pages of 50 tokens. */
static void run_unlike(struct sim *m, int n)
{
    for (int i = 0; i < n; i++) {
        struct sequence *seq = sim_arrive(m, 0, 49, 1);
        run_until_complete(m, &seq, 1);
        sim_end(m, seq);
        sim_check(m);
    }
}

static void pages_never_used_are_taken_only_while_the_cache_may_grow(void **state)
{
    struct sim_config cfg = roomy;
    cfg.max_cached_pages = 12;
    struct sim *m = sim_open(cfg);
    run_unlike(m, 20);
    /* the one that runs adds its pages to those cached */
    assert_int_equal(page_pool_n_touched(m->pool), 12 + 4);
    assert_in_range(page_pool_n_cached(m->pool), 12, 12 + 3);
    sim_close(m);
    cfg.max_cached_pages = 0;
    m = sim_open(cfg);
    run_unlike(m, 20);
    assert_int_equal(page_pool_n_touched(m->pool), 20 * 3 + 1);
    sim_close(m);
}

static void a_cache_that_may_not_grow_keeps_what_was_used_together(void **state)
{
    struct sim_config cfg = roomy;
    cfg.max_cached_pages = 1;
    struct sim *m = sim_open(cfg);
    struct sequence *seqs[8];
    for (int i = 0; i < 8; i++)
        seqs[i] = sim_arrive(m, 0, 48, 1);
    run_until_complete(m, seqs, 8);
    for (int i = 0; i < 8; i++)
        sim_end(m, seqs[i]);
    assert_int_equal(page_pool_n_cached(m->pool), 8 * 3);
    const int touched = page_pool_n_touched(m->pool);
    run_unlike(m, 5);
    assert_int_equal(page_pool_n_touched(m->pool), touched);
    assert_in_range(page_pool_n_cached(m->pool), 8 * 3 - 1, touched);
    sim_close(m);
}

static void a_prefix_in_use_is_not_given_up_for_a_page_never_used(void **state)
{
    struct sim_config cfg = roomy;
    cfg.max_cached_pages = 1;
    struct sim *m = sim_open(cfg);
    struct sequence *seqs[] = {sim_arrive(m, 160, 1, 1), NULL};
    run_until_complete(m, seqs, 1);
    sim_end(m, seqs[0]);
    seqs[1] = sim_arrive(m, 160, 40, 1);
    sim_step(m);
    assert_int_equal(seqs[1]->n_cached, 160);
    assert_int_equal(seqs[1]->n_computed, 200);
    end_all(m, seqs + 1, 1);
}

static void check_sixteen(struct sim_config cfg, int n_shared, int arrive_every)
{
    struct sim *m = sim_open(cfg);
    struct sequence *seqs[16];
    for (int i = 0; i < 16; i++) {
        seqs[i] = sim_arrive(m, n_shared, 5, 1);
        if (arrive_every)
            sim_step(m);
    }
    run_until_complete(m, seqs, 16);
    int n_pages_shared = n_shared / cfg.block_size * cfg.block_size;
    int n_own = n_shared + 5 + 1 - n_pages_shared;
    assert_int_equal(m->n_computed_tokens, n_pages_shared + 16 * n_own);
    struct scheduler_stats stats = scheduler_get_stats(m->sched);
    assert_int_equal(stats.prefix_queried_tokens, 16 * (n_shared + 5));
    assert_int_equal(stats.prefix_hit_tokens, 15 * n_pages_shared);
    for (int i = 0; i < 16; i++)
        assert_int_equal(seqs[i]->n_cached, i ? n_pages_shared : 0);
    end_all(m, seqs, 16);
}

static void sixteen_cold_arrivals_compute_a_prefix_once(void **state)
{
    check_sixteen(roomy, 160, 0);
}

static void so_they_do_when_the_prefix_ends_within_a_page(void **state)
{
    check_sixteen(roomy, 167, 0);
}

static void so_they_do_when_chunks_end_within_pages(void **state)
{
    struct sim_config cfg = roomy;
    cfg.max_step_tokens = 37;
    check_sixteen(cfg, 167, 0);
}

static void so_they_do_when_they_arrive_one_by_one(void **state)
{
    struct sim_config cfg = roomy;
    cfg.max_step_tokens = 37;
    check_sixteen(cfg, 167, 1);
}

static void so_they_do_when_hashes_collide(void **state)
{
    struct sim_config cfg = roomy;
    cfg.collide = true;
    check_sixteen(cfg, 167, 0);
}

static void a_hash_collision_makes_nobody_wait(void **state)
{
    struct sim_config cfg = roomy;
    cfg.collide = true;
    struct sim *m = sim_open(cfg);
    struct sequence *seqs[] = {sim_arrive(m, 16, 2, 1), sim_arrive(m, 0, 40, 1), NULL, NULL};
    sim_step(m);
    assert_int_equal(seqs[0]->n_computed, 18);
    assert_int_equal(seqs[1]->n_computed, 40);
    /* equal second and first pages: another parent is another page */
    seqs[2] = sim_arrive(m, 16, 18, 1);
    seqs[3] = sim_sequence(m, 18);
    for (int i = 16; i < 33; i++)
        sim_append(seqs[3], seqs[2]->tokens[i]);
    scheduler_add(m->sched, seqs[3]);
    sim_step(m);
    assert_int_equal(seqs[2]->n_cached, 16);
    assert_int_equal(seqs[3]->n_computed, 17);
    end_all(m, seqs, 4);
}

static void a_cancelled_sequence_does_not_keep_those_waiting_for_its_prefix(void **state)
{
    struct sim *m = sim_open(roomy);
    struct sequence *seqs[3];
    for (int i = 0; i < 3; i++)
        seqs[i] = sim_arrive(m, 160, 5, 1);
    sim_run(m);
    assert_int_equal(seqs[0]->row, 0);
    assert_true(seqs[1]->blocked_on_prefix && seqs[2]->blocked_on_prefix);
    sim_end(m, seqs[0]); /* before its pages are entered */
    scheduler_commit(m->sched);
    sim_step(m);
    assert_int_equal(seqs[1]->n_computed, 165);
    assert_true(seqs[2]->blocked_on_prefix);
    run_until_complete(m, seqs + 1, 2);
    end_all(m, seqs + 1, 2);
}

static void a_prompt_that_is_cached_whole_still_computes_its_last_token(void **state)
{
    struct sim *m = sim_open(roomy);
    struct sequence *seqs[] = {sim_arrive(m, 48, 0, 1), NULL, NULL};
    run_until_complete(m, seqs, 1);
    seqs[1] = sim_arrive(m, 48, 0, 1);
    seqs[2] = sim_arrive(m, 49, 0, 1);
    sim_step(m);
    assert_int_equal(seqs[1]->n_cached, 32);
    assert_int_equal(seqs[2]->n_cached, 48);
    /* the page computed again is not kept twice */
    assert_int_equal(seqs[1]->pages[2], seqs[0]->pages[2]);
    end_all(m, seqs, 3);
}

static void a_sequence_adopts_what_others_computed_since_its_last_chunk(void **state)
{
    struct sim_config cfg = roomy;
    cfg.max_step_tokens = 100;
    struct sim *m = sim_open(cfg);
    struct sequence *seqs[] = {sim_arrive(m, 160, 1, 1), sim_arrive(m, 160, 1, 1)};
    sim_step(m);
    sim_step(m); /* the first computes pages 6 to 9; the second finds 0 to 5 and waits */
    assert_int_equal(seqs[1]->n_computed, 96);
    assert_true(seqs[1]->blocked_on_prefix);
    sim_step(m);
    assert_false(seqs[1]->blocked_on_prefix);
    assert_int_equal(seqs[1]->n_cached, 160);
    end_all(m, seqs, 2);
}

static void one_that_skips_cache_reads_computes_everything_and_shares_it(void **state)
{
    struct sim *m = sim_open(roomy);
    struct sequence *seqs[3] = {sim_arrive(m, 64, 2, 1)};
    run_until_complete(m, seqs, 1);
    seqs[1] = sim_prompt(m, 128, 2, 1);
    seqs[1]->skip_cache_reads = true;
    scheduler_add(m->sched, seqs[1]);
    sim_step(m);
    assert_int_equal(seqs[1]->n_cached, 0);
    seqs[2] = sim_arrive(m, 128, 2, 1);
    sim_step(m);
    assert_int_equal(seqs[2]->n_cached, 128);
    assert_int_equal(scheduler_get_stats(m->sched).prefix_queried_tokens, 66 + 130);
    end_all(m, seqs, 3);
}

static void without_prefix_caching_nothing_is_looked_up_or_entered(void **state)
{
    struct sim_config cfg = roomy;
    cfg.no_prefix_caching = true;
    struct sim *m = sim_open(cfg);
    struct sequence *seqs[] = {sim_arrive(m, 64, 2, 1), sim_arrive(m, 64, 2, 1)};
    run_until_complete(m, seqs, 2);
    assert_int_equal(m->n_computed_tokens, 2 * 67);
    assert_int_equal(scheduler_get_stats(m->sched).prefix_queried_tokens, 0);
    assert_int_equal(seqs[1]->n_cached, 0);
    sim_end(m, seqs[0]);
    assert_int_equal(page_pool_n_cached(m->pool), 0);
    end_all(m, seqs + 1, 1);
}

static void another_salt_does_not_share_pages_or_wait_for_them(void **state)
{
    struct sim *m = sim_open(roomy);
    struct sequence *seqs[] = {sim_arrive(m, 64, 2, 1), sim_sequence(m, 67)};
    seqs[1]->key.salt = 5;
    for (int i = 0; i < 66; i++)
        sim_append(seqs[1], seqs[0]->tokens[i]);
    scheduler_add(m->sched, seqs[1]);
    sim_step(m);
    assert_int_equal(seqs[1]->n_computed, 66);
    assert_int_equal(seqs[1]->n_cached, 0);
    end_all(m, seqs, 2);
}

static void a_forgotten_sequence_leaves_nothing_to_find_and_goes_on(void **state)
{
    struct sim *m = sim_open(roomy);
    struct sequence *seqs[] = {sim_arrive(m, 64, 2, 40), NULL};
    sim_step(m);
    scheduler_forget(m->sched, seqs[0]);
    seqs[1] = sim_arrive(m, 64, 2, 1);
    run_until_complete(m, seqs, 2);
    assert_int_equal(seqs[1]->n_cached, 0);
    sim_end(m, seqs[0]);
    sim_check(m);
    assert_int_equal(page_pool_n_cached(m->pool), 0);
    end_all(m, seqs + 1, 1);
}

/* --- the budget --- */

static void a_decode_row_is_never_delayed_by_prefill(void **state)
{
    struct sim_config cfg = roomy;
    cfg.max_step_tokens = 40;
    struct sim *m = sim_open(cfg);
    struct sequence *seqs[6];
    for (int i = 0; i < 3; i++)
        seqs[i] = sim_arrive(m, 0, 4, 60);
    sim_step(m);
    for (int i = 3; i < 6; i++)
        seqs[i] = sim_arrive(m, 0, 300, 1);
    for (int step = 0; step < 20; step++) {
        const struct step_plan *plan = sim_run(m);
        assert_int_equal(plan->n_tokens, 40);
        for (int i = 0; i < 3; i++) {
            assert_ptr_equal(plan->rows[i].seq, seqs[i]);
            assert_int_equal(plan->rows[i].n, 1);
            sim_append(seqs[i], 1);
        }
        scheduler_commit(m->sched);
    }
    end_all(m, seqs, 6);
}

static void a_chunk_takes_pages_for_itself_only(void **state)
{
    struct sim_config cfg = roomy;
    cfg.max_step_tokens = 40;
    struct sim *m = sim_open(cfg);
    struct sequence *seq = sim_arrive(m, 0, 200, 1000);
    sim_step(m);
    assert_int_equal(seq->n_computed, 40);
    assert_int_equal(page_pool_n_in_use(m->pool), 3);
    end_all(m, &seq, 1);
}

static void a_better_priority_runs_first_and_equal_ones_in_order_of_arrival(void **state)
{
    struct sim_config cfg = roomy;
    cfg.max_seqs = 1;
    struct sim *m = sim_open(cfg);
    struct sequence *seqs[4], *order[4];
    static const int priorities[] = {1, 0, 1, -3};
    for (int i = 0; i < 4; i++) {
        seqs[i] = sim_prompt(m, 0, 3, 1);
        seqs[i]->priority = priorities[i];
        scheduler_add(m->sched, seqs[i]);
    }
    for (int i = 0; i < 4; i++) {
        const struct step_plan *plan = sim_run(m);
        assert_int_equal(plan->n, 1);
        order[i] = plan->rows[0].seq;
        scheduler_finish(m->sched, order[i]);
        scheduler_commit(m->sched);
    }
    assert_true(order[0] == seqs[3] && order[1] == seqs[1] && order[2] == seqs[0] &&
                order[3] == seqs[2]);
    end_all(m, seqs, 4);
}

static void one_finished_within_the_step_is_skipped_by_commit(void **state)
{
    struct sim *m = sim_open(roomy);
    struct sequence *seqs[] = {sim_arrive(m, 0, 20, 1), sim_arrive(m, 0, 20, 1)};
    const struct step_plan *plan = sim_run(m);
    scheduler_finish(m->sched, seqs[0]);
    assert_null(plan->rows[0].seq);
    scheduler_commit(m->sched);
    assert_int_equal(seqs[0]->n_computed, 0);
    assert_int_equal(seqs[1]->n_computed, 20);
    assert_int_equal(page_pool_n_cached(m->pool), 0);
    end_all(m, seqs, 2);
}

/* --- preemption --- */

static void on_a_tiny_pool_the_oldest_always_progresses_and_all_finish(void **state)
{
    struct sim_config cfg = {.n_pages = 9, .block_size = 4, .max_seqs = 8, .max_step_tokens = 12};
    for (int caching = 0; caching < 2; caching++) {
        cfg.no_prefix_caching = !caching;
        struct sim *m = sim_open(cfg);
        struct sequence *seqs[12];
        for (int i = 0; i < 12; i++)
            seqs[i] = sim_arrive(m, 3, 3, 30);
        int n_steps = 0;
        for (int oldest = 0; oldest < 12; n_steps++) {
            int before = seqs[oldest]->n_computed;
            sim_step(m);
            assert_true(seqs[oldest]->n_computed > before);
            assert_int_equal(seqs[oldest]->n_preemptions > 0 && oldest == 0, 0);
            while (oldest < 12 && sim_is_complete(seqs[oldest]))
                scheduler_finish(m->sched, seqs[oldest++]);
        }
        assert_true(scheduler_get_stats(m->sched).preemptions > 0);
        assert_true(n_steps < 12 * 36);
        end_all(m, seqs, 12);
    }
}

static void the_youngest_of_the_lowest_priority_is_preempted(void **state)
{
    struct sim_config cfg = {.n_pages = 12, .block_size = 4, .max_seqs = 8, .max_step_tokens = 64};
    struct sim *m = sim_open(cfg);
    struct sequence *seqs[4];
    for (int i = 0; i < 4; i++) {
        seqs[i] = sim_prompt(m, 0, 5, 30);
        seqs[i]->priority = i == 1; /* the second is the one to go */
        scheduler_add(m->sched, seqs[i]);
    }
    while (scheduler_get_stats(m->sched).preemptions == 0)
        sim_step(m);
    assert_int_equal(seqs[1]->n_preemptions, 1);
    assert_int_equal(seqs[1]->state, SEQ_WAITING);
    while (scheduler_get_stats(m->sched).preemptions == 1)
        sim_step(m);
    assert_int_equal(seqs[3]->n_preemptions, 1);
    end_all(m, seqs, 4);
}

static void a_preempted_sequence_finds_its_own_pages_again(void **state)
{
    struct sim_config cfg = {.n_pages = 10, .block_size = 4, .max_seqs = 2, .max_step_tokens = 64};
    struct sim *m = sim_open(cfg);
    struct sequence *seqs[] = {sim_arrive(m, 0, 4, 20), sim_arrive(m, 0, 12, 24)};
    while (seqs[1]->n_preemptions == 0)
        sim_step(m);
    int n_known = seqs[1]->n_tokens;
    assert_true(n_known > 13);
    scheduler_finish(m->sched, seqs[0]);
    const struct step_plan *plan = sim_run(m);
    assert_ptr_equal(plan->rows[0].seq, seqs[1]);
    assert_true(plan->rows[0].start >= 12); /* generated tokens too */
    assert_int_equal(seqs[1]->n_cached, 0); /* but no hits of the prompt */
    scheduler_commit(m->sched);
    end_all(m, seqs, 2);
}

/* Its numbers were bad, which showed after it had lost its pages. */
static void pages_of_a_preempted_sequence_are_forgotten_too(void **state)
{
    struct sim_config cfg = {.n_pages = 10, .block_size = 4, .max_seqs = 2, .max_step_tokens = 64};
    struct sim *m = sim_open(cfg);
    struct sequence *seqs[] = {sim_arrive(m, 0, 4, 20), sim_arrive(m, 0, 12, 24)};
    while (seqs[1]->n_preemptions == 0)
        sim_step(m);
    scheduler_forget(m->sched, seqs[1]);
    scheduler_finish(m->sched, seqs[0]);
    const struct step_plan *plan = sim_run(m);
    assert_ptr_equal(plan->rows[0].seq, seqs[1]);
    assert_int_equal(plan->rows[0].start, 0);
    scheduler_commit(m->sched);
    end_all(m, seqs, 2);
}

static void a_preempted_sequence_comes_back_only_when_all_of_it_fits(void **state)
{
    struct sim_config cfg = {.n_pages = 10,
                             .block_size = 4,
                             .max_seqs = 2,
                             .max_step_tokens = 5,
                             .no_prefix_caching = true};
    struct sim *m = sim_open(cfg);
    struct sequence *seqs[] = {sim_arrive(m, 0, 4, 32), sim_arrive(m, 0, 14, 20)};
    run_until_complete(m, seqs, 1);
    assert_int_equal(seqs[1]->n_preemptions, 1);
    scheduler_finish(m->sched, seqs[0]);
    run_until_complete(m, seqs + 1, 1);
    end_all(m, seqs, 2);
}

/* Low priority decodes come first in the step, a prefill of better priority takes their pages. */
static void a_preempted_row_leaves_the_plan_with_its_page_copy(void **state)
{
    struct sim_config cfg = {.n_pages = 12, .block_size = 4, .max_seqs = 4, .max_step_tokens = 16};
    struct sim *m = sim_open(cfg);
    struct sequence *seqs[3] = {sim_arrive(m, 0, 5, 10), sim_prompt(m, 0, 47, 1)};
    sim_step(m);
    seqs[1]->priority = -1;
    scheduler_add(m->sched, seqs[1]);
    sim_step(m);
    sim_step(m);
    assert_int_equal(seqs[0]->n_computed, 7);  /* 2 pages */
    assert_int_equal(seqs[1]->n_computed, 30); /* 8 pages, needs 3 more, 2 are free */
    seqs[2] = sim_fork(m, seqs[0]);
    sim_append(seqs[2], 7);
    scheduler_fork(m->sched, seqs[0], seqs[2]);
    const struct step_plan *plan = sim_run(m);
    assert_int_equal(plan->n, 1);
    assert_ptr_equal(plan->rows[0].seq, seqs[1]);
    assert_int_equal(plan->n_copies, 0);
    assert_int_equal(seqs[0]->n_preemptions + seqs[2]->n_preemptions, 2);
    scheduler_commit(m->sched);
    end_all(m, seqs, 3);
}

static void a_newcomer_is_admitted_only_where_the_others_can_still_grow(void **state)
{
    struct sim_config cfg = {.n_pages = 10, .block_size = 4, .max_seqs = 8, .max_step_tokens = 64};
    struct sim *m = sim_open(cfg);
    struct sequence *seqs[3];
    for (int i = 0; i < 3; i++)
        seqs[i] = sim_arrive(m, 0, 12, 8);
    sim_step(m);
    assert_int_equal(seqs[1]->state, SEQ_RUNNING); /* 3 + 3 pages, 2 more to grow */
    assert_int_equal(seqs[2]->state, SEQ_WAITING);
    for (int i = 0; i < 8; i++)
        sim_step(m);
    assert_int_equal(scheduler_get_stats(m->sched).preemptions, 0);
    assert_int_equal(seqs[2]->n_computed, 0);
    scheduler_finish(m->sched, seqs[0]);
    sim_step(m);
    assert_int_equal(seqs[2]->n_computed, 12);
    end_all(m, seqs, 3);
}

static void a_sequence_that_needs_the_whole_pool_gets_it(void **state)
{
    struct sim_config cfg = {.n_pages = 8, .block_size = 4, .max_seqs = 4, .max_step_tokens = 10};
    struct sim *m = sim_open(cfg);
    struct sequence *seqs[] = {sim_arrive(m, 0, 30, 2), sim_arrive(m, 0, 31, 1)};
    run_until_complete(m, seqs, 1);
    scheduler_finish(m->sched, seqs[0]);
    run_until_complete(m, seqs + 1, 1); /* over the pages that the first left in the cache */
    end_all(m, seqs, 2);
}

/* --- forks --- */

static void forks_share_pages_and_the_last_owner_does_not_copy(void **state)
{
    struct sim *m = sim_open(roomy);
    struct sequence *seqs[4] = {sim_arrive(m, 0, 40, 20)};
    sim_step(m);
    assert_int_equal(page_pool_n_in_use(m->pool), 3);
    for (int i = 1; i < 4; i++) {
        seqs[i] = sim_fork(m, seqs[0]);
        sim_append(seqs[i], 500 + i);
        scheduler_fork(m->sched, seqs[0], seqs[i]);
    }
    assert_int_equal(page_pool_n_in_use(m->pool), 3);
    int32_t shared = seqs[0]->pages[2];
    const struct step_plan *plan = sim_run(m);
    assert_int_equal(plan->n, 4);
    assert_int_equal(plan->n_copies, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(plan->copies[i].src, shared);
    scheduler_commit(m->sched);
    assert_int_equal(seqs[3]->pages[2], shared);
    assert_int_equal(page_pool_n_in_use(m->pool), 2 + 4);
    assert_int_equal(sim_run(m)->n_copies, 0);
    scheduler_commit(m->sched);
    end_all(m, seqs, 4);
}

static void a_fork_after_a_full_page_copies_nothing(void **state)
{
    struct sim *m = sim_open(roomy);
    struct sequence *seqs[2] = {sim_arrive(m, 0, 32, 20)};
    sim_step(m);
    seqs[1] = sim_fork(m, seqs[0]);
    sim_append(seqs[1], 7);
    scheduler_fork(m->sched, seqs[0], seqs[1]);
    assert_int_equal(sim_run(m)->n_copies, 0);
    scheduler_commit(m->sched);
    assert_int_equal(page_pool_n_in_use(m->pool), 4);
    end_all(m, seqs, 2);
}

static void forks_that_say_the_same_share_the_pages_they_fill(void **state)
{
    struct sim *m = sim_open(roomy);
    struct sequence *seqs[2] = {sim_arrive(m, 0, 40, 40)};
    sim_step(m);
    seqs[1] = sim_fork(m, seqs[0]);
    sim_append(seqs[1], seqs[0]->tokens[40]);
    scheduler_fork(m->sched, seqs[0], seqs[1]);
    run_until_complete(m, seqs, 2);
    assert_int_equal(page_pool_n_in_use(m->pool), 5);
    end_all(m, seqs, 2);
}

static void a_fork_without_a_page_for_its_copy_waits(void **state)
{
    struct sim_config cfg = {.n_pages = 3, .block_size = 4, .max_seqs = 2, .max_step_tokens = 16};
    struct sim *m = sim_open(cfg);
    struct sequence *seqs[2] = {sim_arrive(m, 0, 10, 2)};
    sim_run(m);
    scheduler_commit(m->sched); /* the parent stands without a next token */
    seqs[1] = sim_fork(m, seqs[0]);
    sim_append(seqs[1], 7);
    scheduler_fork(m->sched, seqs[0], seqs[1]);
    assert_int_equal(sim_run(m)->n, 0);
    scheduler_finish(m->sched, seqs[0]);
    const struct step_plan *plan = sim_run(m);
    assert_int_equal(plan->n, 1);
    assert_int_equal(plan->n_copies, 0);
    scheduler_commit(m->sched);
    end_all(m, seqs, 2);
}

static void a_fork_without_a_place_is_queued_and_finds_the_pages(void **state)
{
    struct sim_config cfg = roomy;
    cfg.max_seqs = 1;
    struct sim *m = sim_open(cfg);
    struct sequence *seqs[2] = {sim_arrive(m, 0, 40, 3)};
    sim_step(m);
    seqs[1] = sim_fork(m, seqs[0]);
    sim_append(seqs[1], 7);
    scheduler_fork(m->sched, seqs[0], seqs[1]);
    assert_int_equal(seqs[1]->state, SEQ_WAITING);
    run_until_complete(m, seqs, 1);
    scheduler_finish(m->sched, seqs[0]);
    sim_step(m);
    assert_int_equal(seqs[1]->n_cached, 32);
    end_all(m, seqs, 2);
}

static void slots_of_a_shared_page_are_counted_once(void **state)
{
    struct sim *m = sim_open(roomy);
    struct sequence *seqs[2] = {sim_arrive(m, 0, 40, 20)};
    sim_step(m);
    seqs[1] = sim_fork(m, seqs[0]);
    scheduler_fork(m->sched, seqs[0], seqs[1]);
    struct scheduler_stats stats = scheduler_get_stats(m->sched);
    assert_int_equal(stats.slots_in_use, 48);
    assert_int_equal(stats.slots_written, 40);
    end_all(m, seqs, 2);
}

static void a_budget_below_one_token_a_sequence_is_refused(void **state)
{
    struct err e;
    struct page_pool *pool = page_pool_open(4, &e);
    struct prefix_cache *cache = prefix_cache_open(pool, 16, &e);
    struct scheduler_config cfg = {.block_size = 16, .max_seqs = 8, .max_step_tokens = 7};
    assert_null(scheduler_open(&cfg, pool, cache, &e));
    assert_contains(e.msg, "7 tokens a step for 8 sequences");
    scheduler_free(NULL);
    prefix_cache_free(cache);
    page_pool_free(pool);
}

/* --- targets --- */

/* 1 ms a step and a decode row, 2 ms a prompt token, whatever is before it */
static const struct step_cost plain_cost = {.of = {1e-3, 1e-3, 2e-3, 0}};

/* Streams with such targets, one with none if 0, and a prompt of 400 tokens that arrives later.
 * Tokens of the prompt that a step takes. */
static int prefill_beside(const double *targets, int n, const struct step_cost *cost)
{
    struct sim_config cfg = roomy;
    cfg.cost = cost;
    struct sim *m = sim_open(cfg);
    struct sequence *seqs[8];
    for (int i = 0; i < n; i++) {
        seqs[i] = sim_arrive(m, 0, 20, 600);
        seqs[i]->target_itl = targets[i];
    }
    for (int i = 0; i < 3; i++)
        sim_step(m);
    struct sequence *late = seqs[n] = sim_arrive(m, 0, 400, 1);
    sim_step(m);
    const int taken = late->n_computed;
    const uint64_t limited = scheduler_get_stats(m->sched).limited_steps;
    assert_int_equal(limited, taken < cfg.max_step_tokens - n);
    for (int i = 0; i < n; i++)
        assert_int_equal(seqs[i]->n_tokens, seqs[i]->n_prompt + 4); /* none of them waited */
    sim_step(m);
    assert_int_equal(late->n_computed, taken * 2 < 400 ? taken * 2 : 400);
    run_until_complete(m, seqs, n + 1);
    end_all(m, seqs, n + 1);
    return taken;
}

static void prompts_get_the_time_that_a_running_streams_target_leaves(void **state)
{
    const double targets[] = {0.0525};
    assert_int_equal(prefill_beside(targets, 1, &plain_cost), 25);
}

static void the_tightest_target_counts(void **state)
{
    const double targets[] = {0, 1, 0.084, 0.2};
    assert_int_equal(prefill_beside(targets, 4, &plain_cost), (84 - 5) / 2);
}

static void a_target_that_cannot_be_met_leaves_prompts_a_few_tokens(void **state)
{
    const double targets[] = {0.001};
    assert_int_equal(prefill_beside(targets, 1, &plain_cost), LEAST_PREFILL);
}

static void without_a_target_or_a_cost_prompts_get_the_whole_budget(void **state)
{
    const double none[] = {0}, some[] = {0.001};
    assert_int_equal(prefill_beside(none, 1, &plain_cost), 255);
    assert_int_equal(prefill_beside(some, 1, NULL), 255);
}

static void a_target_limits_nothing_while_no_stream_runs(void **state)
{
    struct sim_config cfg = roomy;
    cfg.cost = &plain_cost;
    struct sim *m = sim_open(cfg);
    struct sequence *seqs[] = {sim_arrive(m, 0, 400, 1)};
    seqs[0]->target_itl = 0.001;
    sim_step(m);
    assert_int_equal(seqs[0]->n_computed, 256);
    run_until_complete(m, seqs, 1);
    end_all(m, seqs, 1);
}

static void who_waits_is_not_admitted_into_a_step_without_time(void **state)
{
    struct sim_config cfg = roomy;
    cfg.cost = &plain_cost;
    struct sim *m = sim_open(cfg);
    struct sequence *seqs[4] = {sim_arrive(m, 0, 20, 300)};
    seqs[0]->target_itl = 0.03;
    sim_step(m);
    for (int i = 1; i < 4; i++)
        seqs[i] = sim_arrive(m, 0, 100, 1);
    sim_step(m);
    assert_int_equal(scheduler_get_stats(m->sched).n_running, 2);
    run_until_complete(m, seqs, 4);
    end_all(m, seqs, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_never_used_are_taken_only_while_the_cache_may_grow),
        cmocka_unit_test(a_cache_that_may_not_grow_keeps_what_was_used_together),
        cmocka_unit_test(a_prefix_in_use_is_not_given_up_for_a_page_never_used),
        cmocka_unit_test(sixteen_cold_arrivals_compute_a_prefix_once),
        cmocka_unit_test(so_they_do_when_the_prefix_ends_within_a_page),
        cmocka_unit_test(so_they_do_when_chunks_end_within_pages),
        cmocka_unit_test(so_they_do_when_they_arrive_one_by_one),
        cmocka_unit_test(so_they_do_when_hashes_collide),
        cmocka_unit_test(a_hash_collision_makes_nobody_wait),
        cmocka_unit_test(a_cancelled_sequence_does_not_keep_those_waiting_for_its_prefix),
        cmocka_unit_test(a_prompt_that_is_cached_whole_still_computes_its_last_token),
        cmocka_unit_test(a_sequence_adopts_what_others_computed_since_its_last_chunk),
        cmocka_unit_test(one_that_skips_cache_reads_computes_everything_and_shares_it),
        cmocka_unit_test(without_prefix_caching_nothing_is_looked_up_or_entered),
        cmocka_unit_test(another_salt_does_not_share_pages_or_wait_for_them),
        cmocka_unit_test(a_forgotten_sequence_leaves_nothing_to_find_and_goes_on),
        cmocka_unit_test(a_decode_row_is_never_delayed_by_prefill),
        cmocka_unit_test(a_chunk_takes_pages_for_itself_only),
        cmocka_unit_test(a_better_priority_runs_first_and_equal_ones_in_order_of_arrival),
        cmocka_unit_test(one_finished_within_the_step_is_skipped_by_commit),
        cmocka_unit_test(on_a_tiny_pool_the_oldest_always_progresses_and_all_finish),
        cmocka_unit_test(the_youngest_of_the_lowest_priority_is_preempted),
        cmocka_unit_test(a_preempted_sequence_finds_its_own_pages_again),
        cmocka_unit_test(pages_of_a_preempted_sequence_are_forgotten_too),
        cmocka_unit_test(a_preempted_sequence_comes_back_only_when_all_of_it_fits),
        cmocka_unit_test(a_preempted_row_leaves_the_plan_with_its_page_copy),
        cmocka_unit_test(a_newcomer_is_admitted_only_where_the_others_can_still_grow),
        cmocka_unit_test(a_sequence_that_needs_the_whole_pool_gets_it),
        cmocka_unit_test(forks_share_pages_and_the_last_owner_does_not_copy),
        cmocka_unit_test(a_fork_after_a_full_page_copies_nothing),
        cmocka_unit_test(forks_that_say_the_same_share_the_pages_they_fill),
        cmocka_unit_test(a_fork_without_a_page_for_its_copy_waits),
        cmocka_unit_test(a_fork_without_a_place_is_queued_and_finds_the_pages),
        cmocka_unit_test(slots_of_a_shared_page_are_counted_once),
        cmocka_unit_test(a_budget_below_one_token_a_sequence_is_refused),
        cmocka_unit_test(prompts_get_the_time_that_a_running_streams_target_leaves),
        cmocka_unit_test(the_tightest_target_counts),
        cmocka_unit_test(a_target_that_cannot_be_met_leaves_prompts_a_few_tokens),
        cmocka_unit_test(without_a_target_or_a_cost_prompts_get_the_whole_budget),
        cmocka_unit_test(a_target_limits_nothing_while_no_stream_runs),
        cmocka_unit_test(who_waits_is_not_admitted_into_a_step_without_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
