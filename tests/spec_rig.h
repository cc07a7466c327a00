/* spec_rig.h: GGUF files of any architecture, to be read as a spec or refused. Include after
 * test.h. */
#ifndef TOKEND_SPEC_RIG_H
#define TOKEND_SPEC_RIG_H

#include "gguf_build.h"
#include "model_spec.h"

#include <math.h>
#include <stdio.h>

/* A model in the making: keys and tensors put into b come before the standard ones. */
struct variant {
    struct gguf_build b;
    const char *without[8]; /* keys or tensors to leave out */
    const char *arch;       /* NULL: llama */
    uint32_t n_layers;      /* 0: 2 */
    bool experts;           /* of an architecture that may have them */
};

/* What tensors the files of an architecture have, where they are not a llama's. */
struct variant_kind {
    const char *arch;
    bool layer_norm, norm_bias, parallel, ungated, head_norms, wide_norms, post_norms, no_pre_norms;
    bool experts, expert_biases, sinks, shared, shared_gate, window;
};
static const struct variant_kind variant_kinds[] = {
    {.arch = "llama"},
    {.arch = "qwen2"},
    {.arch = "qwen2moe", .experts = true, .shared = true, .shared_gate = true},
    {.arch = "qwen3", .head_norms = true},
    {.arch = "qwen3moe", .head_norms = true, .experts = true},
    {.arch = "gemma"},
    {.arch = "gemma2", .post_norms = true},
    {.arch = "gemma3", .head_norms = true, .post_norms = true, .window = true},
    {.arch = "phi2", .layer_norm = true, .norm_bias = true, .parallel = true, .ungated = true},
    {.arch = "phi3"},
    {.arch = "olmo2", .wide_norms = true, .post_norms = true, .no_pre_norms = true},
    {.arch = "smollm3"},
    {.arch = "granite"},
    {.arch = "granitemoe", .experts = true},
    {.arch = "starcoder2", .layer_norm = true, .norm_bias = true, .ungated = true},
    {.arch = "gpt-oss", .experts = true, .expert_biases = true, .sinks = true, .window = true},
    {.arch = "command-r", .layer_norm = true, .parallel = true},
    {.arch = "cohere2", .layer_norm = true, .parallel = true, .window = true},
    {.arch = "stablelm", .layer_norm = true, .norm_bias = true},
    {.arch = "glm4", .post_norms = true},
};
enum { N_KINDS = sizeof variant_kinds / sizeof *variant_kinds };

static inline const struct variant_kind *kind_of(const struct variant *v)
{
    for (int i = 0; v->arch && i < N_KINDS; i++)
        if (strcmp(variant_kinds[i].arch, v->arch) == 0)
            return &variant_kinds[i];
    return &variant_kinds[0];
}

static inline bool left_out(const struct variant *v, const char *name)
{
    for (size_t i = 0; i < 8 && v->without[i]; i++)
        if (strcmp(v->without[i], name) == 0)
            return true;
    return false;
}

static inline void std_u32(struct variant *v, const char *key, uint32_t value)
{
    if (!left_out(v, key))
        build_u32(&v->b, key, value);
}

/* A key of the architecture's own */
static inline void std_own(struct variant *v, const char *rest, uint32_t value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", kind_of(v)->arch, rest);
    std_u32(v, key, value);
}

static inline void std_own_f32(struct variant *v, const char *rest, float value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", kind_of(v)->arch, rest);
    if (!left_out(v, key))
        build_f32(&v->b, key, value);
}

/* A tensor of layer `layer`, of n rows of d0 x d1 matrices */
static inline void std_part(struct variant *v, int layer, const char *part, uint64_t d0,
                            uint64_t d1, uint64_t d2)
{
    const uint64_t dims[3] = {d0, d1, d2};
    char name[96];
    snprintf(name, sizeof name, "blk.%d.%s", layer, part);
    if (left_out(v, name) || left_out(v, part))
        return;
    if (!d2) {
        build_tensor(&v->b, name, d0, d1);
        return;
    }
    build_tensor_raw(&v->b, name, 0, 3, dims, v->b.data_bytes);
    v->b.data_bytes += (d0 * d1 * d2 * 4 + 31) / 32 * 32;
}

