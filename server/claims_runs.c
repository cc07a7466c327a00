/* Claims about the engine: the same requests with a feature off and on. */
#include "claims.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_REQUESTS = 64 };

static struct engine_config config_of(const struct claims *c, int seqs, bool prefix_caching)
{
    struct engine_config config = c->base;
    config.max_model_len = c->context;
    config.max_num_seqs = seqs;
    config.max_num_batched_tokens = 512;
    config.block_size = 16;
    config.prefix_caching = prefix_caching;
    return config;
}

/* --- one request after the other --- */

/* The time to the first token, and from it to the last. */
static bool time_request(struct bench_run *run, const int32_t *ids, int n, int max_tokens,
                         double *first, double *rest, struct err *e)
{
    struct request *q = NULL;
    const bool ok = bench_submit(run, ids, n, max_tokens, &q, e) && bench_wait(run, &q, 1, e);
    if (ok) {
        *first = q->t_first_token - q->t_submitted;
        *rest = q->t_ended - q->t_first_token;
    }
    bench_free(run, &q, 1);
    return ok;
}

/* Without a cache of keys and values a token costs what its whole sequence does. */
bool claim_kv_cache(struct claims *c, struct err *e)
{
    enum { TOKENS = 16 };
    struct bench_run run = {0};
    const struct engine_config config = config_of(c, 1, false);
    struct claim_plot *plot =
        claims_plot(c, "Time of a token", "tokens before it", "ms", "recomputed", "KV cache");
    bool ok = claims_open(c, &run, &config, e);
    double off = 0, on = 0;
    int n = 0;
    for (int parts = 1; ok && parts <= 8; parts++) {
        n = (c->context - TOKENS - 2) * parts / 8;
        double first, rest = 0, none;
        int32_t *ids = bench_random_prompts(&run, 1, n > 0 ? n : 1, 0);
        ok = ids || err_set(e, ERR_MEMORY, "no memory for a prompt");
        ok = ok && time_request(&run, ids, n, 1, &off, &none, e) &&
             time_request(&run, ids, n, 1 + TOKENS, &first, &rest, e);
        on = rest / TOKENS;
        free(ids);
        plot->off[plot->n_off++] = (struct plot_point){n, off * 1e3};
        plot->on[plot->n_on++] = (struct plot_point){n, on * 1e3};
    }
    bench_run_close(&run);
    if (ok)
        claims_row(c, "KV cache", "ms", off * 1e3, on * 1e3, false,
                   "time of a token behind %d others, recomputing them or not", n);
    return ok;
}

static bool first_tokens(struct claims *c, bool cached, int shared, double times[], int n,
                         struct err *e)
{
    struct bench_run run = {.rng = 1};
    const struct engine_config config = config_of(c, 1, cached);
    bool ok = claims_open(c, &run, &config, e);
    int32_t *ids = ok ? bench_random_prompts(&run, n, shared + 16, shared) : NULL;
    ok = ok && (ids || err_set(e, ERR_MEMORY, "no memory for %d prompts", n));
    for (int i = 0; ok && i < n; i++) {
        double rest;
        ok = time_request(&run, ids + (size_t)i * (size_t)(shared + 16), shared + 16, 1, &times[i],
                          &rest, e);
    }
    free(ids);
    bench_run_close(&run);
    return ok;
}

/* --- many at once --- */

/* What a run of many requests showed. */
struct crowd {
    double seconds;
    double tokens, steps;  /* generated; of the engine */
    double slots, written; /* summed over the looks: of the pages in use, and of these */
    int most_running, most_pages;
};

static void look_closer(struct bench_run *run, struct crowd *k)
{
    struct engine_stats s;
    engine_get_stats(run->engine, &s);
    k->slots += (double)s.slots_in_use;
    k->written += (double)s.slots_written;
    k->most_running = s.n_running > k->most_running ? s.n_running : k->most_running;
    k->most_pages = s.pages_in_use > k->most_pages ? s.pages_in_use : k->most_pages;
}

