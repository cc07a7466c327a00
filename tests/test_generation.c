/* The API between a fake HTTP module and a fake engine: what each reply says, and that every
 * request is let go of exactly once, in whatever order client and engine leave. */
#include "api.h"
#include "api_state.h"

#include <stdlib.h>
#include <string.h>

#include "test.h"

/* ---- fake HTTP ---- */

struct http_request {
    const char *path;
    char *body;
    void *user;
    void (*on_done)(struct http_request *, void *, bool);
    int status; /* 0: no answer yet */
    bool stream, ended, slow;
    struct buf out;
    int retry_after;
};

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
const char *http_path(const struct http_request *h)
{
    return h->path;
}
void http_set_user(struct http_request *h, void *user,
                   void (*on_done)(struct http_request *, void *, bool))
{
    h->user = user;
    h->on_done = on_done;
}
void http_add_header(struct http_request *h, const char *name, const char *value)
{
}
void http_reply(struct http_request *h, int status, const char *type, const void *body, size_t n)
{
    assert_int_equal(h->status, 0);
    h->status = status;
    h->ended = true;
    buf_add(&h->out, body, n);
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
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    char *text = http_error_body(status, code, param, msg);
    h->retry_after = retry_after_s;
    http_reply(h, status, "application/json", text, strlen(text));
    free(text);
}
void http_stream_begin(struct http_request *h, int status, const char *type)
{
    assert_int_equal(h->status, 0);
    h->status = status;
    h->stream = true;
}
bool http_stream_write(struct http_request *h, const void *data, size_t n)
{
    assert_true(h->stream && !h->ended);
    if (h->slow)
        return false;
    buf_add(&h->out, data, n);
    return true;
}
void http_stream_end(struct http_request *h)
{
    h->ended = true;
}
void http_get_stats(const struct http_server *s, struct http_stats *out)
{
}

/* ---- fake tokenizer: ids are bytes; 256 is BOS, 257 EOS ---- */

