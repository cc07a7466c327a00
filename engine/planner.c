#include "planner.h"

#include <inttypes.h>
#include <limits.h>

static const double MiB = 1024.0 * 1024.0;

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

/* a * b, or the largest number. */
static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t r;
    return __builtin_mul_overflow(a, b, &r) ? UINT64_MAX : r;
}

bool planner_pool(const struct engine_config *c, int wanted_len, uint64_t page_bytes, uint64_t ram,
                  struct memory_plan *out, struct err *e)
{
    const uint64_t block = (uint64_t)c->block_size;
    const uint64_t need = pages_for(wanted_len, c->block_size);
    uint64_t budget = c->kv_cache_memory;
    if (budget == 0) {
        budget = times(times((uint64_t)c->max_num_seqs, need), page_bytes);
        budget = budget < ram / 4 ? budget : ram / 4;
    }
    if (budget > ram)
        return err_set(e, ERR_MEMORY,
                       "--kv-cache-memory asks for %.0f MiB, the machine has %.0f MiB",
                       (double)budget / MiB, (double)ram / MiB);
    uint64_t n = budget / page_bytes;
    /* A KV slot's number is an int32. */
    const uint64_t most = (uint64_t)INT32_MAX / block;
    n = n < most ? n : most;
    if (n == 0)
        return err_set(e, ERR_MEMORY,
                       "the KV cache of %.2f MiB holds no page of %d tokens, which takes %.2f MiB",
                       (double)budget / MiB, c->block_size, (double)page_bytes / MiB);
    if (n < need && c->max_model_len)
        return err_set(e, ERR_MEMORY,
                       "--max-model-len %d needs %.1f MiB of KV cache, but it has %.1f MiB, which "
                       "hold %" PRIu64 " tokens: lower it, or raise --kv-cache-memory",
                       wanted_len, (double)need * (double)page_bytes / MiB, (double)budget / MiB,
                       n * block);
    *out = (struct memory_plan){
        .max_model_len = n < need ? (int)(n * block) : wanted_len,
        .n_pages = (int)n,
        .kv_bytes = n * page_bytes,
        .shrunk = n < need,
    };
    return true;
}
