#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "model_spec_read.h"

_Static_assert((int64_t)MODEL_MAX_HEADS *MODEL_MAX_HEAD_DIM <= INT_MAX, "heads * dim is an int");

/* --- sizes --- */

static bool read_vocab(const struct spec_reader *r)
{
    const struct gguf_tensor *t = gguf_find_tensor(r->g, "token_embd.weight");
    uint64_t n_tokens;
    if (!t)
        return gguf_err(r->g, r->e, ERR_NOT_FOUND, "tensor token_embd.weight is missing");
    if (t->dims[1] > MODEL_MAX_VOCAB)
        return gguf_err(r->g, r->e, ERR_LIMIT,
                        "tensor token_embd.weight has %" PRId64 " rows, at most %d are supported",
                        t->dims[1], MODEL_MAX_VOCAB);
    r->s->n_vocab = (int)t->dims[1];
    r->s->tied_embeddings = !gguf_find_tensor(r->g, "output.weight");
    if (!gguf_array_len(r->g, "tokenizer.ggml.tokens", GGUF_STRING, &n_tokens, r->e))
        return false;
    if (n_tokens > (uint64_t)r->s->n_vocab)
        return gguf_err(r->g, r->e, ERR_INVALID,
                        "the tokenizer has %" PRIu64
                        " tokens, but token_embd.weight has only %d rows",
                        n_tokens, r->s->n_vocab);
    return true;
}

static bool read_head_dim(const struct spec_reader *r)
{
    struct model_spec *s = r->s;
    int value_dim;
    if (!spec_has(r, "attention.key_length") && s->n_embd % s->n_heads != 0)
        return gguf_err(r->g, r->e, ERR_INVALID,
                        "an embedding of %d does not divide by %d heads, and key %s is missing",
                        s->n_embd, s->n_heads, spec_key(r, "attention.key_length").text);
    const int dflt = s->n_embd / s->n_heads;
    if (!spec_int(r, "attention.key_length", 1, MODEL_MAX_HEAD_DIM, dflt, &s->head_dim) ||
        !spec_int(r, "attention.value_length", 1, MODEL_MAX_HEAD_DIM, dflt, &value_dim))
        return false;
    if (value_dim != s->head_dim)
        return gguf_err(r->g, r->e, ERR_UNSUPPORTED,
                        "keys of %d and values of %d a head; different sizes are not supported",
                        s->head_dim, value_dim);
    if (s->head_dim < 2 || s->head_dim % 2 != 0 || s->head_dim > MODEL_MAX_HEAD_DIM)
        return gguf_err(r->g, r->e, ERR_INVALID,
                        "heads of %d, expected an even number from 2 to %d", s->head_dim,
                        MODEL_MAX_HEAD_DIM);
    return true;
}

static bool read_heads(const struct spec_reader *r)
{
    struct model_spec *s = r->s;
    if (!spec_int(r, "attention.head_count", 1, MODEL_MAX_HEADS, -1, &s->n_heads) ||
        !spec_int(r, "attention.head_count_kv", 1, MODEL_MAX_HEADS, s->n_heads, &s->n_kv_heads))
        return false;
    if (s->n_heads % s->n_kv_heads != 0)
        return gguf_err(r->g, r->e, ERR_INVALID,
                        "%d attention heads do not divide by %d key-value heads", s->n_heads,
                        s->n_kv_heads);
    return read_head_dim(r);
}

bool spec_read_sizes(const struct spec_reader *r)
{
    struct model_spec *s = r->s;
    const char *eps =
        s->norm == NORM_RMS ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
    return read_vocab(r) && spec_int(r, "block_count", 1, MODEL_MAX_LAYERS, -1, &s->n_layers) &&
           spec_int(r, "embedding_length", 1, MODEL_MAX_EMBD, -1, &s->n_embd) &&
           spec_int(r, "context_length", 1, MODEL_MAX_CTX, -1, &s->n_ctx_train) && read_heads(r) &&
           spec_positive(r, eps, 0, &s->norm_eps);
}

/* --- layers: windows, and which of them turn --- */

