#include "edit_distance.h"
#include "heap_trim.h"
#include "http_impl.h"
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- what libmicrohttpd lets through ---- */

/* %00 stays as it is: a path or value that ends early would pass for another. */
size_t http_unescape(void *cls, struct MHD_Connection *mhd, char *s)
{
    static const char digits[] = "0123456789abcdef";
    char *to = s;
    for (const char *p = s; *p;) {
        const char *hi = *p == '%' && p[1] ? strchr(digits, p[1] | 0x20) : NULL;
        const char *lo = hi && p[2] ? strchr(digits, p[2] | 0x20) : NULL;
        int c = lo ? (int)((hi - digits) * 16 + (lo - digits)) : 0;
        *to++ = c ? (char)c : *p;
        p += c ? 3 : 1;
    }
    *to = '\0';
    return (size_t)(to - s);
}

struct header_check {
    const char *bad;  /* NULL: all well so far */
    const char *last; /* where the last value ended; NULL: not known */
    int n_length, n_coding, n_host;
    bool chunked;
};

static bool is_token(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c <= ' ' || c >= 0x7F || strchr("\"(),/:;<=>?@[\\]{}", c))
            return false;
    }
    return n > 0;
}

static bool is_value(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (((unsigned char)s[i] < ' ' && s[i] != '\t') || s[i] == 0x7F)
            return false;
    return true;
}

/* libmicrohttpd ends lines in place, each with one or two NULs. Anything else between one
 * header's value and the next header's name was cut off by a NUL of the client's, or folded. */
static bool only_line_ends(const char *from, const char *to, int lines)
{
    if (to - from < lines || to - from > 2 * lines)
        return false;
    for (; from < to; from++)
        if (*from)
            return false;
    return true;
}

static const char cut_off[] = "A header contains a NUL or goes on over several lines.";

static enum MHD_Result check_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                    size_t n_name, const char *value, size_t n_value)
{
    struct header_check *h = cls;
    if (!is_token(name, n_name))
        h->bad = "A header's name is not well formed.";
    else if (!is_value(value, n_value))
        h->bad = "A header's value contains control characters.";
    else if (h->last && !only_line_ends(h->last, name, 1))
        h->bad = cut_off;
    if (h->last)
        h->last = value + n_value;
    if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0)
        h->n_length++;
    else if (strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0)
        h->n_host++;
    else if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0) {
        h->n_coding++;
        h->chunked = strcasecmp(value, "chunked") == 0;
    }
    return h->bad ? MHD_NO : MHD_YES;
}

static const char *broken(const struct header_check *h, const char *version)
{
    if (h->bad)
        return h->bad;
    if (h->n_length > 1)
        return "Content-Length is given more than once.";
    if (h->n_length && h->n_coding)
        return "Content-Length together with Transfer-Encoding is not allowed.";
    if (h->n_coding > 1 || (h->n_coding && !h->chunked))
        return "Transfer-Encoding must be chunked, and nothing else.";
    if (h->n_coding && strcmp(version, "HTTP/1.0") == 0)
        return "Transfer-Encoding is not allowed in HTTP/1.0.";
    if (h->n_host > 1)
        return "Host is given more than once.";
    if (h->n_host == 0 && strcmp(version, "HTTP/1.0") != 0)
        return "Host is missing.";
    return NULL;
}

static size_t headers_size(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *i =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return i ? i->header_size : 0;
}

/* ---- what it answers itself, wrongly ---- */

