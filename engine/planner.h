/* planner.h: how much memory the KV pool gets, and what context that allows. Pure arithmetic. */
#ifndef TOKEND_PLANNER_H
#define TOKEND_PLANNER_H

#include "engine.h"

struct memory_plan {
    int max_model_len;
    int n_pages;
    uint64_t kv_bytes;
    bool shrunk; /* max_model_len is below the model's because the pool holds no more */
};

/* The context that is wanted: the configured one, checked against the model's, or the model's. */
bool planner_context(const struct engine_config *, const struct model_spec *, int *max_model_len,
                     struct err *e);

/* Budget: kv_cache_memory; or what max_num_seqs contexts can use, at most a quarter of `ram`.
 * page_bytes: of one page, all layers. An explicit context that does not fit is refused. */
bool planner_pool(const struct engine_config *, int wanted_len, uint64_t page_bytes, uint64_t ram,
                  struct memory_plan *out, struct err *e);

#endif
