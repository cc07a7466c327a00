/* hf_names.h: which tensor of a Hugging Face checkpoint a canonical name means, and how its
 * values lie there. */
#ifndef TOKEND_HF_NAMES_H
#define TOKEND_HF_NAMES_H

#include "hf_quant.h"
#include "hf_shards.h"
#include "hf_spec.h"

enum hf_layout {
    HF_WHOLE,         /* as they are asked for */
    HF_QKV,           /* queries, keys and values one behind the other; slot 0, 1, 2 */
    HF_HALVES,        /* gate (slot 0), then up (slot 1) */
    HF_STACK,         /* [expert][rows][cols] */
    HF_STACK_HALVES,  /* [expert][2 * rows][cols] gate, then up */
    HF_STACK_T,       /* [expert][cols][rows] */
    HF_STACK_T_PAIRS, /* [expert][cols][2 * rows] gate and up take turns */
    HF_PAIRS,         /* [rows][2 * cols] the same, of biases */
    HF_MXFP4,       /* blocks [expert][rows][cols / 32][16] and scales [expert][rows][cols / 32] */
    HF_MXFP4_PAIRS, /* with 2 * rows: gate and up take turns */
    HF_HEADS,       /* a tensor for each row */
};

struct hf_names {
    const struct hf_shards *shards;
    const struct hf_arch *arch;
    struct hf_quant quant;
    char prefix[64]; /* of what is not the head: "model." */
};

struct hf_source {
    const struct st_tensor *t;      /* HF_HEADS: the first */
    const struct st_tensor *scales; /* of HF_MXFP4* */
    bool is_packed;                 /* of a quantised checkpoint: t is packed.data */
    struct hf_packed packed;
    enum hf_layout layout;
    int slot;
    char name[160]; /* t's; HF_HEADS: with * for the number */
};

enum { HF_MAX_NAME = 160 };

/* expert < 0: none, or (of a layer's experts) the first. */
bool hf_source_find(const struct hf_names *, const char *canonical, int expert,
                    struct hf_source *out);
/* The tensor of row i of HF_HEADS, or NULL. */
const struct st_tensor *hf_source_head(const struct hf_names *, const struct hf_source *, int i);

/* The parts of a layer ("attn_q") or of the rest ("output") that have a name here; NULL behind
 * the last. Parts come more than once. */
const char *hf_part_at(size_t i, bool *in_layer);

#endif
