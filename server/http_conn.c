#include "http_impl.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- lingering: after an early refusal the client may still be sending; closing with its
 * bytes unread would reset the connection and take our reply back. ---- */

enum { LINGER_READ = 16 << 10, LINGER_READS = 16 };

struct lingerer {
    struct list_node node;
    struct http_server *server;
    uv_poll_t poll;
    int fd;
    struct http_wait wait;
};

static void on_lingerer_closed(uv_handle_t *h)
{
    free(h->data);
}

static void linger_close(struct lingerer *l)
{
    http_wait_stop(&l->wait);
    list_remove(&l->node);
    l->server->n_lingering--;
    uv_close((uv_handle_t *)&l->poll, on_lingerer_closed);
    close(l->fd);
}

static void on_lingering(uv_poll_t *p, int status, int events)
{
    struct lingerer *l = p->data;
    char sink[LINGER_READ];
    for (int i = 0; status == 0 && i < LINGER_READS; i++) {
        ssize_t n = recv(l->fd, sink, sizeof sink, MSG_DONTWAIT);
        if (n > 0)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        status = -1;
    }
    if (status)
        linger_close(l);
}

void http_linger_expired(struct http_server *s, struct http_wait *w)
{
    linger_close(list_entry(w, struct lingerer, wait));
}

void http_linger_close_all(struct http_server *s)
{
    struct list_node *n;
    while ((n = list_first(&s->lingerers)))
        linger_close(list_entry(n, struct lingerer, node));
}

/* libmicrohttpd has said its FIN and closes fd next; a duplicate keeps the socket. */
static void linger_start(struct http_server *s, int fd)
{
    struct lingerer *l = calloc(1, sizeof *l);
    if (!l)
        return;
    l->server = s;
    l->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (l->fd < 0 || uv_poll_init(s->loop, &l->poll, l->fd)) {
        if (l->fd >= 0)
            close(l->fd);
        free(l);
        return;
    }
    l->poll.data = l;
    list_push_back(&s->lingerers, &l->node);
    s->n_lingering++;
    http_wait_start(s, &s->lingering, &l->wait);
    uv_poll_start(&l->poll, UV_READABLE, on_lingering);
}

static bool has_unread(int fd)
{
    int n = 0;
    return ioctl(fd, FIONREAD, &n) == 0 && n > 0;
}

/* ---- birth and death ---- */

static void refuse(struct http_conn *c)
{
    c->server->n_refused++;
    http_conn_last_words(c, 503, "too_many_connections",
                         "The server has as many connections as it accepts; try again.");
}

static void opened(struct http_server *s, struct MHD_Connection *mhd, void **context)
{
    struct http_conn *c = calloc(1, sizeof *c);
    *context = c;
    if (!c)
        return;
    c->server = s;
    c->mhd = mhd;
    c->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    list_push_back(&s->connections, &c->node);
    s->n_connections++;
    http_conn_idle(c);
    if (s->n_connections > s->cfg.max_connections)
        refuse(c);
}

static void on_watch_closed(uv_handle_t *h)
{
    free(h->data);
}

static void closed(struct http_conn *c)
{
    struct http_server *s = c->server;
    http_wait_stop(&c->wait);
    list_remove(&c->node);
    http_headers_end(c);
    s->n_connections--;
    if (!s->closing && !c->aborted && s->n_lingering < HTTP_MAX_LINGERING &&
        (c->linger || has_unread(c->fd)))
        linger_start(s, c->fd);
    if (c->watch_open)
        uv_close((uv_handle_t *)&c->watch, on_watch_closed);
    else
        free(c);
}

void http_conn_notify(void *server, struct MHD_Connection *mhd, void **context,
                      enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        opened(server, mhd, context);
    else if (*context)
        closed(*context);
}

/* ---- watching for a client that leaves ---- */

/* A half-close counts as leaving. A reset, or a close with unread data, arrives as a negative
 * status. While libmicrohttpd is stuck writing, only a cut makes it notice. */
static void on_left(uv_poll_t *p, int status, int events)
{
    struct http_conn *c = p->data;
    http_conn_unwatch(c);
    if (!c->request)
        return;
    c->request->gone = true;
    if (c->suspended)
        http_conn_resume(c);
    else
        http_conn_cut(c);
}

static void watch(struct http_conn *c)
{
    if (c->watching)
        return;
    if (!c->watch_open) {
        int rc = uv_poll_init(c->server->loop, &c->watch, c->fd);
        if (rc) {
            log_error("http: cannot watch a connection: %s", uv_strerror(rc));
            return;
        }
        c->watch.data = c;
        c->watch_open = true;
    }
    c->watching = uv_poll_start(&c->watch, UV_DISCONNECT, on_left) == 0;
}

void http_conn_unwatch(struct http_conn *c)
{
    if (c->watching)
        uv_poll_stop(&c->watch);
    c->watching = false;
}

/* Only from libmicrohttpd's callbacks (its rule). The watch then stays on through a stream's
 * resumes, until all is said: stopping and starting it costs three system calls. */
void http_conn_suspend(struct http_conn *c)
{
    MHD_suspend_connection(c->mhd);
    c->suspended = true;
    watch(c);
}

void http_conn_resume(struct http_conn *c)
{
    c->suspended = false;
    MHD_resume_connection(c->mhd);
    c->server->due = true;
}

