/* sim.h: a scheduler with a simulated device, for test_scheduler and test_scheduler_history.
 *
 * The device is an array [page][slot]. A row writes, for each of its positions, a number that
 * stands for all the tokens up to there and the sequence's key, as K and V do, and then reads
 * all positions back through its page table. Free pages are filled with poison. So wrong
 * sharing, a missing copy-on-write, a write to a shared page and early reuse all show. */
#ifndef TOKEND_TEST_SIM_H
#define TOKEND_TEST_SIM_H

#include "scheduler.h"

#include <stdlib.h>
#include <string.h>

#include "random.h"
#include "test.h"

enum { SIM_POISON = 0xDEAD, SIM_VOCAB = 3 };

struct sim_config {
    int n_pages, block_size, max_seqs, max_step_tokens;
    bool no_prefix_caching, collide;
    int max_cached_pages; /* 0: all */
    const struct step_cost *cost;
};

struct sim {
    struct sim_config cfg;
    struct page_pool *pool;
    struct prefix_cache *cache;
    struct scheduler *sched;
    uint64_t *slots; /* [n_pages][block_size] */
    uint64_t n_arrivals, n_computed_tokens, n_steps;
    uint64_t digest; /* of all plans */
};

static inline struct sim *sim_open(struct sim_config cfg)
{
    struct sim *m = calloc(1, sizeof *m);
    m->cfg = cfg;
    m->pool = page_pool_open(cfg.n_pages, NULL);
    m->cache = prefix_cache_open(m->pool, cfg.block_size, NULL);
    if (cfg.collide)
        prefix_cache_mask_hash(m->cache, 0);
    const struct scheduler_config sc = {
        .block_size = cfg.block_size,
        .max_seqs = cfg.max_seqs,
        .max_step_tokens = cfg.max_step_tokens,
        .prefix_caching = !cfg.no_prefix_caching,
        .max_cached_pages = cfg.max_cached_pages ? cfg.max_cached_pages : cfg.n_pages,
        .cost = cfg.cost,
    };
    m->sched = scheduler_open(&sc, m->pool, m->cache, NULL);
    assert_non_null(m->sched);
    size_t n = (size_t)cfg.n_pages * (size_t)cfg.block_size;
    m->slots = malloc(n * sizeof *m->slots);
    for (size_t i = 0; i < n; i++)
        m->slots[i] = SIM_POISON;
    return m;
}

static inline void sim_close(struct sim *m)
{
    assert_int_equal(page_pool_n_in_use(m->pool), 0);
    scheduler_free(m->sched);
    prefix_cache_free(m->cache);
    assert_int_equal(page_pool_n_free(m->pool), m->cfg.n_pages);
    page_pool_free(m->pool);
    free(m->slots);
    free(m);
}

/* --- sequences: `owner` holds what each position's K and V should be, [max_tokens], and then the
 * tokens, of pending ones too, [max_tokens] --- */

static inline uint64_t sim_mix(uint64_t h, uint64_t x)
{
    uint64_t state = h ^ (x + 1) * 0x100000001b3;
    return random_next(&state) | 1; /* odd: never the poison */
}

static inline void sim_note(struct sequence *seq, int i, int32_t token)
{
    uint64_t *kv = seq->owner;
    uint64_t before = i ? kv[i - 1] : sim_mix((uint64_t)(seq->key.adapter + 1), seq->key.salt);
    assert_true(i < seq->max_tokens);
    kv[i] = sim_mix(before, (uint64_t)token);
    kv[seq->max_tokens + i] = (uint64_t)token;
}

static inline void sim_append(struct sequence *seq, int32_t token)
{
    assert_int_equal(seq->n_pending, 0);
    sim_note(seq, seq->n_tokens, token);
    seq->tokens[seq->n_tokens++] = token;
}

/* The device knows the token, the scheduler does not until sim_settle: what it sees is the same for
 * all. */
