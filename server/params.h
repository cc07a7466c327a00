/* params.h: the fields of a completions or chat body that steer one generation.
 *
 * Strict where it matters, lenient where clients differ: a wrong type or value is a 400 that
 * names the field, null counts as absent, unknown fields are ignored. What a client would be
 * misled by if we ignored it (tools, response_format, …) is refused by name. Any thread. */
#ifndef TOKEND_PARAMS_H
#define TOKEND_PARAMS_H

#include "api_error.h"
#include "cache_salts.h"
#include "generation_defaults.h"
#include "sampling.h"
#include "stop_match.h"

enum {
    PARAMS_MAX_N = 128,          /* answers to one prompt */
    PARAMS_MAX_CHOICES = 1024,   /* prompts × n of one request */
    COMPLETIONS_MAX_TOKENS = 16, /* OpenAI's default of /v1/completions */
};

/* What the checks need to know of the model and the server. */
struct params_limits {
    int n_vocab;
    const struct generation_defaults *defaults; /* NULL: OpenAI's */
    struct cache_salts *salts;
};

struct gen_params {                  /* zeroed = empty; free with gen_params_free */
    struct sampling_params sampling; /* bias points to `bias` */
    struct logit_bias *bias;
    struct stop_set stops;
    int n;       /* answers that are made, and how many of these are sent: those of the best .. */
    int n_shown; /* .. mean log probability (best_of), else all */
    int64_t max_tokens; /* −1: as many as fit */
    bool has_seed;
    uint64_t cache_salt; /* 0: none */
    int priority;        /* lower runs first, as vLLM's */
    double target_itl;   /* seconds, of the header x-slo-tpot-ms; 0: the server's */
    bool stream, include_usage, continuous_usage;
    bool echo;     /* completions */
    bool logprobs; /* asked, in either form */
    int n_top;     /* alternatives a token */
    bool include_stop_str, keep_special, return_token_ids, tokens_as_ids;
    bool add_special_tokens; /* completions: what the model wants around a prompt */
};

bool gen_params_read(const json_t *body, bool chat, const struct params_limits *,
                     struct gen_params *out, struct api_error *e);
void gen_params_free(struct gen_params *);

#endif
