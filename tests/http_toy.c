/* A server with toy handlers around server/http.h, for tests/e2e/test_http.py.
 *
 * usage: http_toy [NAME=NUMBER ...] [key=KEY]   prints its port, serves until SIGTERM */
#include "http_impl.h"
#include "log.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    struct http_server *server;
    uv_loop_t *loop;
    uv_signal_t term;
    long begun, done, gone, refused_writes, written;
} toy;

/* A request that is answered later, by a timer. */
struct job {
    struct http_request *r; /* NULL after on_done */
    uv_timer_t timer;
    long n, size, sent, hold; /* hold: the stream is not ended */
    bool full;                /* the stream has no room */
    int dones;
};

static const char *query(struct http_request *r, const char *name)
{
    const char *value = NULL;
    enum MHD_Result there = MHD_lookup_connection_value_n(r->conn->mhd, MHD_GET_ARGUMENT_KIND, name,
                                                          strlen(name), &value, NULL);
    return there == MHD_YES && !value ? "" : value;
}

static long number(struct http_request *r, const char *name, long otherwise)
{
    const char *s = query(r, name);
    return s ? strtol(s, NULL, 10) : otherwise;
}

static void free_job(uv_handle_t *h)
{
    free(h->data);
}

static void on_done(struct http_request *r, void *user, bool gone)
{
    struct job *j = user;
    if (j->dones++)
        abort();
    toy.done++;
    toy.gone += gone;
    j->r = NULL;
    uv_close((uv_handle_t *)&j->timer, free_job);
}

static struct job *new_job(struct http_request *r)
{
    struct job *j = calloc(1, sizeof *j);
    if (!j)
        abort();
    j->r = r;
    j->n = number(r, "n", 5);
    j->size = number(r, "size", 20);
    j->hold = number(r, "hold", 0);
    uv_timer_init(toy.loop, &j->timer);
    j->timer.data = j;
    toy.begun++;
    http_set_user(r, j, on_done);
    return j;
}

static void text(struct http_request *r, const char *s)
{
    http_reply(r, 200, "text/plain", s, strlen(s));
}

static void get_static(struct http_request *r, void *arg)
{
    text(r, "hello\n");
}

static void post_echo(struct http_request *r, void *arg)
{
    size_t n;
    const char *body = http_body(r, &n);
    new_job(r);
    http_reply(r, 200, "application/octet-stream", body, n);
    http_drop_body(r);
}

static void reply_later(uv_timer_t *t)
{
    struct job *j = t->data;
    text(j->r, "later\n");
}

static void get_delay(struct http_request *r, void *arg)
{
    uv_timer_start(&new_job(r)->timer, reply_later, (uint64_t)number(r, "ms", 20), 0);
}

static void get_never(struct http_request *r, void *arg)
{
    new_job(r);
}

static void on_room(struct http_request *r, void *user)
{
    ((struct job *)user)->full = false;
}

static void stream_more(uv_timer_t *t)
{
    struct job *j = t->data;
    if (j->full || !http_stream_has_room(j->r)) {
        j->full = true;
        return;
    }
    static char data[65536];
    memset(data, 'x', sizeof data);
    memcpy(data, "data: ", 6);
    long size = j->size < (long)sizeof data ? j->size : (long)sizeof data;
    memcpy(data + size - 2, "\n\n", 2);
    if (j->sent++ < j->n) {
        toy.written += size;
        if (!http_stream_write(j->r, data, (size_t)size)) {
            toy.refused_writes++;
            uv_timer_stop(t);
        }
        return;
    }
    uv_timer_stop(t);
    if (j->hold)
        return;
    http_stream_write(j->r, "data: [DONE]\n\n", 14);
    http_stream_end(j->r);
}

static void get_stream(struct http_request *r, void *arg)
{
    struct job *j = new_job(r);
    uint64_t ms = (uint64_t)number(r, "ms", 5);
    if (number(r, "begin", 1))
        http_stream_begin(r, 200, "text/event-stream", on_room);
    uv_timer_start(&j->timer, stream_more, ms, ms);
}

/* Everything in the handler. */
static void get_stream_now(struct http_request *r, void *arg)
{
    struct job *j = new_job(r);
    http_stream_begin(r, 200, "text/event-stream", NULL);
    for (long i = 0; i < j->n; i++)
        http_stream_write(r, "data: now\n\n", 11);
    http_stream_end(r);
}

static void get_big(struct http_request *r, void *arg)
{
    struct job *j = new_job(r);
    char *s = calloc(1, (size_t)j->size + 1);
    if (!s)
        abort();
    memset(s, 'b', (size_t)j->size);
    http_reply(r, 200, "text/plain", s, (size_t)j->size);
    free(s);
}

static void get_error(struct http_request *r, void *arg)
{
    new_job(r);
    const char *m = query(r, "message");
    http_reply_error(r, (int)number(r, "status", 400), "toy", "field", (int)number(r, "retry", 0),
                     "%s", m ? m : "no");
}

