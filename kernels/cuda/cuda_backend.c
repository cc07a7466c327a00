/* cuda_backend.c: the CUDA backend's table, opening and closing, the KV pool. */
#include "cuda_backend.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend_common.h"
#include "backend_module.h"
#include "cuda_record.h"

enum { LEAST_CAPABILITY = 75 }; /* mma of F16 and int8 */
enum { MOST_PARTIALS = 64 << 20 };
static const double usual_share = 0.9; /* of the device's memory */

/* --- KV pool --- */

static struct cuda_kv pool_shape(const struct kv_config *c)
{
    return (struct cuda_kv){
        .dtype = c->dtype,
        .n_layers = c->n_layers,
        .n_kv_heads = c->n_kv_heads,
        .head_dim = c->head_dim,
        .block_size = c->block_size,
    };
}

static uint64_t kv_page_bytes(struct backend *base, const struct kv_config *c)
{
    const struct cuda_kv kv = pool_shape(c);
    return cuda_kv_page_bytes(&kv);
}

/* Partial results of attention: as many as the longest rows of a full step could have, or fewer,
 * and then less is split. */
static size_t partials_bytes(const struct cuda_backend *b, const struct kv_config *c)
{
    const double positions = (double)b->config.max_pages * c->block_size;
    const double segments = positions / CUDA_ATTENTION_SEGMENT + 1;
    const double most =
        segments * b->config.max_rows * c->n_heads * (c->head_dim + 4) * (double)sizeof(float);
    return most < MOST_PARTIALS ? (size_t)most : MOST_PARTIALS;
}

static bool attention_of(struct cuda_attention *a, const struct kv_config *c, struct err *e)
{
    const struct cuda_kv kv = pool_shape(c);
    const cudaError_t code = cuda_attention_open(a, c->n_heads, &kv);
    if (code == cudaErrorNotSupported)
        return err_set(e, ERR_UNSUPPORTED,
                       "no attention over KV of %s with heads of %d on a GPU of compute capability"
                       " 7.5: --kv-cache-dtype f16 has it",
                       dtype_info(kv.dtype)->name, kv.head_dim);
    return cuda_check(code, "preparing attention", e);
}

static uint64_t kv_extra_bytes(struct backend *base, const struct kv_config *c)
{
    const struct cuda_backend *b = cuda_of(base);
    struct cuda_attention a;
    struct err e; /* kv_check has told of it */
    if (b->partials) /* it has been opened */
        return 0;
    return attention_of(&a, c, &e) ? partials_bytes(b, c) + cuda_inputs_bytes(b, &a) : 0;
}

static bool check_pool(const struct cuda_backend *b, const struct kv_config *c, struct err *e)
{
    if (c->dtype != DTYPE_F32 && c->dtype != DTYPE_F16 && c->dtype != DTYPE_BF16 &&
        c->dtype != DTYPE_INT8 && c->dtype != DTYPE_F8_E4M3)
        return err_set(e, ERR_UNSUPPORTED,
                       "KV type %s: the CUDA backend has f32, f16, bf16, int8, fp8",
                       (unsigned)c->dtype < DTYPE_ALL ? dtype_info(c->dtype)->name : "?");
    if (c->block_size < 16 || c->block_size % 16 != 0 || c->block_size > 4096)
        return err_set(e, ERR_INVALID, "block size %d: expected a multiple of 16 up to 4096",
                       c->block_size);
    if (c->head_dim < 16 || c->head_dim > 256 || c->head_dim % 16 != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "heads of %d dims: the CUDA backend has multiples of 16 up to 256",
                       c->head_dim);
    if (c->n_layers < 1 || c->n_kv_heads < 1 || c->n_pages < 1 || c->n_layers > 65536 ||
        c->n_kv_heads > 65536 || c->n_heads < 1 || c->n_heads % c->n_kv_heads != 0)
        return err_set(e, ERR_INVALID, "KV pool of %d pages, %d layers, %d heads for %d of queries",
                       c->n_pages, c->n_layers, c->n_kv_heads, c->n_heads);
    if ((int64_t)c->n_pages * c->block_size > INT_MAX)
        return err_set(e, ERR_LIMIT, "KV pool of %d pages of %d tokens: more than %d tokens",
                       c->n_pages, c->block_size, INT_MAX);
    return true;
}

