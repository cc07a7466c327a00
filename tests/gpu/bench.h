/* bench.h: what the parts of gpu_bench share: a backend with room for steps, and the table.
 *
 * Everything is measured through backend.h, as the engine uses it, by the clock on the wall: a step
 * that records an operation many times, less one that does not. */
#ifndef TOKEND_GPU_BENCH_H
#define TOKEND_GPU_BENCH_H

#include <stdio.h>

#include "backend.h"
#include "gpu_limits.h"

/* A model's sizes, and how much is run */
struct bench_sizes {
    int n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_dim, n_vocab;
    int context, prompt; /* tokens */
    int max_batch;
    int copies; /* of a weight, used in turns, so that no cache holds them */
    int times;  /* that an operation is recorded in a step */
};
extern const struct bench_sizes bench_llama_7b, bench_tiny;

/* --- the table --- */

struct bench_row {
    char what[40], shape[56];
    double seconds;
    double bytes, ops; /* the least that it must move and calculate */
    int int8;          /* ops are of int8 */
};
struct bench_report {
    const struct gpu_limits *limits;
    FILE *json; /* NULL: none */
    int n;
};
void bench_begin(struct bench_report *, const struct gpu_limits *, FILE *json, int emulated);
void bench_add(struct bench_report *, const struct bench_row *);
/* A figure of its own, beside the table */
void bench_figure(struct bench_report *, const char *name, double value, const char *unit,
                  double limit, const char *of_what);
void bench_end(struct bench_report *);

/* --- a backend --- */

struct bench_lab {
    struct backend *b;
    const struct backend_ops *ops;
    struct kv_config kv;
    int max_pages; /* of a sequence; sequence i has pages i * max_pages and on */
};
/* False: what failed is on stderr. n_kv_heads may differ from the sizes'. */
bool bench_open(struct bench_lab *, const struct bench_sizes *, int max_rows, int max_seqs);
bool bench_open_kv(struct bench_lab *, const struct bench_sizes *, int n_layers, int n_kv_heads,
                   int max_seqs);
void bench_close(struct bench_lab *);
double bench_now(void);

/* The rows of a step: n_seqs sequences of n rows each from position `start` on; logits of the last
 * row of each if wanted */
struct bench_step {
    int n_seqs, n, start;
    bool logits;
};
void bench_fill(struct bench_lab *, const struct bench_step *);
/* Seconds of a step with what record() records n times (n may be 0), the best of some; below 0: it
 * failed */
double bench_time(struct bench_lab *, const struct bench_step *,
                  void (*record)(struct bench_lab *, void *arg, int n), void *arg, int n);

/* Bytes that are values of `type`, none of them large; kept until the process ends */
const void *bench_random(enum dtype type, int64_t rows, int64_t cols);

/* --- the parts --- */

bool bench_operations(struct bench_report *, const struct bench_sizes *);
/* A whole model of random weights; `overhead`: one with nothing to calculate, for the host's share
 */
bool bench_model(struct bench_report *, const struct bench_sizes *);
bool bench_overhead(struct bench_report *, const struct bench_sizes *);

#endif
