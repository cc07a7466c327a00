/* metrics.h: what is counted, and its Prometheus text (format 0.0.4). The names are vLLM's, so
 * that routers and dashboards read them unchanged; all are there, at zero, from the first
 * scrape. Loop thread only. */
#ifndef TOKEND_METRICS_H
#define TOKEND_METRICS_H

#include "buf.h"
#include "engine.h"
#include "http.h"

enum { HISTOGRAM_MAX_BOUNDS = 24 };

struct histogram {
    const double *bounds; /* [n], ascending */
    int n;
    uint64_t counts[HISTOGRAM_MAX_BOUNDS + 1]; /* the last: above all bounds */
    double sum;
};
void histogram_add(struct histogram *, double value, uint64_t times);
/* The series; HELP and TYPE are the caller's. */
void histogram_format(struct buf *, const char *name, const char *labels, const struct histogram *);

enum metric_end { END_STOP, END_LENGTH, END_ABORT, END_ERROR, N_METRIC_ENDS };

struct metrics {
    struct histogram ttft, itl, e2e, queue, prefill, decode, inference; /* seconds */
    struct histogram step_tokens, prompt_tokens, generation_tokens, n, max_tokens;
    uint64_t ends[N_METRIC_ENDS]; /* choices */
    struct engine_stats last;     /* for tokens a step */
};
void metrics_init(struct metrics *);
/* A request that the engine handed back. */
void metrics_request(struct metrics *, const struct request *);
/* New numbers of the engine: tokens computed a step since the last call. */
void metrics_steps(struct metrics *, const struct engine_stats *);

struct metrics_view {
    const char *model;
    const struct engine_info *info;   /* NULL: still loading */
    const struct engine_stats *stats; /* zeroed while loading */
    const struct http_stats *http;
};
void metrics_format(struct buf *out, const struct metrics *, const struct metrics_view *);

#endif
