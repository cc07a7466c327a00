/* engine.c: opening, closing, the thread, and the submitter's side. */
#include "engine_impl.h"

#include "log.h"
#include "planner.h"
#include "repack_cache.h"
#include "weights_quantised.h"
#include "weights_widened.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double idle_beat_s = 0.4; /* the heartbeat's period when there is nothing to do */

/* --- the thread --- */

static void *engine_main(void *arg)
{
    struct engine *e = arg;
    while (!atomic_load(&e->stop)) {
        atomic_store(&e->heartbeat, (uint64_t)(engine_now() * 1e9));
        if (engine_iterate(e))
            continue;
        if (e->config.check_pages) {
            scheduler_check(e->scheduler);
            prefix_cache_check(e->cache);
        }
        mailbox_park(&e->mail, idle_beat_s);
    }
    engine_end_all(e);
    return NULL;
}

/* --- opening --- */

static bool check_config(const struct engine_config *c, struct err *e)
{
    if (c->block_size < 16 || c->block_size % 16 || c->block_size > 1024)
        return err_set(e, ERR_INVALID, "--block-size %d: expected a multiple of 16, up to 1024",
                       c->block_size);
    if (c->max_num_seqs < 1)
        return err_set(e, ERR_INVALID, "--max-num-seqs %d: expected at least 1", c->max_num_seqs);
    if (c->max_num_batched_tokens < c->max_num_seqs)
        return err_set(e, ERR_INVALID,
                       "--max-num-batched-tokens %d: expected at least --max-num-seqs (%d)",
                       c->max_num_batched_tokens, c->max_num_seqs);
    if (c->max_model_len < 0 || c->threads < 0)
        return err_set(e, ERR_INVALID, "--max-model-len and --threads must not be negative");
    if (c->activation_bits != 0 && c->activation_bits != 8 && c->activation_bits != 16)
        return err_set(e, ERR_INVALID, "--activation-bits %d: expected 8 or 16",
                       c->activation_bits);
    return true;
}

static bool open_backend(struct engine *e, const struct model_file *file, int max_len,
                         struct err *err)
{
    const struct engine_config *c = &e->config;
    e->max_pages = (max_len + c->block_size - 1) / c->block_size;
    e->max_logits = c->max_num_seqs;
    e->info.activation_bits = c->activation_bits;
    if (c->activation_bits == 0)
        e->info.activation_bits = e->info.spec.n_experts > 0 || c->widen ? 16 : 8;
    char *cache = NULL;
    if (c->repack_cache && model_file_path(file) &&
        !(cache = repack_cache_path(c->repack_cache, model_file_path(file), err)))
        return false;
    const struct backend_config bc = {
        .repack_cache = cache,
        .model = cache ? model_file_identity(file) : 0,
        .threads = c->threads,
        .pin_threads = c->pin_threads,
        .max_rows = c->max_num_batched_tokens,
        .max_seqs = c->max_num_seqs,
        .max_pages = e->max_pages,
        .max_logits = e->max_logits,
        .memory_share = c->gpu_memory_share,
        .enforce_eager = c->enforce_eager,
        .fine_activations = e->info.activation_bits == 16,
        .batch_invariant = c->batch_invariant,
    };
    e->backend = (c->open_backend ? c->open_backend : backend_cpu_open)(&bc, err);
    free(cache);
    return e->backend;
}

/* The lanes' working memory, as many as the backend runs at once; not more than logits. */
static bool take_scratch(struct engine *e, struct err *err)
{
    e->n_lanes = e->backend->n_helpers < e->max_logits ? e->backend->n_helpers : e->max_logits;
    e->rows = calloc((size_t)e->config.max_num_batched_tokens, sizeof *e->rows);
    e->tasks = calloc((size_t)e->max_logits, sizeof *e->tasks);
    e->scratch = calloc((size_t)e->n_lanes, sizeof(struct sampling_scratch *));
    bool ok = e->rows && e->tasks && e->scratch;
    for (int i = 0; ok && i < e->n_lanes; i++)
        ok = (e->scratch[i] = sampling_scratch_new(e->info.spec.n_vocab));
    return ok || err_set(err, ERR_MEMORY, "no memory for the sampler");
}