enum { BOS = 256, EOS = 257, N_VOCAB = 300 };
struct tokenizer {
    bool adds_bos;
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
bool tokenizer_adds_bos(const struct tokenizer *t)
{
    return t->adds_bos;
}
bool tokenizer_adds_eos(const struct tokenizer *t)
{
    return false;
}
bool token_list_add(struct token_list *l, int32_t id)
{
    l->ids = realloc(l->ids, (l->n + 1) * sizeof *l->ids);
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
    int unused;
};
bool template_render(const struct template *t, const struct template_input *in,
                     struct rendered *out, struct err *e)
{
    json_t *messages = json_object_get(in->context, "messages");
    const char *text = json_string_value(json_object_get(json_array_get(messages, 0), "content"));
    if (strcmp(text, "raise") == 0)
        return err_set(e, ERR_INVALID, "roles must alternate");
    buf_add_str(&out->text, text);
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
    int cancelled, stopped, made, freed;
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
struct request *engine_poll(struct engine *e)
{
    struct request *r = e->news;
    e->news = NULL;
    return r;
}
struct request *request_new(int32_t *prompt, int n_prompt, int n_choices,
                            const struct sampling_params *p)
{
    struct request *r = calloc(1, sizeof *r);
    engine.made++;
    r->prompt = prompt;
    r->n_prompt = n_prompt;
    r->n_choices = n_choices;
    r->params = *p;
    r->choices = calloc((size_t)n_choices, sizeof *r->choices);
    r->prompt_logprobs = p->n_prompt_logprobs < 0 ? NULL : calloc((size_t)n_prompt, sizeof(float));
    for (int i = 0; i < n_choices; i++) {
        struct choice *c = &r->choices[i];
        c->stop_id = -1;
        c->tokens = calloc((size_t)p->max_tokens + 1, sizeof *c->tokens);
        if (p->n_logprobs >= 0)
            c->logprobs = calloc((size_t)p->max_tokens + 1, sizeof *c->logprobs);
        if (p->n_logprobs > 0)
            c->tops = calloc((size_t)p->max_tokens + 1, (size_t)p->n_logprobs * sizeof *c->tops);
    }
    return r;
}
void request_free(struct request *r)
{
    if (!r)
        return;
    engine.freed++;
    for (int i = 0; i < r->n_choices; i++) {
        free(r->choices[i].tokens);
        free(r->choices[i].logprobs);
        free(r->choices[i].tops);
    }
    free(r->choices);
    free(r->prompt_logprobs);
    free(r->prompt);
    free(r);
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
    tokenizer.adds_bos = false;
    struct api_config c = {.model_names = names, .created = 1, .max_queue_len = 100};
    uv_loop_init(&loop);
    api = api_open(&loop, &c, NULL);
    api_set_engine(api, &engine, &tokenizer, &template);
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

static struct http_request *post(void (*handle)(struct http_request *, void *), const char *body)
{
    struct http_request *h = calloc(1, sizeof *h);
    h->body = strdup(body);
    handle(h, api);
    return h;
}
static struct http_request *posted(void (*handle)(struct http_request *, void *), const char *body)
{
    struct http_request *h = post(handle, body);
    uv_run(&loop, UV_RUN_DEFAULT);
    return h;
}
/* The last byte went out, or the client left. */
static void end(struct http_request *h, bool gone)
{
    if (h->on_done)
        h->on_done(h, h->user, gone);
    free(h->body);
    buf_free(&h->out);
    free(h);
}
static json_t *reply_of(const struct http_request *h)
{
    json_t *o = json_loadb(h->out.data, h->out.len, JSON_ALLOW_NUL, NULL);
    assert_non_null(o);
    return o;
}
static void publish(struct request *r)
{
    engine.news = r;
    api_poll_engine(api);
}
static void make_token(struct request *r, int choice, int32_t id)
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
static void make_text(struct request *r, const char *text)
{
    for (; *text; text++) {
        make_token(r, 0, (unsigned char)*text);
        publish(r);
    }
}
static void end_request(struct request *r, enum finish_reason why)
{
    for (int i = 0; i < r->n_choices; i++)
        if (atomic_load(&r->choices[i].finish) == FINISH_NONE)
            atomic_store(&r->choices[i].finish, why);
    atomic_store(&r->ended, true);
    publish(r);
}
/* The n-th event's JSON; NULL: there is none, or it is [DONE]. */
static json_t *event(const struct http_request *h, int n)
{
    const char *p = h->out.data;
    while (p && n-- > 0)
        p = strstr(p, "\n\n") ? strstr(p, "\n\n") + 2 : NULL;
    if (!p || strncmp(p, "data: {", 7) != 0)
        return NULL;
    return json_loads(p + 6, JSON_DISABLE_EOF_CHECK, NULL);
}
static int n_events(const struct http_request *h)
{
    int n = 0;
    for (const char *p = h->out.data; p && (p = strstr(p, "\n\n")); p += 2)
        n++;
    return n;
}
static const char *text_at(const json_t *o, const char *message)
{
    const json_t *c = json_array_get(json_object_get(o, "choices"), 0);
    const json_t *m = message ? json_object_get(c, message) : c;
    return json_string_value(json_object_get(m, message ? "content" : "text"));
}
static json_int_t usage_of(const json_t *o, const char *field_name)
{
    return json_integer_value(json_object_get(json_object_get(o, "usage"), field_name));
}
static const char *finish_of(const json_t *o)
{
    const json_t *c = json_array_get(json_object_get(o, "choices"), 0);
    return json_string_value(json_object_get(c, "finish_reason"));
}
static void assert_error(struct http_request *h, int status, const char *code)
{
    assert_int_equal(h->status, status);
    json_t *o = reply_of(h);
    assert_string_equal(json_string_value(json_object_get(json_object_get(o, "error"), "code")),
                        code);
    json_decref(o);
    end(h, false);
}

/* ---- whole replies ---- */

static void a_whole_completion_has_text_usage_and_reason(void **state)
{
    struct http_request *h =
        posted(completions_handle, "{\"model\":\"alias\",\"prompt\":\"abc\",\"max_tokens\":3}");
    assert_int_equal(engine.n, 1);
    assert_int_equal(engine.all[0]->n_prompt, 3);
    make_text(engine.all[0], "xy");
    assert_int_equal(h->status, 0);
    make_token(engine.all[0], 0, 'z');
    end_request(engine.all[0], FINISH_LENGTH);
    assert_int_equal(h->status, 200);
    json_t *o = reply_of(h);
    assert_string_equal(text_at(o, NULL), "xyz");
    assert_string_equal(finish_of(o), "length");
    assert_int_equal(usage_of(o, "prompt_tokens"), 3);
    assert_int_equal(usage_of(o, "completion_tokens"), 3);
    assert_int_equal(usage_of(o, "total_tokens"), 6);
    assert_string_equal(json_string_value(json_object_get(o, "model")), "m");
    json_t *d = json_object_get(json_object_get(o, "usage"), "prompt_tokens_details");
    assert_true(json_is_integer(json_object_get(d, "cached_tokens")));
    json_decref(o);
    end(h, false);
}

static void a_stop_token_counts_but_is_not_shown(void **state)
{
    struct http_request *h = posted(
        chat_handle, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"logprobs\":true}");
    struct request *r = engine.all[0];
    assert_int_equal(r->params.max_tokens, 98);
    make_text(r, "ok");
    make_token(r, 0, EOS);
    r->choices[0].stop_id = EOS;
    end_request(r, FINISH_STOP);
    json_t *o = reply_of(h);
    assert_string_equal(text_at(o, "message"), "ok");
    assert_string_equal(finish_of(o), "stop");
    assert_int_equal(usage_of(o, "completion_tokens"), 3);
    json_t *c = json_array_get(json_object_get(o, "choices"), 0);
    json_t *list = json_object_get(json_object_get(c, "logprobs"), "content");
    assert_int_equal(json_array_size(list), 2);
    json_decref(o);
    end(h, false);
}

static void everything_ends_at_a_stop_string(void **state)
{
    struct http_request *h =
        posted(completions_handle,
               "{\"prompt\":\"p\",\"max_tokens\":20,\"stop\":[\"cd\"],\"logprobs\":2}");
    struct request *r = engine.all[0];
    make_text(r, "abcd");
    assert_int_equal(h->status, 200); /* before the engine has stopped */
    assert_int_equal(engine.stopped, 1);
    json_t *o = reply_of(h);
    assert_string_equal(text_at(o, NULL), "ab");
    assert_string_equal(finish_of(o), "stop");
    assert_int_equal(usage_of(o, "completion_tokens"), 4);
    json_t *c = json_array_get(json_object_get(o, "choices"), 0);
    json_t *tokens = json_object_get(json_object_get(c, "logprobs"), "tokens");
    assert_int_equal(json_array_size(tokens), 2);
    json_decref(o);
    end(h, false);
    make_text(r, "efgh");
    end_request(r, FINISH_STOP);
}

static void the_stop_string_is_shown_when_asked(void **state)
{
    struct http_request *h =
        posted(completions_handle, "{\"prompt\":\"p\",\"max_tokens\":20,\"stop\":\"cd\","
                                   "\"include_stop_str_in_output\":true}");
    make_text(engine.all[0], "abcd");
    json_t *o = reply_of(h);
    assert_string_equal(text_at(o, NULL), "abcd");
    json_decref(o);
    end(h, false);
    end_request(engine.all[0], FINISH_STOP);
}

static void a_stop_string_before_min_tokens_does_not_count(void **state)
{
    struct http_request *h = posted(
        completions_handle, "{\"prompt\":\"p\",\"max_tokens\":4,\"stop\":\"a\",\"min_tokens\":2}");
    make_text(engine.all[0], "aaba");
    json_t *o = reply_of(h);
    assert_string_equal(text_at(o, NULL), "aab");
    json_decref(o);
    end(h, false);
    end_request(engine.all[0], FINISH_LENGTH);
}

static void prompts_and_choices_are_numbered_in_order(void **state)
{
    struct http_request *h =
        posted(completions_handle, "{\"prompt\":[[1,2],[3,4,5]],\"n\":2,\"max_tokens\":1}");
    assert_int_equal(engine.n, 2);
    for (int p = 1; p >= 0; p--) {
        make_token(engine.all[p], 0, 'a' + 2 * p);
        make_token(engine.all[p], 1, 'b' + 2 * p);
        end_request(engine.all[p], FINISH_LENGTH);
    }
    json_t *o = reply_of(h), *c;
    size_t i;
    assert_int_equal(usage_of(o, "prompt_tokens"), 5);
    assert_int_equal(usage_of(o, "completion_tokens"), 4);
    json_array_foreach(json_object_get(o, "choices"), i, c)
    {
        char want[2] = {(char)('a' + i), '\0'};
        assert_int_equal(json_integer_value(json_object_get(c, "index")), i);
        assert_string_equal(json_string_value(json_object_get(c, "text")), want);
    }
    assert_int_equal(i, 4);
    json_decref(o);
    end(h, false);
}

static void echo_with_logprobs_lists_the_prompt_first(void **state)
{
    struct http_request *h =
        posted(completions_handle, "{\"prompt\":\"h\xC3\xA9\",\"max_tokens\":1,\"echo\":true,"
                                   "\"logprobs\":0}");
    make_token(engine.all[0], 0, '!');
    end_request(engine.all[0], FINISH_LENGTH);
    json_t *o = reply_of(h);
    assert_string_equal(text_at(o, NULL), "h\xC3\xA9!");
    json_t *c = json_array_get(json_object_get(o, "choices"), 0);
    json_t *l = json_object_get(c, "logprobs");
    json_t *want = json_loads("{\"tokens\":[\"h\",\"bytes:\\\\xc3\",\"bytes:\\\\xa9\",\"!\"],"
                              "\"token_logprobs\":[null,0.0,0.0,-0.5],"
                              "\"top_logprobs\":[null,{\"bytes:\\\\xc3\":0.0},"
                              "{\"bytes:\\\\xa9\":0.0},{\"!\":-0.5}],"
                              "\"text_offset\":[0,1,1,2]}",
                              0, NULL);
    assert_non_null(want);
    assert_true(json_equal(l, want));
    json_decref(want);
    json_decref(o);
    end(h, false);
}

static void bos_is_added_once(void **state)
{
    tokenizer.adds_bos = true;
    struct http_request *h = posted(completions_handle, "{\"prompt\":\"a\",\"max_tokens\":1}");
    assert_int_equal(engine.all[0]->n_prompt, 2);
    assert_int_equal(engine.all[0]->prompt[0], BOS);
    end_request(engine.all[0], FINISH_LENGTH);
    end(h, false);
    h = posted(completions_handle,
               "{\"prompt\":\"a\",\"max_tokens\":1,\"add_special_tokens\":false}");
    assert_int_equal(engine.all[1]->n_prompt, 1);
    end_request(engine.all[1], FINISH_LENGTH);
    end(h, false);
}

static void a_large_reply_is_written_by_a_worker(void **state)
{
    for (int gone = 0; gone < 2; gone++) {
        struct http_request *h =
            posted(completions_handle, "{\"prompt\":\"p\",\"max_tokens\":90,\"logprobs\":2}");
        for (int i = 0; i < 90; i++)
            make_token(engine.all[gone], 0, 'a' + i % 26);
        end_request(engine.all[gone], FINISH_LENGTH);
        assert_int_equal(h->status, 0);
        if (gone)
            end(h, true);
        assert_int_equal(api_n_in_flight(api), 1);
        uv_run(&loop, UV_RUN_DEFAULT);
        if (gone)
            break;
        json_t *o = reply_of(h);
        assert_int_equal(usage_of(o, "completion_tokens"), 90);
        json_decref(o);
        end(h, false);
    }
}

/* ---- streams ---- */

static void a_chat_stream_is_role_text_reason_usage_done(void **state)
{
    struct http_request *h = posted(
        chat_handle, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true,"
                     "\"max_tokens\":2,\"stream_options\":{\"include_usage\":true}}");
    assert_int_equal(h->status, 200);
    assert_int_equal(h->out.len, 0); /* nothing is said before the first token */
    struct request *r = engine.all[0];
    make_text(r, "a");
    assert_int_equal(n_events(h), 2);
    make_token(r, 0, 'b');
    end_request(r, FINISH_LENGTH);
    assert_int_equal(n_events(h), 5);
    json_t *role = event(h, 0), *first = event(h, 1), *last = event(h, 2), *usage = event(h, 3);
    json_t *delta = json_object_get(json_array_get(json_object_get(role, "choices"), 0), "delta");
    assert_string_equal(json_string_value(json_object_get(delta, "role")), "assistant");
    assert_string_equal(text_at(role, "delta"), "");
    assert_string_equal(text_at(first, "delta"), "a");
    assert_null(finish_of(first));
    assert_string_equal(text_at(last, "delta"), "b");
    assert_string_equal(finish_of(last), "length");
    assert_null(json_object_get(last, "usage"));
    assert_int_equal(json_array_size(json_object_get(usage, "choices")), 0);
    assert_int_equal(usage_of(usage, "completion_tokens"), 2);
    assert_string_equal(h->out.data + h->out.len - 14, "data: [DONE]\n\n");
    assert_true(h->ended);
    json_decref(role);
    json_decref(first);
    json_decref(last);
    json_decref(usage);
    end(h, false);
}

static void no_event_is_sent_for_a_token_without_text(void **state)
{
    struct http_request *h =
        posted(completions_handle, "{\"prompt\":\"p\",\"max_tokens\":20,\"stream\":true,"
                                   "\"stop\":\"end\",\"return_token_ids\":true}");
    struct request *r = engine.all[0];
    make_text(r, "\xC3"); /* half a character */
    assert_int_equal(n_events(h), 0);
    make_text(r, "\xA9");
    assert_int_equal(n_events(h), 1);
    make_text(r, "en"); /* may become the stop string */
    assert_int_equal(n_events(h), 1);
    make_text(r, "x");
    assert_int_equal(n_events(h), 2);
    json_t *one = event(h, 0), *two = event(h, 1);
    assert_string_equal(text_at(one, NULL), "\xC3\xA9");
    assert_string_equal(text_at(two, NULL), "enx");
    json_t *ids = json_object_get(json_array_get(json_object_get(two, "choices"), 0), "token_ids");
    assert_int_equal(json_array_size(ids), 3);
    json_decref(one);
    json_decref(two);
    make_text(r, "end");
    assert_int_equal(n_events(h), 4);
    json_t *last = event(h, 2);
    assert_string_equal(text_at(last, NULL), "");
    assert_string_equal(finish_of(last), "stop");
    json_decref(last);
    end(h, false);
    end_request(r, FINISH_STOP);
}

static void several_tokens_of_one_poll_are_several_events(void **state)
{
    struct http_request *h =
        posted(completions_handle, "{\"prompt\":\"p\",\"max_tokens\":20,\"stream\":true}");
    for (int i = 0; i < 5; i++)
        make_token(engine.all[0], 0, 'a' + i);
    publish(engine.all[0]);
    assert_int_equal(n_events(h), 5);
    end_request(engine.all[0], FINISH_STOP);
    end(h, false);
}

static void line_separators_are_escaped_in_events(void **state)
{
    struct http_request *h =
        posted(completions_handle, "{\"prompt\":\"p\",\"max_tokens\":20,\"stream\":true}");
    make_text(engine.all[0], "\xE2\x80\xA8\xC2\x85\xE2\x80\xA6");
    assert_null(strstr(h->out.data, "\xE2\x80\xA8"));
    assert_null(strstr(h->out.data, "\xC2\x85"));
    json_t *first = event(h, 0), *third = event(h, 2);
    assert_string_equal(text_at(first, NULL), "\xE2\x80\xA8");
    assert_string_equal(text_at(third, NULL), "\xE2\x80\xA6");
    json_decref(first);
    json_decref(third);
    end_request(engine.all[0], FINISH_STOP);
    end(h, false);
}

/* ---- leaving and failing ---- */

static void a_client_that_leaves_cancels_its_request(void **state)
{
    for (int stream = 0; stream < 2; stream++) {
        char body[100];
        snprintf(body, sizeof body, "{\"prompt\":\"p\",\"max_tokens\":20,\"stream\":%s}",
                 stream ? "true" : "false");
        struct http_request *h = posted(completions_handle, body);
        make_text(engine.all[stream], "ab");
        end(h, true);
        assert_int_equal(engine.cancelled, stream + 1);
        assert_int_equal(api_n_in_flight(api), 1);
        make_text(engine.all[stream], "c");
        end_request(engine.all[stream], FINISH_CANCELLED);
    }
    assert_int_equal(api->metrics.ends[END_ABORT], 2);
}

static void a_client_may_leave_while_its_body_is_parsed(void **state)
{
    struct http_request *h = post(completions_handle, "{\"prompt\":\"p\"}");
    end(h, true);
    assert_int_equal(api_n_in_flight(api), 1);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(engine.n, 0);
}

static void a_slow_reader_is_cancelled(void **state)
{
    struct http_request *h =
        posted(completions_handle, "{\"prompt\":\"p\",\"max_tokens\":20,\"stream\":true}");
    h->slow = true;
    make_text(engine.all[0], "ab");
    assert_int_equal(engine.cancelled, 1);
    end(h, true);
    end_request(engine.all[0], FINISH_CANCELLED);
}

static void an_engine_error_is_a_500_or_an_event(void **state)
{
    struct http_request *h = posted(completions_handle, "{\"prompt\":[\"p\",\"q\"]}");
    err_set(&engine.all[0]->error, ERR_DEVICE, "numerical_error");
    end_request(engine.all[0], FINISH_ERROR);
    assert_int_equal(engine.cancelled, 1); /* the other prompt */
    end_request(engine.all[1], FINISH_CANCELLED);
    assert_error(h, 500, "numerical_error");

    h = posted(completions_handle, "{\"prompt\":\"p\",\"stream\":true}");
    make_text(engine.all[2], "ab");
    err_set(&engine.all[2]->error, ERR_DEVICE, "the device is gone");
    end_request(engine.all[2], FINISH_ERROR);
    json_t *o = event(h, 2);
    assert_non_null(json_object_get(o, "error"));
    json_decref(o);
    assert_null(event(h, 3));
    assert_true(h->ended);
    end(h, false);
}

static void what_can_never_run_is_refused(void **state)
{
    char body[2000] = "{\"max_tokens\":4,\"prompt\":[1";
    for (int i = 0; i < 100; i++)
        strcat(body, ",1");
    strcat(body, "]}");
    struct http_request *h = posted(completions_handle, body);
    json_t *o = reply_of(h), *e = json_object_get(o, "error");
    assert_int_equal(json_integer_value(json_object_get(e, "n_prompt_tokens")), 101);
    assert_int_equal(json_integer_value(json_object_get(e, "n_ctx")), 100);
    assert_contains(json_string_value(json_object_get(e, "message")),
                    "This model's maximum context length is 100 tokens. However,");
    json_decref(o);
    assert_error(h, 400, "context_length_exceeded");
    assert_error(posted(completions_handle, "{\"prompt\":\"X\"}"), 400, "invalid_value");
    assert_error(posted(completions_handle, "{\"prompt\":[]}"), 400, "invalid_value");
    assert_error(posted(completions_handle, "{\"prompt\":\"\"}"), 400, "invalid_value");
    assert_error(posted(completions_handle, "{\"prompt\":[1,300]}"), 400, "invalid_value");
    assert_error(posted(completions_handle, "{\"prompt\":[1,\"a\"]}"), 400, "invalid_type");
    assert_error(posted(completions_handle, "{}"), 400, "missing_field");
    assert_error(posted(completions_handle, "{\"model\":\"gpt\"}"), 404, "model_not_found");
    assert_error(posted(chat_handle, "{\"model\":\"\"}"), 404, "model_not_found");
    assert_error(posted(chat_handle, "{\"messages\":[{\"role\":\"user\",\"content\":\"raise\"}]}"),
                 400, "invalid_value");
}

static void only_so_many_are_taken_at_once(void **state)
{
    api->max_queue_len = 1;
    struct http_request *h[3];
    for (int i = 0; i < 3; i++)
        h[i] = posted(completions_handle, "{\"prompt\":\"p\"}");
    struct http_request *late = post(completions_handle, "{\"prompt\":\"p\"}");
    assert_true(late->retry_after >= 1);
    assert_error(late, 429, "queue_full");
    for (int i = 0; i < 3; i++) {
        end_request(engine.all[i], FINISH_LENGTH);
        end(h[i], false);
    }
}

static void health_tells_the_truth(void **state)
{
    struct http_request *h = post(health_handle, "");
    assert_int_equal(h->status, 200);
    end(h, false);
    engine.stats.heartbeat_age = 61;
    assert_error(post(health_handle, ""), 503, "engine_stalled");
    engine.stats.dead = true;
    assert_error(post(health_handle, ""), 503, "engine_dead");
    assert_error(post(chat_handle, "{}"), 503, "engine_dead");
    engine.stats = (struct engine_stats){0};
    api_set_draining(api, true);
    assert_error(post(health_handle, ""), 503, "draining");
    assert_error(post(completions_handle, "{}"), 503, "draining");
    api_set_draining(api, false);
}

static void abort_ends_all_with_an_error(void **state)
{
    struct http_request *a = posted(completions_handle, "{\"prompt\":\"p\",\"stream\":true}");
    struct http_request *b = posted(completions_handle, "{\"prompt\":\"p\"}");
    struct http_request *c = post(completions_handle, "{\"prompt\":\"p\"}");
    api_abort_all(api, "draining", "the time is up");
    assert_int_equal(engine.cancelled, 2);
    assert_true(a->ended);
    assert_contains(a->out.data, "the time is up");
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_error(b, 503, "draining");
    assert_error(c, 503, "draining");
    end(a, false);
    for (int i = 0; i < 2; i++) { /* as engine_close leaves them */
        atomic_store(&engine.all[i]->choices[0].finish, FINISH_CANCELLED);
        atomic_store(&engine.all[i]->ended, true);
    }
    api_engine_closed(api);
}

static void seeds_differ_from_request_to_request(void **state)
{
    struct http_request *a = posted(completions_handle, "{\"prompt\":\"p\"}");
    struct http_request *b = posted(completions_handle, "{\"prompt\":\"p\"}");
    struct http_request *c = posted(completions_handle, "{\"prompt\":\"p\",\"seed\":-1}");
    assert_true(engine.all[0]->params.seed != engine.all[1]->params.seed);
    assert_true(engine.all[2]->params.seed == UINT64_MAX);
    for (int i = 0; i < 3; i++)
        end_request(engine.all[i], FINISH_LENGTH);
    end(a, false);
    end(b, false);
    end(c, false);
}

/* ---- the other routes ---- */

static void tokenize_and_detokenize_are_inverse(void **state)
{
    struct http_request *h = posted(tokenize_handle, "{\"prompt\":\"ab\"}");
    json_t *o = reply_of(h);
    assert_int_equal(json_integer_value(json_object_get(o, "count")), 2);
    assert_int_equal(json_integer_value(json_object_get(o, "max_model_len")), 100);
    json_decref(o);
    end(h, false);
    h = posted(detokenize_handle, "{\"tokens\":[97,0,98]}");
    o = reply_of(h);
    assert_int_equal(json_string_length(json_object_get(o, "prompt")), 3);
    json_decref(o);
    end(h, false);
    assert_error(posted(detokenize_handle, "{\"tokens\":[-1]}"), 400, "invalid_value");
    assert_error(posted(tokenize_handle, "{}"), 400, "missing_field");
}

static void the_model_list_tells_the_serving_limit_three_ways(void **state)
{
    struct http_request *h = post(models_list_handle, "");
    json_t *o = reply_of(h), *m = json_array_get(json_object_get(o, "data"), 0);
    assert_string_equal(json_string_value(json_object_get(m, "id")), "m");
    assert_int_equal(json_integer_value(json_object_get(m, "max_model_len")), 100);
    assert_int_equal(json_integer_value(json_object_get(m, "context_length")), 100);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(m, "meta"), "n_ctx")), 100);
    json_decref(o);
    end(h, false);
    h = calloc(1, sizeof *h);
    h->path = "/models/alias";
    models_one_handle(h, api);
    o = reply_of(h);
    assert_string_equal(json_string_value(json_object_get(o, "id")), "alias");
    json_decref(o);
    end(h, false);
}