/* What a step reads, and attention's partial results */
static bool take_step(struct cuda_backend *b, const struct kv_config *c, struct err *e)
{
    b->partials_bytes = partials_bytes(b, c);
    b->partials =
        cuda_arena_take(&b->activations, b->partials_bytes, "attention's partial results", e);
    return b->partials && cuda_plan_grow(b, c->n_layers, e) && cuda_inputs_open(b, e) &&
           cuda_graphs_open(b, e);
}

static bool same_shape(const struct cuda_kv *a, const struct cuda_kv *b)
{
    return a->dtype == b->dtype && a->n_layers == b->n_layers && a->n_kv_heads == b->n_kv_heads &&
           a->head_dim == b->head_dim && a->block_size == b->block_size;
}

/* A pool in place of an earlier one is of the same shape, so what is beside it stays. */
static bool give_pool_back(struct cuda_backend *b, const struct kv_config *c, struct err *e)
{
    const struct cuda_kv kv = pool_shape(c);
    if (!same_shape(&kv, &b->kv))
        return err_set(e, ERR_INVALID, "the KV pool is open already, with pages of another shape");
    if (!cuda_check(cudaStreamSynchronize(b->stream), "giving the first KV pool back", e))
        return false;
    b->kv.pool = NULL;
    cuda_arena_free(&b->kv_memory);
    return true;
}

static bool kv_open(struct backend *base, const struct kv_config *c, struct err *e)
{
    struct cuda_backend *b = cuda_of(base);
    if (!check_pool(b, c, e))
        return false;
    if (b->kv.pool ? !give_pool_back(b, c, e)
                   : !attention_of(&b->attention, c, e) || !take_step(b, c, e))
        return false;
    struct cuda_kv kv = pool_shape(c);
    const size_t bytes = (size_t)c->n_pages * cuda_kv_page_bytes(&kv);
    kv.pool = cuda_arena_take_apart(&b->kv_memory, bytes, "KV pool", e);
    if (!kv.pool)
        return false;
#ifndef NDEBUG
    if (!cuda_check(cudaMemsetAsync(kv.pool, 0xFF, bytes, b->stream), "filling the KV pool", e))
        return false;
#endif
    cuda_graphs_forget(b); /* of a pool before */
    b->kv = kv;
    b->n_pages = c->n_pages;
    return true;
}

static bool kv_check(struct backend *base, const struct kv_config *c, struct err *e)
{
    struct kv_config one = *c;
    struct cuda_attention a;
    one.n_pages = 1;
    return check_pool(cuda_of(base), &one, e) && attention_of(&a, &one, e);
}

static uint8_t *page_at(const struct cuda_backend *b, int page)
{
    assert(page >= 0 && page < b->n_pages);
    return (uint8_t *)b->kv.pool + (size_t)page * cuda_kv_page_bytes(&b->kv);
}

/* Failures of both are told by the next step. */
static void page_copy(struct backend *base, int src, int dst)
{
    struct cuda_backend *b = cuda_of(base);
    cuda_swap_wait_page(b, src);
    cuda_swap_wait_page(b, dst);
    cuda_note(b,
              cudaMemcpyAsync(page_at(b, dst), page_at(b, src), cuda_kv_page_bytes(&b->kv),
                              cudaMemcpyDeviceToDevice, b->stream),
              "copying a page");
}

static void page_fill(struct backend *base, int page, uint8_t byte)
{
    struct cuda_backend *b = cuda_of(base);
    cuda_swap_wait_page(b, page);
    cuda_note(b, cudaMemsetAsync(page_at(b, page), byte, cuda_kv_page_bytes(&b->kv), b->stream),
              "filling a page");
}

