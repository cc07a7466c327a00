/* scheduler.h: which tokens of which sequences the next step computes.
 *
 * Iteration-level scheduling (Orca, OSDI 2022) over paged KV (vLLM, SOSP 2023) with one token
 * budget for everything: running sequences that lack one token (decode) get it first, the
 * rest of the budget goes to chunks of longer gaps (prefill), so a long prompt never stalls
 * running streams. Where these have an inter-token target and the cost of a step is known, prefill
 * gets only the time that the tightest target leaves (at least LEAST_PREFILL tokens). Knows pages
 * and tokens, not devices: tested by random histories alone.
 *
 * A step: scheduler_step picks rows and takes pages; the caller runs them on the device,
 * appends sampled tokens (sequence.tokens, n_tokens), then calls scheduler_commit, which
 * advances n_computed and enters full pages into the prefix cache.
 *
 * Pages of a finished sequence are reusable at once, so from scheduler_step until the device
 * has been given its plan nothing may be finished. Between that and scheduler_commit
 * scheduler_finish may be called for any sequence (cancelled, ended): its row's `seq` becomes
 * NULL, and commit skips it. Tokens are appended by the caller, at most to max_tokens, any
 * time except while inputs are made of the plan.
 *
 * Steps may run ahead: the caller gives a plan to the device, appends the tokens that it will draw
 * as pending ones, commits, and plans the next step while the device works. "Computed" then means:
 * will be when whatever is given to the device now runs, since the device keeps the order. So a
 * page that goes to another sequence, or into the cache, is read and written in time. A page is
 * entered into the cache when its tokens are known: at commit, or when scheduler_settle tells the
 * last of them. When a step is planned a sequence has one pending token at most. One whose last
 * possible token is pending (n_tokens = max_tokens) is held: never planned, as nobody wants what
 * comes after it.
 *
 * Admission looks the prompt up in the prefix cache (at most n_tokens − 1 tokens, since the
 * last one must produce logits) and asks for the pages of its chunk only, leaving one page for
 * each running sequence that can still grow, so that the newcomer is not preempted at once;
 * one that was preempted comes back when all its known tokens fit. The cache is consulted
 * again before each chunk. A sequence whose next page another sequence computes in this step
 * (equal tokens, parent, key) waits for that page instead of computing it too.
 * Pages are taken where memory is touched already: free ones that were used before; then, while
 * more than max_cached_pages are cached, the cached one used longest ago; then one never used.
 * Out of these: reclaim cached pages, then preempt the lowest-priority, youngest running
 * sequence below the one in need: it drops its pages and returns to the head of the queue, to
 * recompute. (Swapping to host memory will be decided at the same place.) One without anybody
 * below it computes what it has pages for, or waits. The first of the running sequences, by
 * (priority, arrival), progresses in every step.
 * Equal histories give equal plans.
 * Owned and called by the engine thread only; no allocation after scheduler_open. */
#ifndef TOKEND_SCHEDULER_H
#define TOKEND_SCHEDULER_H

#include "sequence.h"
#include "step_cost.h"

struct scheduler;

struct scheduler_config {
    int block_size;
    int max_seqs;        /* sequences running at once */
    int max_step_tokens; /* token budget of a step, >= max_seqs */
    bool prefix_caching;
    int max_cached_pages;         /* cached pages that are kept before pages never used are taken */
    const struct step_cost *cost; /* read at every step; NULL: targets are ignored */
};
enum { LEAST_PREFILL = 16 }; /* tokens of prefill that a step takes whatever the target */

struct scheduled {
    struct sequence *seq; /* NULL once it was finished within the step */
    int start, n;         /* computes tokens [start, start + n); start = seq->n_computed */
    bool wants_logits;    /* start + n == seq->n_tokens */
};
struct page_copy { /* to be done before the step's rows are computed; src stays referenced until
                      commit */
    int32_t src, dst;
};
struct step_plan {
    const struct scheduled *rows; /* decode rows first; each sequence once */
    int n;
    int n_tokens;
    struct step_work work;
    const struct page_copy *copies; /* copy-on-write of shared, partly filled pages */
    int n_copies;
};

struct scheduler_stats { /* counters only grow */
    int n_waiting, n_running;
    uint64_t preemptions;
    uint64_t limited_steps;                            /* whose prefill a target made shorter */
    uint64_t prefix_queried_tokens, prefix_hit_tokens; /* until a sequence is first preempted */
    uint64_t slots_in_use, slots_written; /* KV slots of pages in use; a shared page counted once */
};

struct scheduler *scheduler_open(const struct scheduler_config *, struct page_pool *,
                                 struct prefix_cache *, struct err *e);
/* NULL is fine. Sequences still in it must be finished first. */
void scheduler_free(struct scheduler *);

/* Queues a new sequence by (priority, arrival). It must fit: its max_tokens need no more pages
 * than the pool has (the caller refuses others up front). */
void scheduler_add(struct scheduler *, struct sequence *);
/* A running `parent` whose prompt is computed gets a twin that shares all its pages: `child`
 * (SEQ_NEW, same key, same tokens up to parent's n_computed, all of them known, possibly its own
 * next token) runs
 * from parent's n_computed on; the first write to the shared, partly filled page copies it.
 * When no place is left among max_seqs, or the parent does not run any more, the child is
 * queued instead and finds the pages through the cache. Only between a commit and the next
 * step, and before the parent is finished. */
void scheduler_fork(struct scheduler *, struct sequence *parent, struct sequence *child);
/* The value of the sequence's first pending token. Any time. */
void scheduler_settle(struct scheduler *, struct sequence *, int32_t token);
/* Takes the sequence out in any state and releases its pages, tail first. Idempotent. */
void scheduler_finish(struct scheduler *, struct sequence *);
/* Takes what a sequence computed out of the prefix cache, for one whose numbers went bad: its
 * first page and all below. The sequence itself goes on, or is finished next. */
void scheduler_forget(struct scheduler *, struct sequence *);

/* The next step's rows; n = 0 when nothing can run. Valid until the next call. A plan with
 * rows must be committed before the next one is asked for. */
const struct step_plan *scheduler_step(struct scheduler *);
/* After the step ran. */
void scheduler_commit(struct scheduler *);

/* The slots are those between a commit and the next step. */
struct scheduler_stats scheduler_get_stats(const struct scheduler *);
/* Recounts references of all sequences against the pool; aborts on a difference. */
void scheduler_check(const struct scheduler *);

#endif
