/* engine_rig.h: an engine over a file of tests/data, requests of many kinds, and their answers
 * compared bit for bit. Include after test.h. */
#ifndef TOKEND_ENGINE_RIG_H
#define TOKEND_ENGINE_RIG_H

#include "engine.h"
#include "random.h"
#include "test_data.h"

#include <math.h>
#include <semaphore.h>

struct rig {
    unsigned char *bytes;
    struct model_file *file;
    struct engine *e;
    sem_t news;
};

static const struct engine_config rig_defaults = {
    .max_num_seqs = 8,
    .max_num_batched_tokens = 64,
    .block_size = 16,
    .threads = 1,
    .kv_cache_memory = 1 << 20,
    .kv_dtype_auto = true,
    .prefix_caching = true,
    .batch_invariant = true, /* what is compared is compared bit for bit */
    .check_pages = true,
};

static inline void rig_wake(void *arg)
{
    sem_post(&((struct rig *)arg)->news);
}

/* Of a model's path. */
static inline void rig_open_path(struct rig *r, const char *path, const struct engine_config *c)
{
    struct err e;
    *r = (struct rig){0};
    sem_init(&r->news, 0, 0);
    r->file = model_file_open(path, &e);
    if (r->file)
        r->e = engine_open(c, r->file, rig_wake, r, &e);
    if (!r->e)
        fail_msg("%s", e.msg);
}

static inline void rig_open_bytes(struct rig *r, unsigned char *bytes, size_t n,
                                  const struct engine_config *c)
{
    struct err e;
    *r = (struct rig){.bytes = bytes};
    sem_init(&r->news, 0, 0);
    r->file = model_file_open_memory(bytes, n, &e);
    if (r->file)
        r->e = engine_open(c, r->file, rig_wake, r, &e);
    if (!r->e)
        fail_msg("%s", e.msg);
}

static inline void rig_open(struct rig *r, const char *file, const struct engine_config *c)
{
    size_t n = 0;
    unsigned char *bytes = test_read_data(file, &n);
    if (!bytes)
        fail_msg("tests/data/%s is missing", file);
    rig_open_bytes(r, bytes, n, c);
}

static inline void rig_close(struct rig *r)
{
    engine_close(r->e);
    model_file_close(r->file);
    free(r->bytes);
    sem_destroy(&r->news);
}

static inline double rig_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Takes the engine's news for up to `seconds`, or until there were some. */
static inline void rig_pump(struct rig *r, double seconds)
{
    double until = rig_now() + seconds;
    struct timespec t = {(time_t)until, (long)((until - floor(until)) * 1e9)};
    sem_clockwait(&r->news, CLOCK_MONOTONIC, &t);
    while (engine_poll(r->e))
        ;
}

static inline void rig_wait_ended(struct rig *r, struct request *const *q, int n)
{
    double until = rig_now() + 900; /* a real model under a sanitizer takes minutes */
    for (int i = 0; i < n; i++)
        while (!atomic_load(&q[i]->ended)) {
            if (rig_now() > until)
                fail_msg("request %d of %d does not end", i, n);
            rig_pump(r, 1);
        }
}

static inline void rig_wait_tokens(struct rig *r, struct request *q, int n)
{
    double until = rig_now() + 60;
    while (atomic_load(&q->choices[0].n_tokens) < n) {
        if (rig_now() > until)
            fail_msg("no %d tokens", n);
        rig_pump(r, 0.05);
    }
}

static inline struct engine_stats rig_stats(struct rig *r)
{
    struct engine_stats s;
    engine_get_stats(r->e, &s);
    return s;
}

static inline void rig_submit(struct rig *r, struct request *q)
{
    struct err e;
    if (!engine_submit(r->e, q, &e))
        fail_msg("%s", e.msg);
}

/* --- requests --- */

static const struct sampling_params rig_plain = {
    .top_p = 1,
    .repetition_penalty = 1,
    .n_logprobs = -1,
    .n_prompt_logprobs = -1,
    .max_tokens = 8,
    .ignore_eos = true,
};

static inline int32_t *rig_ids(uint64_t seed, int n, int n_vocab)
{
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    for (int i = 0; i < n; i++)
        ids[i] = random_below(&seed, n_vocab);
    return ids;
}

