/* sampling.h: from logits to a token.
 *
 * A pure function of (logits, parameters, history, seed, choice, position): random numbers
 * come from a counter-based generator keyed by (seed, choice, position, use), never from a
 * state, so batching and preemption cannot change a token (promise 1). The arithmetic is that
 * of sampling_math.h, whose sums have no order: a device that samples draws the same tokens.
 *
 * Order, as in vLLM: log probabilities are of the model's own logits. Then logit bias and the
 * mask of stop ids (min_tokens), repetition, frequency and presence penalties; temperature 0
 * takes the best of these. Else: temperature, min_p, top_k, top_p of what is left
 * (probabilities counted anew after each), and one draw. Among equal logits the lower id
 * comes first everywhere. */
#ifndef TOKEND_SAMPLING_H
#define TOKEND_SAMPLING_H

#include "err.h"
#include "sampling_math.h"

#include <stdbool.h>
#include <stdint.h>

enum { SAMPLING_MAX_STOP_IDS = 64 };

struct sampling_params {
    float temperature;                         /* 0 = greedy (ties: lowest id) */
    int top_k;                                 /* 0 = off */
    float top_p;                               /* 1 = off */
    float min_p;                               /* 0 = off */
    float presence_penalty, frequency_penalty; /* of generated tokens; 0 = off */
    float repetition_penalty;                  /* of prompt and generated tokens; 1 = off */
    uint64_t seed;
    int max_tokens;        /* to generate, >= 1 (0: only prompt logprobs) */
    int min_tokens;        /* stop ids are masked before */
    bool ignore_eos;       /* the model's end tokens do not end it (they may still be drawn) */
    int n_logprobs;        /* −1 = none; 0 = the token's own; k = and the k best; of the model's
                              distribution before penalties and temperature */
    int n_prompt_logprobs; /* the same for prompt tokens */
    const struct logit_bias *bias; /* [n_bias], ascending ids; owned by the request */
    int n_bias;
    int32_t stop_ids[SAMPLING_MAX_STOP_IDS];
    int n_stop_ids;
};

/* False and *e when a parameter is out of its range or an id out of the vocabulary. */
bool sampling_check(const struct sampling_params *, int n_vocab, struct err *e);

/* What penalties know of a choice's tokens: counts[id], as sampling_penalised takes it. */
bool sampling_wants_counts(const struct sampling_params *);
void sampling_count_prompt(uint16_t *counts, const int32_t *prompt, int n);
void sampling_count(uint16_t *counts, int32_t id);

/* Working memory of one thread. */
struct sampling_scratch;
struct sampling_scratch *sampling_scratch_new(int n_vocab);
uint64_t sampling_scratch_bytes(int n_vocab);
void sampling_scratch_free(struct sampling_scratch *); /* NULL is fine */

struct sampling_input {
    const float *logits; /* [n_vocab] */
    int n_vocab;
    const struct sampling_params *params;
    const uint16_t *counts; /* [n_vocab], or NULL when sampling_wants_counts says no */
    const int32_t *eos;     /* [n_eos] the model's end tokens */
    int n_eos;
    int n_generated; /* tokens that this choice has */
    int choice;      /* index among the request's choices */
    int position;    /* of the token to draw, in the sequence */
};

enum sampling_result sampling_draw(const struct sampling_input *, struct sampling_scratch *,
                                   int32_t *token);

/* *own = log probability of `id` under softmax(logits); tops[n_tops]: the best, in order.
 * False when the logits are not all finite. */
bool sampling_logprobs(const float *logits, int n_vocab, int32_t id, int n_tops, float *own,
                       struct top_logprob *tops);

#endif
