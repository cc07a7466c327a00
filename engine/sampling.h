/* sampling.h: from logits to a token.
 *
 * A pure function of (logits, parameters, history, seed, choice, position): random numbers
 * come from a counter-based generator (Philox4x32-10, Salmon et al. 2011) keyed by
 * (seed, choice, position, use), never from a state, so batching and preemption cannot
 * change a token (promise 1). */
#ifndef TOKEND_SAMPLING_H
#define TOKEND_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

enum { SAMPLING_MAX_TOP_LOGPROBS = 20, SAMPLING_MAX_STOP_IDS = 64 };

struct logit_bias {
    int32_t id;
    float bias;
};

struct sampling_params {
    float temperature; /* 0 = greedy (ties: lowest id) */
    int top_k;         /* 0 = off */
    float top_p;       /* 1 = off */
    float min_p;       /* 0 = off */
    float presence_penalty, frequency_penalty; /* of generated tokens; 0 = off */
    float repetition_penalty;                  /* of prompt and generated tokens; 1 = off */
    uint64_t seed;
    int max_tokens; /* to generate, >= 1 (0: only prompt logprobs) */
    int min_tokens; /* stop ids are masked before */
    bool ignore_eos;
    int n_logprobs; /* −1 = none; 0 = the token's own; k = and the k best; of the model's
                       distribution before penalties and temperature */
    int n_prompt_logprobs; /* the same for prompt tokens */
    const struct logit_bias *bias; /* [n_bias], ascending ids; owned by the request */
    int n_bias;
    int32_t stop_ids[SAMPLING_MAX_STOP_IDS];
    int n_stop_ids;
};

#endif
