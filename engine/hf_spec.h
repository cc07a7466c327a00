/* hf_spec.h: config.json's model as a model_spec, and what else the directory's tensors mean. */
#ifndef TOKEND_HF_SPEC_H
#define TOKEND_HF_SPEC_H

#include "hf_config.h"
#include "model_spec.h"
#include "rope_freqs.h"

/* How the tensors of an architecture lie in a checkpoint. */
enum hf_experts {
    HF_EXPERTS_NONE,
    HF_EXPERTS_CHUNKED,    /* gate_up_proj [E][2 * n_ff][n_embd], gate first */
    HF_EXPERTS_TRANSPOSED, /* gate_up_proj [E][n_embd][2 * n_ff], gate and up interleaved (gpt-oss)
                            */
};

struct hf_arch {
    const char *class; /* "LlamaForCausalLM", of config.json's architectures */
    const char *type;  /* model_type */
    const char *row;   /* of architectures.h */
    bool interleaved;  /* rotary embeddings of ROPE_NORMAL */
    bool plus_one;     /* norm weights are 1 + w */
    enum hf_experts experts;

    const char *eps_key;
    const char *act_key, *act;
    const char *bias_key; /* of q, k and v; NULL: it is as bias_default says */
    bool bias_default;
    bool o_bias, mlp_bias;    /* these are biased where q, k and v are */
    const char *mlp_bias_key; /* or where this says so */

    /* What a config.json may leave out. 0: hidden_size / heads, or as many as heads. */
    int n_embd, n_ff, n_layers, n_heads, n_kv_heads, head_dim, n_ctx;
    int n_experts, n_experts_used, n_ff_expert, n_ff_shared;
    double eps, theta;
    double theta_v5;              /* where transformers 5 wrote the file; 0: as theta */
    const struct rope_yarn *yarn; /* the scaling of a file that names none; NULL: none */
    int n_ctx_original;           /* before any scaling; 0: max_position_embeddings */
    double partial_rotary;        /* 0: all dims turn, always */
    int window;
    bool tied;
};

/* The row that config.json names, or NULL and *c->e. */
const struct hf_arch *hf_arch_of(const struct hf_config *c);

/* Fills all of *out but name, n_params and eos. n_vocab: rows of the embedding, which count where
 * config.json has no vocab_size. */
bool hf_spec_read(const struct hf_config *c, const struct hf_arch *a, int64_t n_vocab,
                  struct model_spec *out);

/* Parts of it, in hf_layers.c and hf_rope.c; in this order, behind the sizes. */
bool hf_read_layers(const struct hf_config *c, const struct hf_arch *a, struct model_spec *s);
bool hf_read_rope(const struct hf_config *c, const struct hf_arch *a, struct model_spec *s);

#endif
