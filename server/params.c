#include "params.h"

#include "json_in.h"
#include "params_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_stops(const json_t *body, struct gen_params *p, struct api_error *e)
{
    const json_t *v = field(body, "stop");
    if (!v)
        return true;
    if (!json_is_string(v) && !json_is_array(v))
        return api_fail(e, 400, "invalid_type", "stop",
                        "stop: expected a string or an array of strings, got %s", json_in_kind(v));
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n > STOP_MAX_STRINGS)
        return api_bad(e, "stop", "stop: at most %d strings, got %zu", STOP_MAX_STRINGS, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_string(s))
            return api_fail(e, 400, "invalid_type", "stop", "stop[%zu]: expected a string, got %s",
                            i, json_in_kind(s));
        if (json_string_length(s) > STOP_MAX_BYTES)
            return api_bad(e, "stop", "stop[%zu]: at most %d bytes, got %zu", i, STOP_MAX_BYTES,
                           json_string_length(s));
        if (!stop_set_add(&p->stops, json_string_value(s), json_string_length(s)))
            return api_fail_memory(e);
    }
    return true;
}

static bool has_id(const struct sampling_params *s, int32_t id)
{
    for (int i = 0; i < s->n_stop_ids; i++)
        if (s->stop_ids[i] == id)
            return true;
    return false;
}

static bool read_stop_ids(const json_t *body, const struct params_limits *lim,
                          struct sampling_params *s, struct api_error *e)
{
    const json_t *v = field(body, "stop_token_ids");
    if (!v)
        return true;
    if (!json_is_array(v))
        return api_fail(e, 400, "invalid_type", "stop_token_ids",
                        "stop_token_ids: expected an array of token ids, got %s", json_in_kind(v));
    for (size_t i = 0; i < json_array_size(v); i++) {
        int64_t id;
        if (!json_in_int(json_array_get(v, i), "stop_token_ids", 0, lim->n_vocab - 1, &id, e))
            return false;
        if (has_id(s, (int32_t)id))
            continue;
        if (s->n_stop_ids == SAMPLING_MAX_STOP_IDS)
            return api_bad(e, "stop_token_ids", "stop_token_ids: at most %d ids",
                           SAMPLING_MAX_STOP_IDS);
        s->stop_ids[s->n_stop_ids++] = (int32_t)id;
    }
    return true;
}

static int by_id(const void *a, const void *b)
{
    int32_t x = ((const struct logit_bias *)a)->id, y = ((const struct logit_bias *)b)->id;
    return (x > y) - (x < y);
}

/* A token id in decimal, without sign or leading zeros. */
static bool parse_id(const char *s, int n_vocab, int32_t *out)
{
    size_t n = strspn(s, "0123456789");
    if (n == 0 || n > 9 || s[n] || (n > 1 && s[0] == '0'))
        return false;
    *out = (int32_t)strtol(s, NULL, 10);
    return *out < n_vocab;
}

static bool read_bias(const json_t *body, const struct params_limits *lim, struct gen_params *p,
                      struct api_error *e)
{
    json_t *v = field(body, "logit_bias");
    if (!v)
        return true;
    if (!json_is_object(v))
        return api_fail(e, 400, "invalid_type", "logit_bias",
                        "logit_bias: expected an object of token ids and numbers, got %s",
                        json_in_kind(v));
    p->bias = calloc(json_object_size(v) + 1, sizeof *p->bias);
    if (!p->bias)
        return api_fail_memory(e);
    const char *key;
    json_t *value;
    json_object_foreach(v, key, value)
    {
        char name[64];
        snprintf(name, sizeof name, "logit_bias.%.40s", key);
        struct logit_bias *b = &p->bias[p->sampling.n_bias];
        if (!parse_id(key, lim->n_vocab, &b->id))
            return api_bad(e, name, "logit_bias: expected a token id from 0 to %d, got \"%.40s\"",
                           lim->n_vocab - 1, key);
        double d = 0;
        if (!field_number(v, key, -100, 100, &d, e))
            return api_bad(e, name, "logit_bias.%s: expected a number from -100 to 100", key);
        b->bias = (float)d;
        p->sampling.n_bias++;
    }
    qsort(p->bias, (size_t)p->sampling.n_bias, sizeof *p->bias, by_id);
    p->sampling.bias = p->bias;
    return true;
}