void http_conn_cut(struct http_conn *c)
{
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    c->aborted = true;
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    shutdown(c->fd, SHUT_RDWR); /* wakes libmicrohttpd, which then closes it */
    c->server->due = true;
}

/* ---- deadlines of requests not complete yet ---- */

/* Nothing of ours is in flight between requests and while a body comes, so the bytes cannot
 * fall into the middle of a reply. */
void http_conn_last_words(struct http_conn *c, int status, const char *code, const char *message)
{
    if (c->dead)
        return;
    c->dead = c->linger = true;
    char id[HTTP_ID_MAX + 1];
    if (c->request)
        memcpy(id, c->request->id, sizeof id);
    else
        http_take_id(c->server, id,
                     MHD_lookup_connection_value(c->mhd, MHD_HEADER_KIND, "x-request-id"));
    char *body = http_error_body(status, code, NULL, message);
    struct buf b = {0};
    buf_addf(&b,
             "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\nx-request-id: %s\r\nAccess-Control-Allow-Origin: *\r\n"
             "%s\r\n%s",
             status, http_reason(status), body ? strlen(body) : 0, id,
             status == 503 ? "Retry-After: 1\r\n" : "", body ? body : "");
    if (!b.failed && send(c->fd, b.data, b.len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        log_debug("http: last words: %s", strerror(errno));
    shutdown(c->fd, SHUT_WR);
    http_wait_start(c->server, &c->server->dying, &c->wait);
    buf_free(&b);
    free(body);
}

bool http_conn_answered_by_mhd(const struct http_conn *c)
{
    return !c->request && MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_HTTP_STATUS);
}

/* It neither closed nor sent what would make libmicrohttpd ask us about it. */
void http_conn_dying_expired(struct http_server *s, struct http_wait *w)
{
    http_conn_cut(list_entry(w, struct http_conn, wait));
}

void http_conn_idle(struct http_conn *c)
{
    c->idle_since = uv_hrtime();
    c->partial_since = 0;
    http_wait_start(c->server, &c->server->idle, &c->wait);
}

void http_conn_await_body(struct http_conn *c)
{
    c->body_since = uv_now(c->server->loop);
    http_wait_start(c->server, &c->server->body, &c->wait);
}

/* What the kernel tells of a connection; libc's struct stops before tcpi_bytes_received. */
union tcp_facts {
    struct tcp_info info;
    char raw[136];
};
enum { BYTES_RECEIVED_AT = 128 };

static uint64_t bytes_received(const union tcp_facts *t)
{
    uint64_t n;
    memcpy(&n, t->raw + BYTES_RECEIVED_AT, sizeof n);
    return n;
}

/* libmicrohttpd does not tell of a request's first byte, but the kernel knows whether and when
 * data last came. Looking twice a deadline finds a client that drips its headers within one
 * and a half of it. */
static void find_partial(struct http_conn *c, const union tcp_facts *t, uint64_t now)
{
    const uint64_t ms = 1000000, slack = 20 * ms; /* the kernel counts in ticks */
    uint64_t silent = t->info.tcpi_last_data_recv * ms;
    bool came = c->served ? silent + slack < now - c->idle_since : bytes_received(t) > 0;
    if (came && !c->partial_since)
        c->partial_since = now - silent;
}

static union tcp_facts facts_of(const struct http_conn *c)
{
    union tcp_facts t = {.raw = {0}};
    socklen_t n = sizeof t;
    if (getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &t, &n))
        log_debug("http: TCP_INFO: %s", strerror(errno));
    return t;
}

/* It also forgets an end of file that came together with a piece of a request. Where it has not
 * read all yet, the rest may complete the request. */
static bool left_unnoticed(const struct http_conn *c, const union tcp_facts *t)
{
    return t->info.tcpi_state == TCP_CLOSE ||
           (t->info.tcpi_state == TCP_CLOSE_WAIT && !has_unread(c->fd));
}

void http_conn_idle_expired(struct http_server *s, struct http_wait *w)
{
    struct http_conn *c = list_entry(w, struct http_conn, wait);
    const uint64_t deadline = (uint64_t)s->cfg.header_deadline_ms * 1000000, now = uv_hrtime();
    const union tcp_facts t = facts_of(c);
    find_partial(c, &t, now);
    bool late = c->partial_since && now - c->partial_since >= deadline;
    if (left_unnoticed(c, &t) || (late && http_conn_answered_by_mhd(c)))
        http_conn_cut(c);
    else if (late)
        http_conn_last_words(c, 408, "request_timeout",
                             "The request's headers did not arrive in time.");
    else
        http_wait_start(s, &s->idle, &c->wait);
}

void http_conn_body_expired(struct http_server *s, struct http_wait *w)
{
    struct http_conn *c = list_entry(w, struct http_conn, wait);
    const union tcp_facts t = facts_of(c);
    if (left_unnoticed(c, &t))
        http_conn_cut(c);
    else if (uv_now(s->loop) - c->body_since >= (uint64_t)s->cfg.body_deadline_ms)
        http_conn_last_words(c, 408, "request_timeout",
                             "The request's body did not arrive in time.");
    else
        http_wait_start(s, &s->body, &c->wait);
}
