#include "http_impl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_COUNTED = 64 };

/* Nobody looks at them. */
enum { MAX_TRAILERS = 16, MAX_TRAILER_BYTES = 1 << 10 };

struct http_conn *http_conn_of(struct MHD_Connection *mhd)
{
    return MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

/* ---- the request line ---- */

static size_t count(const char *s, char c)
{
    size_t n = 0;
    for (s = strchr(s, c); s; s = strchr(s + 1, c))
        n++;
    return n;
}

/* Called before libmicrohttpd takes the URL's parameters apart in place, with memory for each: when
 * that runs out it forgets the request, and the connection hangs. So too many are cut off here, to
 * be refused when the headers are complete. */
void *http_on_request_line(void *server, const char *uri, struct MHD_Connection *mhd)
{
    struct http_conn *c = http_conn_of(mhd);
    if (!c || !uri)
        return NULL;
    if (!list_linked(&c->in_headers))
        list_push_back(&c->server->in_headers, &c->in_headers);
    char *query = strchr(uri, '?');
    c->uri = uri;
    c->uri_len = strlen(uri);
    c->n_parameters = query ? count(query, '&') + 1 : 0;
    if (c->n_parameters > HTTP_MAX_FIELDS)
        query[1] = '\0';
    return NULL; /* where http_on_access finds its request: none yet */
}

void http_headers_end(struct http_conn *c)
{
    if (c && list_linked(&c->in_headers))
        list_remove(&c->in_headers);
}

/* Parameters where the URL has no '?' stand behind a NUL of the client's, which hid them. */
static void refuse_hidden_parameters(struct http_conn *c, const char *s)
{
    if (c && s != c->uri && c->n_parameters == 0)
        http_conn_last_words(c, 400, "invalid_request", "The request line contains a NUL.");
}

/* %00 stays as it is: a path or value that ends early would pass for another. */
size_t http_unescape(void *cls, struct MHD_Connection *mhd, char *s)
{
    static const char digits[] = "0123456789abcdef";
    refuse_hidden_parameters(http_conn_of(mhd), s);
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

/* ---- one header ---- */

struct header_check {
    struct MHD_Connection *mhd;
    const char *bad;      /* NULL: all well so far */
    const char *repeated; /* the name of a field whose values differ; NULL: none does */
    const char *last;     /* where the last value ended; NULL: not known */
    int n_records, n_length, n_coding, n_host;
    bool chunked, unmet; /* unmet: something else than 100-continue is expected */
    size_t cookies;      /* bytes of their header */
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

bool http_is_value(const char *s, size_t n)
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

/* Blanks around a value are no part of it (RFC 9110, 5.5). libmicrohttpd leaves those behind it;
 * its memory of the request is written to, so that all who look the value up find it without. */
static void cut_blanks(char *value, size_t n)
{
    while (n && (value[n - 1] == ' ' || value[n - 1] == '\t'))
        value[--n] = '\0';
}

/* Of fields that have one value a second one must not say something else: what stands before us
 * may have gone by the other. */
static const char *single_name(const char *name, size_t n)
{
    static const struct {
        const char *name;
        size_t n;
    } fields[] = {{"Authorization", 13},
                  {"Content-Type", 12},
                  {"Content-Encoding", 16},
                  {"Expect", 6},
                  {"x-slo-tpot-ms", 13}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (n == fields[i].n && strcasecmp(name, fields[i].name) == 0)
            return fields[i].name;
    return NULL;
}

static bool contradicts_first(const struct header_check *h, const char *name, const char *value)
{
    const char *first = MHD_lookup_connection_value(h->mhd, MHD_HEADER_KIND, name);
    return first && first != value && strcmp(first, value) != 0;
}

static void note_field(struct header_check *h, const char *name, size_t n_name, const char *value)
{
    const char *single = single_name(name, n_name);
    if (single && contradicts_first(h, name, value))
        h->repeated = single;
    if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0)
        h->n_length++;
    else if (strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0)
        h->n_host++;
    else if (strcasecmp(name, MHD_HTTP_HEADER_EXPECT) == 0)
        h->unmet |= strcasecmp(value, "100-continue") != 0;
    else if (strcasecmp(name, MHD_HTTP_HEADER_COOKIE) == 0)
        h->cookies += strlen(value);
    else if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0) {
        h->n_coding++;
        h->chunked = strcasecmp(value, "chunked") == 0;
    }
}

static enum MHD_Result check_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                    size_t n_name, const char *value, size_t n_value)
{
    struct header_check *h = cls;
    h->n_records++;
    if (kind != MHD_HEADER_KIND || h->bad)
        return MHD_YES;
    if (!is_token(name, n_name))
        h->bad = "A header's name is not well formed.";
    else if (!http_is_value(value, n_value))
        h->bad = "A header's value contains control characters.";
    else if (h->last && !only_line_ends(h->last, name, 1))
        h->bad = cut_off;
    if (h->last)
        h->last = value + n_value;
    /* judged by libmicrohttpd already, which let the body of "chunked " be no chunked one */
    if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) != 0)
        cut_blanks((char *)value, n_value);
    note_field(h, name, n_name, value);
    return MHD_YES;
}

