/* api_rig.h: the API between a fake HTTP module, a fake tokenizer and template, and a fake
 * engine; each test drives them by hand. Include after test.h. */
#ifndef TOKEND_API_RIG_H
#define TOKEND_API_RIG_H

#include "api.h"
#include "api_state.h"

#include <stdlib.h>
#include <string.h>

/* ---- fake HTTP ---- */

struct http_request {
    const char *rest;
    char *body;
    void *user;
    void (*on_done)(struct http_request *, void *, bool);
    void (*on_room)(struct http_request *, void *);
    int status; /* 0: no answer yet */
    bool stream, ended, aborted;
    bool left; /* writes fail */
    bool full; /* there is no room */
    struct buf out;
    int retry_after;
};

const char *http_header(const struct http_request *h, const char *name)
{
    return NULL;
}

const char *http_body(const struct http_request *h, size_t *n)
{
    *n = strlen(h->body);
    return h->body;
}
char *http_take_body(struct http_request *h, size_t *n)
{
    char *body = h->body;
    *n = strlen(body);
    h->body = NULL;
    return body;
}
const char *http_path_rest(const struct http_request *h)
{
    return h->rest;
}
void http_note(struct http_request *h, const char *fmt, ...)
{
}

void http_set_user(struct http_request *h, void *user,
                   void (*on_done)(struct http_request *, void *, bool))
{
    h->user = user;
    h->on_done = on_done;
}
void http_reply(struct http_request *h, int status, const char *type, const void *body, size_t n)
{
    assert_int_equal(h->status, 0);
    h->status = status;
    h->ended = true;
    buf_add(&h->out, body, n);
}
void http_reply_owned(struct http_request *h, int status, const char *type, char *body, size_t n)
{
    http_reply(h, status, type, body, n);
    free(body);
}
char *http_error_body(int status, const char *code, const char *param, const char *message)
{
    json_t *o = json_pack("{s:{s:s, s:s?, s:s?}}", "error", "message", message, "param", param,
                          "code", code);
    char *text = json_dumps(o, 0);
    json_decref(o);
    return text;
}
void http_reply_error(struct http_request *h, int status, const char *code, const char *param,
                      int retry_after_s, const char *fmt, ...)
{
    char msg[1024];
    assert_true((status == 429 || status == 503) == (retry_after_s > 0));
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    char *text = http_error_body(status, code, param, msg);
    h->retry_after = retry_after_s;
    http_reply(h, status, "application/json", text, strlen(text));
    free(text);
}
void http_stream_begin(struct http_request *h, int status, const char *type,
                       void (*on_room)(struct http_request *, void *))
{
    assert_int_equal(h->status, 0);
    h->on_room = on_room;
    h->status = status;
    h->stream = true;
}
bool http_stream_write(struct http_request *h, const void *data, size_t n)
{
    assert_true(h->stream && !h->ended);
    if (h->left)
        return false;
    buf_add(&h->out, data, n);
    return true;
}
bool http_stream_has_room(struct http_request *h)
{
    return !h->full;
}
void http_stream_abort(struct http_request *h)
{
    h->aborted = true;
}
void http_stream_end(struct http_request *h)
{
    assert_false(h->ended);
    h->ended = true;
}
void http_get_stats(const struct http_server *s, struct http_stats *out)
{
}

/* ---- fake tokenizer: ids are bytes; 256 is BOS, 257 EOS ---- */

enum { BOS = 256, EOS = 257, N_VOCAB = 300 };
struct tokenizer {
    int32_t prefix[2], suffix[1];
    size_t n_prefix, n_suffix;
};
static char all_bytes[256];

