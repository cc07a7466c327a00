#include "generation.h"

#include "api_state.h"
#include "logprobs.h"
#include "reply.h"
#include "sse.h"
#include "text_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What one event, and all of a turn of the loop, may cost the loop in ns; more is a worker's.
 * It keeps the other streams' tokens from waiting behind this one's. */
enum { EVENT_COST = 200 * 1000, TURN_COST = 1000 * 1000 };

void gen_input_free(struct gen_input *in)
{
    gen_params_free(&in->params);
    prompt_list_free(&in->prompts);
}

struct gen_prompt *generation_prompt(const struct generation *g, int choice)
{
    return &g->prompts[choice / g->params.n];
}

struct choice *generation_choice(const struct generation *g, int choice)
{
    return &generation_prompt(g, choice)->request->choices[choice % g->params.n];
}

static void free_if_done(struct generation *g)
{
    if (g->busy > 0 || g->n_with_engine > 0 || g->http)
        return;
    for (int i = 0; i < g->n_prompts; i++) {
        request_free(g->prompts[i].request);
        free(g->prompts[i].text);
        logprobs_drop_prompt(&g->prompts[i]);
    }
    for (int i = 0; g->choices && i < g->n_choices; i++)
        choice_out_free(&g->choices[i]);
    list_remove(&g->node);
    g->api->n_generations--;
    gen_params_free(&g->params);
    buf_free(&g->reply);
    buf_free(&g->events);
    free(g->choices);
    free(g->prompts);
    free(g);
}

static void cancel_rest(struct generation *g)
{
    for (int i = 0; i < g->n_prompts; i++)
        if (g->prompts[i].with_engine && g->api->engine)
            engine_cancel(g->api->engine, g->prompts[i].request);
}

/* An error inside a stream is an event and the end, or, without memory for that, a cut. */
static void fail_stream(struct generation *g, const struct api_error *e)
{
    struct buf *out = &g->api->scratch;
    buf_clear(out);
    if (!sse_add(out, api_error_json(e)) || !sse_add_done(out))
        http_stream_abort(g->http);
    else if (http_stream_write(g->http, out->data, out->len))
        http_stream_end(g->http);
}

void generation_fail(struct generation *g, const struct api_error *e)
{
    if (g->over)
        return;
    g->busy++;
    g->over = true;
    cancel_rest(g);
    if (g->http && g->streaming)
        fail_stream(g, e);
    else if (g->http)
        api_error_reply(g->http, e);
    g->busy--;
    free_if_done(g);
}

static void fail_memory(struct generation *g)
{
    struct api_error e = {0};
    api_fail_memory(&e);
    generation_fail(g, &e);
}

/* The engine ended the request with an error, or by itself as cancelled (it is closing). */
static void fail_request(struct generation *g, const struct request *r)
{
    struct api_error e = {0};
    if (r->error.code == ERR_NONE)
        api_fail(&e, 503, "draining", NULL, "the server is shutting down");
    else if (strncmp(r->error.msg, "numerical_error", 15) == 0)
        api_fail(&e, 500, "numerical_error", NULL,
                 "the model's logits contain NaN or infinity for this prompt");
    else if (r->error.code == ERR_INVALID)
        api_fail(&e, 400, "invalid_value", NULL, "%s", r->error.msg);
    else if (r->error.code == ERR_MEMORY || r->error.code == ERR_LIMIT)
        api_fail(&e, 503, "out_of_memory", NULL, "%s", r->error.msg);
    else
        api_fail(&e, 500, "internal_error", NULL, "%s", r->error.msg);
    generation_fail(g, &e);
}

static void write_reply(uv_work_t *work)
{
    struct generation *g = work->data;
    text_pool_enter();
    reply_whole(g, &g->reply);
}

static void send_reply(struct generation *g)
{
    if (g->reply.failed) {
        api_reply_json(g->http, NULL);
        return;
    }
    http_reply_owned(g->http, 200, "application/json", g->reply.data, g->reply.len);
    g->reply = (struct buf){0};
}

static void on_reply_written(uv_work_t *work, int status)
{
    struct generation *g = work->data;
    if (g->http)
        send_reply(g);
    g->busy--;
    free_if_done(g);
}

static void start_work(struct generation *g, uv_work_cb work, uv_after_work_cb done)
{
    g->busy++;
    g->work.data = g;
    if (uv_queue_work(g->api->loop, &g->work, work, done) != 0)
        abort(); /* only for a NULL callback */
}

