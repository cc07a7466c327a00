#include "http_impl.h"
#include "log.h"
#include "utf8.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* ---- ids ---- */

static void mint_id(struct http_server *s, char *id)
{
    static const char digits[] = "0123456789abcdef";
    if (s->n_random == 0) {
        s->n_random = HTTP_ID_STOCK;
        if (getrandom(s->random, sizeof s->random, 0) != (ssize_t)sizeof s->random)
            log_debug("http: getrandom gave too little");
    }
    const unsigned char *bytes = s->random[--s->n_random];
    memcpy(id, "req-", 4);
    id += 4;
    for (int i = 0; i < HTTP_ID_BYTES; i++) {
        *id++ = digits[bytes[i] >> 4];
        *id++ = digits[bytes[i] & 15];
    }
    *id = '\0';
}

static bool sane_id(const char *s)
{
    size_t n = strlen(s);
    if (n == 0 || n > HTTP_ID_MAX)
        return false;
    for (size_t i = 0; i < n; i++)
        if (s[i] <= ' ' || s[i] > '~' || s[i] == '"' || s[i] == '\'' || s[i] == '\\')
            return false;
    return true;
}

void http_take_id(struct http_server *s, char *id, const char *incoming)
{
    if (incoming && sane_id(incoming))
        strcpy(id, incoming);
    else
        mint_id(s, id);
}

/* ---- headers ---- */

void http_add_header(struct http_request *r, const char *name, const char *value)
{
    buf_add(&r->headers, name, strlen(name) + 1);
    buf_add(&r->headers, value, strlen(value) + 1);
}

void http_add_common_headers(struct http_request *r, struct MHD_Response *m)
{
    MHD_add_response_header(m, "x-request-id", r->id);
    MHD_add_response_header(m, "Access-Control-Allow-Origin", "*");
    MHD_add_response_header(m, "Access-Control-Expose-Headers",
                            "x-request-id, openai-processing-ms, retry-after");
    if (r->conn->server->draining)
        MHD_add_response_header(m, MHD_HTTP_HEADER_CONNECTION, "close");
    const char *p = r->headers.data, *end = p ? p + r->headers.len : p;
    while (p < end) {
        const char *value = p + strlen(p) + 1;
        if (MHD_add_response_header(m, p, value) != MHD_YES)
            log_warn("http: a header '%s' of the reply is not well formed; left out", p);
        p = value + strlen(value) + 1;
    }
}

static void add_processing_time(struct http_request *r, struct MHD_Response *m)
{
    char ms[24] = "0";
    const uint64_t n = r->handled ? (uv_hrtime() - r->started) / 1000000 : 0;
    if (n > 0)
        snprintf(ms, sizeof ms, "%llu", (unsigned long long)n);
    MHD_add_response_header(m, "openai-processing-ms", ms);
}

/* ---- sending ---- */

void http_send(struct http_request *r, int status, struct MHD_Response *m, enum http_state next)
{
    struct http_conn *c = r->conn;
    bool sent = m && MHD_queue_response(c->mhd, (unsigned)status, m) == MHD_YES;
    if (m)
        MHD_destroy_response(m); /* our reference */
    r->state = next;
    r->status = status;
    if (!sent) {
        log_warn("http: %s: the reply could not be queued", r->id);
        r->gone = true;
    }
    if (next == HTTP_ANSWERED)
        http_conn_unwatch(c);
    http_writing_start(c);
    if (c->suspended)
        http_conn_resume(c);
}

static bool may_reply(const struct http_request *r)
{
    return !r->gone && !r->refusal && (r->state == HTTP_HANDLING || r->state == HTTP_RECEIVING);
}

/* A request can be refused before its body is there; then the reply waits for the body, see
 * http_request.c. */
