/* request.h: what the engine keeps of a request, beside what it shares with the loop.
 *
 * Made by engine_submit on the submitter's thread, so that no later step allocates; owned by
 * the engine thread until the request's last publication; freed by request_free. The submitter
 * reads the prompt once: what each choice has of its own is left untouched until it starts. */
#ifndef TOKEND_REQUEST_H
#define TOKEND_REQUEST_H

#include "engine.h"
#include "sequence.h"

/* One choice. Its fields run ahead of the shared struct choice within a step; engine_publish
 * brings that up to date. */
struct choice_run {
    struct request_run *run;
    int index;
    struct sequence *seq;
    uint16_t *counts; /* [n_vocab] for penalties, or NULL; filled by the second draw, the first
                         has the prompt's */
    bool counts_own_tokens;
    int slot;        /* of the device's counts, -1: none */
    int n_counted;   /* generated tokens, pending ones too, that the slot has counted */
    bool started;    /* given to the scheduler */
    int n_generated; /* tokens that are known; the sequence has the prompt's too */
    enum finish_reason finish;
};

struct request_run {
    struct request *request;
    struct list_node link;         /* in the engine's list of live requests */
    struct request_run *next_news; /* in this step's list of those with news */
    bool has_news;
    bool has_bad_numbers;       /* a NaN or infinity: its pages may be to blame */
    int n_open;                 /* choices that have not finished */
    bool prompt_done;           /* choices have drawn their first tokens */
    int n_prompt_logprobs_done; /* leading entries of prompt_logprobs that are final */
    int n_choices;
    uint16_t *counts; /* [1 + n_choices][n_vocab] for penalties, or NULL: of the prompt
                         alone from prompt_done on, then each choice's */
    /* The first, the leader, computes the prompt; the rest fork from it. */
    struct choice_run choices[];
};

/* max_len: most tokens of a sequence. NULL: out of memory. */
struct request_run *request_run_new(struct request *, int n_vocab, int max_len, int block_size);
/* Of the leader when it is made; of the others before they start. */
void choice_take_prompt(struct choice_run *);
/* Before the choices' first draws. */
void request_run_count_prompt(struct request_run *, int n_vocab);
/* For the draw of the choice's next token; NULL when no parameter wants any. Draws of different
 * choices may ask at the same time. */
const uint16_t *choice_counts(struct choice_run *, int n_vocab);
void request_run_free(struct request_run *); /* NULL is fine */

#endif
