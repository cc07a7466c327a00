/* api.h: the OpenAI API over one engine.
 *
 * The routes' handlers, what is in flight between HTTP and the engine, and the metrics. It
 * owns neither the engine nor the HTTP server. Everything runs on the loop thread, except that
 * bodies are parsed, rendered and tokenised on libuv's pool, which reads only what is immutable.
 *
 * Order of things: api_open; http_server_open with api_routes() and arg = api;
 * api_set_http; api_set_engine once the model is loaded (until then /health says 503 and
 * requests are refused with 503 model_loading). At the end: http_server_close; engine_close;
 * api_engine_closed; the loop until api_n_in_flight is 0; api_free. */
#ifndef TOKEND_API_H
#define TOKEND_API_H

#include "engine.h"
#include "http.h"
#include "template.h"
#include "tokenizer.h"

struct api;

struct api_config {
    const char *const *model_names; /* NULL-terminated, at least one; the first is in replies */
    int64_t created;                /* seconds since 1970, for /v1/models */
    bool has_seed;                  /* requests without a seed get one that follows from this, */
    uint64_t seed;                  /* and from their order; else a random one */
    int max_queue_len;    /* sequences in flight beyond max_num_seqs before 429; < 0: no bound */
    double stall_limit_s; /* /health: a heartbeat older than this means a stalled engine */
};

/* The strings are copied; names are valid UTF-8. */
struct api *api_open(uv_loop_t *, const struct api_config *, struct err *e);
/* Ended by a zeroed entry. The handlers' arg is the api. */
const struct http_route *api_routes(void);
/* For /metrics. */
void api_set_http(struct api *, const struct http_server *);
/* What the model brings beside its weights. */
struct api_model {
    const struct tokenizer *tokenizer;    /* NULL: token ids only */
    const struct template *template;      /* NULL: the chat route refuses */
    const struct template *tool_template; /* of requests with tools; NULL: the same */
    const struct chat_templates *texts;   /* the special tokens' texts; NULL: the tokenizer's */
    struct generation_defaults defaults;  /* of sampling, where a client says nothing */
};

/* The model is there: requests are taken from now on. All that is pointed to must outlive the
 * api's last request. */
void api_set_engine(struct api *, struct engine *, const struct api_model *);
/* On the loop, whenever the engine's wake fired. */
void api_poll_engine(struct api *);
/* After engine_close: what was in flight has ended. The engine is not touched any more. */
void api_engine_closed(struct api *);
/* New requests are refused with 503 draining, and /health says so; those in flight go on. */
void api_set_draining(struct api *, bool draining);
/* Ends all in flight with an error (503, `code`), streams by an error event. */
void api_abort_all(struct api *, const char *code, const char *message);
/* Requests being parsed or generated, or cancelled but not yet handed back by the engine. */
int api_n_in_flight(const struct api *);
/* Nothing may be in flight. */
void api_free(struct api *);

#endif
