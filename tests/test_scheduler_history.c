/* Random histories of a scheduler on a simulated device (sim.h): arrivals with shared
 * prefixes, priorities, keys, cancellations in and between steps, forks, resets, over many
 * shapes of pool and budget; half of them with steps that run ahead, whose tokens are known one
 * step late. */
#include "sim.h"

enum { N_SEGMENTS = 100, N_OPERATIONS = 3000, MAX_LIVE = 24 };

struct history {
    struct sim *sim;
    uint64_t rng;
    struct sequence *live[MAX_LIVE];
    int n_live;
    int max_len; /* tokens that fit into the pool */
    bool ahead;
};

static int below(struct history *h, int n)
{
    return random_below(&h->rng, n);
}

static void arrive(struct history *h)
{
    static const struct prefix_key keys[] = {{-1, 0}, {-1, 0}, {-1, 0}, {2, 0}, {-1, 9}};
    if (h->n_live == MAX_LIVE)
        return;
    int n_shared = below(h, h->max_len * 2 / 3), n_own = 1 + below(h, 6), n_new = 1 + below(h, 30);
    int n_prompt = n_shared + n_own < h->max_len ? n_shared + n_own : h->max_len - 1;
    int max_tokens = n_prompt + n_new < h->max_len ? n_prompt + n_new : h->max_len;
    struct sequence *seq = sim_sequence(h->sim, max_tokens);
    seq->key = keys[below(h, 5)];
    seq->priority = below(h, 4) ? 0 : below(h, 3) - 1;
    seq->skip_cache_reads = below(h, 12) == 0;
    if (below(h, 4) == 0)
        seq->arrival = 0; /* equal arrivals: the order of adding decides */
    int system = below(h, 3) * 7;
    for (int i = 0; i < n_prompt; i++)
        sim_append(seq, i < n_shared ? (i * i + system) % 5 : below(h, SIM_VOCAB));
    seq->n_prompt = n_prompt;
    h->live[h->n_live++] = seq;
    scheduler_add(h->sim->sched, seq);
}

static void end(struct history *h, int i)
{
    sim_end(h->sim, h->live[i]);
    h->live[i] = h->live[--h->n_live];
}

static void fork_one(struct history *h)
{
    if (h->n_live == 0 || h->n_live == MAX_LIVE)
        return;
    struct sequence *parent = h->live[below(h, h->n_live)];
    if (parent->n_computed < parent->n_prompt || parent->n_computed == parent->max_tokens ||
        parent->n_computed > sequence_n_known(parent))
        return;
    struct sequence *child = sim_fork(h->sim, parent);
    if (h->ahead && below(h, 2))
        sim_append_pending(child, below(h, SIM_VOCAB));
    else if (below(h, 4))
        sim_append(child, below(h, SIM_VOCAB));
    h->live[h->n_live++] = child;
    scheduler_fork(h->sim->sched, parent, child);
}

/* --- a step, and what must hold of it --- */

/* Before the step: sequences that lack one token and have their own slot for it. */
static int note_sure_decodes(const struct history *h, const struct sequence **sure)
{
    int n = 0, block = h->sim->cfg.block_size;
    for (int i = 0; i < h->n_live; i++) {
        const struct sequence *seq = h->live[i];
        int k = seq->n_computed / block;
        if (seq->state == SEQ_RUNNING && !sim_is_held(seq) &&
            seq->n_tokens - seq->n_computed == 1 && k < seq->n_pages &&
            page_pool_refs(h->sim->pool, seq->pages[k]) == 1)
            sure[n++] = seq;
    }
    return n;
}

static const struct sequence *first_running(const struct history *h)
{
    const struct sequence *first = NULL;
    for (int i = 0; i < h->n_live; i++) {
        const struct sequence *s = h->live[i];
        if (s->state != SEQ_RUNNING)
            continue;
        if (!first || s->priority < first->priority ||
            (s->priority == first->priority &&
             (s->arrival < first->arrival ||
              (s->arrival == first->arrival && s->serial < first->serial))))
            first = s;
    }
    return first;
}

