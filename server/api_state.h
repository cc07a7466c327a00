/* api_state.h: what the files of the API share. Loop thread only, but `model` and `defaults`, which
 * are immutable once set and read by text workers too, and `salts`, which has a lock. */
#ifndef TOKEND_API_STATE_H
#define TOKEND_API_STATE_H

#include "api.h"
#include "api_error.h"
#include "buf.h"
#include "list.h"
#include "metrics.h"
#include "params.h"
#include "prompt.h"

enum { API_MAX_BODY_BYTES = 1 << 28 };

struct api {
    uv_loop_t *loop;
    const struct http_server *http; /* NULL until set */
    struct engine *engine;          /* NULL while loading */
    const struct engine_info *info;
    struct text_model model;
    struct generation_defaults defaults;
    char **names; /* [n_names], NULL-terminated */
    int n_names;
    int64_t created;
    struct cache_salts *salts;
    bool has_seed;
    uint64_t seed;
    uint64_t n_seeded;
    int max_queue_len;
    double stall_limit_s;
    bool draining, closing;
    struct metrics metrics;
    struct list generations;
    int n_calls;       /* bodies on the pool */
    size_t body_bytes; /* of them; at most API_MAX_BODY_BYTES */
    int n_generations;
    int n_sequences;    /* the engine's, and one for each generating body on the pool */
    uint64_t n_ids;     /* makes ids unique */
    struct buf scratch; /* one event while it is formatted */
    /* Replies that are asked for all the time; NULL: not made since the engine came. */
    char *health_reply, *models_reply;
};

const char *api_model_name(const struct api *);
/* Is it one of the names? Else 404. */
bool api_check_name(const struct api *, const char *name, struct api_error *e);
/* The field `model`: absent, or one of the names. */
bool api_check_model(const struct api *, const json_t *body, struct api_error *e);
/* Whether n more sequences can be taken now (429), or ever (400). */
bool api_has_room(const struct api *, int64_t n, struct api_error *e);
/* Whether the engine lives, as /health has it. */
bool api_healthy(const struct api *, struct api_error *e);
/* The seed of prompt 0, 1, … of a request: draws for two prompts are independent. The first has
 * the client's own, as if it were alone; without one each has a fresh one. */
uint64_t api_prompt_seed(struct api *, const struct gen_params *, int prompt);
/* Sends JSON and frees it; NULL is answered as out of memory. */
void api_reply_json(struct http_request *, json_t *);
/* The same for a reply that is always the same: *text keeps it, made by `make` where it is NULL. */
void api_reply_kept(struct api *, struct http_request *, char **text,
                    json_t *(*make)(const struct api *));

/* Handlers, by file. */
void completions_handle(struct http_request *, void *api);
void chat_handle(struct http_request *, void *api);
void models_list_handle(struct http_request *, void *api);
void models_one_handle(struct http_request *, void *api);
void tokenize_handle(struct http_request *, void *api);
void detokenize_handle(struct http_request *, void *api);
void apply_template_handle(struct http_request *, void *api);
void completions_render_handle(struct http_request *, void *api);
void chat_render_handle(struct http_request *, void *api);
void health_handle(struct http_request *, void *api);
void metrics_handle(struct http_request *, void *api);
void reset_prefix_cache_handle(struct http_request *, void *api);
void version_handle(struct http_request *, void *api);

#endif