/* --- the rest of the table --- */

static const float *read_row(struct backend *base, const struct activation *a, int row)
{
    assert(a->host && a->written && row >= 0 && row < cuda_of(base)->inputs.n_logits);
    (void)base;
    return a->host + (size_t)row * (size_t)a->width;
}

static void host_for(struct backend *base, void (*fn)(void *arg, int i), void *arg, int n)
{
    team_for(cuda_of(base)->team, fn, arg, n);
}

/* The configured share of the device, less what has been taken there but not by us. The driver's
 * own counts: kernels are loaded when they first run. */
static void memory(struct backend *base, struct backend_memory *out)
{
    struct cuda_backend *b = cuda_of(base);
    *out = (struct backend_memory){
        .dedicated = true,
        .weights = b->weights.bytes,
        .kv = b->kv_memory.bytes,
        .activations = b->activations.bytes + b->scratch_bytes + cuda_graphs_bytes(b),
    };
    size_t left = 0, total = 0;
    cuda_note(b, cudaMemGetInfo(&left, &total), "asking for the GPU's memory");
    const uint64_t used = total - left, ours = out->weights + out->kv + out->activations;
    const double share = b->config.memory_share > 0 ? b->config.memory_share : usual_share;
    const uint64_t most = (uint64_t)((double)total * share);
    out->device = total;
    out->others = used > ours ? used - ours : 0;
    out->total = most > out->others ? (most - out->others) / CUDA_PIECE * CUDA_PIECE : 0;
}

static const char *describe(struct backend *base)
{
    return cuda_of(base)->description;
}

static void close_cuda(struct backend *base)
{
    struct cuda_backend *b = cuda_of(base);
    if (!b)
        return;
    if (b->stream)
        cudaStreamSynchronize(b->stream); /* of a failed device: an error that was told */
    cuda_swap_close(b);
    cuda_uploads_close(b);
    cuda_graphs_forget(b);
    cuda_inputs_close(b);
    cuda_sampler_close(b);
    cuda_scratch_free(&b->staging);
    cuda_scratch_free(&b->staging_up);
    cuda_scratch_free(&b->converted);
    cuda_arena_free(&b->weights);
    cuda_arena_free(&b->activations);
    cuda_arena_free(&b->kv_memory);
    cuda_linears_close(b);
    cuda_pinned_free(b);
    if (b->stream)
        cudaStreamDestroy(b->stream);
    team_free(b->team);
    blocks_free(&b->blocks);
    free(b);
}

static const struct backend_ops ops = {
    .name = "cuda",
    .close = close_cuda,
    .memory = memory,
    .describe = describe,
    .weight_load = cuda_weight_load,
    .weights_loaded = cuda_weights_loaded,
    .activation_new = cuda_activation_new,
    .moe_new = cuda_moe_new,
    .moe_layer_new = cuda_moe_layer_new,
    .rope_new = cuda_rope_new,
    .kv_check = kv_check,
    .kv_open = kv_open,
    .kv_page_bytes = kv_page_bytes,
    .kv_extra_bytes = kv_extra_bytes,
    .page_copy = page_copy,
    .page_fill = page_fill,
    .sampler_open = cuda_sampler_open,
    .swap_open = cuda_swap_open,
    .swap_out = cuda_swap_out,
    .swap_in = cuda_swap_in,
    .step_begin = cuda_step_begin,
    .embed = cuda_record_embed,
    .norm = cuda_record_norm,
    .norm_add = cuda_record_norm_add,
    .norm_logit_rows = cuda_record_norm_logit_rows,
    .linear = cuda_record_linear,
    .rope_write_kv = cuda_record_rope_write_kv,
    .attention = cuda_record_attention,
    .soft_cap = cuda_record_soft_cap,
    .gated_add = cuda_record_gated_add,
    .moe = cuda_record_moe,
    .sample = cuda_record_sample,
    .submit = cuda_submit,
    .start = cuda_start,
    .finish = cuda_finish,
    .read = read_row,
    .host_for = host_for,
};

