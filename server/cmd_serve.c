/* cmd_serve.c: `tokend serve`: opens everything, runs the loop, drains and closes.
 *
 * The socket listens before the model is loaded (a pool thread does that), so that /health can
 * say 503 meanwhile; "listening on" is logged when requests are taken. The first SIGTERM or
 * SIGINT drains, the second quits. */
#include "api.h"
#include "commands.h"
#include "heap_trim.h"
#include "http.h"
#include "loaded_model.h"
#include "log.h"
#include "model_names.h"
#include "text_pool.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <uv.h>

enum {
    DRAIN_TICK_MS = 20,
    LAST_WORDS_MS = 1000,
    STALL_LIMIT_S = 60, /* the engine beats every step; a large one takes seconds on a busy CPU */
};

struct server {
    struct settings settings;
    struct model_names names;
    uv_loop_t loop;
    uv_async_t wake; /* the engine has news */
    uv_signal_t signals[2];
    uv_timer_t drain; /* looks whether the last request has ended */
    uv_work_t loading;
    struct loaded_model model;
    struct err load_error;
    struct api *api;
    struct http_server *http;
    bool loaded; /* the pool thread's answer; read only after it is done */
    bool load_done, draining, aborted;
    int status;                             /* of the process */
    uint64_t drain_until, last_words_until; /* uv_now */
};

static void wake_loop(void *arg)
{
    uv_async_send(&((struct server *)arg)->wake);
}

/* The first work of the pool, so on a thread that is not niced yet, nor are those it starts. */
static void load(uv_work_t *w)
{
    struct server *s = w->data;
    s->loaded = loaded_model_open(&s->model, &s->settings, wake_loop, s, &s->load_error);
}

static void log_names(const struct server *s)
{
    char list[400] = "";
    size_t n = 0;
    for (const char *const *name = s->names.list; *name && n < sizeof list; name++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s\"%s\"", n ? ", " : "", *name);
    log_info("served as %s", list);
}

static void on_loaded(uv_work_t *w, int status)
{
    struct server *s = w->data;
    s->load_done = true;
    if (!s->loaded) {
        log_error("%s", s->load_error.msg);
        s->status = 1;
        uv_stop(&s->loop);
        return;
    }
    loaded_model_log(&s->model);
    log_names(s);
    const struct api_model m = {
        .tokenizer = s->model.tokenizer,
        .template = s->model.template,
        .tool_template = s->model.tool_template,
        .texts = &s->model.texts,
        .defaults = s->model.defaults,
    };
    api_set_engine(s->api, s->model.engine, &m);
    bool v6 = strchr(s->settings.host, ':') != NULL;
    log_info("listening on http://%s%s%s:%d", v6 ? "[" : "", s->settings.host, v6 ? "]" : "",
             http_server_port(s->http));
}

/* "1 request", in text. */
static const char *count_of(const struct server *s, char text[32])
{
    const int n = api_n_in_flight(s->api);
    snprintf(text, 32, "%d request%s", n, n == 1 ? "" : "s");
    return text;
}

static void on_drain_tick(uv_timer_t *t)
{
    struct server *s = t->data;
    uint64_t now = uv_now(&s->loop);
    char text[32];
    if (!api_n_in_flight(s->api) && !http_server_n_requests(s->http)) {
        log_info("%s; ending", s->aborted ? "all requests have been ended" : "drained");
        uv_stop(&s->loop);
    } else if (!s->aborted && now >= s->drain_until) {
        log_warn("--drain-timeout is over: ending %s", count_of(s, text));
        api_abort_all(s->api, "draining", "the server is shutting down");
        s->aborted = true;
        s->last_words_until = now + LAST_WORDS_MS;
    } else if (s->aborted && now >= s->last_words_until) {
        uv_stop(&s->loop);
    }
}

static void start_drain(struct server *s, int64_t timeout_s)
{
    s->draining = true;
    api_set_draining(s->api, true);
    http_server_drain(s->http);
    s->drain_until = uv_now(&s->loop) + (uint64_t)timeout_s * 1000;
    uv_timer_start(&s->drain, on_drain_tick, 0, DRAIN_TICK_MS);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct server *s = handle->data;
    char text[32];
    if (s->draining) {
        log_warn("second signal: quitting");
        uv_stop(&s->loop);
        return;
    }
    log_info("%s: draining %s for at most %lld s (a second signal quits)",
             number == SIGINT ? "SIGINT" : "SIGTERM", count_of(s, text),
             (long long)s->settings.drain_timeout);
    start_drain(s, s->settings.drain_timeout);
}

/* A dead engine cannot come back: tell the clients, end, and let the supervisor start anew.
 * While draining too: the process has failed, whatever it was about to do. */
static void look_for_death(struct server *s)
{
    struct engine_stats stats;
    engine_get_stats(s->model.engine, &stats);
    if (!stats.dead || s->status != 0)
        return;
    log_error("the engine has failed; ending");
    s->status = 1;
    start_drain(s, 0);
}

