#include "http_impl.h"
#include "log.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    OTHER_FILES = 128,        /* descriptors that are not connections: model, log, epoll, ... */
    REFUSING = 64,            /* connections over the limit, held only to say so */
    NOT_SENT_MOST = 64 << 10, /* unsent bytes the kernel holds of a connection */
    EXTRA_RUNS = 3,
    IDLE_LOOK = 2000, /* ms between looks at a connection without a request */
    BODY_LOOK = 1000, /* and at one whose body is coming */
};

/* ---- the daemon in the loop ---- */

static void on_mhd_timer(uv_timer_t *t)
{
    ((struct http_server *)t->data)->due = true;
}

/* A stream's chunk takes two runs (one readies it, one sends it), so while the daemon says
 * that it has work at hand it goes on at once, within bounds. */
static void run_daemon(struct http_server *s)
{
    MHD_UNSIGNED_LONG_LONG ms = 0;
    bool timed = true;
    s->due = false;
    for (int i = 0; i <= EXTRA_RUNS && timed && ms == 0; i++) {
        MHD_run(s->daemon);
        timed = MHD_get_timeout(s->daemon, &ms) == MHD_YES;
    }
    if (timed)
        uv_timer_start(&s->mhd_timer, on_mhd_timer, ms, 0);
    else
        uv_timer_stop(&s->mhd_timer);
    http_tell_room(s);
    if (s->due) /* what was just written; this may be the last stop before the loop blocks */
        uv_timer_start(&s->mhd_timer, on_mhd_timer, 0, 0);
}

static void run_if_due(struct http_server *s)
{
    if (s->due)
        run_daemon(s);
}

static void on_mhd_poll(uv_poll_t *p, int status, int events)
{
    ((struct http_server *)p->data)->due = true;
}

/* What timers resumed runs before the loop blocks; what came by sockets, the engine's wake-up
 * and finished work runs right after, all of a turn together. */
static void before_poll(uv_prepare_t *h)
{
    run_if_due(h->data);
}

static void after_poll(uv_check_t *h)
{
    run_if_due(h->data);
}

/* libmicrohttpd logs before it answers a Content-Length that it cannot read, or headers for which
 * its memory does not suffice, and that is the only chance to answer better: the handler is not
 * called, and its own reply has the status line and the headers twice, or is in HTML. What it says
 * is not looked at. */
static void on_mhd_log(void *server, const char *fmt, va_list ap)
{
    char line[512];
    vsnprintf(line, sizeof line, fmt, ap);
    line[strcspn(line, "\r\n")] = '\0';
    log_debug("http: %s", line);
    http_refuse_unread(server);
}

/* ---- opening ---- */

/* Inherited by the accepted sockets. Keep-alive probes and the user timeout find peers that
 * vanished without a word; little unsent data keeps slow readers' memory with us, bounded. */
static void set_socket_options(int fd)
{
    int on = 1, idle_s = 60, every_s = 15, tries = 4, user_ms = 120 * 1000,
        not_sent = NOT_SENT_MOST;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_ms, sizeof user_ms);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &not_sent, sizeof not_sent);
}

static int listen_at(const struct addrinfo *a)
{
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0)
        return -1;
    set_socket_options(fd);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static int open_listener(const struct http_config *c, struct err *e)
{
    char port[8];
    snprintf(port, sizeof port, "%d", c->port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *all = NULL;
    int rc = getaddrinfo(c->host, port, &hints, &all);
    if (rc) {
        err_set(e, ERR_INVALID, "host '%s': %s", c->host, gai_strerror(rc));
        return -1;
    }
    int fd = -1; /* a name that has both, as localhost, means IPv4 */
    for (int v6 = 0; v6 < 2; v6++)
        for (struct addrinfo *a = all; a && fd < 0; a = a->ai_next)
            if ((a->ai_family == AF_INET6) == v6)
                fd = listen_at(a);
    if (fd < 0)
        err_errno(e, "cannot listen on %s:%d", c->host, c->port);
    freeaddrinfo(all);
    return fd;
}

static int port_of(int fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n))
        return 0;
    if (a.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)&a)->sin6_port);
    return ntohs(((struct sockaddr_in *)&a)->sin_port);
}

