/* Attention: partial results joined, and what the host does: shapes and launches. */
#include "attention.cuh"

#include <limits.h>

enum {
    COMBINE_WARPS = 4,
    MAX_PAIRS = 4 /* of values that a lane has, head_dim being at most 256 */
};

/* Joins the segments of a row and head in ascending order: a warp each. Bound by bytes. */
static __global__ void __launch_bounds__(32 * COMBINE_WARPS) combine_kernel(struct attention_args a)
{
    struct cuda_attention_row row = plan_row(a, blockIdx.x);
    int head = blockIdx.y * COMBINE_WARPS + threadIdx.x / 32;
    int dim = a.kv.head_dim, lane = threadIdx.x % 32;
    if (row.partial < 0 || head >= a.n_heads)
        return;
    float most = -INFINITY, sum = 0;
    float2 acc[MAX_PAIRS] = {};
    int first = first_seen(row.position, a.window) / SEGMENT;
#pragma unroll 4
    for (int segment = first; segment <= row.position / SEGMENT; segment++) {
        const float *part = partial_at(a, row, head, segment);
        float2 sums = *(const float2 *)(part + dim);
        float w_old, w;
        join_weights(&most, sums.x, &w_old, &w);
        sum = joined(sum, w_old, sums.y, w);
#pragma unroll
        for (int i = 0; i < MAX_PAIRS; i++)
            if (2 * lane + 64 * i < dim) {
                float2 more = *(const float2 *)(part + 2 * lane + 64 * i);
                acc[i].x = joined(acc[i].x, w_old, more.x, w);
                acc[i].y = joined(acc[i].y, w_old, more.y, w);
            }
    }
    float w = final_weight(a, most, sum, head);
#pragma unroll
    for (int i = 0; i < MAX_PAIRS; i++)
        if (2 * lane + 64 * i < dim)
            store_pair(a, out_at(a, blockIdx.x, head) + 2 * lane + 64 * i, acc[i].x * w,
                       acc[i].y * w);
}

static struct attention_code code_of(enum dtype type, int head_dim)
{
    struct attention_code none = {NULL, 0, 0};
    if (type == DTYPE_F32)
        return attention_f32(head_dim);
    if (type == DTYPE_F16)
        return attention_f16(head_dim);
    if (type == DTYPE_BF16)
        return attention_bf16(head_dim);
    if (type == DTYPE_INT8)
        return attention_int8(head_dim);
    return type == DTYPE_F8_E4M3 ? attention_e4m3(head_dim) : none;
}

/* As many warps, and then tiles of keys on their way, as shared memory has room for; one tile,
 * which nobody works on while it comes, only where two have no room (64 KiB and large head_dims) */
static bool choose_shape(struct cuda_attention *a, enum cuda_attention_kind kind,
                         const struct attention_code *code, const cudaDeviceProp *device)
{
    for (int warps = kind == CUDA_WIDE ? MAX_WARPS : 1; warps > 0; warps /= 2)
        for (int n_stages = kind == CUDA_WIDE ? 2 : 3; n_stages > (warps > 1); n_stages--) {
            size_t bytes = n_stages * code->stage_bytes + warps * code->warp_bytes;
            if (bytes > device->sharedMemPerBlockOptin)
                continue;
            /* 1 KiB of a block is the system's, and a thread may have 255 registers */
            int fit = (int)(device->sharedMemPerMultiprocessor / (bytes + 1024));
            int most = 65536 / (32 * warps * 256);
            a->kinds[kind].warps = warps;
            a->kinds[kind].n_stages = n_stages;
            a->kinds[kind].shared_bytes = bytes;
            a->kinds[kind].blocks = device->multiProcessorCount * (fit < 1      ? 1
                                                                   : fit < most ? fit
                                                                                : most);
            return true;
        }
    return false;
}