static struct kv_config kv_shape(const struct engine *e)
{
    return model_kv_config(&e->info.spec, e->config.block_size, e->info.kv_dtype);
}

/* What is taken, and what the KV pool's opening will take besides the pool. */
static void count_memory(struct engine *e, enum dtype main_type, struct memory_needs *m)
{
    const struct backend_ops *ops = e->backend->ops;
    const struct kv_config kv = kv_shape(e);
    struct backend_memory mem;
    ops->memory(e->backend, &mem);
    *m = (struct memory_needs){
        .total = mem.total,
        .weights = mem.weights,
        .activations = mem.activations + ops->kv_extra_bytes(e->backend, &kv),
        .page = ops->kv_page_bytes(e->backend, &kv),
        .dedicated = mem.dedicated,
        .device = mem.device,
        .others = mem.others,
        .float_weights = !e->config.quantise && dtype_info(main_type)->block_elems == 1,
        .wide_kv = e->info.kv_dtype != DTYPE_INT8 && e->info.kv_dtype != DTYPE_F8_E4M3,
    };
    if (!mem.dedicated)
        m->activations += (uint64_t)e->n_lanes * sampling_scratch_bytes(e->info.spec.n_vocab);
}

static bool check_kv(struct engine *e, struct err *err)
{
    const struct kv_config kv = kv_shape(e);
    return !e->backend->ops->kv_check || e->backend->ops->kv_check(e->backend, &kv, err);
}

/* Plans with the weights as the file has them, before they take the memory that may lack; the
 * context is one that the final plan does not exceed. */
static bool plan_before_loading(struct engine *e, const struct weights *w, int *len,
                                struct err *err)
{
    struct memory_needs needs;
    struct memory_plan plan;
    uint64_t bytes;
    enum dtype main_type;
    if (!model_check(w, &e->info.spec, &bytes, &main_type, err))
        return false;
    count_memory(e, main_type, &needs);
    needs.weights += bytes;
    if (!planner_pool(&e->config, *len, &needs, &plan, err))
        return false;
    *len = plan.max_model_len;
    return true;
}

/* Where the pool gets all that is left, the largest steps run before, on a pool as small as they
 * can do with: what the device takes then is not left any more. */
static bool warm_up(struct engine *e, int wanted_len, struct err *err)
{
    struct kv_config kv = kv_shape(e);
    struct memory_needs needs;
    struct memory_plan plan;
    count_memory(e, model_main_dtype(e->model), &needs);
    if (!needs.dedicated)
        return true;
    if (!planner_pool(&e->config, wanted_len, &needs, &plan, err))
        return false;
    const int pages = engine_warm_up_pages(e);
    kv.n_pages = pages < plan.n_pages ? pages : plan.n_pages;
    return e->backend->ops->kv_open(e->backend, &kv, err) &&
           (engine_warm_up(e, kv.n_pages, err) || err_prefix(err, "the first steps"));
}

static bool take_kv(struct engine *e, int wanted_len, struct err *err)
{
    struct engine_info *info = &e->info;
    struct kv_config kv = kv_shape(e);
    struct memory_needs needs;
    struct memory_plan plan;
    if (!warm_up(e, wanted_len, err))
        return false;
    count_memory(e, model_main_dtype(e->model), &needs);
    if (!planner_pool(&e->config, wanted_len, &needs, &plan, err))
        return false;
    if (plan.max_model_len < info->spec.n_ctx_train && !e->config.max_model_len)
        log_info("context: %d tokens, what the KV cache holds; the model allows %d",
                 plan.max_model_len, info->spec.n_ctx_train);
    kv.n_pages = info->n_pages = plan.n_pages;
    info->max_cached_pages = plan.max_cached_pages;
    info->max_model_len = plan.max_model_len;
    info->kv_bytes = plan.kv_bytes;
    info->kv_bytes_per_token = needs.page / (uint64_t)e->config.block_size;
    if (!e->backend->ops->kv_open(e->backend, &kv, err))
        return false;
    info->weight_bytes = needs.weights;
    info->weight_dtype = model_main_dtype(e->model);
    info->activation_bytes = needs.activations;
    return true;
}

