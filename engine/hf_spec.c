#include "hf_spec.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "architectures.h"

/* --- sizes --- */

static bool read_head_dim(const struct hf_config *c, const struct hf_arch *a, struct model_spec *s)
{
    const int dflt =
        hf_is_null(c->model, "head_dim") || a->head_dim == 0 ? s->n_embd / s->n_heads : a->head_dim;
    const bool given = hf_get(c->model, "head_dim") || a->head_dim > 0;
    if (!given && s->n_embd % s->n_heads != 0)
        return hf_err(c, ERR_INVALID,
                      "hidden_size, %d, does not divide by num_attention_heads, %d, and head_dim "
                      "is missing",
                      s->n_embd, s->n_heads);
    if (!hf_int(c, c->model, "head_dim", 2, MODEL_MAX_HEAD_DIM, dflt, &s->head_dim))
        return false;
    return s->head_dim % 2 == 0 ||
           hf_err(c, ERR_UNSUPPORTED, "heads of %d, expected an even number", s->head_dim);
}

static bool read_sizes(const struct hf_config *c, const struct hf_arch *a, int64_t n_vocab,
                       struct model_spec *s)
{
    const json_t *m = c->model;
    if (!hf_int(c, m, "hidden_size", 1, MODEL_MAX_EMBD, a->n_embd, &s->n_embd) ||
        !hf_int(c, m, "num_hidden_layers", 1, MODEL_MAX_LAYERS, a->n_layers, &s->n_layers) ||
        !hf_int(c, m, "num_attention_heads", 1, MODEL_MAX_HEADS, a->n_heads, &s->n_heads) ||
        !hf_int(c, m, "max_position_embeddings", 1, MODEL_MAX_CTX, a->n_ctx, &s->n_ctx_train) ||
        !hf_int(c, m, "intermediate_size", 1, MODEL_MAX_FF, a->n_ff, &s->n_ff) ||
        !hf_int(c, m, "vocab_size", 1, MODEL_MAX_VOCAB, n_vocab, &s->n_vocab))
        return false;
    const bool as_heads = a->n_kv_heads == 0 || hf_is_null(m, "num_key_value_heads");
    if (!hf_int(c, m, "num_key_value_heads", 1, MODEL_MAX_HEADS,
                as_heads ? s->n_heads : a->n_kv_heads, &s->n_kv_heads))
        return false;
    if (s->n_heads % s->n_kv_heads != 0)
        return hf_err(c, ERR_INVALID,
                      "num_attention_heads, %d, does not divide by num_key_value_heads, %d",
                      s->n_heads, s->n_kv_heads);
    return read_head_dim(c, a, s);
}

/* --- activations, norms, biases --- */

static bool read_act(const struct hf_config *c, const struct hf_arch *a, struct model_spec *s)
{
    static const struct {
        const char *name;
        enum act_fn act;
    } acts[] = {
        {"silu", ACT_SILU},          {"swish", ACT_SILU},
        {"gelu", ACT_GELU},          {"gelu_pytorch_tanh", ACT_GELU_TANH},
        {"gelu_new", ACT_GELU_TANH}, {"gelu_fast", ACT_GELU_TANH},
    };
    const char *key = a->act_key ? a->act_key : "hidden_act", *name;
    double alpha, limit;
    if (!hf_text(c, c->model, key, a->act ? a->act : "silu", &name) ||
        !hf_num(c, c->model, "swiglu_alpha", 0, 1e6, 1.702, &alpha) ||
        !hf_num(c, c->model, "swiglu_limit", 0, 1e6, 7, &limit))
        return false;
    if (s->act == ACT_SWIGLU_CLAMPED)
        return (alpha == 1.702 && limit == 7) ||
               hf_err(c, ERR_UNSUPPORTED,
                      "swiglu_alpha %g and swiglu_limit %g are not supported; 1.702 and 7 are",
                      alpha, limit);
    if (strcmp(a->row, "gemma") == 0 && strcmp(name, "gelu") == 0)
        name = "gelu_pytorch_tanh"; /* what its first files meant */
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (strcmp(acts[i].name, name) == 0) {
            s->act = acts[i].act;
            return true;
        }
    return hf_err(c, ERR_UNSUPPORTED,
                  "%s is \"%s\", which is not supported; silu, gelu, gelu_new and "
                  "gelu_pytorch_tanh are",
                  key, hf_show(name).text);
}