static void get_show(struct http_request *r, void *arg)
{
    char s[512];
    const char *q = query(r, "q"), *h = http_header(r, "x-show");
    snprintf(s, sizeof s, "%s|%s|%s", http_path(r), q ? q : "-", h ? h : "-");
    text(r, s);
}

static void get_rest(struct http_request *r, void *arg)
{
    text(r, http_path_rest(r));
}

static void get_counts(struct http_request *r, void *arg)
{
    char s[512];
    struct http_stats st;
    http_get_stats(toy.server, &st);
    snprintf(s, sizeof s,
             "{\"begun\":%ld,\"done\":%ld,\"gone\":%ld,\"refused_writes\":%ld,\"written\":%ld,"
             "\"requests\":%llu,"
             "\"connections\":%llu,\"slow\":%llu,\"refused\":%llu,\"open\":%d}",
             toy.begun, toy.done, toy.gone, toy.refused_writes, toy.written,
             (unsigned long long)st.requests, (unsigned long long)st.connections_open,
             (unsigned long long)st.slow_readers_cut, (unsigned long long)st.refused,
             http_server_n_requests(toy.server));
    http_reply(r, 200, "application/json", s, strlen(s));
}

static void post_drain(struct http_request *r, void *arg)
{
    http_server_drain(toy.server);
    text(r, "draining\n");
}

static void post_both(struct http_request *r, void *arg)
{
    text(r, "posted\n");
}

static const struct http_route routes[] = {
    {HTTP_GET, "/static", get_static, true},
    {HTTP_POST, "/v1/echo", post_echo, false},
    {HTTP_GET, "/v1/delay", get_delay, false},
    {HTTP_GET, "/v1/never", get_never, false},
    {HTTP_POST, "/v1/never", get_never, false},
    {HTTP_GET, "/v1/stream", get_stream, false},
    {HTTP_GET, "/v1/stream/now", get_stream_now, false},
    {HTTP_GET, "/v1/big", get_big, false},
    {HTTP_GET, "/v1/error", get_error, false},
    {HTTP_GET, "/show", get_show, false},
    {HTTP_GET, "/v1/below/", get_rest, .prefix = true},
    {HTTP_GET, "/v1/below/exact", get_static, false},
    {HTTP_GET, "/both", get_static, false},
    {HTTP_POST, "/both", post_both, false},
    {HTTP_GET, "/counts", get_counts, true},
    {HTTP_POST, "/drain", post_drain, false},
    {0},
};

static void on_term(uv_signal_t *h, int signum)
{
    uv_close((uv_handle_t *)h, NULL);
    http_server_close(toy.server);
}

static void set_option(struct http_config *c, const char *arg)
{
    const char *value = strchr(arg, '=');
    if (!value)
        return;
    size_t n = (size_t)(value++ - arg);
    long number = strtol(value, NULL, 10);
    struct {
        const char *name;
        int *to;
    } ints[] = {{"port", &c->port},
                {"connections", &c->max_connections},
                {"idle_s", &c->idle_timeout_s},
                {"header_ms", &c->header_deadline_ms},
                {"body_ms", &c->body_deadline_ms},
                {"slow_ms", &c->slow_reader_ms}};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        if (strlen(ints[i].name) == n && strncmp(arg, ints[i].name, n) == 0)
            *ints[i].to = (int)number;
    if (strncmp(arg, "key=", 4) == 0)
        c->api_key = value;
    if (strncmp(arg, "body=", 5) == 0)
        c->max_body = (size_t)number;
    if (strncmp(arg, "queue=", 6) == 0)
        c->max_stream_queue = (size_t)number;
}

int main(int argc, char **argv)
{
    struct http_config c = {.host = "127.0.0.1",
                            .max_body = 1 << 20,
                            .max_connections = 1000,
                            .idle_timeout_s = 120,
                            .header_deadline_ms = 400,
                            .body_deadline_ms = 400,
                            .max_stream_queue = 256 << 10,
                            .slow_reader_ms = 400};
    for (int i = 1; i < argc; i++)
        set_option(&c, argv[i]);
    if (getenv("HTTP_TOY_DEBUG"))
        log_setup(LOG_DEBUG, LOG_TEXT);
    struct err e;
    toy.loop = uv_default_loop();
    toy.server = http_server_open(toy.loop, &c, routes, NULL, &e);
    if (!toy.server) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    uv_signal_init(toy.loop, &toy.term);
    uv_signal_start(&toy.term, on_term, SIGTERM);
    printf("%d\n", http_server_port(toy.server));
    fflush(stdout);
    uv_run(toy.loop, UV_RUN_DEFAULT);
    if (uv_loop_close(toy.loop))
        fprintf(stderr, "a handle was not closed\n");
    if (toy.begun != toy.done)
        fprintf(stderr, "%ld requests begun, %ld done\n", toy.begun, toy.done);
    return toy.begun == toy.done ? 0 : 1;
}
