#include "planner.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

static const double MiB = 1024.0 * 1024.0;
static const uint64_t rounding = 4 << 20; /* what a device's pieces may take more than was asked */
static const double most_share = 0.97;    /* of a GPU's memory: what is advised at most */

bool planner_context(const struct engine_config *c, const struct model_spec *s, int *len,
                     struct err *e)
{
    *len = c->max_model_len ? c->max_model_len : s->n_ctx_train;
    if (*len <= s->n_ctx_train)
        return true;
    return err_set(e, ERR_INVALID,
                   "--max-model-len %d: the model was trained for %d tokens, that is the most",
                   *len, s->n_ctx_train);
}

static uint64_t pages_for(int tokens, int block_size)
{
    return ((uint64_t)tokens + (uint64_t)block_size - 1) / (uint64_t)block_size;
}

/* In MiB, rounded down, so that what is told to fit does. */
static double floor_tenth(uint64_t bytes)
{
    return floor((double)bytes / MiB * 10) / 10;
}

/* a * b, or the largest number. */
static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t r;
    return __builtin_mul_overflow(a, b, &r) ? UINT64_MAX : r;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* a + b, or the largest number. */
static uint64_t plus(uint64_t a, uint64_t b)
{
    uint64_t r;
    return __builtin_add_overflow(a, b, &r) ? UINT64_MAX : r;
}

static const char *memory_name(const struct memory_needs *m)
{
    return m->dedicated ? "the GPU's memory that may be used" : "memory";
}

/* --- a GPU that is too small --- */

struct text {
    char at[200];
    size_t used;
};

static void add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(t->at + t->used, sizeof t->at - t->used, fmt, ap);
    va_end(ap);
    t->used = smaller(t->used + (size_t)n, sizeof t->at - 1);
}

/* Each alone is enough. */
static void add_what_fits(struct text *t, const struct engine_config *c,
                          const struct memory_needs *m, uint64_t all, uint64_t lacks, uint64_t kv)
{
    const double share =
        ceil((double)plus(plus(all, m->others), rounding) / (double)m->device * 100) / 100;
    if (c->max_model_len && lacks < kv && (kv - lacks) / m->page > 0)
        add(t, "; --max-model-len %" PRIu64 " fits",
            (kv - lacks) / m->page * (uint64_t)c->block_size);
    if (share <= most_share)
        add(t, "; --gpu-memory-utilization %.2f fits", share);
}

/* By how much they help is not known exactly. */
static void add_what_helps(struct text *t, const struct engine_config *c,
                           const struct memory_needs *m, uint64_t lacks, uint64_t kv)
{
    if (m->float_weights && m->weights / 2 >= lacks)
        add(t, "; a quantised model (--quantization) needs less");
    if (m->wide_kv && c->max_model_len && kv / 5 * 2 >= lacks)
        add(t, "; --kv-cache-dtype int8 halves the pages");
    if (m->activations > lacks)
        add(t, "; lower --max-num-batched-tokens or --max-num-seqs");
}

/* `kv`: bytes of the least context that must fit, of n_tokens */
static bool refuse_gpu(const struct engine_config *c, const struct memory_needs *m, uint64_t kv,
                       uint64_t n_tokens, struct err *e)
{
    const uint64_t all = plus(plus(m->weights, m->activations), kv), lacks = all - m->total;
    struct text advice = {"", 0};
    add_what_fits(&advice, c, m, all, lacks, kv);
    add_what_helps(&advice, c, m, lacks, kv);
    if (advice.used == 0)
        add(&advice, "; it takes a smaller or quantised model, or more memory");
    return err_set(
        e, ERR_MEMORY,
        "weights need %.1f MiB, activations %.1f, KV pages of %" PRIu64
        " tokens %.1f, but of the GPU's %.1f MiB %.1f may be used: its driver, kernels "
        "and other programs have %.1f, and --gpu-memory-utilization keeps the rest free%s",
        (double)m->weights / MiB, (double)m->activations / MiB, n_tokens, (double)kv / MiB,
        (double)m->device / MiB, floor_tenth(m->total), (double)m->others / MiB, advice.at);
}

