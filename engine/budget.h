/* budget.h: what a model, its KV cache and a batch need of a device's memory, and the most tokens
 * a second that its bandwidth and its arithmetic leave. Pure arithmetic, before anything is loaded.
 *
 * Ceilings are of the hardware alone: a step of decoding reads all weights (of experts those that
 * its tokens are expected to choose) and the cache of its sequences once; a token of a prompt costs
 * two operations for each parameter that it is multiplied with, and four for each value of K and V
 * before it and head. */
#ifndef TOKEND_BUDGET_H
#define TOKEND_BUDGET_H

#include "devices.h"
#include "err.h"
#include "plan_model.h"

struct budget_wish {
    int batch;      /* sequences */
    int64_t len;    /* tokens of each */
    int64_t depth;  /* of these in the cache when the decoding is looked at, 0 … len */
    int n_devices;  /* that share the model (tensor parallelism) */
    enum dtype kv;  /* F32, F16, BF16, INT8 or F8_E4M3 */
    int block_size; /* tokens of a page */
    int max_rows;   /* of a step */
    int max_seqs;
    double share; /* of a GPU's memory that may be used */
};

struct budget {
    uint64_t kv_bytes_per_token; /* all layers, all devices' heads once */
    uint64_t kv_bytes;           /* batch * len of them */

    /* Bytes on each device, its memory being their sum where it fits */
    uint64_t weights, kv, activations, runtime, reserved;
    int64_t left;          /* < 0: so much is missing */
    int64_t max_sequences; /* of len tokens that fit; -1: not known */

    double step_seconds;       /* of decoding, at least; 0: not known */
    double decode_per_second;  /* tokens of all sequences, at most */
    double prefill_per_second; /* tokens of prompts of len, at most; 0: not known */
};

/* False and *e: the model cannot be shared among so many devices, or sizes are out of all range. */
bool budget_make(const struct plan_model *, const struct device_facts *, const struct budget_wish *,
                 struct budget *out, struct err *e);

#endif