static void reply(struct http_request *r, int status, const char *content_type,
                  struct MHD_Response *m)
{
    if (m) {
        if (content_type)
            MHD_add_response_header(m, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
        add_processing_time(r, m);
        http_add_common_headers(r, m);
    }
    if (r->state == HTTP_HANDLING) {
        http_send(r, status, m, HTTP_ANSWERED);
    } else {
        r->refusal = m;
        r->refusal_status = status;
        r->gone = !m;
    }
}

static bool has_room(const struct http_server *s, size_t n)
{
    return n <= HTTP_SMALL_REPLY || s->cfg.max_replies == 0 ||
           (s->reply_bytes <= s->cfg.max_replies && n <= s->cfg.max_replies - s->reply_bytes);
}

/* Takes an owned body over. */
static void reply_with(struct http_request *r, int status, const char *content_type, void *body,
                       size_t n, enum MHD_ResponseMemoryMode mode)
{
    struct http_server *s = r->conn->server;
    struct MHD_Response *m = NULL;
    bool room = has_room(s, n);
    if (may_reply(r) && room) {
        m = MHD_create_response_from_buffer(n, body, mode);
        r->reply_bytes = m ? n : 0;
        s->reply_bytes += r->reply_bytes;
        r->large |= n > HTTP_LARGE;
        reply(r, status, content_type, m);
    }
    if (!m && mode == MHD_RESPMEM_MUST_FREE)
        free(body);
    if (!room)
        http_reply_error(r, 503, "overloaded", NULL, 5,
                         "%zu bytes of replies wait for their readers, and this one has %zu: at "
                         "most %zu may wait",
                         s->reply_bytes, n, s->cfg.max_replies);
}

void http_reply(struct http_request *r, int status, const char *content_type, const void *body,
                size_t n)
{
    reply_with(r, status, content_type, (void *)body, n, MHD_RESPMEM_MUST_COPY);
}

void http_reply_owned(struct http_request *r, int status, const char *content_type, char *body,
                      size_t n)
{
    reply_with(r, status, content_type, body, n, MHD_RESPMEM_MUST_FREE);
}

/* ---- errors ---- */

static const struct {
    int status;
    const char *reason, *type;
} statuses[] = {
    {400, "Bad Request", "invalid_request_error"},
    {401, "Unauthorized", "authentication_error"},
    {403, "Forbidden", "permission_error"},
    {404, "Not Found", "invalid_request_error"},
    {408, "Request Timeout", "invalid_request_error"},
    {413, "Content Too Large", "invalid_request_error"},
    {414, "URI Too Long", "invalid_request_error"},
    {429, "Too Many Requests", "rate_limit_error"},
    {431, "Request Header Fields Too Large", "invalid_request_error"},
    {500, "Internal Server Error", "server_error"},
    {503, "Service Unavailable", "service_unavailable"},
};

const char *http_reason(int status)
{
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].status == status)
            return statuses[i].reason;
    return "Error";
}

static const char *type_of(int status)
{
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].status == status)
            return statuses[i].type;
    return status >= 500 ? "server_error" : "invalid_request_error";
}

/* jansson refuses what is not UTF-8. NULL gives null. */
static json_t *text(const char *s)
{
    if (!s)
        return json_null();
    struct buf b = {0};
    utf8_replace_bad(&b, s);
    json_t *j = json_stringn(b.data ? b.data : "", b.len);
    buf_free(&b);
    return j;
}

char *http_error_body(int status, const char *code, const char *param, const char *message)
{
    json_t *j = json_pack("{s:{s:o, s:s, s:o, s:o}}", "error", "message", text(message), "type",
                          type_of(status), "param", text(param), "code", text(code));
    char *s = j ? json_dumps(j, JSON_COMPACT) : NULL;
    json_decref(j);
    return s;
}

void http_reply_error(struct http_request *r, int status, const char *code, const char *param,
                      int retry_after_s, const char *fmt, ...)
{
    char message[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    if (retry_after_s > 0) {
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%d", retry_after_s);
        http_add_header(r, "Retry-After", seconds);
    }
    if (status == 401)
        http_add_header(r, "WWW-Authenticate", "Bearer");
    if (status == 500)
        http_add_header(r, "x-should-retry", "false");
    char *body = http_error_body(status, code, param, message);
    http_reply(r, status, "application/json", body ? body : "", body ? strlen(body) : 0);
    free(body);
}
