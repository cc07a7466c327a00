/* planner.h: how much memory the KV pool gets, and what context that allows. Pure arithmetic. */
#ifndef TOKEND_PLANNER_H
#define TOKEND_PLANNER_H

#include "engine.h"

/* Bytes that a plan counts with */
struct memory_needs {
    uint64_t total; /* that may be taken: backend_memory's */
    uint64_t weights, activations;
    uint64_t page;  /* of one KV page, all layers */
    bool dedicated; /* a GPU's memory, of which the pool may have all that is left */
    /* Of a GPU, for what is said when it is too small */
    uint64_t device, others;     /* all of its memory; what has been taken and is none of ours */
    bool float_weights, wide_kv; /* there are smaller types */
};

struct memory_plan {
    int max_model_len; /* below what was wanted where the pool holds no more */
    int n_pages;
    int max_cached_pages; /* of prefix_cache_memory, see scheduler.h */
    uint64_t kv_bytes;
};

/* The context that is wanted: the configured one, checked against the model's, or the model's. */
bool planner_context(const struct engine_config *, const struct model_spec *, int *max_model_len,
                     struct err *e);

/* The pool's budget is kv_cache_memory; or what max_num_seqs contexts can use, at most a quarter
 * of the machine and three quarters of what the model leaves (the process has more than the
 * model); on a GPU all that is left. Of it the prefix cache has prefix_cache_memory, or a half (on
 * a GPU all, which is taken anyway). An explicit pool or context that does not fit beside the model
 * is refused, and so is a model that fills the machine: the message has the numbers and what would
 * fit. On a GPU the context that was asked for, or a page, must fit. */
bool planner_pool(const struct engine_config *, int wanted_len, const struct memory_needs *,
                  struct memory_plan *out, struct err *e);

#endif
