/* The CPU backend's table, and what is taken at load. record.c records a step, step*.c run it. */
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend_common.h"
#include "machine_memory.h"
#include "moe.h"
#include "packing.h"
#include "record.h"
#include "repack.h"
#include "step.h"

#define FIRST_PLAN 256 /* records before kv_open says how many layers there are */

static struct cpu_backend *cpu(struct backend *b)
{
    return (struct cpu_backend *)b;
}

/* --- weights --- */

struct repack_job {
    struct team *team;
    const struct weight *w;
    enum dtype type;
    const void *src;
};

/* A member packs the share of panels that it will read, so that they lie in memory near to it
 * (where members are pinned). */
static void repack_share(void *arg, int member)
{
    const struct repack_job *job = arg;
    for (int panel; (panel = team_take(job->team, member, job->w->panels)) >= 0;)
        repack_panel(job->w, panel, job->type, job->src);
}

/* Reading of a mapped file from the disk starts; of other memory, this does nothing. */
static void will_read(const void *src, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)src / page * page;
    madvise((void *)from, (uintptr_t)src + bytes - from, MADV_WILLNEED);
}

static bool check_matrix(enum dtype t, int64_t rows, int64_t cols, struct err *e)
{
    if ((unsigned)t >= DTYPE_COUNT)
        return err_set(e, ERR_UNSUPPORTED, "type %d: the CPU backend has no such type", (int)t);
    if (rows < 1 || cols < 1 || rows > INT_MAX / 2 || cols > INT_MAX / 64)
        return err_set(e, ERR_INVALID,
                       "a matrix of %lld x %lld: expected 1 to %d rows, 1 to %d "
                       "columns",
                       (long long)rows, (long long)cols, INT_MAX / 2, INT_MAX / 64);
    if (cols % dtype_info(t)->block_elems != 0)
        return err_set(e, ERR_UNSUPPORTED, "%lld columns of type %s: expected a multiple of %d",
                       (long long)cols, dtype_info(t)->name, dtype_info(t)->block_elems);
    return true;
}

/* Fills w from the file's matrix: a vector as float32, anything else in panels. */
static bool pack(struct cpu_backend *b, struct weight *w, enum dtype type, const void *src,
                 size_t bytes, struct err *e)
{
    void *data = blocks_pack(&b->blocks, 1, bytes, "weights", &b->memory.weights, e);
    if (!data)
        return false;
    if (w->panel_bytes == 0) {
        dtype_to_f32(type, src, w->vector = data, w->cols);
        return true;
    }
    w->data = data;
    will_read(src, dtype_row_bytes(type, w->cols) * (size_t)w->rows);
    struct repack_job job = {b->team, w, type, src};
    team_run(b->team, repack_share, &job);
    return true;
}

/* As pack, or from the repack cache, whose bytes nobody writes. */
static bool fill(struct cpu_backend *b, struct weight *w, enum dtype type, const void *src,
                 size_t bytes, struct err *e)
{
    if (!b->packing)
        return pack(b, w, type, src, bytes, e);
    const size_t src_bytes = dtype_row_bytes(type, w->cols) * (size_t)w->rows;
    struct packed_weight p = {type, w->rows, w->cols, packed_sample(src, src_bytes), NULL, bytes};
    p.data = packing_find(b->packing, &p, b->team);
    if (p.data) {
        b->memory.weights += bytes;
        if (w->panel_bytes)
            w->data = (void *)p.data;
        else
            w->vector = (void *)p.data;
    } else if (pack(b, w, type, src, bytes, e)) {
        p.data = w->panel_bytes ? (const void *)w->data : w->vector;
    }
    if (p.data)
        packing_note(b->packing, &p);
    return p.data;
}

static struct weight *weight_load(struct backend *base, enum dtype type, int64_t rows, int64_t cols,
                                  const void *src, struct err *e)
{
    struct cpu_backend *b = cpu(base);
    if (!check_matrix(type, rows, cols, e))
        return NULL;
    struct weight *w = blocks_take(&b->blocks, 1, sizeof *w, "weights", NULL, e);
    if (!w)
        return NULL;
    *w = (struct weight){.type = panel_type(type), .rows = rows, .cols = cols};
    w->panels = (int)((rows + PANEL - 1) / PANEL);
    /* Of a vector a whole panel more than is read, for kernels that load 16 at a time */
    size_t bytes = ((size_t)cols + PANEL - 1) / PANEL * PANEL * sizeof(float);
    if (rows > 1 || dtype_is_quantised(type)) {
        w->panel_bytes = repack_panel_bytes(w->type, cols);
        if (__builtin_mul_overflow((size_t)w->panels, w->panel_bytes, &bytes)) {
            err_set(e, ERR_MEMORY, "a matrix of %lld x %lld: too large", (long long)rows,
                    (long long)cols);
            return NULL;
        }
    }
    return fill(b, w, type, src, bytes, e) ? w : NULL;
}