static inline void sim_append_pending(struct sequence *seq, int32_t token)
{
    sim_note(seq, seq->n_tokens, token);
    sequence_append_pending(seq, 0);
}

static inline void sim_settle(struct sim *m, struct sequence *seq)
{
    const uint64_t *tokens = (const uint64_t *)seq->owner + seq->max_tokens;
    scheduler_settle(m->sched, seq, (int32_t)tokens[sequence_n_known(seq)]);
}

/* Its last token is on its way, and nothing comes after that. */
static inline bool sim_is_held(const struct sequence *seq)
{
    return seq->n_pending > 0 && seq->n_tokens == seq->max_tokens;
}

static inline struct sequence *sim_sequence(struct sim *m, int max_tokens)
{
    struct sequence *seq = sequence_new(max_tokens, m->cfg.block_size);
    seq->arrival = m->n_arrivals++;
    seq->owner = malloc(2 * (size_t)max_tokens * sizeof(uint64_t));
    return seq;
}

/* A prompt of n_shared tokens that equal everybody's and n_own that only this one has, and
 * room for n_new; not added yet. */
static inline struct sequence *sim_prompt(struct sim *m, int n_shared, int n_own, int n_new)
{
    struct sequence *seq = sim_sequence(m, n_shared + n_own + n_new);
    for (int i = 0; i < n_shared; i++)
        sim_append(seq, 100 + i);
    for (int i = 0; i < n_own; i++)
        sim_append(seq, 1000 + (int32_t)seq->arrival * 1000 + i);
    seq->n_prompt = seq->n_tokens;
    return seq;
}

static inline struct sequence *sim_arrive(struct sim *m, int n_shared, int n_own, int n_new)
{
    struct sequence *seq = sim_prompt(m, n_shared, n_own, n_new);
    scheduler_add(m->sched, seq);
    return seq;
}

static inline struct sequence *sim_fork(struct sim *m, struct sequence *parent)
{
    struct sequence *child = sim_sequence(m, parent->max_tokens);
    child->key = parent->key;
    child->priority = parent->priority;
    child->arrival = parent->arrival;
    child->n_prompt = parent->n_prompt;
    for (int i = 0; i < parent->n_computed; i++)
        sim_append(child, parent->tokens[i]);
    return child;
}

static inline void sim_end(struct sim *m, struct sequence *seq)
{
    scheduler_finish(m->sched, seq);
    scheduler_finish(m->sched, seq); /* idempotent */
    assert_int_equal(seq->state, SEQ_DONE);
    free(seq->owner);
    sequence_free(seq);
}

/* --- the device --- */

static inline uint64_t *sim_slot(struct sim *m, const struct sequence *seq, int position)
{
    int block = m->cfg.block_size;
    assert_true(position / block < seq->n_pages);
    return &m->slots[(size_t)seq->pages[position / block] * (size_t)block +
                     (size_t)(position % block)];
}

static inline void sim_copy_pages(struct sim *m, const struct step_plan *plan)
{
    size_t block = (size_t)m->cfg.block_size;
    for (int i = 0; i < plan->n_copies; i++) {
        int32_t src = plan->copies[i].src, dst = plan->copies[i].dst;
        assert_true(page_pool_refs(m->pool, src) > 0);
        assert_int_equal(page_pool_refs(m->pool, dst), 1);
        memcpy(m->slots + (size_t)dst * block, m->slots + (size_t)src * block,
               block * sizeof *m->slots);
    }
}

/* A page is written by its only owner, before the cache knows it. A copy's source may still
 * carry the copy's reference. */
static inline void sim_check_writable(struct sim *m, const struct step_plan *plan, int32_t page)
{
    int refs = page_pool_refs(m->pool, page);
    for (int i = 0; i < plan->n_copies; i++)
        refs -= plan->copies[i].src == page;
    assert_int_equal(refs, 1);
    assert_false(page_pool_is_known(m->pool, page));
}