/* What the backend says of itself once it has the weights */
static void describe_backend(struct engine *e)
{
    const struct backend *b = e->backend;
    snprintf(e->backend_name, sizeof e->backend_name, "%s: %s", b->ops->name,
             b->ops->describe(e->backend));
    e->info.backend = e->backend_name;
    e->info.batch_dependent = b->batch_dependent;
    e->info.warning = b->warning;
}

static bool load_weights(struct engine *e, const struct weights *weights, int len, struct err *err)
{
    struct engine_info *info = &e->info;
    info->threads = e->backend->n_helpers;
    info->kv_dtype = e->config.kv_dtype;
    if (e->config.kv_dtype_auto)
        info->kv_dtype = weights_all_f32(weights) ? DTYPE_F32 : DTYPE_F16;
    info->max_num_seqs = e->config.max_num_seqs;
    info->max_num_batched_tokens = e->config.max_num_batched_tokens;
    info->block_size = e->config.block_size;
    if (!check_kv(e, err) || !plan_before_loading(e, weights, &len, err) ||
        !(e->model = model_load(e->backend, weights, &info->spec, len, err)) ||
        !take_scratch(e, err) || !engine_ahead_open(e, err) || !take_kv(e, len, err))
        return false;
    describe_backend(e);
    return true;
}

static void log_quantised(const struct weights *view, enum dtype t)
{
    char text[700];
    if (quantised_counts_describe(weights_quantised_counts(view), text, sizeof text))
        log_info("--quantization %s: %s", dtype_info(t)->name, text);
    else
        log_warn("--quantization %s has no effect: %s", dtype_info(t)->name, text);
}

static bool load_model(struct engine *e, const struct model_file *file, struct err *err)
{
    const struct model_spec *spec = model_file_spec(file, err);
    const struct weights *weights = spec ? model_file_weights(file, err) : NULL;
    int len;
    if (!weights)
        return false;
    e->info.spec = *spec;
    if (!planner_context(&e->config, &e->info.spec, &len, err) || !open_backend(e, file, len, err))
        return false;
    if (!e->config.quantise && !e->config.widen)
        return load_weights(e, weights, len, err);
    struct weights *view =
        e->config.widen ? weights_open_widened(weights, e->backend, err)
                        : weights_open_quantised(weights, e->config.quantise_to, e->backend, err);
    bool ok = view && load_weights(e, view, len, err);
    if (ok && e->config.quantise)
        log_quantised(view, e->config.quantise_to);
    weights_close(view);
    return ok;
}

static bool open_pages(struct engine *e, struct err *err)
{
    step_cost_init(&e->cost);
    const struct scheduler_config sc = {
        .block_size = e->config.block_size,
        .max_seqs = e->config.max_num_seqs,
        .max_step_tokens = e->config.max_num_batched_tokens,
        .cost = &e->cost,
        .prefix_caching = e->config.prefix_caching,
        .max_cached_pages = e->info.max_cached_pages,
    };
    return (e->pool = page_pool_open(e->info.n_pages, err)) &&
           (e->cache = prefix_cache_open(e->pool, sc.block_size, err)) &&
           (e->scheduler = scheduler_open(&sc, e->pool, e->cache, err));
}

static void engine_free(struct engine *e)
{
    for (int i = 0; e->scratch && i < e->n_lanes; i++)
        sampling_scratch_free(e->scratch[i]);
    free(e->scratch);
    free(e->tasks);
    free(e->rows);
    engine_ahead_close(e);
    scheduler_free(e->scheduler);
    prefix_cache_free(e->cache);
    page_pool_free(e->pool);
    model_free(e->model);
    if (e->backend)
        e->backend->ops->close(e->backend);
    mailbox_destroy(&e->mail);
    free(e);
}