static void weights_loaded(struct backend *base)
{
    team_unpin_caller(cpu(base)->team); /* the engine thread's place, and what packing starts */
    if (cpu(base)->packing)
        packing_done(cpu(base)->packing);
}

/* --- activations --- */

static bool take_floats(struct cpu_backend *b, float **out, size_t rows, size_t n, struct err *e)
{
    *out =
        blocks_take(&b->blocks, rows, n * sizeof(float), "activations", &b->memory.activations, e);
    return *out != NULL;
}

/* As take_floats for what is never given back */
static bool pack_floats(struct cpu_backend *b, float **out, size_t rows, size_t n, struct err *e)
{
    *out =
        blocks_pack(&b->blocks, rows, n * sizeof(float), "activations", &b->memory.activations, e);
    return *out != NULL;
}

/* Room for all rows of attention's output before it is quantised: as wide as queries, which are
 * plain. */
static bool widen_staging(struct cpu_backend *b, int width, struct err *e)
{
    if (width <= b->widest_plain)
        return true;
    blocks_give(&b->blocks, b->staging, &b->memory.activations);
    b->widest_plain = width;
    size_t n = ((size_t)width + PANEL - 1) / PANEL * PANEL;
    return take_floats(b, &b->staging, (size_t)b->config.max_rows, n, e);
}

/* Room for one row of the widest activation in every worker. */
static bool widen(struct cpu_backend *b, int width, struct err *e)
{
    if (width <= b->widest)
        return true;
    size_t n = ((size_t)width + PANEL - 1) / PANEL * PANEL;
    for (int i = 0; i < team_size(b->team); i++) {
        blocks_give(&b->blocks, b->workers[i].row, &b->memory.activations);
        if (!take_floats(b, &b->workers[i].row, 1, n, e))
            return false;
    }
    b->widest = width;
    return step_attention_reserve(b, e);
}

static bool take_quantised(struct cpu_backend *b, struct activation *a, struct err *e)
{
    size_t n_blocks = (size_t)a->width / QBLOCK,
           stride = (size_t)activation_qstride(a, a->max_rows);
    a->q = blocks_pack(&b->blocks, n_blocks * stride, QBLOCK, "activations", &b->memory.activations,
                       e);
    a->sums = blocks_pack(&b->blocks, n_blocks * stride, 2 * sizeof *a->sums, "activations",
                          &b->memory.activations, e);
    return a->q && a->sums && pack_floats(b, &a->d, n_blocks, stride, e) &&
           pack_floats(b, &a->s, n_blocks, stride, e);
}

struct activation *step_rows_new(struct cpu_backend *b, int width, int max_rows, bool quantised,
                                 struct err *e)
{
    struct activation *a = blocks_take(&b->blocks, 1, sizeof *a, "activations", NULL, e);
    if (!a)
        return NULL;
    *a = (struct activation){
        .width = width,
        .stride = ((width + PANEL - 1) / PANEL | 1) * PANEL,
        .max_rows = max_rows,
        .quantised = quantised,
        .exact = b->config.fine_activations,
        .planes = quantised && b->config.fine_activations ? MAX_PLANES : 1,
    };
    bool ok = quantised ? take_quantised(b, a, e)
                        : pack_floats(b, &a->f, (size_t)max_rows, (size_t)a->stride, e);
    return ok ? a : NULL;
}

static struct activation *activation_new(struct backend *base, int width,
                                         const struct weight *reader, bool logit_rows,
                                         struct err *e)
{
    struct cpu_backend *b = cpu(base);
    if (!activation_check(width, reader ? reader->cols : 0, e))
        return NULL;
    bool quantised = reader && dtype_is_quantised(reader->type);
    /* Logits are the widest by far and never quantised; what reads them needs no such room. */
    if ((!logit_rows || quantised) && !widen(b, width, e))
        return NULL;
    if (!reader && !logit_rows && !widen_staging(b, width, e))
        return NULL;
    int rows = logit_rows ? b->config.max_logits : b->config.max_rows;
    struct activation *a = step_rows_new(b, width, rows, quantised, e);
    if (a)
        a->logit_rows = logit_rows;
    return a;
}