/* ---- all of them ---- */

static const char *broken(const struct header_check *h, const char *version)
{
    if (h->bad)
        return h->bad;
    if (h->n_length > 1)
        return "Content-Length is given more than once.";
    if (h->n_length && h->n_coding)
        return "Content-Length together with Transfer-Encoding is not allowed.";
    if (h->n_coding > 1 || (h->n_coding && !h->chunked))
        return "Transfer-Encoding must be chunked, and nothing else, not even blanks behind it.";
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

static void refuse(struct http_verdict *v, int status, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static void refuse(struct http_verdict *v, int status, const char *code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(v->why, sizeof v->why, fmt, ap);
    va_end(ap);
    v->status = status;
    v->code = code;
}

/* size: 0 where the headers are not complete. */
static void judge_size(const struct http_conn *c, const struct header_check *h, size_t size,
                       struct http_verdict *v)
{
    if (c->n_parameters > HTTP_MAX_FIELDS)
        refuse(v, 414, "uri_too_long", "The URL has %zu parameters; at most %d are accepted.",
               c->n_parameters, HTTP_MAX_FIELDS);
    else if (c->uri_len > HTTP_MAX_HEADERS)
        refuse(v, 414, "uri_too_long", "The URL has %zu bytes; it and the headers may have %d.",
               c->uri_len, HTTP_MAX_HEADERS);
    else if (size > HTTP_MAX_HEADERS)
        refuse(v, 431, "headers_too_large", "The headers have %zu bytes; at most %d are accepted.",
               size, HTTP_MAX_HEADERS);
    else if (h->n_records > HTTP_MAX_FIELDS)
        refuse(v, 431, "headers_too_large",
               "The headers have too many fields: with cookies and the URL's parameters at most %d "
               "are accepted.",
               HTTP_MAX_FIELDS);
    else if (h->cookies > HTTP_MAX_COOKIES)
        refuse(v, 431, "headers_too_large", "Cookie has %zu bytes; at most %d are accepted.",
               h->cookies, HTTP_MAX_COOKIES);
}

/* libmicrohttpd has checked that it is a number. */
static uint64_t declared_length(struct MHD_Connection *mhd)
{
    const char *h =
        MHD_lookup_connection_value(mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return h ? strtoull(h, NULL, 10) : 0;
}

static const enum MHD_ValueKind all_kinds =
    (enum MHD_ValueKind)(MHD_HEADER_KIND | MHD_COOKIE_KIND | MHD_GET_ARGUMENT_KIND);

void http_judge_headers(struct http_conn *c, const char *method, const char *version,
                        struct http_verdict *v)
{
    const bool raw = c->server->raw_header_check;
    struct header_check h = {.mhd = c->mhd, .last = raw ? version + strlen(version) : NULL};
    const size_t size = headers_size(c->mhd);
    MHD_get_connection_values_n(c->mhd, all_kinds, check_header, &h);
    if (h.last && !h.bad && !only_line_ends(h.last, method + size, 2))
        h.bad = cut_off;
    if (raw && version != c->uri + c->uri_len + 1)
        h.bad = "The request line contains a NUL.";
    *v = (struct http_verdict){.chunked = h.chunked};
    const char *why = broken(&h, version);
    judge_size(c, &h, size, v);
    if (v->status)
        return;
    if (why)
        refuse(v, 400, "invalid_request", "%s", why);
    else if (h.repeated)
        refuse(v, 400, "invalid_request", "%s is given more than once, with different values.",
               h.repeated);
    else if (h.unmet)
        refuse(v, 417, "expectation_failed", "Expect can only be 100-continue.");
    else
        v->length = declared_length(c->mhd);
}

struct trailers {
    size_t bytes;
    int n;
};

static enum MHD_Result count_trailer(void *cls, enum MHD_ValueKind kind, const char *name,
                                     size_t n_name, const char *value, size_t n_value)
{
    struct trailers *t = cls;
    t->bytes += n_name + n_value;
    t->n++;
    return MHD_YES;
}

bool http_judge_trailers(struct http_conn *c, struct http_verdict *v)
{
    struct trailers t = {0};
    *v = (struct http_verdict){0};
    MHD_get_connection_values_n(c->mhd, MHD_FOOTER_KIND, count_trailer, &t);
    if (t.n > MAX_TRAILERS || t.bytes > MAX_TRAILER_BYTES)
        refuse(v, 431, "headers_too_large",
               "The body has %d trailers of %zu bytes; at most %d of %d are accepted.", t.n,
               t.bytes, MAX_TRAILERS, MAX_TRAILER_BYTES);
    return !v->status;
}

/* ---- what libmicrohttpd answers itself, wrongly ---- */

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

static enum MHD_Result measure_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                      size_t n_name, const char *value, size_t n_value)
{
    struct header_check *h = cls;
    h->n_records++;
    if (kind == MHD_HEADER_KIND && strcasecmp(name, MHD_HTTP_HEADER_COOKIE) == 0)
        h->cookies += n_value;
    return MHD_YES;
}

static void judge_unread(const struct http_conn *c, struct http_verdict *v)
{
    struct header_check h = {0};
    const size_t size = headers_size(c->mhd);
    MHD_get_connection_values_n(c->mhd, all_kinds, measure_header, &h);
    judge_size(c, &h, size, v);
    const int status = !v->status && size ? judge_length(c->mhd) : 0;
    if (status == 413)
        refuse(v, 413, "request_too_large", "Content-Length is larger than any body accepted.");
    else if (status)
        refuse(v, status, "invalid_request", "Content-Length must be digits and nothing else.");
}

/* libmicrohttpd does not say which connection it means: it is one whose headers it has not given
 * us. One that it is answering must not be asked for headers: their memory is used anew. (One that
 * it has closed is not in the list any more.) It may log often while many headers are under way: of
 * those that are not complete only the newest are counted. */
void http_refuse_unread(struct http_server *s)
{
    struct list_node *next;
    int left = MOST_COUNTED;
    for (struct list_node *n = list_last(&s->in_headers); n; n = next) {
        struct http_conn *c = list_entry(n, struct http_conn, in_headers);
        struct http_verdict v = {0};
        next = list_prev(&s->in_headers, n);
        if (!c->dead && !http_conn_answered_by_mhd(c) && (headers_size(c->mhd) || left-- > 0))
            judge_unread(c, &v);
        if (!v.status)
            continue;
        http_conn_last_words(c, v.status, v.code, v.why);
        http_headers_end(c);
    }
}
