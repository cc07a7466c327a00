/* variant_build.h: tiny GGUF files of any architecture, with or without this key or that tensor.
 * No test framework: the fuzzer uses it too. */
#ifndef TOKEND_VARIANT_BUILD_H
#define TOKEND_VARIANT_BUILD_H

#include "gguf_build.h"

#include <stdio.h>

/* A model in the making: keys and tensors put into b come before the standard ones. */
struct variant {
    struct gguf_build b;
    const char *without[8]; /* keys or tensors to leave out */
    const char *arch;       /* NULL: llama */
    uint32_t n_layers;      /* 0: 2 */
    bool experts;           /* of an architecture that may have them */
    uint32_t times;         /* all widths so many times the usual; 0: once */
    uint32_t type;          /* ggml's, of matrices: 0 (F32) or 8 (Q8_0) */
    bool apart;             /* experts in tensors of their own: blk.0.ffn_gate.3.weight */
    uint32_t first_type;    /* then, of the first expert's gate and up: as type */
    uint32_t fused;         /* q, k and v in one tensor; 2: that has a row too many */
};

static inline uint32_t wide(const struct variant *v, uint32_t n)
{
    return n * (v->times ? v->times : 1);
}

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
enum { N_VARIANT_KINDS = sizeof variant_kinds / sizeof *variant_kinds };

