/* model_impl.h: a loaded model: weights by their place in the forward pass, and its buffers.
 * model_load.c fills it, model.c walks it. */
#ifndef TOKEND_MODEL_IMPL_H
#define TOKEND_MODEL_IMPL_H

#include "model.h"

/* Weights that read one activation buffer must be of one class (backend.h). A file may mix
 * classes, so every buffer that feeds linears exists once for each class that reads it. */
enum weight_class { CLASS_FLOAT, CLASS_QUANTISED, N_CLASSES };

struct matrix {
    struct weight *w;
    enum weight_class class;
};

struct feed {
    struct activation *of[N_CLASSES]; /* NULL where no weight of that class reads it */
};

/* The classes that one block reads a feed in. */
struct reads {
    bool by[N_CLASSES];
};

struct mlp {
    struct matrix gate, up; /* [n_ff][n_embd], of one class; gate may lack */
    struct matrix down;     /* [n_embd][n_ff] */
    struct weight *gate_bias, *up_bias, *down_bias; /* NULL: none */
};

struct experts {
    struct matrix router; /* [n_experts][n_embd] */
    struct weight *router_bias;
    struct weight **of;     /* [3][n_experts] gates, ups, downs; owned (the array) */
    struct moe_layer layer; /* points into it */
    enum weight_class in;   /* of gates and ups */
    struct moe *scratch;
    struct weight *shared_gate; /* [1][n_embd], NULL: the shared MLP is not weighed */
};

struct layer {
    struct norm attn_norm, ffn_norm, post_attn, post_ffn; /* w NULL: none */
    struct qk_norm qk_norm;
    struct matrix qkv[3]; /* [heads * head_dim][n_embd] */
    struct matrix o;      /* [n_embd][n_heads * head_dim] */
    struct weight *qkv_bias[3], *o_bias;
    struct weight *sinks;   /* [1][n_heads], NULL: none */
    struct mlp mlp;         /* beside experts: the shared one */
    struct experts experts; /* of NULL: none */
    struct reads attn_reads, ffn_reads;
};

struct model {
    struct backend *backend;
    struct model_spec spec;
    uint64_t bytes_of[DTYPE_COUNT];       /* weights, by type as loaded */
    struct attention_config attention[2]; /* [windowed] */
    struct rope *rope, *rope_local;       /* NULL: no layer turns by it */

    struct matrix embd, out; /* [n_vocab][n_embd] */
    struct weight *out_bias;
    struct norm out_norm;
    struct layer *layers;                  /* [n_layers] */
    struct moe *moe[N_CLASSES][N_CLASSES]; /* [of gates and ups][of downs] */

    struct activation *x;            /* [n_embd] the residual stream, over residual_scale */
    struct activation *added;        /* [n_embd] before its post norm; NULL: none */
    struct feed normed;              /* [n_embd] */
    struct activation *qkv[3];       /* [n_heads * head_dim], twice [n_kv_heads * head_dim] */
    struct feed attended;            /* [n_heads * head_dim] */
    struct feed middle;              /* [n_ff] */
    struct activation *router;       /* [n_experts] */
    struct feed shared_middle;       /* [n_ff_shared] */
    struct activation *shared;       /* [n_embd] before it is weighed */
    struct activation *logit_normed; /* [n_embd], of logit_rows only, as the next */
    struct activation *logits;       /* [n_vocab] */
};

#endif