static bool read_biases(const struct hf_config *c, const struct hf_arch *a, struct model_spec *s)
{
    s->qkv_bias = a->bias_default;
    s->mlp_bias = false;
    if ((a->bias_key && !hf_bool(c, c->model, a->bias_key, a->bias_default, &s->qkv_bias)) ||
        (a->mlp_bias_key && !hf_bool(c, c->model, a->mlp_bias_key, false, &s->mlp_bias)))
        return false;
    s->o_bias = a->o_bias && s->qkv_bias;
    s->mlp_bias = s->mlp_bias || (a->mlp_bias && s->qkv_bias);
    s->out_bias = strcmp(a->row, "phi2") == 0;
    return true;
}

static bool read_norms(const struct hf_config *c, const struct hf_arch *a, struct model_spec *s)
{
    double eps;
    bool qk = s->qk_norm;
    const char *key = strcmp(a->row, "command-r") == 0 ? "use_qk_norm" : "qk_layernorm";
    if (!hf_num(c, c->model, a->eps_key ? a->eps_key : "rms_norm_eps", 0, 1,
                a->eps > 0 ? a->eps : 1e-6, &eps) ||
        (!qk && !hf_bool(c, c->model, key, false, &qk)))
        return false;
    s->norm_eps = (float)eps;
    const struct architecture *row = architecture_find(a->row, strlen(a->row));
    if (qk && row->qk_norm == NEVER)
        return hf_err(c, ERR_UNSUPPORTED, "%s true is not supported of model type %s", key,
                      a->type);
    s->qk_norm = qk;
    if (strcmp(a->row, "stablelm") == 0)
        return hf_bool(c, c->model, "use_parallel_residual", false, &s->parallel);
    return true;
}

/* --- scales --- */

static bool read_soft_caps(const struct hf_config *c, const struct hf_arch *a, struct model_spec *s)
{
    const bool gemma2 = strcmp(a->row, "gemma2") == 0;
    static const char *const keys[2] = {"attn_logit_softcapping", "final_logit_softcapping"};
    const double dflt[2] = {gemma2 ? 50 : 0, gemma2 ? 30 : 0};
    float *const out[2] = {&s->attention_soft_cap, &s->logit_soft_cap};
    for (int i = 0; i < 2; i++) {
        double cap;
        if (!hf_num(c, c->model, keys[i], 0, 1e6, hf_is_null(c->model, keys[i]) ? 0 : dflt[i],
                    &cap))
            return false;
        if (cap > 0 && cap < 1e-6)
            return hf_err(c, ERR_INVALID, "%s is %g, expected 0 or at least 1e-6", keys[i], cap);
        *out[i] = (float)cap;
    }
    return true;
}

static bool read_attention_scale(const struct hf_config *c, const struct hf_arch *a,
                                 struct model_spec *s)
{
    double v;
    s->attention_scale = (float)(1 / sqrt((double)s->head_dim));
    if (strcmp(a->row, "gemma2") == 0 || strcmp(a->row, "gemma3") == 0) {
        if (!hf_num(c, c->model, "query_pre_attn_scalar", 1e-6, 1e6, 256, &v))
            return false;
        s->attention_scale = (float)(1 / sqrt(v));
    } else if (strncmp(a->row, "granite", 7) == 0) {
        if (!hf_num(c, c->model, "attention_multiplier", 1e-6, 1e6, 1, &v))
            return false;
        s->attention_scale = (float)v;
    }
    return true;
}

static bool read_scales(const struct hf_config *c, const struct hf_arch *a, struct model_spec *s)
{
    double embedding = 1, residual = 1, logit = 1;
    const struct architecture *row = architecture_find(a->row, strlen(a->row));
    if (row->scales_embedding)
        embedding = sqrt((double)s->n_embd);
    if (row->logit_scale == SCALE_MULTIPLIES &&
        !hf_num(c, c->model, "logit_scale", 1e-9, 1e9, 0.0625, &logit))
        return false;
    if (row->logit_scale == SCALE_DIVIDES &&
        (!hf_num(c, c->model, "embedding_multiplier", 1e-6, 1e6, 1, &embedding) ||
         !hf_num(c, c->model, "residual_multiplier", 1e-6, 1e6, 1, &residual) ||
         !hf_num(c, c->model, "logits_scaling", 1e-6, 1e6, 1, &logit)))
        return false;
    s->embedding_scale = (float)embedding;
    s->residual_scale = (float)residual;
    s->logit_scale = (float)(row->logit_scale == SCALE_DIVIDES ? 1 / logit : logit);
    return (!row->soft_caps || read_soft_caps(c, a, s)) && read_attention_scale(c, a, s);
}

