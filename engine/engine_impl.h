/* engine_impl.h: the engine thread's own state, and what its files (engine*.c) share.
 *
 * Written by engine_open before the thread starts and by the thread afterwards; what other
 * threads read meanwhile is atomic (mail, stop, dead, reset_asked, heartbeat, stats) or never
 * changes (info, config). */
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

/* A step that the device was given and that has not finished. */
enum { MAX_STARTED = 2, COUNT_SLOT_BYTES = 64 << 20 };
struct started {
    struct choice_run **choices; /* [max_draws] whose token draw k is; NULL: it ended meanwhile */
    int n_draws;
    int n_tokens;
    struct step_work work;
    double begin;
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
    _Atomic bool reset_asked;   /* empty the prefix cache */
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

    /* steps ahead */
    int max_draws;                       /* of a step, by the device; 0: it draws nothing */
    struct draw *draws;                  /* [max_draws] of the step that is put together */
    struct started started[MAX_STARTED]; /* oldest first */
    int n_started;
    double finished; /* when the last step had run */
    int *free_slots; /* of the device's penalty counts */
    int n_free_slots;
};

double engine_now(void); /* seconds on CLOCK_MONOTONIC */

/* All that follows is called on the engine thread, but for opening and closing. */

/* --- engine_warm_up.c --- */

/* Runs the largest steps on a KV pool of n_pages, of which it makes use of so many. */
bool engine_warm_up(struct engine *, int n_pages, struct err *);
int engine_warm_up_pages(const struct engine *);

/* --- engine_step.c --- */

/* One iteration: takes in mail, runs a step if there is one, publishes. False: nothing ran. */
bool engine_iterate(struct engine *);
/* Takes in what is in the inbox, ends everything as cancelled, publishes. */
void engine_end_all(struct engine *);
/* Logit rows [first, first + n_logits) of e->rows are wanted in this pass. */
void engine_fill_inputs(struct engine *, const struct step_plan *, int first, int n_logits);
/* The prompt's pages are computed and committed: a choice that is not the leader goes on there. */
void engine_start_follower(struct engine *, struct choice_run *);

/* --- engine_tasks.c --- */

/* Marks it; after the step it is taken out of the scheduler and the loop is told. */
void engine_finish_choice(struct engine *, struct choice_run *, enum finish_reason);
void engine_finish_run(struct engine *, struct request_run *, enum finish_reason);
void engine_fail_run(struct engine *, struct request_run *, const struct err *why);
/* A draw that gave no token fails its request. */
void engine_fail_draw(struct engine *, struct request_run *, enum sampling_result);
/* The pass's logits: rows [first, first + n) of e->rows. */
void engine_take_logits(struct engine *, int first, int n);
/* The prompt is computed: choices that have not finished hereafter draw their first tokens. */
void engine_begin_choices(struct engine *, struct request_run *);
/* A choice's next token, which its sequence has already */
void engine_take_token(struct engine *, struct choice_run *, int32_t token);

/* --- engine_ahead.c --- */

bool engine_ahead_open(struct engine *, struct err *e);
void engine_ahead_close(struct engine *);
/* Whether the device can do all that e->rows are wanted for */
bool engine_can_start(const struct engine *);
/* Gives the plan to the device, with draws, and commits it. */
bool engine_start(struct engine *, const struct step_plan *, struct err *why);
/* Takes the results of the oldest steps until n_left are unfinished. */
bool engine_finish_until(struct engine *, int n_left, struct err *why);
/* What is still drawn for choices that have ended has no reader any more. */
void engine_forget_ended(struct engine *);
void engine_free_slot(struct engine *, struct choice_run *);

#endif