static inline void std_norm(struct variant *v, int layer, const char *part)
{
    char name[64];
    snprintf(name, sizeof name, "%s.weight", part);
    std_part(v, layer, name, 24, 0, 0);
    snprintf(name, sizeof name, "%s.bias", part);
    if (kind_of(v)->norm_bias)
        std_part(v, layer, name, 24, 0, 0);
}

static inline void build_tokens(struct variant *v)
{
    static const char *const tokens[] = {"a", "<|eot_id|>", "<|im_end|>", "</s>",      "<|end|>",
                                         "b", "c",          "d",          "<|weird|>", "e"};
    static const int32_t types[] = {1, 3, 3, 3, 1, 1, 1, 1, 3, 1};
    build_strings(&v->b, "tokenizer.ggml.tokens", 10, tokens);
    build_array(&v->b, "tokenizer.ggml.token_type", GGUF_I32, 10, types, sizeof types);
    std_u32(v, "tokenizer.ggml.eos_token_id", 8);
    std_u32(v, "tokenizer.ggml.eot_token_id", 1);
    std_u32(v, "tokenizer.ggml.eom_token_id", 4000000000u);
}

static inline void build_attention(struct variant *v, int i)
{
    const struct variant_kind *k = kind_of(v);
    if (!k->no_pre_norms)
        std_norm(v, i, "attn_norm");
    std_part(v, i, "attn_q.weight", 24, 24, 0);
    std_part(v, i, "attn_k.weight", 24, 12, 0);
    std_part(v, i, "attn_v.weight", 24, 12, 0);
    std_part(v, i, "attn_output.weight", 24, 24, 0);
    if (k->head_norms || k->wide_norms) {
        std_part(v, i, "attn_q_norm.weight", k->wide_norms ? 24 : 6, 0, 0);
        std_part(v, i, "attn_k_norm.weight", k->wide_norms ? 12 : 6, 0, 0);
    }
    if (k->sinks)
        std_part(v, i, "attn_sinks.weight", 4, 0, 0);
    if (k->post_norms)
        std_part(v, i, "post_attention_norm.weight", 24, 0, 0);
}

static inline void build_experts(struct variant *v, int i)
{
    const struct variant_kind *k = kind_of(v);
    std_part(v, i, "ffn_gate_inp.weight", 24, 4, 0);
    std_part(v, i, "ffn_gate_exps.weight", 24, 8, 4);
    std_part(v, i, "ffn_up_exps.weight", 24, 8, 4);
    std_part(v, i, "ffn_down_exps.weight", 8, 24, 4);
    if (k->expert_biases) {
        std_part(v, i, "ffn_gate_inp.bias", 4, 0, 0);
        std_part(v, i, "ffn_gate_exps.bias", 8, 4, 0);
        std_part(v, i, "ffn_up_exps.bias", 8, 4, 0);
        std_part(v, i, "ffn_down_exps.bias", 24, 4, 0);
    }
    if (k->shared) {
        std_part(v, i, "ffn_gate_shexp.weight", 24, 16, 0);
        std_part(v, i, "ffn_up_shexp.weight", 24, 16, 0);
        std_part(v, i, "ffn_down_shexp.weight", 16, 24, 0);
    }
    if (k->shared_gate)
        std_part(v, i, "ffn_gate_inp_shexp.weight", 24, 0, 0);
}

