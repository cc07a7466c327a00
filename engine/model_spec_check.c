#include <math.h>
#include <stdio.h>

#include "model_spec.h"

/* A number and its bounds */
struct bounded {
    const char *what;
    int is, least, most;
};

static bool in_bounds(const struct bounded *b, int n, struct err *e)
{
    for (int i = 0; i < n; i++)
        if (b[i].is < b[i].least || b[i].is > b[i].most)
            return err_set(e, ERR_INVALID, "%s is %d, expected %d to %d", b[i].what, b[i].is,
                           b[i].least, b[i].most);
    return true;
}

static bool check_sizes(const struct model_spec *s, struct err *e)
{
    const struct bounded b[] = {
        {"the number of layers", s->n_layers, 1, MODEL_MAX_LAYERS},
        {"the width", s->n_embd, 1, MODEL_MAX_EMBD},
        {"the number of heads", s->n_heads, 1, MODEL_MAX_HEADS},
        {"the number of key-value heads", s->n_kv_heads, 1, s->n_heads},
        {"the width of a head", s->head_dim, 2, MODEL_MAX_HEAD_DIM},
        {"the width of the feed-forward part", s->n_ff, 0, MODEL_MAX_FF},
        {"the vocabulary", s->n_vocab, 1, MODEL_MAX_VOCAB},
        {"the context", s->n_ctx_train, 1, MODEL_MAX_CTX},
        {"the number of ends", s->n_eos, 0, MODEL_MAX_EOS},
        {"the rotary width", s->rope.n_dims, 0, s->head_dim},
        {"the windowed layers' rotary width", s->rope_local.n_dims, 0, s->head_dim},
        {"the long context's rotary width", s->rope_long.n_dims, 0, s->head_dim},
    };
    if (!in_bounds(b, (int)(sizeof b / sizeof *b), e))
        return false;
    if (s->n_heads % s->n_kv_heads != 0)
        return err_set(e, ERR_INVALID, "%d attention heads do not divide by %d key-value heads",
                       s->n_heads, s->n_kv_heads);
    if (s->head_dim % 2 != 0)
        return err_set(e, ERR_INVALID, "heads of %d, expected an even number", s->head_dim);
    return true;
}

static bool check_experts(const struct model_spec *s, struct err *e)
{
    const struct bounded b[] = {
        {"the number of experts", s->n_experts, 2, MODEL_MAX_EXPERTS},
        {"the number of experts used", s->n_experts_used, 1, s->n_experts},
        {"the width of an expert", s->n_ff_expert, 1, MODEL_MAX_FF},
        {"the width of the shared expert", s->n_ff_shared, 0, MODEL_MAX_FF},
    };
    if (s->n_experts == 0)
        return true;
    if (!in_bounds(b, (int)(sizeof b / sizeof *b), e))
        return false;
    if (!s->gated)
        return err_set(e, ERR_UNSUPPORTED, "experts without gates are not supported");
    return true;
}

static bool check_layers(const struct model_spec *s, struct err *e)
{
    for (int i = 0; i < s->n_layers; i++) {
        if (model_spec_layer_has(s, i, LAYER_WINDOWED) && s->window < 1)
            return err_set(e, ERR_INVALID, "layer %d has a window of %d tokens", i, s->window);
        if (!model_spec_has_experts(s, i) && s->n_ff < 1)
            return err_set(e, ERR_INVALID,
                           "layer %d has no experts, and its feed-forward part no width", i);
    }
    return true;
}

static bool is_finite(const struct rope_spec *r)
{
    for (int i = 0; i < r->n_dims / 2; i++)
        if (!isfinite(r->inv_freq[i]))
            return false;
    return isfinite(r->mscale) && r->n_dims % 2 == 0;
}

static bool check_numbers(const struct model_spec *s, struct err *e)
{
    const struct {
        const char *what;
        float is;
        bool may_be_0;
    } numbers[] = {
        {"the norms' epsilon", s->norm_eps, false},
        {"the scale of embeddings", s->embedding_scale, false},
        {"the scale of residuals", s->residual_scale, false},
        {"the scale of logits", s->logit_scale, false},
        {"the scale of scores", s->attention_scale, false},
        {"the soft cap of scores", s->attention_soft_cap, true},
        {"the soft cap of logits", s->logit_soft_cap, true},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!isfinite(numbers[i].is) || numbers[i].is < 0 ||
            (numbers[i].is == 0 && !numbers[i].may_be_0))
            return err_set(e, ERR_INVALID, "%s is %g, expected a number %s 0", numbers[i].what,
                           (double)numbers[i].is, numbers[i].may_be_0 ? "of at least" : "above");
    /* What the forward pass makes of them (model.c) */
    if (!isfinite(s->norm_eps / (s->residual_scale * s->residual_scale)) ||
        !isfinite(s->embedding_scale / s->residual_scale))
        return err_set(e, ERR_INVALID, "the scale of residuals is %g, which is too small",
                       (double)s->residual_scale);
    if (!is_finite(&s->rope) || !is_finite(&s->rope_local) || !is_finite(&s->rope_long))
        return err_set(e, ERR_INVALID, "rotary frequencies are not finite numbers");
    return true;
}

bool model_spec_check(const struct model_spec *s, struct err *e)
{
    return check_sizes(s, e) && check_experts(s, e) && check_layers(s, e) && check_numbers(s, e);
}