int tokenizer_n_vocab(const struct tokenizer *t)
{
    return N_VOCAB;
}
const char *tokenizer_piece(const struct tokenizer *t, int32_t id, size_t *len)
{
    if (id >= 256) {
        *len = id == BOS ? 3 : id == EOS ? 3 : 0;
        return id == BOS ? "<b>" : "<e>";
    }
    *len = 1;
    all_bytes[id] = (char)id;
    return &all_bytes[id];
}
int32_t tokenizer_bos(const struct tokenizer *t)
{
    return BOS;
}
int32_t tokenizer_eos(const struct tokenizer *t)
{
    return EOS;
}
const int32_t *tokenizer_prefix(const struct tokenizer *t, size_t *n)
{
    *n = t->n_prefix;
    return t->prefix;
}
const int32_t *tokenizer_suffix(const struct tokenizer *t, size_t *n)
{
    *n = t->n_suffix;
    return t->suffix;
}
bool token_list_add(struct token_list *l, int32_t id)
{
    if ((l->n & (l->n - 1)) == 0) /* doubled when full */
        l->ids = realloc(l->ids, (l->n ? 2 * l->n : 1) * sizeof *l->ids);
    l->ids[l->n++] = id;
    return true;
}
void token_list_free(struct token_list *l)
{
    free(l->ids);
    *l = (struct token_list){0};
}
bool tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, enum control_rule rule,
                      const struct text_span *spans, size_t n_spans, struct token_list *out,
                      struct err *e)
{
    for (size_t i = 0; i < n; i++)
        token_list_add(out, (unsigned char)text[i]);
    return true;
}
size_t detokenizer_add(struct detokenizer *d, const struct tokenizer *t, int32_t id,
                       bool skip_special, char *out)
{
    if (id >= 256) {
        size_t n;
        const char *piece = tokenizer_piece(t, id, &n);
        memcpy(out, piece, skip_special ? 0 : n);
        return skip_special ? 0 : n;
    }
    d->held[d->n_held++] = (char)id;
    unsigned char lead = (unsigned char)d->held[0];
    int need = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (d->n_held < need)
        return 0;
    d->n_held = 0;
    memcpy(out, d->held, (size_t)need);
    return (size_t)need;
}
size_t detokenizer_flush(struct detokenizer *d, char *out)
{
    if (d->n_held == 0)
        return 0;
    d->n_held = 0;
    memcpy(out, "\xEF\xBF\xBD", 3);
    return 3;
}
struct template
{
    bool broken; /* for every conversation */
};
bool template_render(const struct template *t, const struct template_input *in,
                     struct rendered *out, struct err *e)
{
    json_t *messages = json_object_get(in->context, "messages");
    const char *text = json_string_value(json_object_get(json_array_get(messages, 0), "content"));
    out->raised = strncmp(text, "raise", 5) == 0;
    out->error_line = out->raised ? 7 : 0;
    if (strcmp(text, "raise a line") == 0)
        return err_set(e, ERR_INVALID, "line 9: is not allowed");
    if (out->raised)
        return err_set(e, ERR_INVALID, "roles must alternate");
    if (t->broken || strcmp(text, "break") == 0)
        return err_set(e, ERR_INVALID, "line 3: 'x' is undefined");
    const char *effort = json_string_value(json_object_get(in->context, "reasoning_effort"));
    buf_add_str(&out->text, text);
    if (effort)
        buf_add_str(&out->text, effort);
    return true;
}
void rendered_free(struct rendered *r)
{
    buf_free(&r->text);
}

/* ---- fake engine ---- */

enum { MAX_REQUESTS = 64 };
struct engine {
    struct engine_info info;
    struct engine_stats stats;
    struct request *all[MAX_REQUESTS]; /* shared with us */
    int n;
    struct request *news;
    int cancelled, stopped, resets, made, freed;
};
static struct engine engine;

const struct engine_info *engine_get_info(const struct engine *e)
{
    return &e->info;
}
void engine_get_stats(struct engine *e, struct engine_stats *out)
{
    *out = e->stats;
}
bool engine_submit(struct engine *e, struct request *r, struct err *err)
{
    if (r->prompt[0] == 'X')
        return err_set(err, ERR_INVALID, "will never run");
    if (r->prompt[0] == 'D')
        return err_set(err, ERR_DEVICE, "the device failed");
    e->all[e->n++] = r;
    return true;
}
void engine_cancel(struct engine *e, struct request *r)
{
    e->cancelled++;
}
void engine_stop_choice(struct engine *e, struct request *r, int choice)
{
    atomic_store(&r->choices[choice].stop_asked, true);
    e->stopped++;
}
void engine_reset_prefix_cache(struct engine *e)
{
    e->resets++;
}
struct request *engine_poll(struct engine *e)
{
    struct request *r = e->news;
    e->news = NULL;
    return r;
}
/* The real ones, counted: the tests are linked with --wrap. */
struct request *__real_request_new(int32_t *, int, int, const struct sampling_params *);
void __real_request_free(struct request *);
struct request *__wrap_request_new(int32_t *, int, int, const struct sampling_params *);
void __wrap_request_free(struct request *);

struct request *__wrap_request_new(int32_t *prompt, int n_prompt, int n_choices,
                                   const struct sampling_params *p)
{
    struct request *r = __real_request_new(prompt, n_prompt, n_choices, p);
    engine.made += r != NULL;
    return r;
}
void __wrap_request_free(struct request *r)
{
    engine.freed += r != NULL;
    __real_request_free(r);
}

/* ---- driving them ---- */

static uv_loop_t loop;
static struct api *api;
static struct tokenizer tokenizer;
static struct template template;