/* Nothing changes a generation that is over, so a worker may read it. */
static void reply_now_or_later(struct generation *g)
{
    if (reply_whole_cost(g) > EVENT_COST) {
        start_work(g, write_reply, on_reply_written);
        return;
    }
    reply_whole(g, &g->reply);
    send_reply(g);
}

static void end_stream(struct generation *g)
{
    struct buf *out = &g->api->scratch;
    buf_clear(out);
    if ((g->params.include_usage && !sse_add(out, reply_usage_chunk(g))) || !sse_add_done(out))
        fail_memory(g);
    else if (http_stream_write(g->http, out->data, out->len))
        http_stream_end(g->http);
    g->over = true;
}

static void complete_if_all_ended(struct generation *g)
{
    if (g->over || g->waiting || g->n_open > 0)
        return;
    if (g->streaming) {
        end_stream(g);
        return;
    }
    g->over = true;
    reply_now_or_later(g);
}

/* Appends the events of what is new of a choice. */
static bool format_news(struct generation *g, int choice, struct buf *out)
{
    if (g->chat && !g->choices[choice].begun && !sse_add(out, reply_role_chunk(g, choice)))
        return false;
    return sse_add(out, reply_chunk(g, choice));
}

static void send_news(struct generation *g, bool formatted, const struct buf *events)
{
    if (!formatted) {
        fail_memory(g);
    } else if (!http_stream_write(g->http, events->data, events->len)) {
        g->over = true; /* the reader is gone: on_http_done follows */
        cancel_rest(g);
    }
}

static void write_news(uv_work_t *work)
{
    struct generation *g = work->data;
    text_pool_enter();
    g->events.failed = !format_news(g, g->next, &g->events);
}

static void go_on(struct generation *g);

static void on_news_written(uv_work_t *work, int status)
{
    struct generation *g = work->data;
    if (!g->over)
        send_news(g, !g->events.failed, &g->events);
    buf_free(&g->events);
    g->turn = 0;
    go_on(g);
    g->busy--;
    free_if_done(g);
}

/* Whether the loop has the time for an event now. */
static bool can_afford(struct generation *g, int64_t cost)
{
    uint64_t turn = uv_now(g->api->loop);
    if (turn != g->turn)
        g->spent = 0;
    g->turn = turn;
    g->spent += cost;
    return cost <= EVENT_COST && g->spent <= TURN_COST;
}

static void stream_choice(struct generation *g, int choice)
{
    const struct choice_out *o = &g->choices[choice];
    bool news = o->released > o->shown || o->finish != FINISH_NONE || (g->params.echo && !o->begun);
    if (!g->streaming || !news)
        return;
    if (can_afford(g, reply_chunk_cost(g, choice))) {
        buf_clear(&g->api->scratch);
        bool formatted = format_news(g, choice, &g->api->scratch);
        send_news(g, formatted, &g->api->scratch);
        return;
    }
    g->waiting = true; /* the worker has the choices */
    g->next = choice;
    start_work(g, write_news, on_news_written);
}

/* One choice's text has moved on: tell the client, and the engine when it is to stop. */
static void choice_moved(struct generation *g, int choice, int engine_finish)
{
    const struct choice_out *o = &g->choices[choice];
    if (o->failed) {
        fail_memory(g);
        return;
    }
    if (o->finish != FINISH_NONE) {
        g->n_open--;
        if (engine_finish == FINISH_NONE && g->api->engine)
            engine_stop_choice(g->api->engine, generation_prompt(g, choice)->request,
                               choice % g->params.n);
    }
    stream_choice(g, choice);
}

/* Whether a next token can be taken from the engine's request. */
static bool has_room(struct generation *g)
{
    if (g->streaming && !g->over && !g->waiting)
        g->waiting = !http_stream_has_room(g->http);
    return !g->over && !g->waiting;
}

/* Reads what the engine has published of one choice, one event a token. `finish` is read
 * first: once it is set, the number of tokens is final. */
