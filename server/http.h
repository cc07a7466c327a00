/* http.h: HTTP on the event loop: libmicrohttpd in external epoll mode under libuv.
 *
 * The module owns connections, bodies and framing, and knows nothing of models. A route's
 * handler is called on the loop when the request's body is complete (and within the limits);
 * it answers at once or later, from the loop, whole or as a stream. Between a handler's
 * return and the answer the connection is suspended and its socket watched, so that a client
 * that leaves is noticed in every state (waiting, prefilling, decoding).
 *
 * Life of an http_request: made by the module, valid from the handler's call until `on_done`,
 * which is called exactly once: after the last byte went out, or when the client left
 * (gone = true). After on_done nobody may touch it.
 *
 * Every reply carries x-request-id (a sane incoming one is echoed, else minted) and, on
 * errors, OpenAI's error object. What cannot be parsed as HTTP, smuggling forms
 * (Content-Length together with Transfer-Encoding, repeated lengths, codings other than
 * chunked) and bodies over the limit are answered here, with 400, 413 or 431, and closed. */
#ifndef TOKEND_HTTP_H
#define TOKEND_HTTP_H

#include "err.h"

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct http_server;
struct http_request;

struct http_config {
    const char *host;
    int port; /* 0: any free one; see http_server_port */
    size_t max_body;
    int max_connections;
    int idle_timeout_s;      /* keep-alive of idle connections: 120 */
    int header_deadline_ms;  /* from the first byte of a request to the end of its headers */
    int body_deadline_ms;    /* from there to the end of its body */
    size_t max_stream_queue; /* a stream has room while fewer bytes wait for its reader */
    size_t max_replies;      /* bytes of whole replies that wait for their readers, all together;
                                beyond it large ones become a 503. 0: no bound */
    int slow_reader_ms;      /* a reader that takes nothing for so long is cut */
    const char *api_key;     /* NULL: none asked; else every route but `open` ones wants
                                "Authorization: Bearer KEY", compared in constant time */
};

enum http_method { HTTP_GET = 1, HTTP_POST = 2 }; /* HEAD goes as GET; OPTIONS answered here */

struct http_route {
    enum http_method method;
    const char *path; /* exact, with its leading '/' */
    void (*handle)(struct http_request *, void *arg);
    bool open;   /* no key needed */
    bool prefix; /* `path` ends with '/', and stands for all longer paths that begin with it */
};

/* routes: ended by a zeroed entry, must outlive the server. */
struct http_server *http_server_open(uv_loop_t *, const struct http_config *,
                                     const struct http_route *routes, void *arg, struct err *e);
int http_server_port(const struct http_server *);
/* From now on each reply closes its connection, so that clients that keep theirs go elsewhere. New
 * connections are accepted all the same: a refusal that says why is better than none, and health
 * is still asked for. */
void http_server_drain(struct http_server *);
int http_server_n_requests(const struct http_server *); /* whose on_done has not been called */
/* Closes all connections (their on_done is called with gone = true) and frees the server; its
 * handles end in the loop's next turn. Not from a handler or an on_done. */
void http_server_close(struct http_server *);

const char *http_path_rest(const struct http_request *); /* behind a prefix route's path */
/* Terminated; "" when empty. It lives, and counts against all bodies' limit, until on_done. */
const char *http_body(const struct http_request *, size_t *n);
/* The first of this name; NULL: absent */
const char *http_header(const struct http_request *, const char *name);
/* Gives the body away, terminated, for free(); it no longer counts against the bodies' limit.
 * NULL: out of memory (only of an empty one). */
char *http_take_body(struct http_request *, size_t *n);
/* The handler's own data and the end of the request. */
void http_set_user(struct http_request *, void *user,
                   void (*on_done)(struct http_request *, void *user, bool gone));

/* What the log's line of this request says beside; cut to 63 bytes. */
void http_note(struct http_request *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The whole answer; one that is large a 503 while too much waits to be read (max_replies). The
 * body is copied. */
void http_reply(struct http_request *, int status, const char *content_type, const void *body,
                size_t n);
/* The same with a body that is taken over, for free(). */
void http_reply_owned(struct http_request *, int status, const char *content_type, char *body,
                      size_t n);
/* OpenAI's error object: {"error":{"message","type","param","code"}}; the type follows from the
 * status. param and code may be NULL; retry_after_s > 0 adds Retry-After. */
void http_reply_error(struct http_request *, int status, const char *code, const char *param,
                      int retry_after_s, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));

/* That object as text, for errors inside a stream (to be freed; NULL when out of memory). */
char *http_error_body(int status, const char *code, const char *param, const char *message);

/* A stream of unknown length (chunked; close-delimited for HTTP/1.0). Data written in one turn
 * of the loop goes out together. on_room: see http_stream_has_room; may be NULL. */
void http_stream_begin(struct http_request *, int status, const char *content_type,
                       void (*on_room)(struct http_request *, void *user));
/* Whether more should be written now. After false on_room is called, once, when the reader has
 * taken half of what waited. Who makes data asks before each piece, so that a slow reader costs
 * no more memory than max_stream_queue and a piece; only time cuts it (slow_reader_ms). */
bool http_stream_has_room(struct http_request *);
/* Takes any amount. False when the reader is gone, or was cut because there is no memory: the
 * caller stops what makes the data; on_done follows. */
bool http_stream_write(struct http_request *, const void *data, size_t n);
void http_stream_end(struct http_request *);
/* Cuts the connection: the client sees that the stream is not whole. on_done follows. */
void http_stream_abort(struct http_request *);

/* Counters for /metrics. */
struct http_stats {
    uint64_t requests, connections_open, slow_readers_cut, refused;
};
void http_get_stats(const struct http_server *, struct http_stats *);

#endif