static bool refuse_window(const struct spec_reader *r)
{
    int window;
    if (!spec_int(r, "attention.sliding_window", 0, INT_MAX, 0, &window))
        return false;
    if (window > 0 && window < r->s->n_ctx_train)
        return gguf_err(r->g, r->e, ERR_UNSUPPORTED,
                        "key %s is %d, which is not supported below the context length, %d",
                        spec_key(r, "attention.sliding_window").text, window, r->s->n_ctx_train);
    return true;
}

/* Which layers have a window: every but the last of `every`, or as an array says. */
static bool read_pattern(const struct spec_reader *r, bool *windowed)
{
    const char *rest = "attention.sliding_window_pattern";
    int every;
    if (gguf_is_array(r->g, spec_key(r, rest).text))
        return spec_layer_flags(r, rest, windowed);
    if (!spec_int(r, rest, 1, MODEL_MAX_LAYERS, r->a->window_every, &every))
        return false;
    for (int i = 0; i < r->s->n_layers; i++)
        windowed[i] = (i + 1) % every != 0;
    return true;
}

static bool read_windows(const struct spec_reader *r, bool *windowed)
{
    const struct architecture *a = r->a;
    struct model_spec *s = r->s;
    const bool required = a->window == WINDOW_PATTERN;
    if (a->window == WINDOW_NONE)
        return refuse_window(r);
    if (!spec_int(r, "attention.sliding_window", required, INT_MAX,
                  required && a->window_default == 0 ? -1 : a->window_default, &s->window))
        return false;
    if (a->window != WINDOW_ALL || spec_has(r, "attention.sliding_window_pattern"))
        return s->window == 0 || read_pattern(r, windowed);
    if (s->window >= s->n_ctx_train)
        s->window = 0;
    for (int i = 0; i < s->n_layers; i++)
        windowed[i] = s->window > 0;
    return true;
}

/* Granite turns nothing where this is false; elsewhere the key says how a model was trained. */
static bool read_turning(const struct spec_reader *r, bool *turns)
{
    *turns = true;
    return r->a->logit_scale != SCALE_DIVIDES ||
           gguf_bool_or(r->g, spec_key(r, "rope.scaling.finetuned").text, true, turns, r->e);
}

bool spec_read_layers(const struct spec_reader *r)
{
    const struct architecture *a = r->a;
    bool windowed[MODEL_MAX_LAYERS] = {false}, turns;
    if (!read_windows(r, windowed) || !read_turning(r, &turns))
        return false;
    for (int i = 0; i < r->s->n_layers; i++) {
        const bool still = !turns || (a->rope_windowed_only && !windowed[i]) ||
                           (a->no_rope_every > 0 && (i + 1) % a->no_rope_every == 0);
        r->s->layers[i] =
            (uint8_t)((windowed[i] ? LAYER_WINDOWED : 0) | (still ? LAYER_NO_ROPE : 0) |
                      (windowed[i] && a->rope_local ? LAYER_ROPE_LOCAL : 0));
    }
    return true;
}

/* --- experts --- */

/* The outputs of a tensor that some layer has; 0: none has it. */
static int rows_somewhere(const struct spec_reader *r, const char *part)
{
    for (int i = 0; i < r->s->n_layers; i++) {
        const struct gguf_tensor *t = spec_layer_tensor(r, i, part);
        if (t)
            return t->dims[1] <= MODEL_MAX_FF ? (int)t->dims[1] : 0;
    }
    return 0;
}

/* How experts are weighed, by llama.cpp's number: 0, 1 softmax over all of them, 2 sigmoid, 3
 * softmax over the chosen, which is the first divided by the sum of the chosen. */
static bool read_gating(const struct spec_reader *r)
{
    static const char rest[] = "expert_gating_func";
    int n;
    if (!spec_int(r, rest, 0, INT_MAX, 0, &n))
        return false;
    if (n > 1 && n != 3)
        return gguf_err(
            r->g, r->e, ERR_UNSUPPORTED,
            "key %s is %d: experts chosen by other than softmax, which is not supported",
            spec_key(r, rest).text, n);
    r->s->router_renormalise = r->s->router_renormalise || n == 3;
    return true;
}