static void take_choice(struct generation *g, int choice)
{
    struct choice_out *o = &g->choices[choice];
    const struct choice *c = generation_choice(g, choice);
    int finish = atomic_load_explicit(&c->finish, memory_order_acquire);
    int n = atomic_load_explicit(&c->n_tokens, memory_order_acquire);
    bool good = finish == FINISH_STOP || finish == FINISH_LENGTH;
    while (o->finish == FINISH_NONE && o->n_tokens < n && has_room(g)) {
        bool last = good && o->n_tokens + 1 == n;
        bool stop_token = last && finish == FINISH_STOP && c->stop_id >= 0;
        choice_out_take(o, &g->params, g->api->model.tokenizer, c->tokens[o->n_tokens], stop_token);
        if (last)
            choice_out_finish(o, (enum finish_reason)finish);
        choice_moved(g, choice, finish);
    }
    if (o->finish == FINISH_NONE && good && has_room(g)) { /* no token at all */
        choice_out_finish(o, (enum finish_reason)finish);
        choice_moved(g, choice, finish);
    }
}

/* Goes round n choices until it must wait; then `next` is the one to go on with. */
static void take_choices(struct generation *g, int first, int n)
{
    for (int i = 0; i < n && !g->over && !g->waiting; i++) {
        g->next = (first + i) % g->n_choices;
        take_choice(g, g->next);
    }
    complete_if_all_ended(g);
}

static void go_on(struct generation *g)
{
    g->waiting = false;
    take_choices(g, g->next, g->n_choices);
}

static void on_room(struct http_request *http, void *user)
{
    struct generation *g = user;
    if (g->busy > 0) /* a worker has the choices; it goes on afterwards */
        return;
    g->busy++;
    go_on(g);
    g->busy--;
    free_if_done(g);
}

/* Latencies as the loop sees them. */
static void measure(struct generation *g, struct gen_prompt *p)
{
    int fresh = 0, first = (int)(p - g->prompts) * g->params.n;
    for (int i = 0; i < g->params.n; i++) {
        struct choice_out *o = &g->choices[first + i];
        int n = atomic_load_explicit(&p->request->choices[i].n_tokens, memory_order_acquire);
        if (n - o->n_timed > fresh)
            fresh = n - o->n_timed;
        o->n_timed = n;
    }
    if (fresh == 0 || g->over)
        return;
    uint64_t now = uv_hrtime();
    if (p->t_first == 0) {
        p->t_first = p->t_last = now;
        histogram_add(&g->api->metrics.ttft, (double)(now - g->t_arrival) * 1e-9, 1);
        fresh--;
    }
    if (fresh > 0)
        histogram_add(&g->api->metrics.itl, (double)(now - p->t_last) * 1e-9 / fresh,
                      (uint64_t)fresh);
    p->t_last = now;
}

static void handed_back(struct generation *g, struct gen_prompt *p)
{
    p->with_engine = false;
    g->n_with_engine--;
    g->api->n_sequences -= g->params.n;
    metrics_request(&g->api->metrics, p->request);
    for (int i = 0; i < g->params.n && !g->over; i++) {
        int finish = atomic_load(&p->request->choices[i].finish);
        if (finish != FINISH_STOP && finish != FINISH_LENGTH)
            fail_request(g, p->request);
    }
}

void generation_news(struct request *r)
{
    struct gen_prompt *p = r->user;
    struct generation *g = p->gen;
    int first = (int)(p - g->prompts) * g->params.n;
    g->busy++;
    measure(g, p);
    if (!g->waiting)
        take_choices(g, first, g->params.n);
    if (atomic_load(&r->ended))
        handed_back(g, p);
    g->busy--;
    free_if_done(g);
}

void generation_engine_closed(struct generation *g)
{
    g->busy++;
    for (int i = 0; i < g->n_prompts; i++)
        if (g->prompts[i].with_engine)
            generation_news(g->prompts[i].request);
    g->busy--;
    free_if_done(g);
}

static void note_tokens(const struct generation *g, struct http_request *http)
{
    long long prompt = 0, output = 0;
    for (int i = 0; i < g->n_prompts; i++)
        prompt += g->prompts[i].request ? g->prompts[i].request->n_prompt : 0;
    for (int i = 0; i < g->n_choices; i++)
        output += g->choices[i].n_tokens;
    http_note(http, "tokens: prompt %lld, output %lld", prompt, output);
}

static void on_http_done(struct http_request *http, void *user, bool gone)
{
    struct generation *g = user;
    note_tokens(g, http);
    g->http = NULL;
    g->over = true;
    if (gone || g->n_open > 0)
        cancel_rest(g);
    free_if_done(g);
}