/* What a GPU must hold at least: a context that was asked for, or a page. */
static bool check_gpu(const struct engine_config *c, uint64_t wanted_pages,
                      const struct memory_needs *m, struct err *e)
{
    const uint64_t pages = c->max_model_len ? wanted_pages : 1, kv = times(pages, m->page);
    return plus(plus(m->weights, m->activations), kv) <= m->total ||
           refuse_gpu(c, m, kv, times(pages, (uint64_t)c->block_size), e);
}

/* --- the pool --- */

/* What the model leaves of the machine. */
static bool memory_left(const struct memory_needs *m, uint64_t *left, struct err *e)
{
    const uint64_t taken = plus(m->weights, m->activations);
    if (taken >= m->total)
        return err_set(e, ERR_MEMORY,
                       "weights of %.1f MiB and activations of %.1f MiB do not fit the %.1f MiB of "
                       "memory: %s",
                       (double)m->weights / MiB, (double)m->activations / MiB,
                       (double)m->total / MiB,
                       m->weights >= m->total ? "it takes a smaller model, or more memory"
                                              : "lower --max-num-batched-tokens or --max-num-seqs");
    *left = m->total - taken;
    return true;
}

static bool choose_budget(const struct engine_config *c, uint64_t wanted_pages,
                          const struct memory_needs *m, uint64_t left, uint64_t *budget,
                          struct err *e)
{
    *budget = c->kv_cache_memory;
    if (*budget == 0 && m->dedicated)
        *budget = left;
    if (*budget == 0) {
        *budget = times(times((uint64_t)c->max_num_seqs, wanted_pages), m->page);
        *budget = smaller(*budget, smaller(m->total / 4, left - left / 4));
    }
    if (*budget <= left)
        return true;
    return err_set(e, ERR_MEMORY,
                   "--kv-cache-memory asks for %.1f MiB, but of the %.1f MiB of %s weights "
                   "take %.1f MiB and activations %.1f MiB: at most %.1f MiB fits",
                   (double)*budget / MiB, (double)m->total / MiB, memory_name(m),
                   (double)m->weights / MiB, (double)m->activations / MiB, floor_tenth(left));
}

static uint64_t cached_pages(const struct engine_config *c, const struct memory_needs *m,
                             uint64_t n_pages)
{
    if (c->prefix_cache_memory)
        return smaller(c->prefix_cache_memory / m->page, n_pages);
    return m->dedicated ? n_pages : n_pages / 2;
}

bool planner_pool(const struct engine_config *c, int wanted_len, const struct memory_needs *m,
                  struct memory_plan *out, struct err *e)
{
    const uint64_t block = (uint64_t)c->block_size;
    const uint64_t need = pages_for(wanted_len, c->block_size);
    uint64_t left = 0, budget;
    if ((m->dedicated && !check_gpu(c, need, m, e)) || !memory_left(m, &left, e) ||
        !choose_budget(c, need, m, left, &budget, e))
        return false;
    /* A KV slot's number is an int32. */
    const uint64_t n = smaller(budget / m->page, (uint64_t)INT32_MAX / block);
    if (n == 0)
        return err_set(e, ERR_MEMORY,
                       "the KV cache of %" PRIu64
                       " bytes holds no page of %d tokens, which takes %" PRIu64
                       " bytes: raise --kv-cache-memory",
                       budget, c->block_size, m->page);
    if (n < need && c->max_model_len)
        return err_set(e, ERR_MEMORY,
                       "--max-model-len %d needs %.1f MiB of KV cache, but it has %.1f MiB, which "
                       "hold %" PRIu64 " tokens: lower it, or raise --kv-cache-memory (at most "
                       "%.1f MiB fits beside the model)",
                       wanted_len, (double)need * (double)m->page / MiB, (double)budget / MiB,
                       n * block, floor_tenth(left));
    *out = (struct memory_plan){
        .max_model_len = n < need ? (int)(n * block) : wanted_len,
        .n_pages = (int)n,
        .max_cached_pages = (int)cached_pages(c, m, n),
        .kv_bytes = n * m->page,
    };
    return true;
}
