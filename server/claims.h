/* claims.h: what is told of inference servers, measured on the loaded model: each feature off and
 * on, as real runs of the engine. What the engine does not do itself (recomputing a whole sequence
 * for each token, batches that wait for their longest, whole contexts reserved, n x n scores) the
 * benchmark makes out of requests and settings, or does beside it. One thread. */
#ifndef TOKEND_CLAIMS_H
#define TOKEND_CLAIMS_H

#include "bench_run.h"
#include "svg_plot.h"


enum { CLAIMS_MAX_ROWS = 32, CLAIMS_MAX_PLOTS = 6, CLAIMS_MAX_POINTS = 32 };

struct claim_row {
    const char *claim;   /* "a KV cache" */
    char measured[96];   /* "time of a token behind 1,024 others" */
    const char *unit;    /* "ms" */
    double off, on;
    bool more_is_better;
};
struct claim_plot {
    const char *title, *x_unit, *y_unit, *off_label, *on_label;
    struct plot_point off[CLAIMS_MAX_POINTS], on[CLAIMS_MAX_POINTS];
    int n_off, n_on;
};

struct claims {
    const struct model_file *model;
    struct engine_config base; /* threads, types, device */
    int context;               /* longest that is measured, at most the model's */
    char backend[128];         /* of the last run */
    struct claim_row rows[CLAIMS_MAX_ROWS];
    int n_rows;
    struct claim_plot plots[CLAIMS_MAX_PLOTS];
    int n_plots;
};

/* Adds what it measured to rows and plots. */
typedef bool claim_fn(struct claims *, struct err *e);
claim_fn claim_kv_cache;            /* against recomputing the sequence for each token */
claim_fn claim_continuous_batching; /* against batches that end together */
claim_fn claim_pages;               /* against reserving a whole context */
claim_fn claim_prefix_cache;        /* a system prompt in common, computed once */
claim_fn claim_tiled_attention;     /* against all scores in memory */

/* A row, its text printed by fmt */
void claims_row(struct claims *, const char *claim, const char *unit, double off, double on,
                bool more_is_better, const char *fmt, ...) __attribute__((format(printf, 7, 8)));
struct claim_plot *claims_plot(struct claims *, const char *title, const char *x_unit,
                               const char *y_unit, const char *off, const char *on);
/* The engine of one run, whose configuration starts as `base`. */
bool claims_open(struct claims *, struct bench_run *, const struct engine_config *, struct err *e);

/* The table as Markdown, and the plots. */
void claims_table(const struct claims *, struct buf *out);
void claims_svg(const struct claims *, const char *model, struct buf *out);

#endif