static void make_id(struct generation *g)
{
    unsigned char bytes[12];
    char hex[2 * sizeof bytes + 1];
    if (uv_random(NULL, NULL, bytes, sizeof bytes, 0, NULL) != 0)
        memset(bytes, 0, sizeof bytes);
    uint64_t n = g->api->n_ids++; /* unique even without random numbers */
    for (size_t i = 0; i < sizeof n; i++)
        bytes[i] ^= (unsigned char)(n >> (8 * i));
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    snprintf(g->id, sizeof g->id, "%s%s", g->chat ? "chatcmpl-" : "cmpl-", hex);
}

/* Moves what *in holds. NULL: out of memory; *in is as before. */
static struct generation *make(struct api *api, struct gen_input *in)
{
    struct generation *g = calloc(1, sizeof *g);
    size_t n_choices = in->prompts.n * (size_t)in->params.n;
    struct gen_prompt *prompts = calloc(in->prompts.n, sizeof *prompts);
    struct choice_out *choices = calloc(n_choices, sizeof *choices);
    if (!g || !prompts || !choices) {
        free(g);
        free(prompts);
        free(choices);
        return NULL;
    }
    g->api = api;
    g->params = in->params;
    in->params = (struct gen_params){0};
    g->chat = in->chat;
    g->created = time(NULL);
    g->n_prompts = (int)in->prompts.n;
    g->n_choices = g->n_open = (int)n_choices;
    g->prompts = prompts;
    g->choices = choices;
    list_push_back(&api->generations, &g->node);
    api->n_generations++;
    make_id(g);
    return g;
}

static struct sampling_params sampling_of(const struct generation *g, int n_prompt)
{
    struct sampling_params s = g->params.sampling;
    int64_t max = g->params.max_tokens;
    if (max < 0)
        max = g->api->model.max_model_len - n_prompt;
    s.max_tokens = (int)max;
    if (max == 0 && s.n_prompt_logprobs < 0)
        s.n_prompt_logprobs = 0; /* nothing to generate: the engine needs something to do */
    return s;
}

static bool make_requests(struct generation *g, struct prompt_list *list)
{
    for (int i = 0; i < g->n_prompts; i++) {
        struct prompt *from = &list->items[i];
        struct gen_prompt *p = &g->prompts[i];
        int n = (int)from->tokens.n;
        struct sampling_params s = sampling_of(g, n);
        s.seed = api_prompt_seed(g->api, &g->params, i);
        p->gen = g;
        p->request = request_new(from->tokens.ids, n, g->params.n, &s);
        if (!p->request)
            return false;
        from->tokens = (struct token_list){0};
        p->request->cache_salt = g->params.cache_salt;
        p->request->priority = g->params.priority;
        p->request->target_itl = g->params.target_itl;
        p->request->user = p;
        p->text = from->text;
        p->n_text = from->n_text;
        from->text = NULL;
    }
    return true;
}

static void fail_submit(struct generation *g, const struct err *err)
{
    struct api_error e = {0};
    if (err->code == ERR_LIMIT)
        api_fail(&e, 400, "context_length_exceeded", g->chat ? "messages" : "prompt", "%s",
                 err->msg);
    else if (err->code == ERR_DEVICE)
        api_fail(&e, 503, "engine_dead", NULL, "%s", err->msg);
    else
        api_fail_err(&e, g->chat ? "messages" : "prompt", err);
    generation_fail(g, &e);
}

static void submit(struct generation *g)
{
    for (int i = 0; i < g->n_prompts && !g->over; i++) {
        struct gen_prompt *p = &g->prompts[i];
        struct err err = {0};
        p->with_engine = true;
        if (engine_submit(g->api->engine, p->request, &err)) {
            g->n_with_engine++;
            g->api->n_sequences += g->params.n;
            continue;
        }
        p->with_engine = false;
        fail_submit(g, &err);
    }
}

void generation_start(struct api *api, struct http_request *http, struct gen_input *in,
                      uint64_t t_arrival)
{
    struct api_error e = {0};
    struct generation *g = api->closing ? NULL : make(api, in);
    if (!g) {
        if (api->closing)
            api_fail(&e, 503, "draining", NULL, "the server is shutting down");
        else
            api_fail_memory(&e);
        api_error_reply(http, &e);
        return;
    }
    g->busy++;
    g->http = http;
    g->t_arrival = t_arrival;
    http_set_user(http, g, on_http_done);
    if (make_requests(g, &in->prompts))
        submit(g);
    else
        fail_memory(g);
    if (!g->over && g->params.stream) {
        http_stream_begin(http, 200, "text/event-stream", on_room);
        g->streaming = true;
    }
    g->busy--;
    free_if_done(g);
}
