/* http_impl.h: what the parts of the HTTP module share; nobody else includes it.
 *
 * http.c           the server: listening, the daemon in the loop, open and close
 * http_conn.c      connections: watching for clients that leave, deadlines, last words
 * http_wait.c      deadlines in O(1)
 * http_headers.c   the request line and the headers: what is wrong or too much of them
 * http_request.c   a request from there to its handler: routes, keys, bodies, the end
 * http_reply.c     whole answers, errors, headers, ids
 * http_stream.c    answers of unknown length, slow readers
 *
 * Who may touch what: everything runs on the loop. libmicrohttpd calls us only inside
 * MHD_run, and MHD_run is called at one place (http.c), once a turn of the loop, when
 * `due` is set. A connection is in the daemon's hands except while `suspended`; a resumed one
 * is picked up by the next MHD_run. */
#ifndef TOKEND_HTTP_IMPL_H
#define TOKEND_HTTP_IMPL_H

#include "buf.h"
#include "http.h"
#include "list.h"

#include <microhttpd.h>

enum {
    HTTP_POOL = 36 << 10, /* libmicrohttpd's memory of a connection: headers and chunks. It
                             clears all of it for each request, and takes up to 32 KB from the
                             heap, where the memory of those that left would stay */
    /* What of a request lies there: its headers, whose cookies are copied, and a record of 64 bytes
       for each header field, cookie and parameter of the URL. All that is accepted leaves room for
       the reply's headers behind the half that may hold the next requests. */
    HTTP_MAX_HEADERS = 16 << 10,
    HTTP_MAX_COOKIES = 8 << 10,
    HTTP_MAX_FIELDS = 100,       /* header fields, cookies and parameters of the URL */
    HTTP_MAX_DISCARD = 64 << 10, /* a refused body up to this is read, to keep the connection */
    HTTP_LARGE = 1 << 20,        /* bodies and replies after which the heap is trimmed */
    HTTP_SMALL_REPLY = 64 << 10, /* up to this a reply is sent whatever waits */
    HTTP_MAX_LINGERING = 128,    /* closed connections whose last bytes we still take */
    HTTP_ID_MAX = 128,
    HTTP_ID_BYTES = 12, /* random ones of an id of ours */
    HTTP_ID_STOCK = 20,
};

struct http_server;
struct http_wait;

/* Things that wait equally long, oldest first: adding, removing and finding the next to
 * expire are O(1). */
struct http_wait_list {
    struct list waiting;
    uint64_t period; /* ms */
    void (*expire)(struct http_server *, struct http_wait *);
};
struct http_wait {
    struct list_node node; /* zeroed: not waiting */
    uint64_t due;          /* ms of uv_now */
};

struct http_server {
    uv_loop_t *loop;
    struct http_config cfg; /* its strings are ours */
    const struct http_route *routes;
    void *arg;
    struct MHD_Daemon *daemon;
    int listen_fd; /* the daemon's */
    int port;
    bool due;              /* MHD_run has something to do this turn */
    bool draining;         /* each reply closes its connection */
    bool closing;          /* http_server_close runs: every end is `gone` */
    bool raw_header_check; /* this libmicrohttpd lets NUL and folded lines through */
    uv_poll_t mhd_poll;
    uv_timer_t mhd_timer, wait_timer;
    uv_prepare_t before_poll;
    uv_check_t after_poll;
    int n_handles; /* of those five, not yet closed; the server is freed at 0 */
    struct http_wait_list idle, body, writing, dying, lingering, trimming;
    struct http_wait trim; /* the heap, a second after the first large thing was freed */
    struct list connections, lingerers, in_headers;
    struct list roomy; /* streams whose on_room is called after MHD_run */
    int n_connections, n_lingering, n_requests;
    size_t body_bytes, max_body_bytes; /* of all requests together */
    size_t reply_bytes;                /* whole replies until their requests are over */
    uint64_t n_seen, n_slow, n_refused;
    unsigned char random[HTTP_ID_STOCK][HTTP_ID_BYTES]; /* for ids; drawn together: a system call */
    int n_random;                                       /* those not used yet */
};

/* Born and freed with libmicrohttpd's connection (its socket context). Its descriptor stays
 * open until the CLOSED notification, where the watch is closed, so a watch never sees a
 * reused descriptor. */
struct http_conn {
    struct list_node node;
    struct list_node in_headers; /* linked: a request line came, its headers are not complete */
    struct http_server *server;
    struct MHD_Connection *mhd;
    int fd;
    const char *uri;              /* of the last request line, in libmicrohttpd's memory */
    size_t uri_len;               /* as it came, to its end or its first NUL */
    size_t n_parameters;          /* of it */
    struct http_request *request; /* NULL between requests */
    uv_poll_t watch;              /* for the client's leaving, while a request is handled */
    bool watch_open, watching;
    bool suspended;
    bool served;  /* it has had a whole request */
    bool dead;    /* its last words are said: nothing more is served */
    bool aborted; /* reset, not closed in order */
    bool linger;  /* closed with bytes of the client's unread: take them, or it loses our reply */
    struct http_wait wait;  /* in the list that fits its state: idle, body, writing or dying */
    uint64_t idle_since;    /* ns of uv_hrtime */
    uint64_t body_since;    /* ms of uv_now: when its request's headers were complete */
    uint64_t partial_since; /* ns; 0: no byte of a next request seen */
    uint64_t progress_at;   /* ms of uv_now: when the reader last took something */
    int unsent;             /* bytes in the socket's queue at the last look */
};