/* n requests, `together` at a time: all end before the next ones begin. */
static bool run_crowd(struct bench_run *run, int32_t *const ids[], const int lens[],
                      const int tokens[], int n, int together, struct crowd *k, struct err *e)
{
    struct request *q[MAX_REQUESTS] = {NULL};
    struct engine_stats before, after;
    bool ok = true;
    double begin = 0, end = 0;
    engine_get_stats(run->engine, &before);
    for (int i = 0; ok && i < n; i += together) {
        const int m = n - i < together ? n - i : together;
        for (int j = i; ok && j < i + m; j++)
            ok = bench_submit(run, ids[j], lens[j], tokens[j], &q[j], e);
        while (ok && !bench_look(run, q + i, m))
            look_closer(run, k);
        ok = ok && bench_wait(run, q + i, m, e);
    }
    engine_get_stats(run->engine, &after);
    for (int i = 0; ok && i < n; i++) {
        begin = i == 0 || q[i]->t_submitted < begin ? q[i]->t_submitted : begin;
        end = fmax(end, q[i]->t_ended);
        k->tokens += tokens[i];
    }
    k->seconds = end - begin;
    k->steps = (double)(after.steps - before.steps);
    bench_free(run, q, n);
    return ok;
}

/* Lengths as ragged as answers are: most are short, some long, none above `most`. */
static int ragged(int i, int most)
{
    static const int eighths[] = {1, 2, 8, 1, 3, 2, 6, 1};
    const int n = most * eighths[i % 8] / 8;
    return n > 1 ? n : 2;
}

static bool make_prompts(struct bench_run *run, const int lens[], int32_t *ids[], int n,
                         struct err *e)
{
    for (int i = 0; i < n; i++)
        if (!(ids[i] = bench_random_prompts(run, 1, lens[i], 0)))
            return err_set(e, ERR_MEMORY, "no memory for %d prompts", n);
    return true;
}

static bool crowd_of(struct claims *c, const struct engine_config *config, const int lens[],
                     const int tokens[], int n, int together, struct crowd *k, struct err *e)
{
    struct bench_run run = {.rng = 7};
    int32_t *ids[MAX_REQUESTS] = {NULL};
    *k = (struct crowd){0};
    const bool ok = claims_open(c, &run, config, e) && make_prompts(&run, lens, ids, n, e) &&
                    run_crowd(&run, ids, lens, tokens, n, together, k, e);
    for (int i = 0; i < n; i++)
        free(ids[i]);
    bench_run_close(&run);
    return ok;
}

bool claim_continuous_batching(struct claims *c, struct err *e)
{
    enum { REQUESTS = 32 };
    int lens[REQUESTS], tokens[REQUESTS];
    const int most = c->context / 4 < 192 ? c->context / 4 : 192;
    struct claim_plot *plot = claims_plot(c, "Throughput of ragged answers", "places in the batch",
                                          "tokens/s", "static batches", "continuous");
    struct crowd off = {0}, on = {0};
    bool ok = true;
    for (int i = 0; i < REQUESTS; i++) {
        lens[i] = 8;
        tokens[i] = ragged(i, most);
    }
    int places = 2;
    for (; ok && places <= 8; places *= 2) {
        const struct engine_config config = config_of(c, places, false);
        ok = crowd_of(c, &config, lens, tokens, REQUESTS, places, &off, e) &&
             crowd_of(c, &config, lens, tokens, REQUESTS, REQUESTS, &on, e);
        plot->off[plot->n_off++] = (struct plot_point){places, off.tokens / off.seconds};
        plot->on[plot->n_on++] = (struct plot_point){places, on.tokens / on.seconds};
    }
    places /= 2;
    if (!ok)
        return false;
    claims_row(c, "continuous batching", "tokens/s", off.tokens / off.seconds,
               on.tokens / on.seconds, true,
               "%d answers of %d to %d tokens, batches of %d that end together or not", REQUESTS,
               ragged(0, most), most, places);
    claims_row(c, "continuous batching", "%", 100 * off.tokens / (off.steps * places),
               100 * on.tokens / (on.steps * places), true,
               "places of the batch that make a token, of all steps");
    return true;
}

/* In percent; 0 where nobody looked while pages were in use */
static double unwritten(const struct crowd *k)
{
    return k->slots > 0 ? 100 * (1 - k->written / k->slots) : 0;
}