/* Raises the limit on descriptors as far as the connections need, and lowers the limit on
 * connections where that is not granted. */
static void fit_to_file_limit(struct http_config *c)
{
    const rlim_t extra = OTHER_FILES + REFUSING + HTTP_MAX_LINGERING;
    rlim_t need = (rlim_t)c->max_connections + extra;
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur >= need)
        return;
    r.rlim_cur = r.rlim_max < need ? r.rlim_max : need;
    if (setrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur < need) {
        getrlimit(RLIMIT_NOFILE, &r);
        int fits = r.rlim_cur > extra + 1 ? (int)(r.rlim_cur - extra) : 1;
        log_warn("http: the limit on open files (%llu) allows %d connections, not %d",
                 (unsigned long long)r.rlim_cur, fits, c->max_connections);
        if (fits < c->max_connections)
            c->max_connections = fits;
    }
}

static bool start_daemon(struct http_server *s, struct err *e)
{
    s->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, http_on_access,
        s, MHD_OPTION_EXTERNAL_LOGGER, on_mhd_log, s, MHD_OPTION_LISTEN_SOCKET, s->listen_fd,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)(s->cfg.max_connections + REFUSING),
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)s->cfg.idle_timeout_s,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_POOL, MHD_OPTION_NOTIFY_CONNECTION,
        http_conn_notify, s, MHD_OPTION_NOTIFY_COMPLETED, http_on_completed, s,
        MHD_OPTION_UNESCAPE_CALLBACK, http_unescape, NULL, MHD_OPTION_URI_LOG_CALLBACK,
        http_on_request_line, s, MHD_OPTION_END);
    if (!s->daemon)
        return err_set(e, ERR_IO, "libmicrohttpd %s does not start (epoll missing?)",
                       MHD_get_version());
    return true;
}

static void on_handle_closed(uv_handle_t *h)
{
    struct http_server *s = h->data;
    if (--s->n_handles > 0)
        return;
    free((char *)s->cfg.host);
    free((char *)s->cfg.api_key);
    free(s);
}

static void own_handle(struct http_server *s, uv_handle_t *h)
{
    h->data = s;
    s->n_handles++;
}

static bool start_handles(struct http_server *s, struct err *e)
{
    int epoll_fd = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    int rc = uv_poll_init(s->loop, &s->mhd_poll, epoll_fd);
    if (rc)
        return err_set(e, ERR_IO, "uv_poll_init: %s", uv_strerror(rc));
    own_handle(s, (uv_handle_t *)&s->mhd_poll);
    uv_timer_init(s->loop, &s->mhd_timer);
    own_handle(s, (uv_handle_t *)&s->mhd_timer);
    uv_timer_init(s->loop, &s->wait_timer);
    own_handle(s, (uv_handle_t *)&s->wait_timer);
    uv_prepare_init(s->loop, &s->before_poll);
    own_handle(s, (uv_handle_t *)&s->before_poll);
    uv_check_init(s->loop, &s->after_poll);
    own_handle(s, (uv_handle_t *)&s->after_poll);
    uv_poll_start(&s->mhd_poll, UV_READABLE, on_mhd_poll);
    uv_timer_start(&s->mhd_timer, on_mhd_timer, 0, 0);
    uv_prepare_start(&s->before_poll, before_poll);
    uv_check_start(&s->after_poll, after_poll);
    return true;
}

/* The longest period up to `most` of which the deadline is a multiple. */
static uint64_t look_every(int deadline_ms, uint64_t most)
{
    uint64_t looks = ((uint64_t)deadline_ms + most - 1) / most;
    return looks ? ((uint64_t)deadline_ms + looks - 1) / looks : 1;
}