static bool read_expert_sizes(const struct spec_reader *r)
{
    struct model_spec *s = r->s;
    int n_ff = rows_somewhere(r, "ffn_up_exps.weight"), n_shared = 0;
    if (n_ff == 0) /* a tensor for each expert */
        n_ff = rows_somewhere(r, "ffn_up.0.weight");
    if (r->a->shared_expert != NEVER)
        n_shared = rows_somewhere(r, "ffn_up_shexp.weight");
    return spec_int(r, "expert_used_count", 1, s->n_experts, -1, &s->n_experts_used) &&
           spec_int(r, "expert_feed_forward_length", 1, MODEL_MAX_FF, n_ff > 0 ? n_ff : -1,
                    &s->n_ff_expert) &&
           spec_int(r, "expert_shared_feed_forward_length", 0, MODEL_MAX_FF, n_shared,
                    &s->n_ff_shared) &&
           gguf_bool_or(r->g, spec_key(r, "expert_weights_norm").text, s->router_renormalise,
                        &s->router_renormalise, r->e) &&
           read_gating(r);
}

bool spec_read_experts(const struct spec_reader *r)
{
    struct model_spec *s = r->s;
    const bool may = r->a->experts != NEVER;
    if (!spec_int(r, "expert_count", r->a->experts == ALWAYS ? 2 : 0,
                  may ? MODEL_MAX_EXPERTS : INT_MAX, r->a->experts == ALWAYS ? -1 : 0,
                  &s->n_experts))
        return false;
    const char *key = "feed_forward_length";
    if (s->n_experts == 0)
        return spec_int(r, key, 1, MODEL_MAX_FF, -1, &s->n_ff);
    if (!may || s->n_experts == 1)
        return gguf_err(r->g, r->e, ERR_UNSUPPORTED,
                        "a mixture of experts (%s is %d), which is not supported%s",
                        spec_key(r, "expert_count").text, s->n_experts,
                        may ? ": expected 2 or more" : " of this architecture");
    for (int i = 0; i < s->n_layers; i++)
        if (!spec_layer_tensor(r, i, "ffn_gate_inp.weight"))
            s->layers[i] |= LAYER_DENSE;
    return spec_int(r, key, 0, MODEL_MAX_FF, 0, &s->n_ff) && read_expert_sizes(r);
}

/* --- scales --- */

/* A factor of the Granite family: 0 means none, as an absent key. */
static bool read_factor(const struct spec_reader *r, const char *rest, float *out)
{
    if (!spec_not_negative(r, rest, 1, out))
        return false;
    if (*out == 0)
        *out = 1;
    return true;
}

static bool read_logit_scale(const struct spec_reader *r)
{
    float *scale = &r->s->logit_scale;
    switch (r->a->logit_scale) {
    case SCALE_NONE:
        return true;
    case SCALE_MULTIPLIES:
        return spec_positive(r, "logit_scale", 0, scale);
    case SCALE_DIVIDES:
        if (!read_factor(r, "embedding_scale", &r->s->embedding_scale) ||
            !read_factor(r, "residual_scale", &r->s->residual_scale) ||
            !read_factor(r, "logit_scale", scale))
            return false;
        *scale = 1 / *scale;
        return true;
    }
    return true;
}

bool spec_read_scales(const struct spec_reader *r)
{
    const struct architecture *a = r->a;
    struct model_spec *s = r->s;
    int dim = s->n_layers == a->layers_scaled_by_width ? s->n_embd / s->n_heads : s->head_dim;
    const float dflt = 1.0f / sqrtf((float)(dim > 0 ? dim : 1));
    if (a->scales_embedding)
        s->embedding_scale = sqrtf((float)s->n_embd);
    if (!read_logit_scale(r) || !spec_not_negative(r, "attention.scale", dflt, &s->attention_scale))
        return false;
    if (s->attention_scale == 0)
        s->attention_scale = dflt;
    if (!a->soft_caps)
        return true;
    return spec_not_negative(r, "attn_logit_softcapping", a->attention_soft_cap,
                             &s->attention_soft_cap) &&
           spec_not_negative(r, "final_logit_softcapping", a->logit_soft_cap, &s->logit_soft_cap);
}
