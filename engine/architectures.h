/* architectures.h: what a model's files do not say, because their architecture implies it.
 *
 * One row of facts an architecture, by GGUF's name. Readers of model files apply a row to a spec
 * (architecture_apply) and then add what the file does say. */
#ifndef TOKEND_ARCHITECTURES_H
#define TOKEND_ARCHITECTURES_H

#include "model_spec.h"

enum window_rule {
    WINDOW_NONE,        /* a window below the trained context is refused */
    WINDOW_ALL,         /* where the file has a window, it is every layer's */
    WINDOW_MAY_PATTERN, /* where the file has one, of every window_every layers the last has none */
    WINDOW_PATTERN,     /* the same, and the file must have one */
};

enum scale_rule {
    SCALE_NONE,       /* a scale of logits is refused */
    SCALE_MULTIPLIES, /* the logits */
    SCALE_DIVIDES,    /* the logits; such files may also scale embeddings and residuals */
};

enum presence { NEVER, MAYBE, ALWAYS };

struct architecture {
    const char *name;
    enum norm_kind norm;
    bool norm_bias;
    bool no_pre_norms, post_norms;
    bool parallel;
    bool may_be_parallel; /* as the file says */
    enum presence qk_norm;
    enum qk_norm_span qk_norm_span;
    enum act_fn act;
    bool ungated;
    enum rope_style rope_style; /* of GGUF's order of q and k rows */
    int no_rope_every;          /* of so many layers the last turns nothing; 0: all turn */
    bool yarn_in_part_of_pairs; /* YaRN's ramp does not begin and end at whole pairs */

    enum window_rule window;
    int window_every;         /* unless the file says otherwise */
    bool rope_local;          /* windowed layers turn by a base of their own, unscaled */
    bool rope_windowed_only;  /* layers without window turn nothing */
    int window_default;       /* where the file has none; 0: none */
    float rope_local_default; /* rope_local's base where the file has none; 0: the other base */

    bool scales_embedding;      /* by sqrt(n_embd) */
    int layers_scaled_by_width; /* models of so many layers scale scores by 1/sqrt(n_embd/n_heads)
                                 */
    enum scale_rule logit_scale;
    bool soft_caps;                           /* may have them */
    float attention_soft_cap, logit_soft_cap; /* where the file has none */
    bool sinks;

    enum presence experts;
    bool router_renormalise;
    bool expert_biases; /* and the router's */
    bool shared_gate;
    enum presence shared_expert;
};

/* The row of this name, or NULL. */
const struct architecture *architecture_find(const char *name, size_t len);

/* "llama, qwen2, ...", of all rows. By value: printf("%s", architecture_names().text). */
struct architecture_list {
    char text[256];
};
struct architecture_list architecture_names(void);

/* Why an architecture that we know of is not supported ("multi-head latent attention (MLA)"), or
 * NULL: never heard of it. */
const char *architecture_refused(const char *name, size_t len);

/* Sets every field of *s that the row decides, and neutral values for the scales. Leaves sizes,
 * layers and rotary frequencies alone. Where the row says MAYBE, the feature is off. */
void architecture_apply(const struct architecture *, struct model_spec *s);

#endif