static void init_waits(struct http_server *s)
{
    const struct http_config *c = &s->cfg;
    http_wait_list_init(&s->idle, look_every(c->header_deadline_ms / 2, IDLE_LOOK),
                        http_conn_idle_expired);
    http_wait_list_init(&s->body, look_every(c->body_deadline_ms, BODY_LOOK),
                        http_conn_body_expired);
    http_wait_list_init(&s->writing, (uint64_t)c->slow_reader_ms / 4, http_writing_expired);
    http_wait_list_init(&s->dying, 1000, http_conn_dying_expired);
    http_wait_list_init(&s->lingering, 2000, http_linger_expired);
    http_wait_list_init(&s->trimming, 1000, http_trim_expired);
    list_init(&s->connections);
    list_init(&s->lingerers);
    list_init(&s->roomy);
    list_init(&s->in_headers);
}

/* All bodies together stay below 16 of the largest, and at least 256 MiB are allowed. */
static size_t all_bodies(size_t max_body)
{
    const size_t least = (size_t)256 << 20;
    size_t most = max_body > SIZE_MAX / 16 ? SIZE_MAX : max_body * 16;
    return most > least ? most : least;
}

static struct http_server *new_server(uv_loop_t *loop, const struct http_config *c,
                                      const struct http_route *routes, void *arg)
{
    struct http_server *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->loop = loop;
    s->cfg = *c;
    s->cfg.host = strdup(c->host);
    s->cfg.api_key = c->api_key ? strdup(c->api_key) : NULL;
    s->routes = routes;
    s->arg = arg;
    s->listen_fd = -1;
    s->max_body_bytes = all_bodies(c->max_body);
    s->raw_header_check = strverscmp(MHD_get_version(), "0.9.76") < 0;
    init_waits(s);
    return s;
}

struct http_server *http_server_open(uv_loop_t *loop, const struct http_config *c,
                                     const struct http_route *routes, void *arg, struct err *e)
{
    struct http_server *s = new_server(loop, c, routes, arg);
    if (!s || !s->cfg.host || (c->api_key && !s->cfg.api_key)) {
        err_set(e, ERR_MEMORY, "out of memory");
        goto fail;
    }
    fit_to_file_limit(&s->cfg);
    s->listen_fd = open_listener(&s->cfg, e);
    if (s->listen_fd < 0)
        goto fail;
    s->port = port_of(s->listen_fd);
    if (start_daemon(s, e) && start_handles(s, e))
        return s;
fail:
    if (s) {
        if (s->daemon)
            MHD_stop_daemon(s->daemon); /* closes the listening socket too */
        else if (s->listen_fd >= 0)
            close(s->listen_fd);
        free((char *)s->cfg.host);
        free((char *)s->cfg.api_key);
        free(s);
    }
    return NULL;
}

int http_server_port(const struct http_server *s)
{
    return s->port;
}

int http_server_n_requests(const struct http_server *s)
{
    return s->n_requests;
}

void http_get_stats(const struct http_server *s, struct http_stats *st)
{
    *st = (struct http_stats){.requests = s->n_seen,
                              .connections_open = (uint64_t)s->n_connections,
                              .slow_readers_cut = s->n_slow,
                              .refused = s->n_refused};
}

/* ---- closing ---- */

void http_server_drain(struct http_server *s)
{
    s->draining = true;
}

/* The daemon must not be stopped while connections are suspended. */
static void resume_all(struct http_server *s)
{
    for (struct list_node *n = list_first(&s->connections); n; n = list_next(&s->connections, n)) {
        struct http_conn *c = list_entry(n, struct http_conn, node);
        if (c->request)
            c->request->gone = true;
        if (c->suspended)
            http_conn_resume(c);
    }
}

void http_server_close(struct http_server *s)
{
    if (!s)
        return;
    s->closing = true;
    resume_all(s);
    uv_close((uv_handle_t *)&s->mhd_poll, on_handle_closed); /* before its descriptor closes */
    MHD_stop_daemon(s->daemon);
    http_linger_close_all(s);
    uv_close((uv_handle_t *)&s->mhd_timer, on_handle_closed);
    uv_close((uv_handle_t *)&s->wait_timer, on_handle_closed);
    uv_close((uv_handle_t *)&s->before_poll, on_handle_closed);
    uv_close((uv_handle_t *)&s->after_poll, on_handle_closed);
}