static inline void sim_run_rows(struct sim *m, const struct step_plan *plan)
{
    for (int i = 0; i < plan->n; i++) {
        const struct scheduled *row = &plan->rows[i];
        const uint64_t *kv = row->seq->owner;
        for (int p = row->start; p < row->start + row->n; p++) {
            uint64_t *slot = sim_slot(m, row->seq, p);
            sim_check_writable(m, plan, row->seq->pages[p / m->cfg.block_size]);
            *slot = kv[p];
        }
    }
    for (int i = 0; i < plan->n; i++) {
        const struct scheduled *row = &plan->rows[i];
        const uint64_t *kv = row->seq->owner;
        for (int p = 0; p < row->start + row->n; p++)
            assert_true(*sim_slot(m, row->seq, p) == kv[p]);
    }
}

static inline void sim_check_plan(struct sim *m, const struct step_plan *plan)
{
    int n_tokens = 0;
    for (int i = 0; i < plan->n; i++) {
        const struct scheduled *row = &plan->rows[i];
        assert_int_equal(row->seq->state, SEQ_RUNNING);
        assert_false(sim_is_held(row->seq));
        assert_int_equal(row->seq->row, i);
        assert_int_equal(row->start, row->seq->n_computed);
        assert_true(row->n >= 1 && row->start + row->n <= row->seq->n_tokens);
        assert_int_equal(row->wants_logits, row->start + row->n == row->seq->n_tokens);
        n_tokens += row->n;
        m->digest = sim_mix(m->digest, (uint64_t)row->n << 32 | (uint64_t)row->start);
        m->digest = sim_mix(m->digest, row->seq->serial << 32 | (uint64_t)row->seq->pages[0]);
    }
    assert_int_equal(plan->n_tokens, n_tokens);
    assert_true(n_tokens <= m->cfg.max_step_tokens);
    m->n_computed_tokens += (uint64_t)n_tokens;
    m->n_steps++;
}

/* Plans and runs a step; the caller appends and commits. */
static inline const struct step_plan *sim_run(struct sim *m)
{
    const struct step_plan *plan = scheduler_step(m->sched);
    sim_check_plan(m, plan);
    scheduler_check(m->sched);
    sim_copy_pages(m, plan);
    sim_run_rows(m, plan);
    return plan;
}

/* The counts against each other, and poison into what is free. */
static inline void sim_check(struct sim *m)
{
    scheduler_check(m->sched);
    page_pool_check(m->pool);
    prefix_cache_check(m->cache);
    for (int32_t page = 0; page < m->cfg.n_pages; page++) {
        if (page_pool_refs(m->pool, page) > 0 || page_pool_is_known(m->pool, page))
            continue;
        for (int i = 0; i < m->cfg.block_size; i++)
            m->slots[page * m->cfg.block_size + i] = SIM_POISON;
    }
}

/* The token that "the model" gives after position i: equal contexts give equal tokens. */
static inline int32_t sim_greedy(const struct sequence *seq, int i)
{
    return (int32_t)(((const uint64_t *)seq->owner)[i] >> 8) & 1;
}

/* One whole step in which every row that wants logits gets its next token, as far as it has
 * room. Returns the tokens computed. */
static inline int sim_step(struct sim *m)
{
    const struct step_plan *plan = sim_run(m);
    int n_tokens = plan->n_tokens;
    for (int i = 0; i < plan->n; i++) {
        struct sequence *seq = plan->rows[i].seq;
        if (plan->rows[i].wants_logits && seq->n_tokens < seq->max_tokens)
            sim_append(seq, sim_greedy(seq, seq->n_tokens - 1));
    }
    scheduler_commit(m->sched);
    sim_check(m);
    return n_tokens;
}

/* All its tokens are computed. */
static inline bool sim_is_complete(const struct sequence *seq)
{
    return seq->n_computed == seq->max_tokens;
}

#endif