static struct rope *rope_new(struct backend *base, const struct rope_config *c, struct err *e)
{
    struct cpu_backend *b = cpu(base);
    if (!rope_config_check(c, e))
        return NULL;
    struct rope *r = blocks_take(&b->blocks, 1, sizeof *r, "rotary table", NULL, e);
    if (!r)
        return NULL;
    *r = (struct rope){c->style, c->n_dims, c->max_positions, NULL};
    if (!take_floats(b, &r->table, (size_t)c->max_positions, (size_t)c->n_dims, e))
        return NULL;
    int half = c->n_dims / 2;
    for (int p = 0; p < c->max_positions; p++) {
        float *row = r->table + (size_t)p * c->n_dims;
        for (int i = 0; i < half; i++) {
            double angle = (float)p * c->inv_freq[i]; /* float32, as the models were trained */
            row[i] = (float)cos(angle) * c->mscale;
            row[half + i] = (float)sin(angle) * c->mscale;
        }
    }
    return r;
}

/* --- KV pool --- */

static struct kv_pool pool_shape(const struct kv_config *c)
{
    struct kv_pool kv = {
        .type = c->dtype,
        .n_layers = c->n_layers,
        .n_kv_heads = c->n_kv_heads,
        .head_dim = c->head_dim,
        .block_size = c->block_size,
        .n_pages = c->n_pages,
        .v_dim = (c->head_dim + PANEL - 1) / PANEL * PANEL,
    };
    const size_t dim = (size_t)c->head_dim, v_dim = (size_t)kv.v_dim, heads = (size_t)c->n_kv_heads;
    if (c->dtype == DTYPE_INT8) {
        kv.k_bytes = (dim + 3) / 4 * 4 * PANEL + 2 * PANEL * sizeof(uint16_t);
        kv.v_bytes = v_dim * PANEL;
    } else {
        const size_t line = PANEL * (size_t)dtype_info(c->dtype)->block_bytes;
        kv.k_bytes = dim * line;
        kv.v_bytes = v_dim * line;
    }
    kv.v_offset = (heads * kv.k_bytes + 63) / 64 * 64;
    kv.sub_bytes = kv.v_offset + (heads * kv.v_bytes + 63) / 64 * 64;
    kv.layer_bytes = kv.sub_bytes * (c->block_size / PANEL);
    kv.page_bytes = kv.layer_bytes * c->n_layers;
    return kv;
}

/* A plan as long as any model with that many layers needs */
static int plan_records(int n_layers)
{
    return 32 * n_layers + FIRST_PLAN;
}

static uint64_t kv_page_bytes(struct backend *base, const struct kv_config *c)
{
    return pool_shape(c).page_bytes;
}

static uint64_t kv_extra_bytes(struct backend *base, const struct kv_config *c)
{
    const struct cpu_backend *b = cpu(base);
    const struct kv_pool kv = pool_shape(c);
    int more = plan_records(c->n_layers) - b->max_plan;
    return step_attention_bytes(b, &kv) + (uint64_t)more * sizeof *b->plan;
}

static bool check_pool(const struct cpu_backend *b, const struct kv_config *c, struct err *e)
{
    if (b->kv.data)
        return err_set(e, ERR_INVALID, "the KV pool is open already");
    if (c->dtype != DTYPE_F32 && c->dtype != DTYPE_F16 && c->dtype != DTYPE_BF16 &&
        c->dtype != DTYPE_INT8)
        return err_set(e, ERR_UNSUPPORTED, "KV type %s: the CPU backend has f32, f16, bf16, int8",
                       (unsigned)c->dtype < DTYPE_ALL ? dtype_info(c->dtype)->name : "?");
    if (c->dtype == DTYPE_INT8 && c->head_dim > INT8_MAX_DIM)
        return err_set(e, ERR_UNSUPPORTED, "KV type int8 with heads of %d dims: at most %d",
                       c->head_dim, INT8_MAX_DIM);
    if (c->block_size < PANEL || c->block_size % PANEL != 0 || c->block_size > 4096)
        return err_set(e, ERR_INVALID, "block size %d: expected a multiple of %d up to 4096",
                       c->block_size, PANEL);
    if (c->n_layers < 1 || c->n_kv_heads < 1 || c->head_dim < 1 || c->n_pages < 1 ||
        c->n_layers > 65536 || c->n_kv_heads > 65536 || c->head_dim > 65536)
        return err_set(e, ERR_INVALID, "KV pool of %d pages, %d layers, %d heads of %d dims",
                       c->n_pages, c->n_layers, c->n_kv_heads, c->head_dim);
    if ((int64_t)c->n_pages * c->block_size > INT_MAX ||
        (int64_t)b->config.max_pages * c->block_size > INT_MAX - SEGMENT)
        return err_set(e, ERR_LIMIT, "KV pool of %d pages of %d tokens: more than %d tokens",
                       c->n_pages, c->block_size, INT_MAX);
    return true;
}

