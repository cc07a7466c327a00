#include "http_impl.h"
#include "log.h"

#include <linux/sockios.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>

enum { BLOCK = 4096 }; /* libmicrohttpd's buffer of a close-delimited stream */

static size_t waiting(const struct http_request *r)
{
    return r->queue.len - r->taken;
}

/* ---- slow readers: from the time data waits until it is taken, the connection is in the list
 * `writing`; each look compares the socket's queue, since libmicrohttpd only asks for more
 * when a whole chunk went out. ---- */

static int unsent(const struct http_conn *c)
{
    int n = 0;
    return ioctl(c->fd, SIOCOUTQ, &n) == 0 ? n : -1;
}

void http_writing_start(struct http_conn *c)
{
    c->progress_at = uv_now(c->server->loop);
    c->unsent = -1;
    http_wait_start(c->server, &c->server->writing, &c->wait);
}

static void cut(struct http_conn *c)
{
    c->request->gone = true;
    if (c->suspended)
        http_conn_resume(c);
    else
        http_conn_cut(c);
}

void http_writing_expired(struct http_server *s, struct http_wait *w)
{
    struct http_conn *c = list_entry(w, struct http_conn, wait);
    uint64_t now = uv_now(s->loop);
    int n = unsent(c);
    if (n != c->unsent && c->unsent >= 0)
        c->progress_at = now;
    c->unsent = n;
    if (now - c->progress_at < (uint64_t)s->cfg.slow_reader_ms) {
        http_wait_start(s, &s->writing, &c->wait);
        return;
    }
    s->n_slow++;
    cut(c);
}

/* ---- the stream ---- */

static size_t take(struct http_request *r, char *to, size_t max)
{
    size_t n = waiting(r) < max ? waiting(r) : max;
    memcpy(to, r->queue.data + r->taken, n);
    r->taken += n;
    if (r->taken == r->queue.len) {
        buf_clear(&r->queue);
        r->taken = 0;
    }
    return n;
}

/* ---- room: the maker of the data is told outside libmicrohttpd's callbacks. ---- */

bool http_stream_has_room(struct http_request *r)
{
    if (waiting(r) < r->conn->server->cfg.max_stream_queue)
        return true;
    r->wants_room = true;
    return false;
}

static void note_room(struct http_request *r)
{
    struct http_server *s = r->conn->server;
    if (!r->wants_room || waiting(r) > s->cfg.max_stream_queue / 2)
        return;
    r->wants_room = false;
    list_push_back(&s->roomy, &r->room_node);
}

void http_tell_room(struct http_server *s)
{
    struct list_node *n;
    while ((n = list_first(&s->roomy))) {
        struct http_request *r = list_entry(n, struct http_request, room_node);
        list_remove(n);
        if (r->state == HTTP_STREAMING && !r->gone && r->on_room)
            r->on_room(r, r->user);
    }
}

/* ---- writing ---- */

/* libmicrohttpd asks when all it had is in the socket. Without data the connection is
 * suspended, else the daemon would ask again and again. */
static ssize_t on_read(void *cls, uint64_t pos, char *to, size_t max)
{
    struct http_request *r = cls;
    struct http_conn *c = r->conn;
    if (r->gone)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (waiting(r)) {
        http_writing_start(c);
        size_t n = take(r, to, max);
        note_room(r);
        return (ssize_t)n;
    }
    if (r->state == HTTP_ANSWERED)
        return MHD_CONTENT_READER_END_OF_STREAM;
    http_wait_stop(&c->wait);
    http_conn_suspend(c);
    return 0;
}

void http_stream_begin(struct http_request *r, int status, const char *content_type,
                       void (*on_room)(struct http_request *, void *user))
{
    if (r->state != HTTP_HANDLING || r->gone)
        return;
    r->on_room = on_room;
    struct MHD_Response *m =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, on_read, r, NULL);
    if (m) {
        MHD_add_response_header(m, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
        if (strncasecmp(content_type, "text/event-stream", 17) == 0) {
            MHD_add_response_header(m, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
            MHD_add_response_header(m, "X-Accel-Buffering", "no");
        }
        http_add_common_headers(r, m);
    }
    http_send(r, status, m, HTTP_STREAMING);
}

/* Dropping the front when it is the larger part costs each byte at most one move. */
static bool append(struct http_request *r, const void *data, size_t n)
{
    if (r->taken > 4096 && r->taken > r->queue.len / 2) {
        buf_drop(&r->queue, r->taken);
        r->taken = 0;
    }
    buf_add(&r->queue, data, n);
    return !r->queue.failed;
}

static void wake(struct http_conn *c)
{
    if (!c->suspended)
        return;
    http_conn_resume(c);
    http_writing_start(c);
}

bool http_stream_write(struct http_request *r, const void *data, size_t n)
{
    if (r->state != HTTP_STREAMING || r->gone)
        return false;
    if (n == 0)
        return true;
    if (!append(r, data, n)) {
        log_warn("http: %s: out of memory for a stream; it is cut", r->id);
        cut(r->conn);
        return false;
    }
    wake(r->conn);
    return true;
}

void http_stream_abort(struct http_request *r)
{
    if (r->state == HTTP_STREAMING && !r->gone)
        cut(r->conn);
}

void http_stream_end(struct http_request *r)
{
    if (r->state != HTTP_STREAMING || r->gone)
        return;
    r->state = HTTP_ANSWERED;
    http_conn_unwatch(r->conn);
    wake(r->conn);
}