static int setup(void **state)
{
    static const char *const names[] = {"m", "alias", NULL};
    engine = (struct engine){
        .info = {.max_model_len = 100, .max_num_seqs = 2, .backend = "fake", .block_size = 16}};
    engine.info.spec.n_vocab = N_VOCAB;
    tokenizer = (struct tokenizer){0};
    template = (struct template){0};
    struct api_config c = {
        .model_names = names, .created = 1, .max_queue_len = 100, .stall_limit_s = 60};
    uv_loop_init(&loop);
    api = api_open(&loop, &c, NULL);
    api_set_engine(api, &engine,
                   &(struct api_model){.tokenizer = &tokenizer, .template = &template});
    return 0;
}
static int teardown(void **state)
{
    assert_int_equal(api_n_in_flight(api), 0);
    assert_int_equal(engine.freed, engine.made);
    api_free(api);
    assert_int_equal(uv_loop_close(&loop), 0);
    return 0;
}

static inline struct http_request *post(void (*handle)(struct http_request *, void *),
                                        const char *body)
{
    struct http_request *h = calloc(1, sizeof *h);
    h->body = strdup(body);
    handle(h, api);
    return h;
}
static inline struct http_request *posted(void (*handle)(struct http_request *, void *),
                                          const char *body)
{
    struct http_request *h = post(handle, body);
    uv_run(&loop, UV_RUN_DEFAULT);
    return h;
}
/* The last byte went out, or the client left. */
static inline void end(struct http_request *h, bool gone)
{
    if (h->on_done)
        h->on_done(h, h->user, gone);
    free(h->body);
    buf_free(&h->out);
    free(h);
}
static inline json_t *reply_of(const struct http_request *h)
{
    json_t *o = json_loadb(h->out.data, h->out.len, JSON_ALLOW_NUL, NULL);
    assert_non_null(o);
    return o;
}
static inline void publish(struct request *r)
{
    engine.news = r;
    api_poll_engine(api);
}
static inline void make_token(struct request *r, int choice, int32_t id)
{
    struct choice *c = &r->choices[choice];
    int n = atomic_load(&c->n_tokens);
    c->tokens[n] = id;
    if (c->logprobs)
        c->logprobs[n] = -0.5f * (float)(n + 1);
    for (int k = 0; c->tops && k < r->params.n_logprobs; k++)
        c->tops[n * r->params.n_logprobs + k] = (struct top_logprob){'a' + k, -1.0f * (float)k};
    atomic_store(&c->n_tokens, n + 1);
}
/* One step a byte. */
static inline void make_text(struct request *r, const char *text)
{
    for (; *text; text++) {
        make_token(r, 0, (unsigned char)*text);
        publish(r);
    }
}
static inline void end_request(struct request *r, enum finish_reason why)
{
    for (int i = 0; i < r->n_choices; i++)
        if (atomic_load(&r->choices[i].finish) == FINISH_NONE)
            atomic_store(&r->choices[i].finish, why);
    atomic_store(&r->ended, true);
    publish(r);
}
/* The n-th event's JSON; NULL: there is none, or it is [DONE]. */
static inline json_t *event(const struct http_request *h, int n)
{
    const char *p = h->out.data;
    while (p && n-- > 0)
        p = strstr(p, "\n\n") ? strstr(p, "\n\n") + 2 : NULL;
    if (!p || strncmp(p, "data: {", 7) != 0)
        return NULL;
    return json_loads(p + 6, JSON_DISABLE_EOF_CHECK, NULL);
}
static inline int n_events(const struct http_request *h)
{
    int n = 0;
    for (const char *p = h->out.data; p && (p = strstr(p, "\n\n")); p += 2)
        n++;
    return n;
}
static inline const char *text_at(const json_t *o, const char *message)
{
    const json_t *c = json_array_get(json_object_get(o, "choices"), 0);
    const json_t *m = message ? json_object_get(c, message) : c;
    return json_string_value(json_object_get(m, message ? "content" : "text"));
}
static inline json_int_t usage_of(const json_t *o, const char *field_name)
{
    return json_integer_value(json_object_get(json_object_get(o, "usage"), field_name));
}
static inline const char *finish_of(const json_t *o)
{
    const json_t *c = json_array_get(json_object_get(o, "choices"), 0);
    return json_string_value(json_object_get(c, "finish_reason"));
}
static inline void assert_error(struct http_request *h, int status, const char *code)
{
    assert_int_equal(h->status, status);
    json_t *o = reply_of(h);
    assert_string_equal(json_string_value(json_object_get(json_object_get(o, "error"), "code")),
                        code);
    json_decref(o);
    end(h, false);
}

#define with_api(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif
