#include "budget.h"

#include <math.h>

enum {
    GPU_RUNTIME = 600 << 20, /* context, code, libraries' workspaces: about */
    GPU_PARTIALS = 64 << 20, /* of attention */
    PROCESS = 48 << 20,      /* tokenizer, connections */
    SCALE_BYTES = 2,         /* of the K or V of one head in a cache of one byte a value */
};

/* Bytes of K and V of one token in one head */
static uint64_t head_bytes(const struct model_spec *s, enum dtype kv)
{
    const uint64_t values = kv == DTYPE_INT8 || kv == DTYPE_F8_E4M3
                                ? (uint64_t)s->head_dim + SCALE_BYTES
                            : kv == DTYPE_F32 ? 4 * (uint64_t)s->head_dim
                                              : 2 * (uint64_t)s->head_dim;
    return 2 * values;
}

static uint64_t share_of(uint64_t n, int devices)
{
    return (n + (uint64_t)devices - 1) / (uint64_t)devices;
}

/* Rows of a step between its operations, in float32, and the logits of all sequences: what the
 * backends take within a few percent. */
static uint64_t activation_bytes(const struct model_spec *s, const struct budget_wish *w)
{
    const uint64_t q = (uint64_t)s->n_heads * (uint64_t)s->head_dim;
    const uint64_t kv = (uint64_t)s->n_kv_heads * (uint64_t)s->head_dim;
    uint64_t row = 3 * (uint64_t)s->n_embd + 2 * q + 2 * kv + 2 * (uint64_t)s->n_ff +
                   2 * (uint64_t)s->n_ff_shared;
    row += (uint64_t)s->n_experts_used * ((uint64_t)s->n_embd + 3 * (uint64_t)s->n_ff_expert);
    return sizeof(float) * ((uint64_t)w->max_rows * share_of(row, w->n_devices) +
                            (uint64_t)w->max_seqs * share_of((uint64_t)s->n_vocab, w->n_devices));
}

static bool can_share(const struct model_spec *s, int n, struct err *e)
{
    if (s->n_heads % n == 0 && (s->n_kv_heads % n == 0 || n % s->n_kv_heads == 0))
        return true;
    return err_set(e, ERR_INVALID,
                   "%d devices cannot share %d heads over %d KV heads evenly: expected a number "
                   "that divides both, or a multiple of the KV heads that divides the heads",
                   n, s->n_heads, s->n_kv_heads);
}

/* Of the experts' weights, how much a step reads: each of `tokens` chooses `used` of `n`. */
static double experts_read(const struct model_spec *s, double tokens)
{
    return 1 - pow(1 - (double)s->n_experts_used / (double)s->n_experts, tokens);
}

/* Of weights, by each device in a step */
static double weights_read(const struct plan_model *m, const struct budget_wish *w)
{
    double bytes = (double)(m->weight_bytes - m->expert_bytes);
    if (m->expert_bytes)
        bytes += (double)m->expert_bytes * experts_read(&m->spec, w->batch);
    return bytes / w->n_devices;
}

static int kv_heads_of(const struct model_spec *s, int devices)
{
    return s->n_kv_heads < devices ? 1 : s->n_kv_heads / devices;
}

static void set_speeds(const struct plan_model *m, const struct device_facts *d,
                       const struct budget_wish *w, uint64_t token_bytes, struct budget *b)
{
    const struct model_spec *s = &m->spec;
    const double bytes = weights_read(m, w) + (double)token_bytes * (double)w->depth * w->batch;
    if (d->bandwidth > 0) {
        b->step_seconds = bytes / d->bandwidth;
        b->decode_per_second = w->batch / b->step_seconds;
    }
    const double attention = 4.0 * s->n_layers * s->n_heads * s->head_dim * (double)w->len / 2;
    if (d->flops > 0)
        b->prefill_per_second =
            d->flops * w->n_devices / (2.0 * (double)m->active_params + attention);
}

bool budget_make(const struct plan_model *m, const struct device_facts *d,
                 const struct budget_wish *w, struct budget *out, struct err *e)
{
    const struct model_spec *s = &m->spec;
    const uint64_t head = head_bytes(s, w->kv) * (uint64_t)s->n_layers;
    const uint64_t token = head * (uint64_t)kv_heads_of(s, w->n_devices); /* of one device */
    const uint64_t block = (uint64_t)w->block_size;
    const uint64_t slots = ((uint64_t)w->len + block - 1) / block * block;
    uint64_t in_pages;
    if (!can_share(s, w->n_devices, e))
        return false;
    *out = (struct budget){.kv_bytes_per_token = head * (uint64_t)s->n_kv_heads};
    if (__builtin_mul_overflow(out->kv_bytes_per_token, (uint64_t)w->batch * slots, &in_pages) ||
        in_pages > INT64_MAX / 4) /* so the bytes of len tokens, not more than slots, fit, too */
        return err_set(e, ERR_LIMIT, "a KV cache of %d x %lld tokens is out of all range", w->batch,
                       (long long)w->len);
    out->kv_bytes = out->kv_bytes_per_token * (uint64_t)w->batch * (uint64_t)w->len;
    out->weights = share_of(m->weight_bytes, w->n_devices);
    out->kv = token * (uint64_t)w->batch * slots;
    out->activations = activation_bytes(s, w) + (d->is_gpu ? GPU_PARTIALS : 0);
    out->runtime = d->is_gpu ? GPU_RUNTIME : PROCESS;
    out->reserved = d->is_gpu ? (uint64_t)((double)d->memory * (1 - w->share)) : 0;
    const uint64_t fixed = out->weights + out->activations + out->runtime + out->reserved;
    out->left = (int64_t)(d->memory - fixed - out->kv);
    out->max_sequences = -1;
    if (d->memory)
        out->max_sequences =
            d->memory > fixed && slots ? (int64_t)((d->memory - fixed) / (token * slots)) : 0;
    set_speeds(m, d, w, token, out);
    return true;
}
