/* http_check.h: whether the bytes that a server sent on one connection are well-formed replies,
 * one after the other. No test framework: the fuzzer uses it. Returns what is wrong, or NULL. */
#ifndef TOKEND_HTTP_CHECK_H
#define TOKEND_HTTP_CHECK_H

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct http_check {
    const char *at, *end;
    bool cut_ok;   /* the client left, or read no more: the last reply may be cut off */
    bool head_ok;  /* there may have been a HEAD request: a reply may lack its body */
    int n_replies; /* interim ones do not count */
    int status;    /* of the last */
    /* of the reply at hand */
    bool chunked, is_json, is_events, is_html;
    int n_lengths, n_ids, n_types;
    size_t length;
};

static inline const char *http_check_header(struct http_check *c, const char *line, size_t n)
{
    const char *colon = memchr(line, ':', n);
    if (!colon || colon == line)
        return "a header line without a name";
    for (const char *p = line; p < colon; p++)
        if (*p <= ' ' || *p >= 0x7F)
            return "a header's name has strange bytes";
    for (const char *p = colon; p < line + n; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7F)
            return "a header's value has control characters";
    const size_t name = (size_t)(colon - line);
    const char *value = colon + 1 + strspn(colon + 1, " ");
    const size_t len = n - (size_t)(value - line);
    if (name == 14 && strncasecmp(line, "Content-Length", 14) == 0) {
        c->n_lengths++;
        c->length = strtoull(value, NULL, 10);
    } else if (name == 17 && strncasecmp(line, "Transfer-Encoding", 17) == 0) {
        c->chunked = len == 7 && memcmp(value, "chunked", 7) == 0;
    } else if (name == 12 && strncasecmp(line, "x-request-id", 12) == 0) {
        c->n_ids++;
    } else if (name == 12 && strncasecmp(line, "Content-Type", 12) == 0) {
        c->n_types++;
        c->is_json = len == 16 && memcmp(value, "application/json", 16) == 0;
        c->is_events = len == 17 && memcmp(value, "text/event-stream", 17) == 0;
    }
    return NULL;
}

/* The status line and the headers; `at` is moved behind them. *whole = false: they are cut off. */
static inline const char *http_check_head(struct http_check *c, bool *whole)
{
    const char *end = memmem(c->at, (size_t)(c->end - c->at), "\r\n\r\n", 4);
    *whole = end != NULL;
    if (!end)
        return NULL;
    const size_t n = (size_t)(end - c->at);
    if (n < 13 || (memcmp(c->at, "HTTP/1.1 ", 9) != 0 && memcmp(c->at, "HTTP/1.0 ", 9) != 0))
        return "no status line";
    c->status = atoi(c->at + 9);
    if (c->status < 100 || c->status > 599 || c->at[12] != ' ')
        return "a strange status";
    c->chunked = c->is_json = c->is_events = c->is_html = false;
    c->n_lengths = c->n_ids = c->n_types = 0;
    const char *line = (const char *)memmem(c->at, n + 2, "\r\n", 2) + 2;
    while (line < end) {
        const char *next = memmem(line, (size_t)(end + 2 - line), "\r\n", 2);
        const char *why = http_check_header(c, line, (size_t)(next - line));
        if (why)
            return why;
        line = next + 2;
    }
    c->at = end + 4;
    if (c->n_lengths > 1 || c->n_ids > 1 || c->n_types > 1 || (c->n_lengths && c->chunked))
        return "a header is there twice, or a length with a coding";
    return NULL;
}

/* Joins the chunks into out. *whole = false: they are cut off. */
static inline const char *http_check_chunks(struct http_check *c, char *out, size_t *n, bool *whole)
{
    *n = 0;
    for (;;) {
        const char *eol = memmem(c->at, (size_t)(c->end - c->at), "\r\n", 2);
        *whole = false;
        if (!eol)
            return NULL;
        char *after;
        const size_t size = strtoull(c->at, &after, 16);
        if (after != eol)
            return "a strange chunk size";
        if (size + 2 > (size_t)(c->end - eol - 2))
            return NULL;
        memcpy(out + *n, eol + 2, size);
        *n += size;
        c->at = eol + 2 + size;
        if (memcmp(c->at, "\r\n", 2) != 0)
            return "a chunk has no end";
        c->at += 2;
        *whole = true;
        if (size == 0)
            return NULL;
    }
}

static inline const char *http_check_json(const char *s, size_t n)
{
    json_t *o = json_loadb(s, n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    json_decref(o);
    return o ? NULL : "a body is no JSON";
}

static inline const char *http_check_events(const char *s, size_t n, bool whole)
{
    for (const char *end = s + n; s < end;) {
        const char *next = memmem(s, (size_t)(end - s), "\n\n", 2);
        if (!next)
            return whole ? "a stream ends within an event" : NULL;
        if (next - s < 6 || memcmp(s, "data: ", 6) != 0)
            return "an event has no data";
        const size_t len = (size_t)(next - s) - 6;
        if (!(len == 6 && memcmp(s + 6, "[DONE]", 6) == 0) && http_check_json(s + 6, len))
            return "an event is no JSON";
        s = next + 2;
    }
    return NULL;
}

/* The body; a reply to HEAD has none: the next reply, or the end, comes where it would begin. */
static inline const char *http_check_body(struct http_check *c, bool *whole)
{
    const size_t left = (size_t)(c->end - c->at);
    const char *why = NULL, *body = c->at;
    size_t n = 0;
    char *joined = NULL;
    *whole = true;
    if (c->status < 200 || c->status == 204 || c->status == 304 || (c->head_ok && left == 0))
        return NULL;
    if (c->chunked) {
        body = joined = malloc(left + 1);
        why = http_check_chunks(c, joined, &n, whole);
    } else if (c->n_lengths) {
        if (c->head_ok && c->length && left > 7 && memcmp(c->at, "HTTP/1.", 7) == 0)
            return NULL;
        *whole = c->length <= left;
        n = *whole ? c->length : left;
        c->at += n;
    } else {
        n = left;
        c->at = c->end;
    }
    if (!why && c->is_events)
        why = http_check_events(body, n, *whole && !c->cut_ok);
    else if (!why && *whole && c->is_json)
        why = http_check_json(body, n);
    free(joined);
    return why;
}

static inline const char *http_check_replies(struct http_check *c)
{
    while (c->at < c->end) {
        bool whole;
        const char *why = http_check_head(c, &whole);
        if (!why && whole && c->status >= 200) {
            c->n_replies++;
            if (c->n_ids == 0 && c->n_types) /* libmicrohttpd's own have neither */
                why = "no x-request-id";
        }
        if (!why && whole)
            why = http_check_body(c, &whole);
        if (why)
            return why;
        if (!whole)
            return c->cut_ok ? NULL : "a reply is cut off";
    }
    return NULL;
}

#endif