/* 0: none, or one that libmicrohttpd takes; else the status that refuses it. */
static int judge_length(struct MHD_Connection *mhd)
{
    const char *s =
        MHD_lookup_connection_value(mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (!s)
        return 0;
    if (!*s || s[strspn(s, "0123456789")])
        return 400;
    errno = 0;
    strtoull(s, NULL, 10);
    return errno ? 413 : 0;
}

static struct http_conn *conn_of(struct MHD_Connection *mhd)
{
    return MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

void *http_on_request_line(void *server, const char *uri, struct MHD_Connection *mhd)
{
    struct http_conn *c = conn_of(mhd);
    if (c && !list_linked(&c->in_headers))
        list_push_back(&c->server->in_headers, &c->in_headers);
    return NULL; /* where http_on_access finds its request: none yet */
}

/* Whether libmicrohttpd is done with its headers, which we have not seen, and has not answered: a
 * log line is about such a one. One that it is answering, or has closed, must not be asked for
 * headers: their memory is used anew, or gone. */
static bool failed_in_headers(const struct http_conn *c)
{
    return MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE) &&
           !http_conn_answered_by_mhd(c);
}

/* libmicrohttpd does not say which connection it means. */
void http_refuse_bad_lengths(struct http_server *s)
{
    struct list_node *next;
    for (struct list_node *n = list_first(&s->in_headers); n; n = next) {
        struct http_conn *c = list_entry(n, struct http_conn, in_headers);
        next = list_next(&s->in_headers, n);
        int status = failed_in_headers(c) ? judge_length(c->mhd) : 0;
        if (status == 413)
            http_conn_last_words(c, 413, "request_too_large",
                                 "Content-Length is larger than any body accepted.");
        else if (status)
            http_conn_last_words(c, 400, "invalid_request",
                                 "Content-Length must be digits and nothing else.");
        if (status)
            list_remove(n);
    }
}

/* ---- routes ---- */

/* Is one of them the other behind /v1? */
static bool same_but_v1(const char *a, const char *b)
{
    if (strncmp(a, "/v1/", 4) == 0 && a[4] && strcmp(a + 3, b) == 0)
        return true;
    return strncmp(b, "/v1/", 4) == 0 && b[4] && strcmp(b + 3, a) == 0;
}

static unsigned method_bit(const char *method)
{
    if (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0)
        return HTTP_GET;
    return strcmp(method, "POST") == 0 ? HTTP_POST : 0;
}

static const char *without_v1(const char *path)
{
    return strncmp(path, "/v1/", 4) == 0 ? path + 3 : path;
}

/* What of path lies behind prefix, either of them with or without /v1; NULL: nothing does. */
static const char *below(const char *prefix, const char *path)
{
    const char *head = without_v1(prefix), *whole = without_v1(path);
    size_t n = strlen(head);
    return strncmp(head, whole, n) == 0 && whole[n] ? whole + n : NULL;
}

/* Best first. */
enum match { MATCH_EXACT, MATCH_BUT_V1, MATCH_PREFIX, N_MATCHES };

static bool matches(const struct http_route *r, const char *path, enum match how)
{
    if (r->prefix)
        return how == MATCH_PREFIX && below(r->path, path);
    return how == MATCH_EXACT ? strcmp(r->path, path) == 0
                              : how == MATCH_BUT_V1 && same_but_v1(r->path, path);
}

/* *allowed: the methods of that path. */
static const struct http_route *find_route(const struct http_server *s, const char *path,
                                           unsigned method, unsigned *allowed)
{
    *allowed = 0;
    for (enum match how = MATCH_EXACT; how < N_MATCHES && !*allowed; how++)
        for (const struct http_route *r = s->routes; r->path; r++) {
            if (!matches(r, path, how))
                continue;
            *allowed |= r->method;
            if (r->method & method)
                return r;
        }
    return NULL;
}

enum { NEAR_MAX = 48 }; /* bytes of a path that are compared */

/* A few slips away at most: a third of the path. NULL: nothing is. */
static const char *nearest_route(const struct http_server *s, const char *path)
{
    const char *best = NULL, *wanted = without_v1(path);
    const size_t n = strnlen(wanted, NEAR_MAX);
    size_t least = n / 3 + 1;
    for (const struct http_route *r = s->routes; r->path; r++) {
        size_t d = edit_distance(wanted, n, without_v1(r->path));
        if (d < least) {
            least = d;
            best = r->path;
        }
    }
    return best;
}

/* ---- checks before the body ---- */

/* Takes as long for any two tokens of one length, whatever the key. */
static bool same_key(const char *given, const char *key)
{
    size_t n = strlen(given), n_key = strlen(key);
    volatile unsigned char differ = n != n_key;
    for (size_t i = 0; i < n; i++)
        differ |= (unsigned char)(given[i] ^ key[n_key ? i % n_key : 0]);
    return !differ;
}

static bool authorized(struct http_request *r)
{
    const char *key = r->conn->server->cfg.api_key;
    if (!key || r->route->open)
        return true;
    const char *h = http_header(r, MHD_HTTP_HEADER_AUTHORIZATION);
    if (!h || strncasecmp(h, "Bearer ", 7) != 0)
        return false;
    return same_key(h + 7 + strspn(h + 7, " "), key);
}

static void preflight(struct http_request *r)
{
    const char *asked = http_header(r, "Access-Control-Request-Headers");
    bool sane = asked && strlen(asked) <= 1024 && is_value(asked, strlen(asked));
    http_add_header(r, "Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS");
    http_add_header(r, "Access-Control-Allow-Headers",
                    sane ? asked : "authorization, content-type, x-request-id, x-slo-tpot-ms");
    http_add_header(r, "Access-Control-Max-Age", "86400");
    http_reply(r, 204, NULL, "", 0);
}

static void refuse_method(struct http_request *r, const char *method, unsigned allowed)
{
    const char *list = allowed == HTTP_GET    ? "GET, HEAD, OPTIONS"
                       : allowed == HTTP_POST ? "POST, OPTIONS"
                                              : "GET, HEAD, POST, OPTIONS";
    http_add_header(r, MHD_HTTP_HEADER_ALLOW, list);
    http_reply_error(r, 405, "method_not_allowed", NULL, 0, "%.128s takes %s, not %.32s.", r->url,
                     list, method);
}

static void refuse_path(struct http_request *r)
{
    const char *near = nearest_route(r->conn->server, r->url);
    http_reply_error(r, 404, "not_found", NULL, 0,
                     near ? "There is no route %.128s; did you mean %s?"
                          : "There is no route %.128s.",
                     r->url, near);
}

static void choose_route(struct http_request *r, const char *method)
{
    struct http_server *s = r->conn->server;
    unsigned allowed;
    if (strcmp(method, "OPTIONS") == 0) {
        preflight(r);
        return;
    }
    r->route = find_route(s, r->url, method_bit(method), &allowed);
    if (!r->route && allowed)
        refuse_method(r, method, allowed);
    else if (!r->route)
        refuse_path(r);
    else if (!authorized(r))
        http_reply_error(r, 401, "invalid_api_key", NULL, 0,
                         "%s: send the server's own in the header \"Authorization: Bearer KEY\".",
                         http_header(r, MHD_HTTP_HEADER_AUTHORIZATION) ? "This key is wrong"
                                                                       : "A key is needed");
}

/* libmicrohttpd has checked that it is a number. */
static uint64_t declared_length(struct http_request *r)
{
    const char *h = http_header(r, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return h ? strtoull(h, NULL, 10) : 0;
}

/* Queued before the body is read, a reply makes libmicrohttpd close the connection after it. */
static enum MHD_Result answer_and_close(struct http_request *r)
{
    struct MHD_Response *m = r->refusal;
    r->refusal = NULL;
    r->conn->linger = true;
    http_send(r, r->refusal_status, m, HTTP_ANSWERED);
    return r->gone ? MHD_NO : MHD_YES;
}

static enum MHD_Result check_headers(struct http_request *r, const char *method,
                                     const char *version)
{
    struct http_server *s = r->conn->server;
    size_t size = headers_size(r->conn->mhd);
    struct header_check h = {.last = s->raw_header_check ? version + strlen(version) : NULL};
    MHD_get_connection_values_n(r->conn->mhd, MHD_HEADER_KIND, check_header, &h);
    if (h.last && !h.bad && !only_line_ends(h.last, method + size, 2))
        h.bad = cut_off;
    const char *why = broken(&h, version);
    uint64_t length = why ? 0 : declared_length(r);
    bool close = true;
    if (why)
        http_reply_error(r, 400, "invalid_request", NULL, 0, "%s", why);
    else if (size > HTTP_MAX_HEADERS)
        http_reply_error(r, 431, "headers_too_large", NULL, 0,
                         "The headers have more than %d bytes.", HTTP_MAX_HEADERS);
    else if (length > s->cfg.max_body)
        http_reply_error(r, 413, "request_too_large", NULL, 0,
                         "The body has %llu bytes; at most %zu are accepted.",
                         (unsigned long long)length, s->cfg.max_body);
    else {
        choose_route(r, method);
        close = h.chunked || length > HTTP_MAX_DISCARD || http_header(r, MHD_HTTP_HEADER_EXPECT);
    }
    if (r->refusal && close)
        return answer_and_close(r);
    if (r->gone)
        return MHD_NO;
    if (h.chunked || length)
        http_conn_await_body(r->conn);
    return MHD_YES;
}

/* Of "http://host/path", as proxies are asked, the path. */
static const char *path_of(const char *url)
{
    if (strncasecmp(url, "http://", 7) != 0)
        return url;
    const char *path = strchr(url + 7, '/');
    return path ? path : "/";
}

static void copy_cut(char *to, size_t cap, const char *from)
{
    const size_t n = strnlen(from, cap - 1);
    memcpy(to, from, n);
    to[n] = '\0';
}

static enum MHD_Result begin(struct http_conn *c, const char *url, const char *method,
                             const char *version, void **request)
{
    struct http_request *r = calloc(1, sizeof *r);
    *request = r;
    if (!r)
        return MHD_NO;
    r->conn = c;
    r->url = path_of(url);
    copy_cut(r->method, sizeof r->method, method);
    copy_cut(r->path, sizeof r->path, r->url);
    c->request = r;
    c->served = true;
    if (list_linked(&c->in_headers))
        list_remove(&c->in_headers);
    c->server->n_seen++;
    http_wait_stop(&c->wait);
    http_take_id(c->server, r->id, http_header(r, "x-request-id"));
    return check_headers(r, method, version);
}

/* ---- the body ---- */

static enum MHD_Result take_body(struct http_request *r, const char *data, size_t n)
{
    struct http_server *s = r->conn->server;
    char message[96];
    if (r->refusal)
        return MHD_YES;
    if (n > s->cfg.max_body - r->body.len) {
        snprintf(message, sizeof message, "The body has more than %zu bytes.", s->cfg.max_body);
        http_conn_last_words(r->conn, 413, "request_too_large", message);
        return MHD_NO;
    }
    size_t before = r->body.len;
    if (n <= s->max_body_bytes - s->body_bytes)
        buf_add(&r->body, data, n);
    if (r->body.len == before) {
        http_conn_last_words(r->conn, 503, "out_of_memory",
                             "The requests under way fill the memory for bodies; try again.");
        return MHD_NO;
    }
    s->body_bytes += n;
    r->large |= r->body.len > HTTP_LARGE;
    return MHD_YES;
}

char *http_take_body(struct http_request *r, size_t *n)
{
    char *body = r->body.data ? r->body.data : calloc(1, 1);
    *n = r->body.len;
    r->conn->server->body_bytes -= r->body.len;
    r->body = (struct buf){0};
    return body;
}

void http_drop_body(struct http_request *r)
{
    r->conn->server->body_bytes -= r->body.len;
    buf_free(&r->body);
}

/* ---- the handler ---- */

/* Called when the body is complete, and again when the connection is resumed without a reply,
 * because the client left. */
static enum MHD_Result complete(struct http_request *r)
{
    struct http_conn *c = r->conn;
    if (r->handled)
        return MHD_NO;
    http_wait_stop(&c->wait);
    if (r->refusal) {
        struct MHD_Response *m = r->refusal;
        r->refusal = NULL;
        http_send(r, r->refusal_status, m, HTTP_ANSWERED);
        return r->gone ? MHD_NO : MHD_YES;
    }
    r->handled = true;
    r->state = HTTP_HANDLING;
    r->started = uv_hrtime();
    c->server->n_requests++;
    r->route->handle(r, c->server->arg);
    if (r->state == HTTP_HANDLING && !r->gone)
        http_conn_suspend(c);
    return r->gone ? MHD_NO : MHD_YES;
}

enum MHD_Result http_on_access(void *server, struct MHD_Connection *mhd, const char *url,
                               const char *method, const char *version, const char *data,
                               size_t *size, void **request)
{
    struct http_conn *c = conn_of(mhd);
    if (!c || c->dead)
        return MHD_NO;
    if (!*request)
        return begin(c, url, method, version, request);
    if (*size == 0)
        return complete(*request);
    size_t n = *size;
    *size = 0;
    return take_body(*request, data, n);
}

/* ---- the end ---- */

void http_trim_expired(struct http_server *s, struct http_wait *w)
{
    heap_trim_start(s->loop);
}

/* What a request that is over had made may leave holes. One that left may have had anything. */
static void trim_after(const struct http_request *r)
{
    struct http_server *s = r->conn->server;
    if ((r->large || r->gone) && !list_linked(&s->trim.node))
        http_wait_start(s, &s->trimming, &s->trim);
}

/* Lost and failed ones matter to who runs the server, the others to who looks for a fault. */
static void log_request(const struct http_request *r, bool gone)
{
    const uint64_t ns = r->handled ? uv_hrtime() - r->started : 0;
    const bool lost = gone && r->handled && !r->conn->server->closing;
    log_line(r->status == 500 ? LOG_WARN
             : lost           ? LOG_INFO
                              : LOG_DEBUG,
             "%s %s %d%s, %llu ms%s%s, %s", r->method, r->path, r->status,
             gone ? " (not all was sent)" : "", (unsigned long long)(ns / 1000000),
             r->note[0] ? ", " : "", r->note, r->id);
}

void http_note(struct http_request *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->note, sizeof r->note, fmt, ap);
    va_end(ap);
}

void http_on_completed(void *server, struct MHD_Connection *mhd, void **request,
                       enum MHD_RequestTerminationCode code)
{
    struct http_request *r = *request;
    *request = NULL;
    if (!r)
        return;
    struct http_conn *c = r->conn;
    const bool gone = r->gone || code != MHD_REQUEST_TERMINATED_COMPLETED_OK;
    http_conn_unwatch(c);
    c->request = NULL;
    if (r->handled) {
        c->server->n_requests--;
        if (r->on_done)
            r->on_done(r, r->user, gone);
    }
    log_request(r, gone);
    if (list_linked(&r->room_node))
        list_remove(&r->room_node);
    if (r->refusal)
        MHD_destroy_response(r->refusal);
    http_drop_body(r);
    c->server->reply_bytes -= r->reply_bytes;
    trim_after(r);
    buf_free(&r->headers);
    buf_free(&r->queue);
    free(r);
    http_conn_idle(c);
}

/* ---- what a handler asks ---- */

const char *http_path(const struct http_request *r)
{
    return r->url;
}

const char *http_path_rest(const struct http_request *r)
{
    const char *rest = r->route->prefix ? below(r->route->path, r->url) : NULL;
    return rest ? rest : "";
}

const char *http_header(const struct http_request *r, const char *name)
{
    return MHD_lookup_connection_value(r->conn->mhd, MHD_HEADER_KIND, name);
}

const char *http_body(const struct http_request *r, size_t *n)
{
    if (n)
        *n = r->body.len;
    return r->body.data ? r->body.data : "";
}

void http_set_user(struct http_request *r, void *user,
                   void (*on_done)(struct http_request *, void *user, bool gone))
{
    r->user = user;
    r->on_done = on_done;
}
