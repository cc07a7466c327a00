/* call.h: a body's way through a text worker.
 *
 * The handler starts a call; `run` parses, checks and tokenises on libuv's pool, touching
 * only the call and the immutable model; `done` answers on the loop. When the client leaves
 * meanwhile the result is dropped. The call frees itself. */
#ifndef TOKEND_CALL_H
#define TOKEND_CALL_H

#include "generation.h"

/* Of a body that becomes text or ids only: bytes for each token of the context, but at least. */
enum { CALL_TEXT_PER_TOKEN = 32, CALL_MIN_TEXT = 1 << 20 };

struct call {
    uv_work_t work;
    struct api *api;
    struct http_request *http; /* loop thread; NULL: the client left */
    char *body;                /* the workers free it once it is parsed */
    size_t n_body;
    uint64_t t_arrival;
    bool (*run)(struct call *);  /* pool; false: `error` is filled */
    void (*done)(struct call *); /* loop; http is not NULL, run succeeded */
    struct api_error error;
    struct gen_input input; /* of the generating routes */
    double target_itl;      /* of their headers, seconds; loop thread */
    int n_sequences;        /* what it holds of api.n_sequences, until it frees itself */
    struct buf reply;       /* of the others: JSON text */
};

/* n_sequences: what it counts as in the queue meanwhile. NULL: it was refused. */
struct call *call_start(struct api *, struct http_request *, int n_sequences,
                        bool (*run)(struct call *), void (*done)(struct call *));
/* One that makes `reply` of a text and counts for nothing in the queue; it is refused only while
 * the model loads, and (413) when the body is longer than anything that fits the context. */
void call_start_text(struct api *, struct http_request *, bool (*run)(struct call *));
/* The body as an object whose `model` has been checked; NULL and the call's error. Pool. */
json_t *call_parse(struct call *);
/* Makes `reply` of the object, which it frees; NULL is out of memory. Pool. */
bool call_set_reply(struct call *, json_t *);
/* A `done` that sends `reply`. */
void call_send_reply(struct call *);

#endif