enum http_state {
    HTTP_RECEIVING, /* its body is still coming */
    HTTP_HANDLING,  /* the handler was called, no answer yet */
    HTTP_STREAMING, /* begun, not ended */
    HTTP_ANSWERED,  /* nothing more to say; what waits goes out */
};

/* Made when the headers are complete, freed when libmicrohttpd says the request is over. */
struct http_request {
    struct http_conn *conn;
    const struct http_route *route;
    enum http_state state;
    bool chunked;                 /* its body is */
    bool handled;                 /* the handler was called, so on_done is owed */
    bool large;                   /* its body or reply was */
    bool gone;                    /* the client left or was cut: nothing is sent any more */
    struct MHD_Response *refusal; /* waits for the body's end */
    int refusal_status;
    char id[HTTP_ID_MAX + 1];
    const char *url; /* in libmicrohttpd's memory, like the headers; valid until the end */
    struct buf body;
    size_t reply_bytes;                   /* what it counts for in the server's */
    struct buf headers;                   /* name NUL value NUL ... for the coming reply */
    uint64_t started;                     /* ns: when the handler was called */
    int status;                           /* of the reply; 0: none yet */
    char method[16], path[160], note[64]; /* cut; for the log */
    void *user;
    void (*on_done)(struct http_request *, void *user, bool gone);
    struct buf queue; /* of a stream: what libmicrohttpd has not taken starts at `taken` */
    size_t taken;
    void (*on_room)(struct http_request *, void *user);
    bool wants_room;            /* on_room is owed */
    struct list_node room_node; /* in the server's `roomy`: on_room is due this turn */
};

/* http_wait.c */
void http_wait_list_init(struct http_wait_list *, uint64_t period,
                         void (*expire)(struct http_server *, struct http_wait *));
void http_wait_start(struct http_server *, struct http_wait_list *, struct http_wait *);
void http_wait_stop(struct http_wait *);
void http_wait_on_timer(uv_timer_t *);

/* http_conn.c */
void http_conn_notify(void *server, struct MHD_Connection *, void **context,
                      enum MHD_ConnectionNotificationCode);
void http_conn_suspend(struct http_conn *);
void http_conn_resume(struct http_conn *);
void http_conn_unwatch(struct http_conn *);
void http_conn_idle(struct http_conn *); /* it waits for its next request */
void http_conn_await_body(struct http_conn *);
/* Without asking us, because it could not read the request. */
bool http_conn_answered_by_mhd(const struct http_conn *);
void http_conn_cut(struct http_conn *); /* reset: a client that cannot or will not be served */
/* Answers with an error where libmicrohttpd has no way to, past it; then nothing more is served. */
void http_conn_last_words(struct http_conn *, int status, const char *code, const char *message);
void http_conn_idle_expired(struct http_server *, struct http_wait *);
void http_conn_body_expired(struct http_server *, struct http_wait *);
void http_conn_dying_expired(struct http_server *, struct http_wait *);
void http_linger_expired(struct http_server *, struct http_wait *);
void http_linger_close_all(struct http_server *);

/* http_headers.c */
struct http_verdict {
    int status; /* that refuses the request; 0: it is well */
    const char *code;
    char why[160];
    bool chunked; /* its body is */
    uint64_t length;
};
/* Cuts the blanks behind the values off, which do not belong to them. */
void http_judge_headers(struct http_conn *, const char *method, const char *version,
                        struct http_verdict *);
/* Of a chunked body, when it is complete. False: they refuse it. */
bool http_judge_trailers(struct http_conn *, struct http_verdict *);
bool http_is_value(const char *, size_t n); /* without control characters */
size_t http_unescape(void *cls, struct MHD_Connection *, char *s);
void *http_on_request_line(void *server, const char *uri, struct MHD_Connection *);
void http_headers_end(struct http_conn *); /* they are read, or given up */
/* When libmicrohttpd has logged something: last words to the connections whose headers it will not
 * take, where it is about such. */
void http_refuse_unread(struct http_server *);
struct http_conn *http_conn_of(struct MHD_Connection *);

/* http_request.c */
enum MHD_Result http_on_access(void *server, struct MHD_Connection *, const char *url,
                               const char *method, const char *version, const char *data,
                               size_t *size, void **request);
void http_on_completed(void *server, struct MHD_Connection *, void **request,
                       enum MHD_RequestTerminationCode);
void http_trim_expired(struct http_server *, struct http_wait *);
const char *http_path(const struct http_request *); /* decoded; "%00" stays */
/* Frees the body, which otherwise lives (and counts against all bodies' limit) until the end. */
void http_drop_body(struct http_request *);

/* http_reply.c */
/* incoming: NULL or not sane: a new one. */
void http_take_id(struct http_server *, char *id, const char *incoming);
/* A header for the coming reply, before http_reply or http_stream_begin. */
void http_add_header(struct http_request *, const char *name, const char *value);
const char *http_reason(int status);
/* Hands the response to libmicrohttpd (whole or stream) and lets it go on. Takes it over. */
void http_send(struct http_request *, int status, struct MHD_Response *, enum http_state next);
void http_add_common_headers(struct http_request *, struct MHD_Response *);

/* http_stream.c */
void http_writing_expired(struct http_server *, struct http_wait *);
void http_writing_start(struct http_conn *);
void http_tell_room(struct http_server *);

#endif
