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

/* A few slips away at most: a third of the path. A prefix alone is no route. NULL: nothing is. */
static const char *nearest_route(const struct http_server *s, const char *path)
{
    const char *best = NULL, *wanted = without_v1(path);
    const size_t n = strnlen(wanted, NEAR_MAX);
    size_t least = n / 3 + 1;
    for (const struct http_route *r = s->routes; r->path; r++) {
        size_t d = edit_distance(wanted, n, without_v1(r->path));
        if (d < least && !r->prefix) {
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
    bool sane = asked && strlen(asked) <= 1024 && http_is_value(asked, strlen(asked));
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

/* Queued before the body is read, a reply makes libmicrohttpd close the connection after it. */
static enum MHD_Result answer_and_close(struct http_request *r)
{
    struct MHD_Response *m = r->refusal;
    r->refusal = NULL;
    r->conn->linger = true;
    http_send(r, r->refusal_status, m, HTTP_ANSWERED);
    return r->gone ? MHD_NO : MHD_YES;
}

/* The body is judged once it is known who takes it. */
static void check_coding(struct http_request *r)
{
    const char *h = http_header(r, MHD_HTTP_HEADER_CONTENT_ENCODING);
    if (!h || !*h || strcasecmp(h, "identity") == 0)
        return;
    http_add_header(r, MHD_HTTP_HEADER_ACCEPT_ENCODING, "identity");
    http_reply_error(r, 415, "unsupported_content_encoding", NULL, 0,
                     "Content-Encoding is %.64s: bodies are taken as they are (identity) only.", h);
}

/* What filled the connection's memory may leave no room for a reply's headers there. */
static enum MHD_Result refuse_large(struct http_request *r, const struct http_verdict *v)
{
    r->status = v->status;
    http_conn_last_words(r->conn, v->status, v->code, v->why);
    return MHD_NO;
}

static enum MHD_Result heed(struct http_request *r, const char *method,
                            const struct http_verdict *v)
{
    struct http_server *s = r->conn->server;
    bool close = true;
    if (v->status == 414 || v->status == 431)
        return refuse_large(r, v);
    if (v->status)
        http_reply_error(r, v->status, v->code, NULL, 0, "%s", v->why);
    else if (v->length > s->cfg.max_body)
        http_reply_error(r, 413, "request_too_large", NULL, 0,
                         "The body has %llu bytes; at most %zu are accepted.",
                         (unsigned long long)v->length, s->cfg.max_body);
    else {
        choose_route(r, method);
        if (!r->refusal && (v->chunked || v->length))
            check_coding(r);
        close =
            v->chunked || v->length > HTTP_MAX_DISCARD || http_header(r, MHD_HTTP_HEADER_EXPECT);
    }
    if (r->refusal && close)
        return answer_and_close(r);
    if (r->gone)
        return MHD_NO;
    if (v->chunked || v->length)
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
    http_headers_end(c);
    c->server->n_seen++;
    http_wait_stop(&c->wait);
    struct http_verdict v;
    http_judge_headers(c, method, version, &v);
    r->chunked = v.chunked;
    http_take_id(c->server, r->id, http_header(r, "x-request-id"));
    return heed(r, method, &v);
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
    struct http_verdict v;
    if (r->chunked && !http_judge_trailers(c, &v))
        return refuse_large(r, &v);
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
    struct http_conn *c = http_conn_of(mhd);
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
    if (!r) {
        http_headers_end(http_conn_of(mhd));
        return;
    }
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