static void check_step(const struct history *h, const struct step_plan *plan,
                       const struct sequence *const *sure, int n_sure, const struct sequence *first)
{
    for (int i = 0; i < n_sure; i++)
        assert_true(sure[i]->state != SEQ_RUNNING || sure[i]->row >= 0);
    if (first && first->n_computed < first->n_tokens && !sim_is_held(first))
        assert_true(first->row >= 0);
    struct scheduler_stats stats = scheduler_get_stats(h->sim->sched);
    bool held = false;
    for (int i = 0; i < h->n_live; i++)
        held = held || sim_is_held(h->live[i]);
    if (plan->n == 0)
        assert_true(held || stats.n_waiting == 0 || stats.n_running > 0);
    for (int i = 0; i < h->n_live; i++)
        if (h->live[i]->blocked_on_prefix)
            assert_true(h->live[i]->row < 0 && plan->n > 0);
}

static void append_sampled(struct history *h, const struct step_plan *plan)
{
    for (int i = 0; i < plan->n; i++) {
        struct sequence *seq = plan->rows[i].seq;
        int n = !plan->rows[i].wants_logits ? 0 : below(h, 20) ? 1 : 3;
        for (; n > 0 && seq->n_tokens < seq->max_tokens; n--)
            sim_append(seq, below(h, 4) ? sim_greedy(seq, seq->n_tokens - 1) : below(h, SIM_VOCAB));
    }
}

/* A token, sometimes none, for every row that wants one; returns whose. */
static int append_ahead(struct history *h, const struct step_plan *plan,
                        const struct sequence **whose)
{
    int n = 0;
    for (int i = 0; i < plan->n; i++) {
        struct sequence *seq = plan->rows[i].seq;
        if (!plan->rows[i].wants_logits || seq->n_tokens == seq->max_tokens || !below(h, 20))
            continue;
        const bool greedy = below(h, 4);
        sim_append_pending(seq, greedy ? sim_greedy(seq, seq->n_tokens - 1) : below(h, SIM_VOCAB));
        whose[n++] = seq;
    }
    return n;
}

/* The values of all pending tokens arrive, but for what this step draws. */
static void settle(struct history *h, const struct sequence *const *drawing, int n)
{
    for (int i = 0; i < h->n_live; i++) {
        struct sequence *seq = h->live[i];
        int left = 0;
        for (int k = 0; k < n; k++)
            left += drawing[k] == seq;
        while (seq->n_pending > left) {
            sim_settle(h->sim, seq);
            scheduler_check(h->sim->sched);
        }
    }
}

static void end_complete(struct history *h)
{
    for (int i = h->n_live; i-- > 0;)
        if (sim_is_complete(h->live[i]))
            end(h, i);
}

static void step(struct history *h)
{
    const struct sequence *sure[MAX_LIVE], *first = first_running(h);
    int n_sure = note_sure_decodes(h, sure);
    const struct step_plan *plan = sim_run(h->sim);
    check_step(h, plan, sure, n_sure, first);
    const struct sequence *drawing[MAX_LIVE];
    const bool late = h->ahead && below(h, 8); /* else the step waits for those before it */
    int n_drawing = 0;
    if (h->ahead && !late)
        settle(h, NULL, 0);
    if (late)
        n_drawing = append_ahead(h, plan, drawing);
    else
        append_sampled(h, plan);
    while (h->n_live && below(h, 10) == 0) {
        end(h, below(h, h->n_live));
        scheduler_check(h->sim->sched);
    }
    scheduler_commit(h->sim->sched);
    settle(h, drawing, n_drawing);
    end_complete(h);
}

static void disturb_cache(struct history *h)
{
    if (below(h, 3) == 0)
        prefix_cache_reset(h->sim->cache);
    else if (h->n_live)
        scheduler_forget(h->sim->sched, h->live[below(h, h->n_live)]);
}

/* Slots in use and written, counted slot by slot. */
static void check_slots(const struct history *h)
{
    struct sim *m = h->sim;
    size_t n = (size_t)m->cfg.n_pages * (size_t)m->cfg.block_size;
    uint64_t n_written = 0;
    bool *written = calloc(n, sizeof *written);
    for (int i = 0; i < h->n_live; i++)
        for (int p = 0; p < h->live[i]->n_computed; p++)
            written[sim_slot(m, h->live[i], p) - m->slots] = true;
    for (size_t i = 0; i < n; i++)
        n_written += written[i];
    free(written);
    struct scheduler_stats stats = scheduler_get_stats(m->sched);
    assert_int_equal(stats.slots_written, n_written);
    assert_int_equal(stats.slots_in_use, page_pool_n_in_use(m->pool) * m->cfg.block_size);
}

