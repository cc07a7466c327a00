/* bench_run.h: an engine of a benchmark's own, and requests of random tokens to it. One thread. */
#ifndef TOKEND_BENCH_RUN_H
#define TOKEND_BENCH_RUN_H

#include "engine.h"

#include <semaphore.h>

struct bench_run { /* zeroed = closed */
    struct engine *engine;
    sem_t *news; /* the engine has some */
    uint64_t rng;
};

/* *run must stay where it is until it is closed. */
bool bench_run_open(struct bench_run *run, const struct engine_config *, const struct model_file *,
                    struct err *e);
void bench_run_close(struct bench_run *);

/* [batch][n] random tokens, of which the first `shared` are the same in every row; none of them
 * has been given before. For free(); NULL: out of memory. */
int32_t *bench_random_prompts(struct bench_run *, int batch, int n, int shared);
/* Submits a greedy request that ends after max_tokens. */
bool bench_submit(struct bench_run *, const int32_t *ids, int n, int max_tokens,
                  struct request **out, struct err *e);
/* Until all of q[n] have ended; false and *e when one failed. */
bool bench_wait(struct bench_run *, struct request *const *q, int n, struct err *e);
/* The next moment at which the engine has news; true when all of q[n] have ended. */
bool bench_look(struct bench_run *, struct request *const *q, int n);
/* Waits for what was submitted, and frees it; NULLs are passed over. */
void bench_free(struct bench_run *, struct request **q, int n);

#endif
