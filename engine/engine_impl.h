/* engine_impl.h: the engine thread's own state; for engine.c, engine_step.c and engine_stats.c.
 *
 * Written by engine_open before the thread starts and by the thread afterwards; what other
 * threads read meanwhile is atomic (mail, stop, dead, reset_asked, heartbeat, stats) or never changes (info,
 * config). */
#ifndef TOKEND_ENGINE_IMPL_H
#define TOKEND_ENGINE_IMPL_H

#include "mailbox.h"
#include "model.h"
#include "request.h"
#include "scheduler.h"

#include <pthread.h>

/* One row of the step whose logits are wanted: token `pos` of `seq`. */
struct logit_row {
    int row;
    int pos;
    struct sequence *seq;
};

/* Work on one row of logits: draw the next token of a choice, or (choice NULL) the log
 * probability of prompt token pos + 1. */
struct task {
    struct request_run *run;
    struct choice_run *choice;
    const float *logits; /* [n_vocab] of position pos */
    int pos;
    enum sampling_result result;
    int32_t token;
};

/* A struct engine_stats that one thread writes and any reads, whole: a sequence lock whose data
 * are atomics too (Boehm, "Can seqlocks get along with programming language memory models?"). */
enum { STATS_WORDS = (sizeof(struct engine_stats) + 7) / 8 };
struct stats_box {
    _Atomic unsigned version; /* odd: being written */
    _Atomic uint64_t words[STATS_WORDS];
};
void stats_write(struct stats_box *, const struct engine_stats *);
void stats_read(struct stats_box *, struct engine_stats *out);

struct engine {
    struct engine_config config;
    struct engine_info info;
    char backend_name[160];
    void (*wake)(void *arg);
    void *wake_arg;

    struct mailbox mail;
    pthread_t thread;
    bool thread_runs;
    _Atomic bool stop, dead;
    _Atomic bool reset_asked; /* empty the prefix cache */
    _Atomic uint64_t heartbeat; /* ns on CLOCK_MONOTONIC */
    struct stats_box stats_box;

    struct backend *backend;
    struct model *model;
    struct page_pool *pool;
    struct prefix_cache *cache;
    struct scheduler *scheduler;
    struct step_cost cost; /* of this engine's steps */

    struct list live;         /* of request_run.link: admitted, not ended */
    struct request_run *news; /* what this step changed, by next_news */
    uint64_t n_arrivals;
    struct err device_error;
    struct engine_stats counted; /* the counters that only grow */

    int max_pages;          /* page table stride of step_inputs */
    int max_logits;         /* logit rows of one pass */
    struct logit_row *rows; /* [max_num_batched_tokens] wanted in this step */
    int n_rows;
    struct task *tasks; /* [max_logits] */
    int n_tasks;
    _Atomic int next_task;
    int n_lanes;                       /* threads that work on tasks at once */
    struct sampling_scratch **scratch; /* [n_lanes] */
};

double engine_now(void); /* seconds on CLOCK_MONOTONIC */

/* --- engine_step.c; all on the engine thread --- */

/* One iteration: takes in mail, runs a step if there is one, publishes. False: nothing ran. */
bool engine_iterate(struct engine *);
/* Takes in what is in the inbox, ends everything as cancelled, publishes. */
void engine_end_all(struct engine *);

#endif
