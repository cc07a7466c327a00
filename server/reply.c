#include "reply.h"

#include "api_state.h"
#include "logprobs.h"

static const char *finish_name(enum finish_reason r)
{
    switch (r) {
    case FINISH_STOP:
        return "stop";
    case FINISH_LENGTH:
        return "length";
    default:
        return NULL;
    }
}

static json_t *usage(const struct generation *g)
{
    json_int_t prompt = 0, completion = 0, cached = 0;
    for (int i = 0; i < g->n_prompts; i++) {
        prompt += g->prompts[i].request->n_prompt;
        cached += atomic_load_explicit(&g->prompts[i].request->n_cached, memory_order_acquire);
    }
    for (int i = 0; i < g->n_choices; i++)
        completion += g->choices[i].n_tokens;
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", prompt, "completion_tokens",
                     completion, "total_tokens", prompt + completion, "prompt_tokens_details",
                     "cached_tokens", cached);
}

static json_t *id_array(const int32_t *ids, int n)
{
    json_t *a = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(a, json_integer(ids[i]));
    return a;
}

static json_t *frame(const struct generation *g, const char *object, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", g->id, "object", object, "created",
                     (json_int_t)g->created, "model", api_model_name(g->api), "choices", choices);
}

static json_t *chunk_frame(const struct generation *g, json_t *choice)
{
    json_t *choices = json_array();
    if (choice && json_array_append_new(choices, choice) < 0)
        choice = NULL;
    json_t *f = frame(g, g->chat ? "chat.completion.chunk" : "text_completion", choices);
    if (f && g->params.continuous_usage)
        json_object_set_new(f, "usage", usage(g));
    return f;
}

/* The text not shown yet, after the echoed prompt when this is the choice's first. */
static json_t *take_text(struct generation *g, int choice)
{
    struct choice_out *o = &g->choices[choice];
    const struct gen_prompt *p = generation_prompt(g, choice);
    const char *from = o->text.data ? o->text.data + o->shown : "";
    size_t n = o->released - o->shown;
    o->shown = o->released;
    if (!g->params.echo || o->begun)
        return json_stringn(from, n);
    struct buf both = {0};
    buf_add(&both, p->text, p->n_text);
    buf_add(&both, from, n);
    json_t *s = both.failed ? NULL : json_stringn(both.len ? both.data : "", both.len);
    buf_free(&both);
    return s;
}

static json_t *take_logprobs(struct generation *g, int choice)
{
    if (!g->params.logprobs)
        return json_null();
    int to = choice_out_listable(&g->choices[choice], &g->params);
    return (g->chat ? logprobs_chat : logprobs_completion)(g, choice, to);
}

static void add_token_ids(struct generation *g, int choice, json_t *item)
{
    struct choice_out *o = &g->choices[choice];
    const struct choice *c = generation_choice(g, choice);
    if (!g->params.return_token_ids || !item)
        return;
    json_object_set_new(item, "token_ids",
                        id_array(c->tokens + o->ids_listed, o->n_tokens - o->ids_listed));
    o->ids_listed = o->n_tokens;
}

static void add_prompt_ids(const struct generation *g, int choice, json_t *item)
{
    const struct request *r = generation_prompt(g, choice)->request;
    if (g->params.return_token_ids && item)
        json_object_set_new(item, "prompt_token_ids", id_array(r->prompt, r->n_prompt));
}

json_t *reply_role_chunk(struct generation *g, int choice)
{
    json_t *f =
        chunk_frame(g, json_pack("{s:i, s:{s:s, s:s}, s:n, s:n}", "index", choice, "delta", "role",
                                 "assistant", "content", "", "logprobs", "finish_reason"));
    add_prompt_ids(g, choice, f);
    return f;
}

json_t *reply_chunk(struct generation *g, int choice)
{
    struct choice_out *o = &g->choices[choice];
    const char *finish = finish_name(o->finish);
    bool text = o->released > o->shown || (g->params.echo && !o->begun);
    json_t *logprobs = take_logprobs(g, choice), *item;
    if (!g->chat)
        item = json_pack("{s:i, s:o, s:o, s:s?}", "index", choice, "text", take_text(g, choice),
                         "logprobs", logprobs, "finish_reason", finish);
    else
        item = json_pack("{s:i, s:o, s:o, s:s?}", "index", choice, "delta",
                         text ? json_pack("{s:o}", "content", take_text(g, choice)) : json_object(),
                         "logprobs", logprobs, "finish_reason", finish);
    if (!g->chat && !o->begun)
        add_prompt_ids(g, choice, item);
    add_token_ids(g, choice, item);
    o->begun = true;
    return chunk_frame(g, item);
}

json_t *reply_usage_chunk(struct generation *g)
{
    json_t *f = frame(g, g->chat ? "chat.completion.chunk" : "text_completion", json_array());
    if (f)
        json_object_set_new(f, "usage", usage(g));
    return f;
}

static json_t *whole_choice(struct generation *g, int choice)
{
    struct choice_out *o = &g->choices[choice];
    json_t *logprobs = take_logprobs(g, choice), *text = take_text(g, choice), *item;
    if (g->chat)
        item = json_pack("{s:i, s:{s:s, s:o, s:n}, s:o, s:s?}", "index", choice, "message", "role",
                         "assistant", "content", text, "refusal", "logprobs", logprobs,
                         "finish_reason", finish_name(o->finish));
    else
        item = json_pack("{s:i, s:o, s:o, s:s?}", "index", choice, "text", text, "logprobs",
                         logprobs, "finish_reason", finish_name(o->finish));
    if (!g->chat)
        add_prompt_ids(g, choice, item);
    add_token_ids(g, choice, item);
    return item;
}

json_t *reply_whole(struct generation *g)
{
    json_t *choices = json_array();
    for (int i = 0; i < g->n_choices; i++)
        if (json_array_append_new(choices, whole_choice(g, i)) < 0) {
            json_decref(choices);
            return NULL;
        }
    json_t *f = frame(g, g->chat ? "chat.completion" : "text_completion", choices);
    if (f)
        json_object_set_new(f, "usage", usage(g));
    if (g->chat)
        add_prompt_ids(g, 0, f);
    return f;
}
