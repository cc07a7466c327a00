/* model_spec.h: what distinguishes one decoder-only transformer from another.
 *
 * Readers (GGUF metadata, config.json) fill this struct and check it: sizes are positive,
 * consistent and small enough that no product overflows. The forward pass reads only this. */
#ifndef TOKEND_MODEL_SPEC_H
#define TOKEND_MODEL_SPEC_H

#include "backend.h"
#include "gguf.h"
#include "rope_freqs.h"

enum { MODEL_MAX_LAYERS = 512, MODEL_MAX_EOS = 16 };

/* Bounds of sizes. Their products fit: heads * head_dim in an int, and any two of
 * n_vocab, n_ff, n_embd and heads * head_dim in an int64_t with room for bytes. */
enum {
    MODEL_MAX_EMBD = 1 << 17,
    MODEL_MAX_FF = 1 << 20,
    MODEL_MAX_HEADS = 4096,
    MODEL_MAX_HEAD_DIM = 2 * MODEL_MAX_ROPE_PAIRS,
    MODEL_MAX_VOCAB = 1 << 24,
    MODEL_MAX_CTX = 1 << 24,
    MODEL_MAX_EXPERTS = 1024,
};

/* What is special about a layer: model_spec.layers */
enum layer_flags {
    LAYER_WINDOWED = 1,   /* sees the last `window` tokens, itself counted */
    LAYER_NO_ROPE = 2,    /* q and k are not turned */
    LAYER_ROPE_LOCAL = 4, /* they turn by rope_local */
    LAYER_DENSE = 8,      /* an MLP without experts, in a model that has them */
};

struct model_spec {
    char architecture[32]; /* "llama", "gemma3": GGUF's names */
    char name[128];        /* the file's own, or made of the file name */
    int n_layers, n_embd, n_heads, n_kv_heads, head_dim;
    int n_ff; /* of the MLP of a dense layer; 0: every layer has experts */
    int n_vocab;
    int n_ctx_train;
    uint8_t layers[MODEL_MAX_LAYERS]; /* enum layer_flags */
    int window;                       /* of windowed layers; 0: there are none */

    enum norm_kind norm;
    bool norm_bias;
    float norm_eps;
    bool pre_norms;  /* attention and MLP read a norm of the residual stream */
    bool post_norms; /* what they add to it goes through a norm */
    bool parallel; /* both read the same norm's output, and both are added (one pre-norm a layer) */
    bool qk_norm;  /* q and k go through a norm before they are turned */
    enum qk_norm_span qk_norm_span;
    enum norm_kind qk_norm_kind;
    bool qkv_bias, o_bias, mlp_bias, out_bias;

    enum act_fn act;
    bool gated; /* down(act(gate(x)) * up(x)); else down(act(up(x))) */

    enum rope_style rope_style;
    struct rope_spec rope, rope_local, rope_long;
    int rope_long_above; /* longer contexts (max_model_len) turn by rope_long, not rope; 0: none do
                          */

    float embedding_scale; /* of token_embd's rows */
    float residual_scale;  /* of what attention and MLP add */
    float logit_scale;     /* multiplies */
    float attention_scale; /* of scores: 1/sqrt(head_dim) unless the model says otherwise */
    float attention_soft_cap, logit_soft_cap; /* 0: none */
    bool attention_sinks;                     /* a further logit in each head's softmax */

    int n_experts, n_experts_used; /* 0: none */
    int n_ff_expert;
    int n_ff_shared;         /* of an MLP beside the experts; 0: none */
    bool router_renormalise; /* the chosen experts' weights sum to 1 */
    bool router_bias, expert_bias;
    bool shared_gate; /* the shared MLP's output is weighed by sigmoid(x · w) */

    bool tied_embeddings;       /* no output.weight: the logits use token_embd */
    uint64_t n_params;          /* sum of tensor elements */
    int32_t eos[MODEL_MAX_EOS]; /* ids that end a generation */
    int n_eos;
};

static inline bool model_spec_layer_has(const struct model_spec *s, int layer, enum layer_flags f)
{
    return (s->layers[layer] & f) != 0;
}

static inline bool model_spec_has_experts(const struct model_spec *s, int layer)
{
    return s->n_experts > 0 && !model_spec_layer_has(s, layer, LAYER_DENSE);
}

/* Fills *out from the file's metadata and tensor list. An architecture or feature that we do
 * not compute is an error naming it, never a wrong answer. */
bool model_spec_from_gguf(const struct gguf *, struct model_spec *out, struct err *e);

/* What every reader promises of a spec, checked once more in one place: sizes within the bounds
 * above and consistent with each other. The message does not name the file. */
bool model_spec_check(const struct model_spec *, struct err *e);

#endif