cudaError_t cuda_attention_open(struct cuda_attention *a, int n_heads, const struct cuda_kv *kv)
{
    cudaDeviceProp device;
    int current;
    size_t most = 0;
    if (kv->head_dim < 16 || kv->head_dim > 256 || kv->head_dim % 16 || n_heads % kv->n_kv_heads)
        return cudaErrorInvalidValue;
    struct attention_code code = code_of(kv->dtype, kv->head_dim);
    if (!code.kernel)
        return cudaErrorInvalidValue;
    cudaError_t e = cudaGetDevice(&current);
    if (e == cudaSuccess)
        e = cudaGetDeviceProperties(&device, current);
    if (e != cudaSuccess)
        return e;
    if (kv->dtype == DTYPE_BF16 && device.major < 8)
        return cudaErrorNotSupported;
    *a = {n_heads, kv->n_kv_heads, kv->head_dim, kv->dtype, false, {}};
    for (int k = 0; k < CUDA_ATTENTION_KINDS; k++) {
        if (!choose_shape(a, (enum cuda_attention_kind)k, &code, &device))
            return cudaErrorNotSupported;
        most = a->kinds[k].shared_bytes > most ? a->kinds[k].shared_bytes : most;
    }
    return cudaFuncSetAttribute((const void *)code.kernel,
                                cudaFuncAttributeMaxDynamicSharedMemorySize, (int)most);
}

static struct attention_args args_of(const struct cuda_attention *a, const struct cuda_kv *kv,
                                     int layer, const struct attention_config *c,
                                     const struct cuda_attention_step *step)
{
    const double log2_e = 1.4426950408889634;
    struct attention_args args = {};
    args.kv = *kv;
    args.layer = layer;
    args.n_heads = a->n_heads;
    args.group = a->n_heads / a->n_kv_heads;
    args.window = c->window > 0 ? c->window : INT_MAX;
    args.to_log2 = (float)(c->scale * log2_e);
    if (c->soft_cap > 0) {
        args.cap = c->soft_cap;
        args.into_cap = (float)(2 * log2_e * c->scale / c->soft_cap);
        args.to_log2 = (float)log2_e;
    }
    args.page_tables = step->page_tables;
    args.max_pages = step->max_pages;
    args.plan = step->plan;
    args.partials = step->partials;
    return args;
}

cudaError_t cuda_attend(cudaStream_t s, const struct cuda_attention *a, const struct cuda_kv *kv,
                        int layer, const struct attention_config *c, const float *sinks, void *out,
                        enum dtype type, const float *q, const struct cuda_attention_step *step)
{
    struct attention_code code = code_of(a->dtype, a->head_dim);
    if (!(c->scale > 0) || (type != DTYPE_F32 && type != DTYPE_F16 && type != DTYPE_BF16))
        return cudaErrorInvalidValue;
    struct attention_args args = args_of(a, kv, layer, c, step);
    attention_kernel attention = code.kernel;
    args.q = q;
    args.sinks = sinks;
    args.out = out;
    args.out_type = type;
    if (a->wgmma && step->grid.blocks[CUDA_WIDE] > 0) {
        cudaError_t e = attend_wgmma(s, args, step->grid.blocks[CUDA_WIDE]);
        if (e != cudaSuccess)
            return e;
    }
    for (int k = 0; k < (a->wgmma ? CUDA_WIDE : CUDA_ATTENTION_KINDS); k++)
        if (step->grid.blocks[k] > 0)
            LAUNCH(attention, step->grid.blocks[k], 32 * a->kinds[k].warps,
                   a->kinds[k].shared_bytes, s)
    (args, (enum cuda_attention_kind)k, a->kinds[k].n_stages);
    dim3 grid(step->grid.n_rows, (a->n_heads + COMBINE_WARPS - 1) / COMBINE_WARPS);
    if (step->grid.n_rows > 0)
        LAUNCH(combine_kernel, grid, 32 * COMBINE_WARPS, 0, s)(args);
    return cudaGetLastError();
}