static inline struct request *rig_request(uint64_t seed, int n_prompt, int n_vocab,
                                          const struct sampling_params *p)
{
    return request_new(rig_ids(seed, n_prompt, n_vocab), n_prompt, 1, p);
}

enum { RIG_KINDS = 24, RIG_LONGEST = 150 };

/* Request i of a fixed set of kinds: greedy and seeded, every parameter, shared prefixes. */
static inline struct request *rig_kind(int i, int n_vocab)
{
    static const int lengths[] = {1, 7, 16, 33, 48, 90, 64, 15};
    const int n = lengths[i % 8] + i / 8;
    struct sampling_params p = rig_plain;
    struct logit_bias bias[2] = {{3, 2.5f}, {n_vocab / 2, -INFINITY}};
    p.max_tokens = 12 + i * 2;
    p.temperature = i % 3 == 0 ? 0 : i % 3 == 1 ? 0.8f : 1.5f;
    p.seed = (uint64_t)i * 77;
    p.top_k = i % 4 == 1 ? 20 : 0;
    p.top_p = i % 4 == 2 ? 0.9f : 1;
    p.min_p = i % 5 == 3 ? 0.02f : 0;
    p.repetition_penalty = i % 6 == 1 ? 1.2f : 1;
    p.frequency_penalty = i % 6 == 4 ? 0.3f : 0;
    p.presence_penalty = i % 6 == 5 ? 0.5f : 0;
    p.n_logprobs = i % 4 == 0 ? -1 : i % 4 == 1 ? 0 : 5;
    p.n_prompt_logprobs = i % 7 == 3 ? 3 : i % 7 == 5 ? 0 : -1;
    p.ignore_eos = i % 2;
    p.min_tokens = i % 4;
    p.stop_ids[0] = i % n_vocab;
    p.n_stop_ids = i % 5 == 0;
    p.bias = bias;
    p.n_bias = i % 5 == 2 ? 2 : 0;
    /* Half of them share their beginning, as far as they are long. */
    int32_t *ids = rig_ids(i % 2 ? 5 : 1000 + (uint64_t)i, n, n_vocab);
    if (n > 40)
        ids[n - 3] = i;
    struct request *q = request_new(ids, n, i % 8 == 6 ? 3 : i % 8 == 1 ? 2 : 1, &p);
    q->priority = i % 9 == 4 ? -1 : 0;
    q->cache_salt = i % 10 == 7 ? 99 : 0;
    return q;
}

static inline void rig_assert_equal_choice(const struct request *a, const struct request *b, int k)
{
    const struct choice *x = &a->choices[k], *y = &b->choices[k];
    const int n = atomic_load(&x->n_tokens), tops = a->params.n_logprobs;
    assert_int_equal(atomic_load(&x->finish), atomic_load(&y->finish));
    assert_int_equal(n, atomic_load(&y->n_tokens));
    assert_int_equal(x->stop_id, y->stop_id);
    assert_memory_equal(x->tokens, y->tokens, (size_t)n * sizeof *x->tokens);
    if (tops >= 0)
        assert_memory_equal(x->logprobs, y->logprobs, (size_t)n * sizeof *x->logprobs);
    if (tops > 0)
        assert_memory_equal(x->tops, y->tops, (size_t)(n * tops) * sizeof *x->tops);
}

/* Tokens, finish and every bit of the log probabilities. */
static inline void rig_assert_equal(const struct request *a, const struct request *b)
{
    const int k = a->params.n_prompt_logprobs;
    for (int c = 0; c < a->n_choices; c++)
        rig_assert_equal_choice(a, b, c);
    if (k >= 0)
        assert_memory_equal(a->prompt_logprobs, b->prompt_logprobs,
                            (size_t)a->n_prompt * sizeof(float));
    if (k > 0)
        assert_memory_equal(a->prompt_tops, b->prompt_tops,
                            (size_t)(a->n_prompt * k) * sizeof(struct top_logprob));
}

struct rig_set {
    struct request *q[RIG_KINDS];
};

static inline void rig_set_free(struct rig_set *s)
{
    for (int i = 0; i < RIG_KINDS; i++)
        request_free(s->q[i]);
}