/* --- experts --- */

/* Qwen's models may keep some layers dense. */
static bool read_dense_layers(const struct hf_config *c, struct model_spec *s)
{
    const json_t *only = hf_get(c->model, "mlp_only_layers");
    int every, n_dense = 0;
    if (!hf_int(c, c->model, "decoder_sparse_step", 1, INT_MAX, 1, &every))
        return false;
    for (int i = 0; i < s->n_layers; i++) {
        bool dense = (i + 1) % every != 0;
        for (size_t k = 0; k < json_array_size(only) && !dense; k++)
            dense = json_integer_value(json_array_get(only, k)) == i &&
                    json_is_integer(json_array_get(only, k));
        if (dense)
            s->layers[i] |= LAYER_DENSE;
        n_dense += dense;
    }
    if (n_dense == s->n_layers)
        return hf_err(c, ERR_UNSUPPORTED,
                      "no layer has experts, which is not supported of a "
                      "model with num_experts");
    if (n_dense == 0)
        s->n_ff = 0;
    return true;
}

static bool read_experts(const struct hf_config *c, const struct hf_arch *a, struct model_spec *s)
{
    const json_t *m = c->model;
    const bool qwen = strncmp(a->row, "qwen", 4) == 0;
    const char *count = hf_get(m, "num_experts") ? "num_experts" : "num_local_experts";
    if (a->experts == HF_EXPERTS_NONE)
        return true;
    if (!hf_int(c, m, count, 2, MODEL_MAX_EXPERTS, a->n_experts, &s->n_experts) ||
        !hf_int(c, m, "num_experts_per_tok", 1, s->n_experts, a->n_experts_used,
                &s->n_experts_used))
        return false;
    s->n_ff_expert = s->n_ff;
    if (!qwen) {
        s->n_ff = 0;
        return true;
    }
    return hf_int(c, m, "moe_intermediate_size", 1, MODEL_MAX_FF, a->n_ff_expert,
                  &s->n_ff_expert) &&
           hf_bool(c, m, "norm_topk_prob", false, &s->router_renormalise) &&
           (strcmp(a->row, "qwen2moe") != 0 ||
            hf_int(c, m, "shared_expert_intermediate_size", 1, MODEL_MAX_FF, a->n_ff_shared,
                   &s->n_ff_shared)) &&
           read_dense_layers(c, s);
}

/* --- all of it --- */

/* What would change the forward pass and is not among the above. */
static bool refuse_variants(const struct hf_config *c)
{
    static const char *const flags[] = {"use_bidirectional_attention", "is_encoder_decoder",
                                        "alibi", "new_decoder_architecture"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (!hf_is_null(c->model, flags[i]) && !json_is_false(hf_get(c->model, flags[i])) &&
            hf_get(c->model, flags[i]))
            return hf_err(c, ERR_UNSUPPORTED, "%s is not supported (only false)", flags[i]);
    return true;
}

static bool read_tied(const struct hf_config *c, const struct hf_arch *a, struct model_spec *s)
{
    bool top;
    return hf_bool(c, c->top, "tie_word_embeddings", a->tied, &top) &&
           hf_bool(c, c->model, "tie_word_embeddings", top, &s->tied_embeddings);
}

bool hf_spec_read(const struct hf_config *c, const struct hf_arch *a, int64_t n_vocab,
                  struct model_spec *out)
{
    struct model_spec s = {0};
    struct err why;
    architecture_apply(architecture_find(a->row, strlen(a->row)), &s);
    s.rope_style = a->interleaved ? ROPE_NORMAL : ROPE_NEOX;
    if (!refuse_variants(c) || !read_sizes(c, a, n_vocab, &s) || !read_act(c, a, &s) ||
        !read_biases(c, a, &s) || !read_norms(c, a, &s) || !read_scales(c, a, &s) ||
        !hf_read_layers(c, a, &s) || !hf_read_rope(c, a, &s) || !read_experts(c, a, &s) ||
        !read_tied(c, a, &s))
        return false;
    if (!model_spec_check(&s, &why))
        return hf_err(c, why.code, "%s", why.msg);
    *out = s;
    return true;
}
