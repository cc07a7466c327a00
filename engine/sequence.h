/* sequence.h: one growing run of tokens, the scheduler's unit.
 *
 * There is no prefill state and no decode state: a sequence has n_tokens known and
 * n_computed of them in the KV cache, and a step computes some of the gap. A row's logits
 * are wanted when the step computes the last token.
 * Where steps run ahead of their results, the last tokens of a sequence are *pending*: drawn by a
 * step that has not finished, so that only the device knows them. They are counted and computed
 * like others, but nothing is looked up or cached by them.
 * Owned by the engine thread. Made by sequence_new when a request arrives (its arrays are as
 * large as the request can become, so that later steps allocate nothing), freed by
 * sequence_free when the request has ended. */
#ifndef TOKEND_SEQUENCE_H
#define TOKEND_SEQUENCE_H

#include "list.h"
#include "prefix_cache.h"

enum seq_state {
    SEQ_NEW,     /* not given to the scheduler */
    SEQ_WAITING, /* holds no pages; in the queue */
    SEQ_RUNNING, /* holds pages; part of steps */
    SEQ_DONE,    /* left the scheduler, holds no pages */
};

struct sequence {
    enum seq_state state; /* changed by sequence_set_state only, which aborts on illegal moves */
    int priority;         /* lower runs first, as vLLM's */
    uint64_t arrival;     /* order among equals, by the caller; kept over preemptions */
    uint64_t serial;      /* the scheduler's: order of adding, among equal arrivals */
    struct prefix_key key;
    double target_itl;     /* seconds that its tokens should be apart at most; 0: no wish */
    bool skip_cache_reads; /* wants logits of prompt rows */

    int32_t *tokens; /* [max_tokens] prompt, then what was sampled */
    int n_prompt;
    int n_tokens;
    int n_pending;  /* the last of these: their values are -1 - (the number of their draw) */
    int max_tokens; /* never grows beyond */
    int n_computed; /* of them in the KV cache */
    int n_cached;   /* prompt tokens that it did not compute itself but found in the prefix cache,
                       for `usage`; -1 before the first admission, final when the prompt is computed
                     */

    int32_t *pages; /* [max_pages] page table: logical to physical */
    int max_pages;  /* for max_tokens tokens */
    int n_pages;
    int n_entered;    /* leading full pages that have a node in the prefix cache */
    prefix_node node; /* node of the last of these, PREFIX_ROOT at first */
    int n_preemptions;
    bool blocked_on_prefix; /* last step: waits for a page that another sequence is computing */

    int row; /* in the plan of the step that is under way, -1: none */

    struct list_node link; /* in the scheduler's waiting or running list */
    void *owner;           /* the engine's choice record */
};

/* Zeroed but for sizes, adapter and node; the caller fills tokens, n_prompt, n_tokens, priority,
 * arrival, key. NULL: out of memory. */
struct sequence *sequence_new(int max_tokens, int block_size);
void sequence_free(struct sequence *); /* NULL is fine; must hold no pages */
/* Tokens whose values are there */
static inline int sequence_n_known(const struct sequence *s)
{
    return s->n_tokens - s->n_pending;
}
/* The next token will be what draw `draw` of the step gives. */
void sequence_append_pending(struct sequence *, int draw);
void sequence_set_state(struct sequence *, enum seq_state);

#endif