/* A fork may stand without a next token for a while. */
static void append_to_idle(struct history *h)
{
    for (int i = 0; i < h->n_live; i++)
        if (h->live[i]->n_computed == h->live[i]->n_tokens && h->live[i]->n_pending == 0)
            sim_append(h->live[i], below(h, SIM_VOCAB));
}

static void operate(struct history *h)
{
    int what = below(h, 200);
    if (what < 100)
        step(h);
    else if (what < 150)
        arrive(h);
    else if (what < 170)
        fork_one(h);
    else if (what < 178 && h->n_live)
        end(h, below(h, h->n_live));
    else if (what < 190)
        append_to_idle(h);
    else if (what == 199)
        disturb_cache(h);
    sim_check(h->sim);
    check_slots(h);
}

/* No arrivals any more: the first running sequence gains a token a step and is preempted only
 * when one of a better priority comes in, which each does once. */
static void drain(struct history *h)
{
    long bound = 0, n = h->n_live;
    for (int i = 0; i < h->n_live; i++)
        bound += h->live[i]->max_tokens;
    for (long i = 0; h->n_live > 0; i++) {
        assert_true(i < bound * (n + 1) * (h->ahead ? 2 : 1));
        append_to_idle(h);
        step(h);
        sim_check(h->sim);
    }
}

static struct sim_config random_config(uint64_t *rng)
{
    static const int blocks[] = {1, 2, 3, 4, 16};
    struct sim_config c = {.block_size = blocks[random_below(rng, 5)]};
    c.n_pages = 4 + random_below(rng, random_below(rng, 2) ? 20 : 80);
    c.max_seqs = 1 + random_below(rng, 12);
    c.max_step_tokens = c.max_seqs + random_below(rng, random_below(rng, 2) ? 6 : 100);
    c.no_prefix_caching = random_below(rng, 5) == 0;
    c.collide = random_below(rng, 6) == 0;
    return c;
}

static uint64_t run_segment(uint64_t seed, int n_operations, struct scheduler_stats *sum)
{
    struct history h = {.rng = seed};
    struct sim_config cfg = random_config(&h.rng);
    h.sim = sim_open(cfg);
    h.ahead = random_below(&h.rng, 2);
    h.max_len = cfg.n_pages * cfg.block_size;
    h.max_len = h.max_len < 90 ? h.max_len : 90;
    for (int i = 0; i < n_operations; i++)
        operate(&h);
    drain(&h);
    struct scheduler_stats stats = scheduler_get_stats(h.sim->sched);
    sum->preemptions += stats.preemptions;
    sum->prefix_hit_tokens += stats.prefix_hit_tokens;
    if (cfg.no_prefix_caching)
        assert_int_equal(stats.prefix_queried_tokens + stats.prefix_hit_tokens, 0);
    uint64_t digest = h.sim->digest;
    sim_close(h.sim);
    return digest;
}

static void in_any_history_every_row_sees_its_own_tokens_and_all_counts_hold(void **state)
{
    uint64_t rng = random_seed("scheduler");
    struct scheduler_stats sum = {0};
    for (int i = 0; i < N_SEGMENTS; i++)
        run_segment(random_next(&rng), N_OPERATIONS, &sum);
    printf("%d operations, %llu preemptions, %llu tokens from the prefix cache\n",
           N_SEGMENTS * N_OPERATIONS, (unsigned long long)sum.preemptions,
           (unsigned long long)sum.prefix_hit_tokens);
    assert_true(sum.preemptions > 1000 && sum.prefix_hit_tokens > 10000);
}

/* The hash keys differ between the two. */
static void equal_histories_give_equal_plans(void **state)
{
    uint64_t rng = random_seed("equal histories");
    struct scheduler_stats sum = {0};
    for (int i = 0; i < 10; i++) {
        uint64_t seed = random_next(&rng);
        assert_true(run_segment(seed, 1000, &sum) == run_segment(seed, 1000, &sum));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_any_history_every_row_sees_its_own_tokens_and_all_counts_hold),
        cmocka_unit_test(equal_histories_give_equal_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