/* All series with their labels, without values. */
static void metric_names(const char *text, struct buf *out)
{
    for (const char *line = text; *line;) {
        const char *next = strchr(line, '\n') + 1;
        if (*line != '#')
            buf_add(out, line,
                    (size_t)((const char *)memrchr(line, ' ', (size_t)(next - line)) - line));
        line = next;
    }
}

static void all_metrics_are_there_from_the_first_scrape(void **state)
{
    struct buf before = {0}, after = {0};
    struct http_request *h = post(metrics_handle, "");
    assert_contains(h->out.data, "vllm:num_requests_running{model_name=\"m\",engine=\"0\"} 0\n");
    assert_contains(h->out.data, "vllm:time_to_first_token_seconds_count{model_name=\"m\","
                                 "engine=\"0\"} 0\n");
    assert_contains(h->out.data, "finished_reason=\"abort\"} 0\n");
    metric_names(h->out.data, &before);
    end(h, false);

    h = posted(completions_handle, "{\"prompt\":\"p\",\"max_tokens\":2}");
    make_text(engine.all[0], "ab");
    engine.stats = (struct engine_stats){.pages_total = 8,
                                         .pages_in_use = 2,
                                         .steps = 2,
                                         .prompt_tokens = 1,
                                         .generated_tokens = 2,
                                         .slots_in_use = 32,
                                         .slots_written = 24};
    end_request(engine.all[0], FINISH_LENGTH);
    end(h, false);

    h = post(metrics_handle, "");
    metric_names(h->out.data, &after);
    assert_string_equal(before.data, after.data);
    assert_contains(h->out.data, "vllm:kv_cache_usage_perc{model_name=\"m\",engine=\"0\"} 0.25\n");
    assert_contains(h->out.data, "tokend:kv_waste_ratio{model_name=\"m\",engine=\"0\"} 0.25\n");
    assert_contains(h->out.data, "finished_reason=\"length\"} 1\n");
    assert_contains(h->out.data, "vllm:inter_token_latency_seconds_count{model_name=\"m\","
                                 "engine=\"0\"} 1\n");
    assert_contains(h->out.data, "vllm:iteration_tokens_total_count{model_name=\"m\","
                                 "engine=\"0\"} 2\n");
    end(h, false);
    buf_free(&before);
    buf_free(&after);
}