static inline void build_feed_forward(struct variant *v, int i)
{
    const struct variant_kind *k = kind_of(v);
    if (!k->no_pre_norms && !k->parallel)
        std_norm(v, i, k->sinks ? "post_attention_norm" : "ffn_norm");
    if (k->post_norms)
        std_part(v, i, "post_ffw_norm.weight", 24, 0, 0);
    if (k->experts || v->experts) {
        build_experts(v, i);
        return;
    }
    if (!k->ungated)
        std_part(v, i, "ffn_gate.weight", 24, 40, 0);
    std_part(v, i, "ffn_up.weight", 24, 40, 0);
    std_part(v, i, "ffn_down.weight", 40, 24, 0);
}

static inline void build_keys(struct variant *v, uint32_t n_layers)
{
    const struct variant_kind *k = kind_of(v);
    if (!left_out(v, "general.architecture"))
        build_str(&v->b, "general.architecture", k->arch);
    std_own(v, "block_count", n_layers);
    std_own(v, "context_length", 128);
    std_own(v, "embedding_length", 24);
    std_own(v, "feed_forward_length", 40);
    std_own(v, "attention.head_count", 4);
    std_own(v, "attention.head_count_kv", 2);
    if (k->window)
        std_own(v, "attention.sliding_window", 64);
    if (k->experts || v->experts) {
        std_own(v, "expert_count", 4);
        std_own(v, "expert_used_count", 2);
    }
    if (strcmp(k->arch, "command-r") == 0 || strcmp(k->arch, "cohere2") == 0)
        std_own_f32(v, "logit_scale", 0.25f);
    std_own_f32(v,
                k->layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
                1e-5f);
    if (!left_out(v, "tokenizer"))
        build_tokens(v);
}

/* A model of 2 layers, 24 wide, with 4 heads of 6, 2 of them key-value, and 10 tokens; experts:
 * 4 of 8, 2 used. */
static inline void build_model(struct variant *v)
{
    const uint32_t n_layers = v->n_layers ? v->n_layers : 2;
    build_keys(v, n_layers);
    if (!left_out(v, "token_embd.weight"))
        build_tensor(&v->b, "token_embd.weight", 24, 10);
    if (!left_out(v, "output_norm.weight"))
        build_tensor(&v->b, "output_norm.weight", 24, 0);
    if (kind_of(v)->norm_bias && !left_out(v, "output_norm.bias"))
        build_tensor(&v->b, "output_norm.bias", 24, 0);
    if (!left_out(v, "output.weight"))
        build_tensor(&v->b, "output.weight", 24, 10);
    for (uint32_t i = 0; i < n_layers; i++) {
        build_attention(v, (int)i);
        build_feed_forward(v, (int)i);
    }
}

/* Opens what was built; the file lives as long as v->b. */
static inline struct gguf *open_variant(struct variant *v)
{
    struct err e;
    build_model(v);
    struct gguf *g = build_open(&v->b, &e);
    if (!g)
        fail_msg("%s", e.msg);
    return g;
}

static inline void accepted(struct variant *v, struct model_spec *s)
{
    struct err e;
    struct gguf *g = open_variant(v);
    if (!model_spec_from_gguf(g, s, &e))
        fail_msg("%s", e.msg);
    gguf_close(g);
    build_free(&v->b);
}

static inline void refused(struct variant *v, enum err_code code, const char *part)
{
    struct err e = {0};
    struct model_spec s;
    struct gguf *g = open_variant(v);
    assert_false(model_spec_from_gguf(g, &s, &e));
    assert_contains(e.msg, part);
    assert_contains(e.msg, "(memory): ");
    assert_int_equal(e.code, code);
    gguf_close(g);
    build_free(&v->b);
    memset(v, 0, sizeof *v);
}

/* Pair i turns by theta^(-2i / n_dims) / factor. */
static inline void assert_turns(const struct rope_spec *r, int pair, double theta, double factor)
{
    const double want = pow(theta, -2.0 * pair / r->n_dims) / factor;
    if (!(fabs((double)r->inv_freq[pair] / want - 1) < 1e-6))
        fail_msg("pair %d turns by %g, expected %g", pair, (double)r->inv_freq[pair], want);
}

#endif
