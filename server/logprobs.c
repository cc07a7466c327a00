#include "logprobs.h"

#include "api_state.h"
#include "json_out.h"
#include "utf8.h"

#include <math.h>
#include <stdlib.h>

/* What JSON can hold; −9999 stands for minus infinity, as elsewhere. */
static json_t *number(float logprob)
{
    return json_real(logprob >= -9999.0f ? (double)logprob : -9999.0);
}

static json_t *label(const struct generation *g, int32_t id)
{
    struct buf text = {0};
    token_label(g->api->model.tokenizer, id, g->params.tokens_as_ids, &text);
    json_t *s = text.failed ? NULL : json_stringn(text.len ? text.data : "", text.len);
    buf_free(&text);
    return s;
}

static json_t *bytes_of(const struct generation *g, int32_t id)
{
    size_t n;
    const char *bytes = token_bytes(g->api->model.tokenizer, id, &n);
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++)
        json_add(&a, json_integer((unsigned char)bytes[i]));
    return a;
}

static json_t *chat_entry(const struct generation *g, int32_t id, float logprob)
{
    return json_pack("{s:o, s:o, s:o}", "token", label(g, id), "logprob", number(logprob), "bytes",
                     bytes_of(g, id));
}

json_t *logprobs_chat(struct generation *g, int choice, int to)
{
    struct choice_out *o = &g->choices[choice];
    const struct choice *c = generation_choice(g, choice);
    json_t *content = json_array();
    for (; o->listed < to; o->listed++) {
        int i = o->listed;
        json_t *entry = chat_entry(g, c->tokens[i], c->logprobs[i]);
        json_t *tops = json_array();
        for (int k = 0; k < g->params.n_top; k++) {
            const struct top_logprob *t = &c->tops[(size_t)i * (size_t)g->params.n_top + (size_t)k];
            json_add(&tops, chat_entry(g, t->id, t->logprob));
        }
        json_add(&content, json_with(entry, "top_logprobs", tops));
    }
    return json_pack("{s:o, s:n}", "content", content, "refusal");
}

/* The four parallel arrays of the completions API. */
struct lists {
    json_t *tokens, *logprobs, *tops, *offsets;
};

static json_t *with_top(const struct generation *g, json_t *object, int32_t id, float logprob)
{
    struct buf name = {0};
    token_label(g->api->model.tokenizer, id, g->params.tokens_as_ids, &name);
    const char *key = name.len ? name.data : "";
    if (name.failed) {
        json_decref(object);
        object = NULL;
    } else if (!json_object_get(object, key)) { /* of two that read alike the better one stays */
        object = json_with(object, key, number(logprob));
    }
    buf_free(&name);
    return object;
}

static void list_token(const struct generation *g, struct lists *l, int32_t id, float logprob,
                       const struct top_logprob *tops, size_t offset)
{
    json_add(&l->tokens, label(g, id));
    json_add(&l->offsets, json_integer((json_int_t)offset));
    if (isnan(logprob)) { /* the first token of a prompt has none */
        json_add(&l->logprobs, json_null());
        json_add(&l->tops, json_null());
        return;
    }
    json_add(&l->logprobs, number(logprob));
    json_t *top = json_object();
    for (int k = 0; tops && k < g->params.n_top; k++)
        top = with_top(g, top, tops[k].id, tops[k].logprob);
    top = with_top(g, top, id, logprob);
    json_add(&l->tops, top);
}

static void list_prompt(const struct generation *g, const struct gen_prompt *p, struct lists *l)
{
    const struct request *r = p->request;
    struct detokenizer d = {.at_start = true};
    struct buf text = {0};
    size_t offset = 0, counted = 0;
    for (int i = 0; i < r->n_prompt; i++) {
        if (text.len > counted)
            offset += utf8_count(text.data + counted, text.len - counted);
        counted = text.len;
        const struct top_logprob *tops =
            r->prompt_tops ? r->prompt_tops + (size_t)i * (size_t)g->params.n_top : NULL;
        float logprob = i > 0 && r->prompt_logprobs ? r->prompt_logprobs[i] : NAN;
        list_token(g, l, r->prompt[i], logprob, tops, offset);
        detokenize_add(&d, g->api->model.tokenizer, r->prompt[i], !g->params.keep_special, &text);
    }
    buf_free(&text);
}

/* Code points before token i of the choice's own text. */
static size_t offset_of(struct choice_out *o, int i)
{
    size_t at = o->extents[i].start < o->text.len ? o->extents[i].start : o->text.len;
    if (at > o->offset_at) {
        o->offset_chars += utf8_count(o->text.data + o->offset_at, at - o->offset_at);
        o->offset_at = at;
    }
    return o->offset_chars;
}

/* The arrays of a choice begin with those of its prompt; the elements are shared. */
static struct lists begin_lists(const struct generation *g, struct gen_prompt *p, bool echo)
{
    struct lists l = {json_array(), json_array(), json_array(), json_array()};
    if (!echo)
        return l;
    if (!p->listed) {
        struct lists all = {json_array(), json_array(), json_array(), json_array()};
        list_prompt(g, p, &all);
        p->listed = json_pack("[o, o, o, o]", all.tokens, all.logprobs, all.tops, all.offsets);
    }
    json_t **own[] = {&l.tokens, &l.logprobs, &l.tops, &l.offsets};
    for (size_t i = 0; i < 4; i++)
        if (json_array_extend(*own[i], json_array_get(p->listed, i)) != 0) {
            json_decref(*own[i]);
            *own[i] = NULL;
        }
    return l;
}

void logprobs_drop_prompt(struct gen_prompt *p)
{
    json_decref(p->listed);
    p->listed = NULL;
}

json_t *logprobs_completion(struct generation *g, int choice, int to)
{
    struct choice_out *o = &g->choices[choice];
    struct gen_prompt *p = generation_prompt(g, choice);
    const struct choice *c = generation_choice(g, choice);
    struct lists l = begin_lists(g, p, g->params.echo && !o->begun);
    size_t base = g->params.echo ? utf8_count(p->text, p->n_text) : 0;
    for (; o->listed < to; o->listed++) {
        int i = o->listed;
        const struct top_logprob *tops =
            c->tops ? c->tops + (size_t)i * (size_t)g->params.n_top : NULL;
        list_token(g, &l, c->tokens[i], c->logprobs[i], tops, base + offset_of(o, i));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", l.tokens, "token_logprobs", l.logprobs,
                     "top_logprobs", l.tops, "text_offset", l.offsets);
}
