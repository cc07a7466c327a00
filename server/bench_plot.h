/* bench_plot.h: what `tokend bench` measured, and its picture.
 *
 * Three panels: prefill against depth and decode against depth, both of the first batch size,
 * and decode against batch size at the first depth. Each combination of threads and length is
 * a line. One thread. */
#ifndef TOKEND_BENCH_PLOT_H
#define TOKEND_BENCH_PLOT_H

#include "err.h"

struct bench_scenario {
    const char *test; /* "prefill" or "decode" */
    int threads, prompt, generate, depth, batch;
};

struct bench_result {
    struct bench_scenario scenario;
    double speed; /* mean, tokens/s */
};

struct bench_results { /* zeroed = empty; free with bench_results_free */
    struct bench_result *v;
    int n, cap;
    int depth, batch; /* the first ones asked for */
    int repeat;
    char backend[128]; /* of the last run */
};

bool bench_results_add(struct bench_results *, const struct bench_scenario *, double speed,
                       struct err *e);
void bench_results_free(struct bench_results *);

/* Writes the picture to a file; the title names the model's file and this machine. */
bool bench_plot_write(const struct bench_results *, const char *model, const char *path,
                      struct err *e);

#endif