static inline const struct variant_kind *kind_of(const struct variant *v)
{
    for (int i = 0; v->arch && i < N_VARIANT_KINDS; i++)
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

/* Dims of 0 are none. */
static inline void std_tensor(struct variant *v, const char *name, uint64_t d0, uint64_t d1,
                              uint64_t d2)
{
    const uint64_t dims[3] = {d0, d1, d2}, n = d0 * (d1 ? d1 : 1) * (d2 ? d2 : 1);
    const bool vectors = d1 == 0 || strstr(name, ".bias") || strstr(name, "ffn_gate_inp");
    const uint32_t type = vectors ? 0 : v->type;
    if (left_out(v, name))
        return;
    build_tensor_raw(&v->b, name, type, d2 ? 3 : d1 ? 2 : 1, dims, v->b.data_bytes);
    v->b.data_bytes += ((type == 8 ? n / 32 * 34 : n * 4) + 31) / 32 * 32;
}

/* A tensor of a layer */
static inline void std_part(struct variant *v, int layer, const char *part, uint64_t d0,
                            uint64_t d1, uint64_t d2)
{
    char name[96];
    snprintf(name, sizeof name, "blk.%d.%s", layer, part);
    if (!left_out(v, part))
        std_tensor(v, name, d0, d1, d2);
}

static inline void std_norm(struct variant *v, int layer, const char *part)
{
    char name[64];
    snprintf(name, sizeof name, "%s.weight", part);
    std_part(v, layer, name, wide(v, 24), 0, 0);
    snprintf(name, sizeof name, "%s.bias", part);
    if (kind_of(v)->norm_bias)
        std_part(v, layer, name, wide(v, 24), 0, 0);
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
    if (v->fused) {
        std_part(v, i, "attn_qkv.weight", wide(v, 24), wide(v, 48) + v->fused - 1, 0);
    } else {
        std_part(v, i, "attn_q.weight", wide(v, 24), wide(v, 24), 0);
        std_part(v, i, "attn_k.weight", wide(v, 24), wide(v, 12), 0);
        std_part(v, i, "attn_v.weight", wide(v, 24), wide(v, 12), 0);
    }
    std_part(v, i, "attn_output.weight", wide(v, 24), wide(v, 24), 0);
    if (k->head_norms || k->wide_norms) {
        std_part(v, i, "attn_q_norm.weight", wide(v, k->wide_norms ? 24 : 6), 0, 0);
        std_part(v, i, "attn_k_norm.weight", wide(v, k->wide_norms ? 12 : 6), 0, 0);
    }
    if (k->sinks)
        std_part(v, i, "attn_sinks.weight", 4, 0, 0);
    if (k->post_norms)
        std_part(v, i, "post_attention_norm.weight", wide(v, 24), 0, 0);
}

static inline void build_apart(struct variant *v, int i)
{
    const uint32_t type = v->type;
    for (int x = 0; x < 4; x++) {
        char name[32];
        v->type = x == 0 ? v->first_type : type;
        snprintf(name, sizeof name, "ffn_gate.%d.weight", x);
        std_part(v, i, name, wide(v, 24), wide(v, 8), 0);
        snprintf(name, sizeof name, "ffn_up.%d.weight", x);
        std_part(v, i, name, wide(v, 24), wide(v, 8), 0);
        v->type = type;
        snprintf(name, sizeof name, "ffn_down.%d.weight", x);
        std_part(v, i, name, wide(v, 8), wide(v, 24), 0);
    }
}

static inline void build_experts(struct variant *v, int i)
{
    const struct variant_kind *k = kind_of(v);
    std_part(v, i, "ffn_gate_inp.weight", wide(v, 24), 4, 0);
    if (v->apart) {
        build_apart(v, i);
    } else {
        std_part(v, i, "ffn_gate_exps.weight", wide(v, 24), wide(v, 8), 4);
        std_part(v, i, "ffn_up_exps.weight", wide(v, 24), wide(v, 8), 4);
        std_part(v, i, "ffn_down_exps.weight", wide(v, 8), wide(v, 24), 4);
    }
    if (k->expert_biases) {
        std_part(v, i, "ffn_gate_inp.bias", 4, 0, 0);
        std_part(v, i, "ffn_gate_exps.bias", wide(v, 8), 4, 0);
        std_part(v, i, "ffn_up_exps.bias", wide(v, 8), 4, 0);
        std_part(v, i, "ffn_down_exps.bias", wide(v, 24), 4, 0);
    }
    if (k->shared) {
        std_part(v, i, "ffn_gate_shexp.weight", wide(v, 24), wide(v, 16), 0);
        std_part(v, i, "ffn_up_shexp.weight", wide(v, 24), wide(v, 16), 0);
        std_part(v, i, "ffn_down_shexp.weight", wide(v, 16), wide(v, 24), 0);
    }
    if (k->shared_gate)
        std_part(v, i, "ffn_gate_inp_shexp.weight", wide(v, 24), 0, 0);
}

static inline void build_feed_forward(struct variant *v, int i)
{
    const struct variant_kind *k = kind_of(v);
    if (!k->no_pre_norms && !k->parallel)
        std_norm(v, i, k->sinks ? "post_attention_norm" : "ffn_norm");
    if (k->post_norms)
        std_part(v, i, "post_ffw_norm.weight", wide(v, 24), 0, 0);
    if (k->experts || v->experts) {
        build_experts(v, i);
        return;
    }
    if (!k->ungated)
        std_part(v, i, "ffn_gate.weight", wide(v, 24), wide(v, 40), 0);
    std_part(v, i, "ffn_up.weight", wide(v, 24), wide(v, 40), 0);
    std_part(v, i, "ffn_down.weight", wide(v, 40), wide(v, 24), 0);
}

static inline void build_keys(struct variant *v, uint32_t n_layers)
{
    const struct variant_kind *k = kind_of(v);
    if (!left_out(v, "general.architecture"))
        build_str(&v->b, "general.architecture", k->arch);
    std_own(v, "block_count", n_layers);
    std_own(v, "context_length", wide(v, 128));
    std_own(v, "embedding_length", wide(v, 24));
    std_own(v, "feed_forward_length", wide(v, 40));
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
static inline void build_variant(struct variant *v)
{
    const uint32_t n_layers = v->n_layers ? v->n_layers : 2;
    build_keys(v, n_layers);
    std_tensor(v, "token_embd.weight", wide(v, 24), wide(v, 10), 0);
    std_tensor(v, "output_norm.weight", wide(v, 24), 0, 0);
    if (kind_of(v)->norm_bias)
        std_tensor(v, "output_norm.bias", wide(v, 24), 0, 0);
    std_tensor(v, "output.weight", wide(v, 24), wide(v, 10), 0);
    for (uint32_t i = 0; i < n_layers; i++) {
        build_attention(v, (int)i);
        build_feed_forward(v, (int)i);
    }
}

#endif
