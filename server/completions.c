/* POST /v1/completions and /v1/chat/completions: from the body to a generation. */
#include "completions.h"
#include "api_state.h"
#include "log.h"
#include "params_fields.h"
#include "reply_limit.h"

#include <stdlib.h>

static bool read_prompts(struct call *c, const json_t *body)
{
    struct gen_input *in = &c->input;
    struct prompt_options o = {
        .add_special_tokens = in->params.add_special_tokens,
        .keep_text = in->params.echo,
        .keep_special = in->params.keep_special,
        .max_prompts = (size_t)(PARAMS_MAX_CHOICES / in->params.n),
    };
    if (!in->chat)
        return prompts_from_completion(&c->api->model, body, &o, &in->prompts, &c->error);
    in->prompts.items = calloc(1, sizeof *in->prompts.items);
    if (!in->prompts.items)
        return api_fail_memory(&c->error);
    in->prompts.n = 1;
    return prompt_from_chat(&c->api->model, body, &in->prompts.items[0].tokens, &c->error);
}

/* Prompt and answer must fit the context; by default the answer may have what is left. */
static bool fit_context(struct call *c)
{
    struct gen_params *p = &c->input.params;
    int64_t limit = c->api->model.max_model_len, longest = 0;
    for (size_t i = 0; i < c->input.prompts.n; i++)
        if ((int64_t)c->input.prompts.items[i].tokens.n > longest)
            longest = (int64_t)c->input.prompts.items[i].tokens.n;
    int64_t answer = p->max_tokens < 0 ? 1 : p->max_tokens;
    if (longest + answer > limit) {
        c->error.n_prompt_tokens = longest;
        c->error.n_ctx = limit;
        return api_fail(&c->error, 400, "context_length_exceeded",
                        c->input.chat ? "messages" : "prompt",
                        "This model's maximum context length is %lld tokens. However, you "
                        "requested %lld tokens (%lld in the %s, %lld in the completion). Please "
                        "reduce the length of the %s or completion.",
                        (long long)limit, (long long)(longest + answer), (long long)longest,
                        c->input.chat ? "messages" : "prompt", (long long)answer,
                        c->input.chat ? "messages" : "prompt");
    }
    if (p->max_tokens < 0 && p->sampling.min_tokens > limit - longest)
        return api_bad(&c->error, "min_tokens", "min_tokens: %d is more than the %lld that fit",
                       p->sampling.min_tokens, (long long)(limit - longest));
    return true;
}

bool completions_read(struct call *c, bool chat)
{
    json_t *body = call_parse(c);
    if (!body)
        return false;
    struct params_limits limits = {
        .n_vocab = c->api->model.n_vocab, .defaults = &c->api->defaults, .salts = c->api->salts};
    char unknown[200];
    c->input.chat = chat;
    params_unknown(body, unknown, sizeof unknown);
    if (unknown[0])
        log_debug("a request's unknown fields are ignored: %s", unknown);
    bool ok =
        gen_params_read(body, chat, &limits, &c->input.params, &c->error) && read_prompts(c, body);
    json_decref(body);
    return ok;
}

static bool read_and_fit(struct call *c, bool chat)
{
    return completions_read(c, chat) && fit_context(c) &&
           reply_limit_check(&c->input, c->api->model.max_model_len, &c->error);
}

static bool run_completion(struct call *c)
{
    return read_and_fit(c, false);
}

static bool run_chat(struct call *c)
{
    return read_and_fit(c, true);
}

/* What the client says of the time between its tokens; *seconds = 0: nothing. */
static bool read_target(const struct http_request *http, double *seconds, struct api_error *e)
{
    const char *text = http_header(http, "x-slo-tpot-ms");
    char *end;
    *seconds = 0;
    if (!text)
        return true;
    const bool plain = *text && strspn(text, "0123456789.") == strlen(text);
    const double ms = plain ? strtod(text, &end) : 0;
    if (!plain || *end || !(ms > 0 && ms <= 3600000))
        return api_fail(e, 400, "invalid_value", "x-slo-tpot-ms",
                        "The header x-slo-tpot-ms: expected milliseconds between two tokens, "
                        "above 0 and at most 3600000");
    *seconds = ms / 1000;
    return true;
}

/* Only now it is known how many sequences the request has. */
static void start(struct call *c)
{
    struct api_error e = {0};
    c->api->n_sequences -= c->n_sequences;
    c->n_sequences = 0;
    c->input.params.target_itl = c->target_itl;
    if (api_has_room(c->api, (int64_t)c->input.prompts.n * c->input.params.n, &e))
        generation_start(c->api, c->http, &c->input, c->t_arrival);
    else
        api_error_reply(c->http, &e);
}

/* A full queue is told before the body costs anything. */
static void handle(struct api *api, struct http_request *http, bool (*work)(struct call *))
{
    struct api_error e = {0};
    double target;
    if (!api_healthy(api, &e) || !api_has_room(api, 1, &e) || !read_target(http, &target, &e)) {
        api_error_reply(http, &e);
        return;
    }
    struct call *c = call_start(api, http, 1, work, start);
    if (c)
        c->target_itl = target;
}

void completions_handle(struct http_request *http, void *api)
{
    handle(api, http, run_completion);
}

void chat_handle(struct http_request *http, void *api)
{
    handle(api, http, run_chat);
}