static bool start_thread(struct engine *e, struct err *err)
{
    atomic_store(&e->heartbeat, (uint64_t)(engine_now() * 1e9));
    const struct engine_stats at_start = {
        .pages_total = e->info.n_pages,
        .pages_free = e->info.n_pages,
    };
    stats_write(&e->stats_box, &at_start);
    int code = pthread_create(&e->thread, NULL, engine_main, e);
    e->thread_runs = code == 0;
    if (e->thread_runs)
        pthread_setname_np(e->thread, "engine");
    return e->thread_runs || err_set(err, ERR_IO, "engine thread: %s", strerror(code));
}

struct engine *engine_open(const struct engine_config *c, const struct model_file *file,
                           void (*wake)(void *arg), void *arg, struct err *err)
{
    if (!check_config(c, err))
        return NULL;
    struct engine *e = calloc(1, sizeof *e);
    if (!e) {
        err_set(err, ERR_MEMORY, "no memory for the engine");
        return NULL;
    }
    e->config = *c;
    e->wake = wake;
    e->wake_arg = arg;
    list_init(&e->live);
    if (!mailbox_init(&e->mail, err)) {
        free(e);
        return NULL;
    }
    if (load_model(e, file, err) && open_pages(e, err) && start_thread(e, err))
        return e;
    engine_free(e);
    return NULL;
}

void engine_close(struct engine *e)
{
    if (!e)
        return;
    atomic_store(&e->stop, true);
    mailbox_ring(&e->mail);
    pthread_join(e->thread, NULL);
    while (mailbox_poll(&e->mail))
        ; /* sets `ended` */
    engine_free(e);
}

const struct engine_info *engine_get_info(const struct engine *e)
{
    return &e->info;
}

/* --- the submitter's side --- */

static bool check_request(const struct engine *e, const struct request *r, struct err *err)
{
    const int n_vocab = e->info.spec.n_vocab, max_len = e->info.max_model_len;
    if (atomic_load(&e->dead))
        return err_set(err, ERR_DEVICE, "the device failed: nothing can run");
    if (r->n_prompt < 1)
        return err_set(err, ERR_INVALID, "the prompt is empty: it needs at least one token");
    if (r->n_prompt > max_len || (r->n_prompt == max_len && r->params.max_tokens > 0))
        return err_set(err, ERR_LIMIT,
                       "the prompt has %d tokens, which leaves no room for an answer: the "
                       "context (max_model_len) is %d tokens",
                       r->n_prompt, max_len);
    for (int i = 0; i < r->n_prompt; i++)
        if (r->prompt[i] < 0 || r->prompt[i] >= n_vocab)
            return err_set(err, ERR_INVALID,
                           "prompt token %d is %d, the vocabulary has ids 0 to %d", i,
                           (int)r->prompt[i], n_vocab - 1);
    return sampling_check(&r->params, n_vocab, err);
}

bool engine_submit(struct engine *e, struct request *r, struct err *err)
{
    if (!check_request(e, r, err))
        return false;
    if (r->target_itl <= 0)
        r->target_itl = e->config.target_itl;
    request_run_free(r->run);
    r->run = request_run_new(r, e->info.spec.n_vocab, e->info.max_model_len, e->info.block_size);
    if (!r->run)
        return err_set(err, ERR_MEMORY, "no memory for a request of %d tokens and %d choices",
                       r->n_prompt, r->n_choices);
    r->t_submitted = engine_now();
    mailbox_submit(&e->mail, r);
    return true;
}

void engine_cancel(struct engine *e, struct request *r)
{
    atomic_store(&r->cancel_asked, true);
    mailbox_ring(&e->mail);
}

void engine_stop_choice(struct engine *e, struct request *r, int choice)
{
    atomic_store(&r->choices[choice].stop_asked, true);
    mailbox_ring(&e->mail);
}

void engine_reset_prefix_cache(struct engine *e)
{
    atomic_store(&e->reset_asked, true);
    mailbox_ring(&e->mail);
}

struct request *engine_poll(struct engine *e)
{
    return mailbox_poll(&e->mail);
}
