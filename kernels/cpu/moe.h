/* moe.h: the scratch memory of a mixture of experts. A slot is one (row, expert) pair of a step;
 * slots lie sorted by expert, and within one by row, so that an expert reads its rows as a
 * matrix. Filled anew by every operation that uses it. */
#ifndef TOKEND_MOE_H
#define TOKEND_MOE_H

#include "backend.h"

/* Slots [t0, t0 + n) of one expert, n <= step_tile */
struct moe_job {
    int expert, t0, n;
};

struct moe {
    struct moe_config config;
    int32_t *chosen; /* [max_rows][n_used] experts, best first */
    float *share;    /* [max_rows][n_used] their weights */
    int32_t *slot;   /* [max_rows][n_used] where their results are */
    int32_t *row;    /* [max_rows * n_used] of each slot */
    int32_t *next;   /* [n_experts] counts while slots are sorted */
    struct moe_job *jobs;
    int n_jobs;
    struct activation *x, *middle, *y; /* [max_rows * n_used] n_embd, n_ff, n_embd */
};

struct moe *moe_new(struct backend *, const struct moe_config *, struct err *e);

#endif
