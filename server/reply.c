#include "reply.h"

#include "api_state.h"
#include "json_out.h"
#include "logprobs.h"

#include <math.h>

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
        json_add(&a, json_integer(ids[i]));
    return a;
}

static json_t *frame(const struct generation *g, const char *object)
{
    return json_pack("{s:s, s:s, s:I, s:s}", "id", g->id, "object", object, "created",
                     (json_int_t)g->created, "model", api_model_name(g->api));
}

static json_t *any_chunk_frame(const struct generation *g, json_t *choices)
{
    json_t *f = frame(g, g->chat ? "chat.completion.chunk" : "text_completion");
    return json_with(f, "choices", choices);
}

static json_t *chunk_frame(const struct generation *g, json_t *choice)
{
    json_t *choices = json_array();
    json_add(&choices, choice);
    json_t *f = any_chunk_frame(g, choices);
    return g->params.continuous_usage ? json_with(f, "usage", usage(g)) : f;
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

static json_t *with_token_ids(struct generation *g, int choice, json_t *item)
{
    struct choice_out *o = &g->choices[choice];
    const struct choice *c = generation_choice(g, choice);
    if (!g->params.return_token_ids)
        return item;
    int from = o->ids_listed;
    o->ids_listed = o->n_tokens;
    return json_with(item, "token_ids", id_array(c->tokens + from, o->n_tokens - from));
}

static json_t *with_prompt_ids(const struct generation *g, int choice, json_t *item)
{
    const struct request *r = generation_prompt(g, choice)->request;
    if (!g->params.return_token_ids)
        return item;
    return json_with(item, "prompt_token_ids", id_array(r->prompt, r->n_prompt));
}

json_t *reply_role_chunk(struct generation *g, int choice)
{
    json_t *f =
        chunk_frame(g, json_pack("{s:i, s:{s:s, s:s}, s:n, s:n}", "index", choice, "delta", "role",
                                 "assistant", "content", "", "logprobs", "finish_reason"));
    return with_prompt_ids(g, choice, f);
}

json_t *reply_chunk(struct generation *g, int choice)
{
    struct choice_out *o = &g->choices[choice];
    const char *finish = finish_name(o->finish);
    bool text = o->released > o->shown || (g->params.echo && !o->begun);
    json_t *logprobs = take_logprobs(g, choice), *item;
    logprobs_drop_prompt(generation_prompt(g, choice));
    if (!g->chat)
        item = json_pack("{s:i, s:o, s:o, s:s?}", "index", choice, "text", take_text(g, choice),
                         "logprobs", logprobs, "finish_reason", finish);
    else
        item = json_pack("{s:i, s:o, s:o, s:s?}", "index", choice, "delta",
                         text ? json_pack("{s:o}", "content", take_text(g, choice)) : json_object(),
                         "logprobs", logprobs, "finish_reason", finish);
    if (!g->chat && !o->begun)
        item = with_prompt_ids(g, choice, item);
    item = with_token_ids(g, choice, item);
    o->begun = true;
    return chunk_frame(g, item);
}

json_t *reply_usage_chunk(struct generation *g)
{
    json_t *f = any_chunk_frame(g, json_array());
    return json_with(f, "usage", usage(g));
}

static json_t *whole_choice(struct generation *g, int choice, int index)
{
    struct choice_out *o = &g->choices[choice];
    json_t *logprobs = take_logprobs(g, choice), *text = take_text(g, choice), *item;
    if (g->chat)
        item = json_pack("{s:i, s:{s:s, s:o, s:n}, s:o, s:s?}", "index", index, "message", "role",
                         "assistant", "content", text, "refusal", "logprobs", logprobs,
                         "finish_reason", finish_name(o->finish));
    else
        item = json_pack("{s:i, s:o, s:o, s:s?}", "index", index, "text", text, "logprobs",
                         logprobs, "finish_reason", finish_name(o->finish));
    if (!g->chat)
        item = with_prompt_ids(g, choice, item);
    return with_token_ids(g, choice, item);
}

/* An object's members behind what is already in an object. */
static void write_members(struct buf *out, json_t *object)
{
    size_t at = out->len;
    json_write(out, object);
    if (!out->failed)
        out->data[at] = ',';
}

/* What best_of chooses by, as OpenAI's: the mean of its tokens' log probabilities. */
static double mean_logprob(const struct generation *g, int choice)
{
    const struct choice *c = generation_choice(g, choice);
    const int n = g->choices[choice].n_tokens;
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += c->logprobs[i];
    return n ? sum / n : -INFINITY;
}

/* order = the prompt's choices as they are sent: those of the best mean first where some are not
 * shown, of equals the first one; else as they are. */
static void order_choices(const struct generation *g, int prompt, int order[PARAMS_MAX_N])
{
    const int n = g->params.n, first = prompt * n;
    double means[PARAMS_MAX_N];
    for (int i = 0; i < n; i++) {
        const double mean = g->params.n_shown < n ? mean_logprob(g, first + i) : 0;
        int at = i;
        for (; at > 0 && means[at - 1] < mean; at--) {
            means[at] = means[at - 1];
            order[at] = order[at - 1];
        }
        means[at] = mean;
        order[at] = first + i;
    }
}

static void write_choices(struct generation *g, int prompt, struct buf *out)
{
    int order[PARAMS_MAX_N];
    order_choices(g, prompt, order);
    for (int i = 0; i < g->params.n_shown && !out->failed; i++) {
        const int index = prompt * g->params.n_shown + i;
        buf_add_str(out, index ? "," : "");
        json_write(out, whole_choice(g, order[i], index));
    }
    logprobs_drop_prompt(&g->prompts[prompt]);
}

void reply_whole(struct generation *g, struct buf *out)
{
    json_write(out, frame(g, g->chat ? "chat.completion" : "text_completion"));
    if (out->failed)
        return;
    out->len--; /* it goes on */
    buf_add_str(out, ",\"choices\":[");
    for (int i = 0; i < g->n_prompts; i++)
        write_choices(g, i, out);
    buf_add_str(out, "]");
    json_t *f = json_pack("{s:o}", "usage", usage(g));
    write_members(out, g->chat ? with_prompt_ids(g, 0, f) : f);
}

/* Measured on a slow core (2 GHz): ns of making, formatting and freeing. */
enum { COST_CHOICE = 4000, COST_BYTE = 8, COST_ID = 120, COST_LOGPROB = 1000 };

/* Of the prompt's part, then of the tokens from those listed on. */
int64_t reply_chunk_cost(const struct generation *g, int choice)
{
    const struct gen_params *p = &g->params;
    const struct choice_out *o = &g->choices[choice];
    const struct gen_prompt *prompt = generation_prompt(g, choice);
    int64_t tokens = o->n_tokens - o->listed, ids = o->n_tokens - o->ids_listed;
    int64_t bytes = (int64_t)(o->released - o->shown);
    if (!o->begun) {
        ids += prompt->request->n_prompt;
        bytes += p->echo ? (int64_t)prompt->n_text : 0;
        tokens += p->echo ? prompt->request->n_prompt : 0;
    }
    return COST_CHOICE + COST_BYTE * bytes + (p->return_token_ids ? COST_ID * ids : 0) +
           (p->logprobs ? COST_LOGPROB * tokens * (p->n_top + 1) : 0);
}

int64_t reply_whole_cost(const struct generation *g)
{
    int64_t cost = 0;
    for (int i = 0; i < g->n_choices; i++)
        cost += reply_chunk_cost(g, i);
    return cost;
}