static void on_wake(uv_async_t *handle)
{
    struct server *s = handle->data;
    if (!s->load_done)
        return;
    api_poll_engine(s->api);
    look_for_death(s);
}

static bool open_api(struct server *s, struct err *e)
{
    const struct api_config config = {
        .model_names = s->names.list,
        .created = time(NULL),
        .has_seed = s->settings.seed >= 0,
        .seed = (uint64_t)s->settings.seed,
        .max_queue_len = (int)s->settings.max_queue_len,
        .stall_limit_s = STALL_LIMIT_S,
    };
    s->api = api_open(&s->loop, &config, e);
    return s->api != NULL;
}

static bool open_http(struct server *s, struct err *e)
{
    const struct http_config config = {
        .host = s->settings.host,
        .port = (int)s->settings.port,
        .max_body = 32u << 20,
        .max_connections = 16384,
        .idle_timeout_s = 120,
        .header_deadline_ms = 20000,
        .body_deadline_ms = 120000,
        .max_stream_queue = 1u << 20,
        .max_replies = 256u << 20,
        .slow_reader_ms = 60000,
        .api_key = s->settings.api_key,
    };
    s->http = http_server_open(&s->loop, &config, api_routes(), s->api, e);
    if (s->http)
        api_set_http(s->api, s->http);
    return s->http != NULL;
}

static void open_handles(struct server *s)
{
    uv_loop_init(&s->loop);
    uv_async_init(&s->loop, &s->wake, on_wake);
    uv_timer_init(&s->loop, &s->drain);
    s->wake.data = s->drain.data = s->loading.data = s;
    for (int i = 0; i < 2; i++) {
        uv_signal_init(&s->loop, &s->signals[i]);
        s->signals[i].data = s;
        uv_signal_start(&s->signals[i], on_signal, i ? SIGINT : SIGTERM);
    }
}

static void on_tick(uv_timer_t *t)
{
    (void)t; /* wakes the loop */
}

/* What is in flight ends with the engine, but for work on the text pool that goes on (a template
 * that computes long): it cannot be called back, and the process would wait for it. */
static void end_in_flight(struct server *s)
{
    const uint64_t until = uv_hrtime() + (uint64_t)LAST_WORDS_MS * 1000000;
    uv_timer_start(&s->drain, on_tick, DRAIN_TICK_MS, DRAIN_TICK_MS);
    while (api_n_in_flight(s->api)) {
        if (uv_hrtime() > until) {
            log_warn("work on a request's text goes on: leaving without its end");
            _Exit(s->status);
        }
        uv_run(&s->loop, UV_RUN_ONCE);
    }
}

static void close_all(struct server *s)
{
    /* A second signal while the model still loads: that work cannot be called back. */
    if (!s->load_done && s->http)
        _Exit(s->status);
    if (s->http)
        http_server_close(s->http);
    if (s->model.engine) {
        engine_close(s->model.engine);
        api_engine_closed(s->api);
        end_in_flight(s);
    }
    if (s->api)
        api_free(s->api);
    uv_close((uv_handle_t *)&s->wake, NULL);
    uv_close((uv_handle_t *)&s->drain, NULL);
    for (int i = 0; i < 2; i++)
        uv_close((uv_handle_t *)&s->signals[i], NULL);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    uv_loop_close(&s->loop);
    loaded_model_free(&s->model);
    model_names_free(&s->names);
    settings_free(&s->settings);
}

static void setup_log(const struct settings *s)
{
    enum log_level level = LOG_DEBUG;
    static const char *const names[] = {"debug", "info", "warn", "error"};
    while (level < LOG_ERROR && strcmp(s->log_level, names[level]))
        level++;
    log_setup(level, strcmp(s->log_format, "json") ? LOG_TEXT : LOG_JSON);
}

static void warn(const char *message)
{
    log_warn("%s", message);
}

int cmd_serve(int argc, char **argv)
{
    static struct server s;
    struct err e = {0};
    switch (settings_read(&s.settings, argc, argv, &e)) {
    case SETTINGS_HELP:
        settings_print_help(stdout);
        return 0;
    case SETTINGS_ERROR:
        log_error("%s", e.msg);
        return 2;
    case SETTINGS_OK:
        break;
    }
    setup_log(&s.settings);
    settings_warn_environment(warn);
    if (!model_names_read(&s.names, s.settings.served_model_name, s.settings.model, &e)) {
        log_error("%s", e.msg);
        settings_free(&s.settings);
        return 2;
    }
    heap_trim_setup();
    text_pool_setup();
    signal(SIGPIPE, SIG_IGN);
    open_handles(&s);
    if (open_api(&s, &e) && open_http(&s, &e)) {
        uv_queue_work(&s.loop, &s.loading, load, on_loaded);
        uv_run(&s.loop, UV_RUN_DEFAULT);
    } else {
        log_error("%s", e.msg);
        s.status = 1;
    }
    close_all(&s);
    return s.status;
}