static bool kv_check(struct backend *base, const struct kv_config *c, struct err *e)
{
    struct kv_config one = *c;
    one.n_pages = 1;
    return check_pool(cpu(base), &one, e);
}

static bool grow_plan(struct cpu_backend *b, int n_layers, struct err *e)
{
    int n = plan_records(n_layers);
    struct record *plan =
        blocks_take(&b->blocks, (size_t)n, sizeof *plan, "step plan", &b->memory.activations, e);
    if (!plan)
        return false;
    if (b->plan) {
        memcpy(plan, b->plan, (size_t)b->n_plan * sizeof *plan);
        blocks_give(&b->blocks, b->plan, &b->memory.activations);
    }
    b->plan = plan;
    b->max_plan = n;
    return true;
}

/* The memory nodes where there is more than one, as bits */
static uint64_t several_nodes(const struct cpu_backend *b)
{
    const uint64_t nodes = team_nodes(b->team);
    return nodes & (nodes - 1) ? nodes : 0;
}

static bool kv_open(struct backend *base, const struct kv_config *c, struct err *e)
{
    struct cpu_backend *b = cpu(base);
    if (!check_pool(b, c, e) || !grow_plan(b, c->n_layers, e))
        return false;
    struct kv_pool kv = pool_shape(c);
    const uint64_t usual = b->blocks.spread;
    b->blocks.spread = several_nodes(b); /* any member may read any page */
    kv.data =
        blocks_take(&b->blocks, (size_t)c->n_pages, kv.page_bytes, "KV pool", &b->memory.kv, e);
    b->blocks.spread = usual;
    if (!kv.data)
        return false;
#ifndef NDEBUG
    memset(kv.data, 0xFF, (size_t)c->n_pages * kv.page_bytes);
#endif
    b->kv = kv;
    return step_attention_reserve(b, e);
}

static void page_copy(struct backend *base, int src, int dst)
{
    const struct kv_pool *kv = &cpu(base)->kv;
    assert(src >= 0 && src < kv->n_pages && dst >= 0 && dst < kv->n_pages);
    memcpy(kv->data + (size_t)dst * kv->page_bytes, kv->data + (size_t)src * kv->page_bytes,
           kv->page_bytes);
}

static void page_fill(struct backend *base, int page, uint8_t byte)
{
    const struct kv_pool *kv = &cpu(base)->kv;
    assert(page >= 0 && page < kv->n_pages);
    memset(kv->data + (size_t)page * kv->page_bytes, byte, kv->page_bytes);
}

/* --- swap space --- */

static bool swap_open(struct backend *base, int n_host_pages, struct err *e)
{
    struct cpu_backend *b = cpu(base);
    assert(b->kv.data && !b->swap && n_host_pages > 0);
    b->swap =
        blocks_take(&b->blocks, (size_t)n_host_pages, b->kv.page_bytes, "swap space", NULL, e);
    b->n_swap = n_host_pages;
    return b->swap;
}

struct swap_job {
    const struct cpu_backend *b;
    const int32_t *pages, *host_pages;
    bool out;
};

static void swap_page(void *arg, int i)
{
    const struct swap_job *job = arg;
    const struct kv_pool *kv = &job->b->kv;
    assert(job->pages[i] >= 0 && job->pages[i] < kv->n_pages);
    assert(job->host_pages[i] >= 0 && job->host_pages[i] < job->b->n_swap);
    uint8_t *page = kv->data + (size_t)job->pages[i] * kv->page_bytes;
    uint8_t *host = job->b->swap + (size_t)job->host_pages[i] * kv->page_bytes;
    memcpy(job->out ? host : page, job->out ? page : host, kv->page_bytes);
}

static void swap_out(struct backend *base, const int32_t *pages, const int32_t *host_pages, int n)
{
    struct swap_job job = {cpu(base), pages, host_pages, true};
    team_for(cpu(base)->team, swap_page, &job, n);
}

static void swap_in(struct backend *base, const int32_t *pages, const int32_t *host_pages, int n)
{
    struct swap_job job = {cpu(base), pages, host_pages, false};
    team_for(cpu(base)->team, swap_page, &job, n);
}

/* --- running --- */

