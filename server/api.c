#include "api.h"

#include "api_state.h"
#include "generation.h"
#include "json_in.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The HTTP module answers each with and without /v1. */
static const struct http_route routes[] = {
    {HTTP_POST, "/v1/chat/completions", chat_handle},
    {HTTP_POST, "/v1/completions", completions_handle},
    {HTTP_GET, "/v1/models", models_list_handle},
    {HTTP_GET, "/v1/models/", models_one_handle, .prefix = true},
    {HTTP_POST, "/tokenize", tokenize_handle},
    {HTTP_POST, "/detokenize", detokenize_handle},
    {HTTP_POST, "/apply-template", apply_template_handle},
    {HTTP_POST, "/v1/completions/render", completions_render_handle},
    {HTTP_POST, "/v1/chat/completions/render", chat_render_handle},
    {HTTP_GET, "/health", health_handle, .open = true},
    {HTTP_GET, "/metrics", metrics_handle},
    {HTTP_POST, "/reset_prefix_cache", reset_prefix_cache_handle},
    {HTTP_GET, "/version", version_handle},
    {0},
};

static bool copy_names(struct api *api, const char *const *names)
{
    while (names && names[api->n_names])
        api->n_names++;
    api->names = calloc((size_t)api->n_names + 1, sizeof *api->names);
    for (int i = 0; api->names && i < api->n_names; i++)
        if (!(api->names[i] = strdup(names[i])))
            return false;
    return api->names != NULL;
}

struct api *api_open(uv_loop_t *loop, const struct api_config *config, struct err *e)
{
    if (!config->model_names || !config->model_names[0]) {
        err_set(e, ERR_INVALID, "the API needs at least one model name");
        return NULL;
    }
    struct api *api = calloc(1, sizeof *api);
    if (!api || !copy_names(api, config->model_names) || !(api->salts = cache_salts_new())) {
        api_free(api);
        err_set(e, ERR_MEMORY, "out of memory");
        return NULL;
    }
    api->loop = loop;
    api->created = config->created;
    api->has_seed = config->has_seed;
    api->seed = config->seed;
    api->max_queue_len = config->max_queue_len;
    api->stall_limit_s = config->stall_limit_s;
    list_init(&api->generations);
    metrics_init(&api->metrics);
    return api;
}

static void forget_kept(struct api *api)
{
    free(api->health_reply);
    free(api->models_reply);
    api->health_reply = api->models_reply = NULL;
}

void api_free(struct api *api)
{
    if (!api)
        return;
    for (int i = 0; api->names && i < api->n_names; i++)
        free(api->names[i]);
    free(api->names);
    cache_salts_free(api->salts);
    buf_free(&api->scratch);
    forget_kept(api);
    free(api);
}

const struct http_route *api_routes(void)
{
    return routes;
}

void api_set_http(struct api *api, const struct http_server *http)
{
    api->http = http;
}

void api_set_engine(struct api *api, struct engine *engine, const struct api_model *m)
{
    forget_kept(api);
    api->info = engine_get_info(engine);
    api->model = (struct text_model){
        .tokenizer = m->tokenizer,
        .template = m->template,
        .tool_template = m->tool_template,
        .n_vocab = api->info->spec.n_vocab,
        .max_model_len = api->info->max_model_len,
    };
    for (int i = 0; m->texts && i < N_SPECIAL_TEXTS; i++)
        api->model.special[i] = m->texts->special[i];
    api->defaults = m->defaults;
    api->engine = engine;
}

void api_poll_engine(struct api *api)
{
    struct engine_stats stats;
    struct request *r;
    if (!api->engine)
        return;
    while ((r = engine_poll(api->engine)))
        generation_news(r);
    engine_get_stats(api->engine, &stats);
    metrics_steps(&api->metrics, &stats);
}

void api_engine_closed(struct api *api)
{
    api->engine = NULL;
    api->closing = true;
    struct list_node *next;
    for (struct list_node *n = list_first(&api->generations); n; n = next) {
        next = list_next(&api->generations, n);
        generation_engine_closed(list_entry(n, struct generation, node));
    }
}

void api_set_draining(struct api *api, bool draining)
{
    api->draining = draining;
}