static bool read_sampling(const json_t *body, const struct generation_defaults *d,
                          struct gen_params *p, struct api_error *e)
{
    static const struct generation_defaults none = {0};
    struct sampling_params *s = &p->sampling;
    d = d ? d : &none;
    double temperature = d->has_temperature ? d->temperature : 1;
    double top_p = d->has_top_p ? d->top_p : 1, min_p = d->has_min_p ? d->min_p : 0;
    double repetition = d->has_repetition_penalty ? d->repetition_penalty : 1;
    double presence = 0, frequency = 0;
    int64_t top_k = d->has_top_k ? d->top_k : 0, seed = 0, min_tokens = 0;
    if (!field_number(body, "temperature", 0, 2, &temperature, e) ||
        !field_number(body, "top_p", 0, 1, &top_p, e) ||
        !field_number(body, "min_p", 0, 1, &min_p, e) ||
        !field_number(body, "presence_penalty", -2, 2, &presence, e) ||
        !field_number(body, "frequency_penalty", -2, 2, &frequency, e) ||
        !field_number(body, "repetition_penalty", 0.01, 100, &repetition, e) ||
        !field_int(body, "top_k", -1, INT32_MAX, &top_k, e) ||
        !field_int(body, "seed", INT64_MIN, INT64_MAX, &seed, e) ||
        !field_int(body, "min_tokens", 0, INT32_MAX, &min_tokens, e) ||
        !field_bool(body, "ignore_eos", &s->ignore_eos, e))
        return false;
    s->temperature = (float)temperature;
    s->top_p = top_p > 0 ? (float)top_p : 1;
    s->min_p = (float)min_p;
    s->presence_penalty = (float)presence;
    s->frequency_penalty = (float)frequency;
    s->repetition_penalty = (float)repetition;
    s->top_k = top_p > 0 ? (top_k < 0 ? 0 : (int)top_k) : 1; /* top_p 0: the best token only */
    s->min_tokens = (int)min_tokens;
    s->seed = (uint64_t)seed;
    p->has_seed = field(body, "seed") != NULL;
    return true;
}

static bool read_logprobs(const json_t *body, bool chat, struct gen_params *p, struct api_error *e)
{
    int64_t k = -1;
    if (!chat) {
        if (!field_int(body, "logprobs", 0, SAMPLING_MAX_TOP_LOGPROBS, &k, e))
            return false;
        p->logprobs = k >= 0;
    } else {
        if (!field_bool(body, "logprobs", &p->logprobs, e) ||
            !field_int(body, "top_logprobs", 0, SAMPLING_MAX_TOP_LOGPROBS, &k, e))
            return false;
        if (k > 0 && !p->logprobs)
            return api_bad(e, "top_logprobs", "top_logprobs needs logprobs: true");
    }
    p->n_top = k > 0 ? (int)k : 0;
    p->sampling.n_logprobs = p->logprobs ? p->n_top : p->n_shown < p->n ? 0 : -1;
    p->sampling.n_prompt_logprobs = p->echo && p->logprobs ? p->n_top : -1;
    return true;
}

/* max_tokens and max_completion_tokens: the smaller wins. */
static bool read_max_tokens(const json_t *body, bool chat, struct gen_params *p,
                            struct api_error *e)
{
    int64_t least = !chat && p->echo ? 0 : 1; /* 0: the prompt's own logprobs */
    int64_t a = -1, b = -1;
    if (!field_int(body, "max_tokens", least, INT32_MAX, &a, e) ||
        !field_int(body, "max_completion_tokens", least, INT32_MAX, &b, e))
        return false;
    p->max_tokens = a < 0 ? b : b < 0 ? a : a < b ? a : b;
    if (p->max_tokens < 0 && !chat)
        p->max_tokens = COMPLETIONS_MAX_TOKENS;
    if (p->max_tokens >= 0 && p->sampling.min_tokens > p->max_tokens)
        return api_bad(e, "min_tokens", "min_tokens: %d is more than max_tokens, %lld",
                       p->sampling.min_tokens, (long long)p->max_tokens);
    return true;
}