static bool submit(struct backend *base, struct err *e)
{
    struct cpu_backend *b = cpu(base);
    const struct step_inputs *in = &b->inputs;
    assert(in->n_rows >= 0 && in->n_rows <= b->config.max_rows);
    assert(in->n_seqs >= 0 && in->n_seqs <= b->config.max_seqs);
    assert(in->n_logits >= 0 && in->n_logits <= b->config.max_logits);
    (void)in;
    step_run(b);
    return true;
}

static const float *read_row(struct backend *base, const struct activation *a, int row)
{
    assert(a->f && row >= 0 && row < step_rows(cpu(base), a));
    return a->f + (size_t)row * a->stride;
}

static void host_for(struct backend *base, void (*fn)(void *arg, int i), void *arg, int n)
{
    team_for(cpu(base)->team, fn, arg, n);
}

/* --- opening and closing --- */

static void close_cpu(struct backend *base)
{
    struct cpu_backend *b = cpu(base);
    if (!b)
        return;
    packing_close(b->packing);
    team_free(b->team);
    blocks_free(&b->blocks);
    free(b);
}

static void memory(struct backend *base, struct backend_memory *out)
{
    *out = cpu(base)->memory;
    out->total = memory_of_machine();
}

static const char *describe(struct backend *base)
{
    return cpu(base)->description;
}

static const struct backend_ops ops = {
    .name = "cpu",
    .close = close_cpu,
    .memory = memory,
    .describe = describe,
    .weight_load = weight_load,
    .weights_loaded = weights_loaded,
    .activation_new = activation_new,
    .moe_new = moe_new,
    .rope_new = rope_new,
    .kv_check = kv_check,
    .kv_open = kv_open,
    .kv_page_bytes = kv_page_bytes,
    .kv_extra_bytes = kv_extra_bytes,
    .page_copy = page_copy,
    .page_fill = page_fill,
    .swap_open = swap_open,
    .swap_out = swap_out,
    .swap_in = swap_in,
    .step_begin = record_step_begin,
    .embed = record_embed,
    .norm = record_norm,
    .norm_add = record_norm_add,
    .norm_logit_rows = record_norm_logit_rows,
    .linear = record_linear,
    .rope_write_kv = record_rope_write_kv,
    .attention = record_attention,
    .soft_cap = record_soft_cap,
    .gated_add = record_gated_add,
    .moe = record_moe,
    .submit = submit,
    .read = read_row,
    .host_for = host_for,
};

static bool take_step(struct cpu_backend *b, struct err *e)
{
    static const char what[] = "step inputs";
    const size_t rows = (size_t)b->config.max_rows, members = (size_t)team_size(b->team);
    uint64_t *total = &b->memory.activations;
    bool ok = step_inputs_take(&b->inputs, &b->config, &b->blocks, total, e) &&
              (b->lone = blocks_take(&b->blocks, rows, sizeof *b->lone, what, total, e)) &&
              (b->tiles = blocks_take(&b->blocks, rows, sizeof *b->tiles, what, total, e)) &&
              (b->workers = blocks_take(&b->blocks, members, sizeof *b->workers, what, total, e));
    for (size_t i = 0; ok && i < members; i++)
        ok = take_floats(b, &b->workers[i].out, 2 * TOKEN_TILE, LINEAR_STRIDE, e);
    return ok && grow_plan(b, 0, e);
}

static bool open_packing(struct cpu_backend *b, struct err *e)
{
    const struct packed_key key = {PACKED_LAYOUT, b->config.model};
    const char *path = b->config.repack_cache;
    b->config.repack_cache = NULL; /* the caller's */
    return !path || (b->packing = packing_open(path, &key, e));
}

struct backend *backend_cpu_open(const struct backend_config *config, struct err *e)
{
    const struct kernels *k = kernels_choose(e);
    if (!k || !backend_config_check(config, e))
        return NULL;
    struct cpu_backend *b = calloc(1, sizeof *b);
    if (!b) {
        err_set(e, ERR_MEMORY, "out of memory");
        return NULL;
    }
    b->base.ops = &ops;
    b->config = *config;
    b->kernels = k;
    b->team = team_new(config->threads, config->pin_threads, e);
    if (b->team && !config->pin_threads)
        b->blocks.spread = several_nodes(b); /* threads may come to be anywhere */
    if (!b->team || !take_step(b, e) || !open_packing(b, e)) {
        close_cpu(&b->base);
        return NULL;
    }
    int n = b->base.n_helpers = team_size(b->team);
    snprintf(b->description, sizeof b->description, "%s, %d %sthread%s", k->name, n,
             config->pin_threads ? "pinned " : "", n == 1 ? "" : "s");
    return &b->base;
}