/* --- opening --- */

/* Device 0 of those that CUDA_VISIBLE_DEVICES leaves, which every new thread's calls go to */
static bool find_device(struct cudaDeviceProp *p, struct err *e)
{
    int n = 0;
    const cudaError_t code = cudaGetDeviceCount(&n);
    if (code == cudaErrorInsufficientDriver)
        return err_set(e, ERR_DEVICE, "no NVIDIA driver, or one older than CUDA %d.%d wants",
                       CUDART_VERSION / 1000, CUDART_VERSION / 10 % 100);
    if (code == cudaErrorNoDevice || (code == cudaSuccess && n == 0))
        return err_set(e, ERR_DEVICE, "no NVIDIA GPU");
    if (!cuda_check(code, "counting devices", e) ||
        !cuda_check(cudaGetDeviceProperties(p, 0), "looking at the GPU", e))
        return false;
    return 10 * p->major + p->minor >= LEAST_CAPABILITY ||
           err_set(e, ERR_UNSUPPORTED,
                   "%s has compute capability %d.%d: the kernels need %d.%d or later", p->name,
                   p->major, p->minor, LEAST_CAPABILITY / 10, LEAST_CAPABILITY % 10);
}

/* Whether this library has code for the device: the smallest kernel runs. */
static bool try_kernel(struct cuda_backend *b, struct err *e)
{
    const char *const what = "trying a kernel";
    float *x = cuda_arena_take(&b->activations, sizeof *x, what, e);
    return x && cuda_check(cudaMemsetAsync(x, 0, sizeof *x, b->stream), what, e) &&
           cuda_check(cuda_soft_cap(b->stream, x, 1, 1), what, e) &&
           cuda_check(cudaStreamSynchronize(b->stream), what, e);
}

static void write_description(struct cuda_backend *b, const struct cudaDeviceProp *p)
{
    const int n = team_size(b->team);
    snprintf(b->description, sizeof b->description, "%.80s (%.1f GiB, sm_%d%d), %d thread%s",
             p->name, (double)p->totalGlobalMem / (1 << 30), p->major, p->minor, n,
             n == 1 ? "" : "s");
}

static bool open_device(struct cuda_backend *b, struct err *e)
{
    struct cudaDeviceProp p;
    if (!find_device(&p, e))
        return false;
    write_description(b, &p);
    return cuda_check(cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking), "a stream",
                      e) &&
           try_kernel(b, e) && step_inputs_take(&b->inputs, &b->config, &b->blocks, NULL, e) &&
           cuda_plan_grow(b, 0, e);
}

static struct backend *open_cuda(const struct backend_config *config, struct err *e)
{
    if (!backend_config_check(config, e))
        return NULL;
    struct cuda_backend *b = calloc(1, sizeof *b);
    if (!b) {
        err_set(e, ERR_MEMORY, "out of memory");
        return NULL;
    }
    b->base.ops = &ops;
    b->config = *config;
    b->config.repack_cache = NULL; /* the caller's */
    b->team = team_new(config->threads, config->pin_threads, e);
    if (!b->team || !open_device(b, e)) {
        close_cuda(&b->base);
        return NULL;
    }
    b->base.n_helpers = team_size(b->team);
    return &b->base;
}

static bool usable(struct err *e)
{
    struct cudaDeviceProp p;
    return find_device(&p, e);
}

__attribute__((visibility("default"))) const struct backend_module *backend_module_of(void)
{
    static const struct backend_module module = {
        .abi = BACKEND_MODULE_ABI,
        .struct_bytes = sizeof(struct backend_module),
        .layout = backend_module_layout,
        .version = TOKEND_VERSION,
        .log_setup = log_setup,
        .usable = usable,
        .open = open_cuda,
    };
    return &module;
}