void api_abort_all(struct api *api, const char *code, const char *message)
{
    struct api_error e = {0};
    api_fail(&e, 503, code, NULL, "%s", message);
    api->closing = true;
    struct list_node *next;
    for (struct list_node *n = list_first(&api->generations); n; n = next) {
        next = list_next(&api->generations, n);
        generation_fail(list_entry(n, struct generation, node), &e);
    }
}

int api_n_in_flight(const struct api *api)
{
    return api->n_calls + api->n_generations;
}

const char *api_model_name(const struct api *api)
{
    return api->names[0];
}

bool api_check_name(const struct api *api, const char *name, struct api_error *e)
{
    struct buf known = {0};
    for (int i = 0; i < api->n_names; i++) {
        if (strcmp(name, api->names[i]) == 0) {
            buf_free(&known);
            return true;
        }
        buf_addf(&known, "%s%s", i ? ", " : "", api->names[i]);
    }
    api_fail(e, 404, "model_not_found", "model",
             "The model `%.100s` does not exist; this server has: %.300s", name,
             known.data ? known.data : "");
    buf_free(&known);
    return false;
}

bool api_check_model(const struct api *api, const json_t *body, struct api_error *e)
{
    const char *name = NULL;
    return field_string(body, "model", &name, e) && (!name || api_check_name(api, name, e));
}

/* Seconds until a place is likely free: the mean time of a request, times the rounds of
 * requests that wait before it. */
static int retry_after(const struct api *api, int64_t waiting)
{
    const struct histogram *h = &api->metrics.e2e;
    uint64_t n = 0;
    for (int i = 0; i <= h->n; i++)
        n += h->counts[i];
    double mean = n ? h->sum / (double)n : 1;
    double s = ceil(mean * ((double)waiting / api->info->max_num_seqs));
    return s < 1 ? 1 : s > 60 ? 60 : (int)s;
}

bool api_has_room(const struct api *api, int64_t n, struct api_error *e)
{
    int64_t running = api->info->max_num_seqs, bound = api->max_queue_len;
    int64_t taken = api->n_sequences, waiting = taken > running ? taken - running : 0;
    if (bound < 0 || taken + n <= running + bound)
        return true;
    if (n > running + bound)
        return api_bad(e, "n",
                       "n: the request has %lld sequences (prompts x n), and this server takes at "
                       "most %lld (--max-num-seqs %lld + --max-queue-len %lld)",
                       (long long)n, (long long)(running + bound), (long long)running,
                       (long long)bound);
    api_fail(e, 429, "queue_full", NULL,
             "the queue is full: %lld sequences run, %lld wait, and this request has %lld "
             "(--max-num-seqs %lld, --max-queue-len %lld)",
             (long long)(taken - waiting), (long long)waiting, (long long)n, (long long)running,
             (long long)bound);
    e->retry_after_s = retry_after(api, waiting + n);
    return false;
}

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static uint64_t next_seed(struct api *api)
{
    uint64_t seed;
    if (api->has_seed)
        return mix(api->seed + 0x9E3779B97F4A7C15u * api->n_seeded++);
    if (uv_random(NULL, NULL, &seed, sizeof seed, 0, NULL) != 0)
        seed = mix(uv_hrtime() + api->n_seeded++);
    return seed;
}

uint64_t api_prompt_seed(struct api *api, const struct gen_params *p, int prompt)
{
    if (!p->has_seed)
        return next_seed(api);
    return prompt == 0 ? p->sampling.seed : mix(p->sampling.seed ^ mix((uint64_t)prompt));
}

void api_reply_json(struct http_request *http, json_t *o)
{
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (text)
        http_reply(http, 200, "application/json", text, strlen(text));
    else
        http_reply_error(http, 503, "out_of_memory", NULL, 1, "out of memory for this reply");
    free(text);
}

void api_reply_kept(struct api *api, struct http_request *http, char **text,
                    json_t *(*make)(const struct api *))
{
    if (!*text) {
        json_t *o = make(api);
        *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
        json_decref(o);
    }
    if (*text)
        http_reply(http, 200, "application/json", *text, strlen(*text));
    else
        api_reply_json(http, NULL);
}