/* Requests share cached pages only under equal salts; 0 is none. */
static bool read_salt(const json_t *body, const struct params_limits *lim, struct gen_params *p,
                      struct api_error *e)
{
    const char *salt = NULL;
    if (!field_string(body, "cache_salt", &salt, e))
        return false;
    if (!salt)
        return true;
    size_t n = json_string_length(field(body, "cache_salt"));
    if (n == 0)
        return api_bad(e, "cache_salt", "cache_salt: expected a string that is not empty");
    if (n > CACHE_SALT_MAX_BYTES)
        return api_bad(e, "cache_salt", "cache_salt: at most %d bytes, got %zu",
                       CACHE_SALT_MAX_BYTES, n);
    p->cache_salt = cache_salts_number(lim->salts, salt, n);
    return p->cache_salt || api_fail_memory(e);
}

/* Lower ones are admitted first and preempted last. */
static bool read_priority(const json_t *body, struct gen_params *p, struct api_error *e)
{
    int64_t priority = 0;
    if (!field_int(body, "priority", INT32_MIN, INT32_MAX, &priority, e))
        return false;
    p->priority = (int)priority;
    return true;
}

static bool read_stream(const json_t *body, struct gen_params *p, struct api_error *e)
{
    if (!field_bool(body, "stream", &p->stream, e))
        return false;
    const json_t *o = field(body, "stream_options");
    if (!o)
        return true;
    if (!json_is_object(o))
        return api_fail(e, 400, "invalid_type", "stream_options",
                        "stream_options: expected an object, got %s", json_in_kind(o));
    if (!field_bool(o, "include_usage", &p->include_usage, e) ||
        !field_bool(o, "continuous_usage_stats", &p->continuous_usage, e)) {
        char name[64];
        snprintf(name, sizeof name, "stream_options.%.40s", e->param);
        snprintf(e->param, sizeof e->param, "%s", name);
        return false;
    }
    p->include_usage = p->include_usage && p->stream;
    p->continuous_usage = p->continuous_usage && p->include_usage;
    return true;
}

static bool read_n(const json_t *body, struct gen_params *p, struct api_error *e)
{
    int64_t n = 1, best_of = -1;
    if (!field_int(body, "n", 1, PARAMS_MAX_N, &n, e) ||
        !field_int(body, "best_of", 0, PARAMS_MAX_N, &best_of, e))
        return false;
    if (best_of > 0 && best_of < n)
        return api_bad(e, "best_of", "best_of: %lld is less than n, %lld", (long long)best_of,
                       (long long)n);
    p->n = (int)(best_of > 0 ? best_of : n);
    p->n_shown = (int)n;
    return true;
}

/* Which answers are the best is known when the last has ended. */
static bool check_best_of(const struct gen_params *p, struct api_error *e)
{
    return !p->stream || p->n_shown == p->n ||
           api_bad(e, "best_of",
                   "best_of: %d of %d answers cannot be streamed; expected n or no "
                   "stream",
                   p->n_shown, p->n);
}

bool gen_params_read(const json_t *body, bool chat, const struct params_limits *lim,
                     struct gen_params *p, struct api_error *e)
{
    bool skip_special = true;
    p->add_special_tokens = true;
    if (!chat && !field_bool(body, "echo", &p->echo, e))
        return false;
    if (!field_bool(body, "include_stop_str_in_output", &p->include_stop_str, e) ||
        !field_bool(body, "skip_special_tokens", &skip_special, e) ||
        !field_bool(body, "return_token_ids", &p->return_token_ids, e) ||
        !field_bool(body, "return_tokens_as_token_ids", &p->tokens_as_ids, e) ||
        !field_bool(body, "add_special_tokens", &p->add_special_tokens, e))
        return false;
    p->keep_special = !skip_special;
    return params_refuse(body, chat, e) && read_n(body, p, e) &&
           read_sampling(body, lim->defaults, p, e) && read_max_tokens(body, chat, p, e) &&
           read_logprobs(body, chat, p, e) && read_stops(body, p, e) &&
           read_stop_ids(body, lim, &p->sampling, e) && read_bias(body, lim, p, e) &&
           read_salt(body, lim, p, e) && read_priority(body, p, e) && read_stream(body, p, e) &&
           check_best_of(p, e);
}

void gen_params_free(struct gen_params *p)
{
    free(p->bias);
    stop_set_free(&p->stops);
    *p = (struct gen_params){0};
}