/* Runs all kinds, one after the other or all at once. */
static inline void rig_run_set(struct rig *r, struct rig_set *s, bool at_once)
{
    const int n_vocab = engine_get_info(r->e)->spec.n_vocab;
    for (int i = 0; i < RIG_KINDS; i++) {
        s->q[i] = rig_kind(i, n_vocab);
        rig_submit(r, s->q[i]);
        if (!at_once)
            rig_wait_ended(r, &s->q[i], 1);
    }
    rig_wait_ended(r, s->q, RIG_KINDS);
    for (int i = 0; i < RIG_KINDS; i++)
        for (int c = 0; c < s->q[i]->n_choices; c++) {
            enum finish_reason f = (enum finish_reason)atomic_load(&s->q[i]->choices[c].finish);
            if (f != FINISH_STOP && f != FINISH_LENGTH)
                fail_msg("request %d choice %d: finish %d: %s", i, c, f, s->q[i]->error.msg);
        }
    struct engine_stats st = rig_stats(r);
    assert_int_equal(st.pages_in_use, 0);
    assert_int_equal(st.pages_free + st.pages_cached, st.pages_total);
    assert_int_equal(st.n_running + st.n_waiting, 0);
}

static inline void rig_assert_sets_equal(const struct rig_set *a, const struct rig_set *b)
{
    for (int i = 0; i < RIG_KINDS; i++)
        rig_assert_equal(a->q[i], b->q[i]);
}

static inline void rig_open_copy(struct rig *r, const unsigned char *bytes, size_t n,
                                 const struct engine_config *c)
{
    unsigned char *copy = malloc(n);
    memcpy(copy, bytes, n);
    rig_open_bytes(r, copy, n, c);
}

/* Alone, uncached and each step for itself first; then every kind of crowd must answer the same. */
static inline void rig_check_invariance_of(const unsigned char *bytes, size_t n,
                                           struct engine_config base)
{
    struct rig r;
    struct rig_set alone, crowd;
    struct engine_config plain = base;
    plain.max_model_len = RIG_LONGEST + 10;
    plain.prefix_caching = plain.async_scheduling = false;
    rig_open_copy(&r, bytes, n, &plain);
    const uint64_t token_bytes = engine_get_info(r.e)->kv_bytes_per_token;
    rig_run_set(&r, &alone, false);
    rig_close(&r);
    const int least = (plain.max_model_len + base.block_size - 1) / base.block_size;
    const struct {
        int pages, seqs, budget, threads;
        bool caching;
    } crowds[] = {
        {least * 16, 24, 256, 2, true}, {least + 2, 8, 8, 1, true},   {least, 6, 6, 2, false},
        {least + 4, 24, 24, 2, true},   {least + 1, 3, 512, 1, true},
    };
    for (size_t i = 0; i < sizeof crowds / sizeof *crowds; i++) {
        struct engine_config c = base;
        c.max_model_len = plain.max_model_len;
        c.kv_cache_memory = (uint64_t)crowds[i].pages * (uint64_t)base.block_size * token_bytes;
        c.max_num_seqs = crowds[i].seqs;
        c.max_num_batched_tokens = crowds[i].budget;
        c.threads = crowds[i].threads;
        c.prefix_caching = crowds[i].caching;
        rig_open_copy(&r, bytes, n, &c);
        assert_int_equal(engine_get_info(r.e)->n_pages, crowds[i].pages);
        for (int round = 0; round <= (int)c.prefix_caching; round++) { /* cold, then warm */
            rig_run_set(&r, &crowd, true);
            rig_assert_sets_equal(&alone, &crowd);
            rig_set_free(&crowd);
        }
        struct engine_stats s = rig_stats(&r);
        if (crowds[i].pages < least * 2 && crowds[i].seqs > 3)
            assert_true(s.preemptions > 0);
        if (crowds[i].caching)
            assert_true(s.prefix_hit_tokens > 0);
        rig_close(&r);
    }
    rig_set_free(&alone);
}

static inline void rig_check_invariance(const char *file, struct engine_config base)
{
    size_t n = 0;
    unsigned char *bytes = test_read_data(file, &n);
    if (!bytes)
        fail_msg("tests/data/%s is missing", file);
    rig_check_invariance_of(bytes, n, base);
    free(bytes);
}

#endif