/* A page as large as the context is what reserving the longest answer is. */
bool claim_pages(struct claims *c, struct err *e)
{
    enum { REQUESTS = 48, CONTEXTS = 6 };
    int lens[REQUESTS], tokens[REQUESTS];
    struct engine_config pages = config_of(c, REQUESTS, false), whole = pages;
    struct crowd off, on;
    const int context = c->context / 16 * 16;
    for (int i = 0; i < REQUESTS; i++) {
        lens[i] = ragged(i, context / 2);
        tokens[i] = ragged(i + 3, context / 4);
    }
    pages.max_model_len = whole.max_model_len = context;
    whole.block_size = context;
    struct bench_run sized = {0};
    if (!claims_open(c, &sized, &pages, e))
        return false;
    const uint64_t token = engine_get_info(sized.engine)->kv_bytes_per_token;
    bench_run_close(&sized);
    pages.kv_cache_memory = whole.kv_cache_memory = token * (uint64_t)context * CONTEXTS;
    if (!crowd_of(c, &whole, lens, tokens, REQUESTS, REQUESTS, &off, e) ||
        !crowd_of(c, &pages, lens, tokens, REQUESTS, REQUESTS, &on, e))
        return false;
    claims_row(c, "pages of 16 tokens", "%", unwritten(&off), unwritten(&on), false,
               "memory of the sequences' KV cache that nothing was written to");
    claims_row(c, "pages of 16 tokens", "sequences", off.most_running, on.most_running, true,
               "at once in the memory of %d contexts of %d tokens, reserved or in pages", CONTEXTS,
               context);
    claims_row(c, "pages of 16 tokens", "tokens/s", off.tokens / off.seconds,
               on.tokens / on.seconds, true, "%d requests of %d to %d tokens in that memory",
               REQUESTS, ragged(0, context / 2), context * 3 / 4);
    return true;
}

/* --- a prompt in common --- */

enum { ANSWER = 64 };

static bool pages_of_crowd(struct claims *c, bool cached, int shared, int *pages, struct err *e)
{
    enum { REQUESTS = 8 };
    struct bench_run run = {.rng = 3};
    const struct engine_config config = config_of(c, REQUESTS, cached);
    struct crowd k = {0};
    int32_t *ids[REQUESTS];
    int lens[REQUESTS], tokens[REQUESTS];
    const int len = shared + 16;
    bool ok = claims_open(c, &run, &config, e);
    int32_t *all = ok ? bench_random_prompts(&run, REQUESTS, len, shared) : NULL;
    ok = ok && (all || err_set(e, ERR_MEMORY, "no memory for prompts"));
    for (int i = 0; all && i < REQUESTS; i++) {
        ids[i] = all + (size_t)i * (size_t)len;
        lens[i] = len;
        tokens[i] = ANSWER;
    }
    ok = ok && run_crowd(&run, ids, lens, tokens, REQUESTS, REQUESTS, &k, e);
    *pages = k.most_pages;
    free(all);
    bench_run_close(&run);
    return ok;
}

bool claim_prefix_cache(struct claims *c, struct err *e)
{
    enum { REQUESTS = 6 };
    double off[REQUESTS], on[REQUESTS];
    int pages_off, pages_on;
    const int shared = (c->context - 16 - ANSWER) / 16 * 16;
    struct claim_plot *plot = claims_plot(c, "First token, shared system prompt", "request", "ms",
                                          "no prefix cache", "prefix cache");
    if (!first_tokens(c, false, shared, off, REQUESTS, e) ||
        !first_tokens(c, true, shared, on, REQUESTS, e) ||
        !pages_of_crowd(c, false, shared, &pages_off, e) ||
        !pages_of_crowd(c, true, shared, &pages_on, e))
        return false;
    double sum_off = 0, sum_on = 0;
    for (int i = 0; i < REQUESTS; i++) {
        plot->off[plot->n_off++] = (struct plot_point){i + 1, off[i] * 1e3};
        plot->on[plot->n_on++] = (struct plot_point){i + 1, on[i] * 1e3};
        sum_off += i ? off[i] : 0;
        sum_on += i ? on[i] : 0;
    }
    claims_row(c, "prefix cache", "ms", sum_off / (REQUESTS - 1) * 1e3,
               sum_on / (REQUESTS - 1) * 1e3, false,
               "first token of a request whose first %d of %d tokens another had", shared,
               shared + 16);
    claims_row(c, "prefix cache", "pages", pages_off, pages_on, false,
               "KV cache of 8 such requests at once");
    return true;
}
