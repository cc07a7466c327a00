/* model_spec.h: what distinguishes one decoder-only transformer from another.
 *
 * Readers (GGUF metadata now) fill this struct and check it: sizes are positive, consistent
 * and small enough that no product overflows. The forward pass reads only this. */
#ifndef TOKEND_MODEL_SPEC_H
#define TOKEND_MODEL_SPEC_H

#include "backend.h"
#include "gguf.h"

enum { MODEL_MAX_LAYERS = 512, MODEL_MAX_EOS = 16 };

struct model_spec {
    char architecture[32]; /* "llama", "gemma3" */
    char name[128];        /* general.name, or the file's name */
    int n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_dim;
    int n_vocab;
    int n_ctx_train;
    float norm_eps;
    enum act_fn act;
    enum rope_style rope_style;
    int rope_dims;
    float rope_theta;
    float rope_linear_scale; /* position divisor of linear scaling, 1 = none */
    bool rope_freq_factors;  /* the file carries rope_freqs.weight: inv_freq[i] /= factor[i] */
    bool tied_embeddings;    /* no output.weight: the logits use token_embd */
    bool qkv_bias, o_bias, mlp_bias;
    bool qk_norm;          /* every head of q and k goes through an RMS norm before it is turned */
    bool post_norms;       /* so does what attention and MLP add to the residual stream */
    float embedding_scale; /* of token_embd's rows, 1 = none */
    float attention_scale; /* 1/sqrt(head_dim) unless the model says otherwise */
    /* Of every window_every layers the last sees all earlier tokens, the others the last `window`,
     * and their rotary embedding has a base of its own and no scaling. 0 = no such layers. */
    int window, window_every;
    float rope_theta_windowed;
    uint64_t n_params;          /* sum of tensor elements */
    int32_t eos[MODEL_MAX_EOS]; /* ids that end a generation */
    int n_eos;
};

static inline bool model_spec_is_windowed(const struct model_spec *s, int layer)
{
    return s->window > 0 && (layer + 1) % s->window_every != 0;
}

/* Fills *out from the file's metadata and tensor list. An architecture or feature that we do
 * not compute is an error naming it, never a wrong answer. */
bool model_spec_from_gguf(const struct gguf *, struct model_spec *out, struct err *e);

#endif