#define with_api(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_api(a_whole_completion_has_text_usage_and_reason),
        with_api(a_stop_token_counts_but_is_not_shown),
        with_api(everything_ends_at_a_stop_string),
        with_api(the_stop_string_is_shown_when_asked),
        with_api(a_stop_string_before_min_tokens_does_not_count),
        with_api(prompts_and_choices_are_numbered_in_order),
        with_api(echo_with_logprobs_lists_the_prompt_first),
        with_api(bos_is_added_once),
        with_api(a_large_reply_is_written_by_a_worker),
        with_api(a_chat_stream_is_role_text_reason_usage_done),
        with_api(no_event_is_sent_for_a_token_without_text),
        with_api(several_tokens_of_one_poll_are_several_events),
        with_api(line_separators_are_escaped_in_events),
        with_api(a_client_that_leaves_cancels_its_request),
        with_api(a_client_may_leave_while_its_body_is_parsed),
        with_api(a_slow_reader_is_cancelled),
        with_api(an_engine_error_is_a_500_or_an_event),
        with_api(what_can_never_run_is_refused),
        with_api(only_so_many_are_taken_at_once),
        with_api(health_tells_the_truth),
        with_api(abort_ends_all_with_an_error),
        with_api(seeds_differ_from_request_to_request),
        with_api(tokenize_and_detokenize_are_inverse),
        with_api(the_model_list_tells_the_serving_limit_three_ways),
        with_api(all_metrics_are_there_from_the_first_scrape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
