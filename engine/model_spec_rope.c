#include <math.h>
#include <stdio.h>

#include "model_spec_read.h"

/* What model_spec.rope is made of. */
struct turning {
    float theta, factor;
    struct gguf_str type; /* of scaling */
};

/* The overall factor of sin and cos: 0 where no key has it. Converters of YaRN and LongRoPE each
 * have a name for what config.json calls attention_factor. */
static bool read_attention_factor(const struct spec_reader *r, float *out)
{
    const char *yarn = "rope.scaling.yarn_attn_factor", *other = "rope.scaling.attn_factor";
    const char *rest = spec_has(r, yarn) ? yarn : other;
    *out = 0;
    return !spec_has(r, rest) || spec_positive(r, rest, 1, out);
}

static bool has_two_tables(const struct spec_reader *r)
{
    return gguf_find_tensor(r->g, "rope_factors_long.weight") ||
           gguf_find_tensor(r->g, "rope_factors_short.weight");
}

/* LongRoPE: tables for contexts up to the original one and above. */
static bool scale_by_tables(const struct spec_reader *r)
{
    struct model_spec *s = r->s;
    float factors[MODEL_MAX_ROPE_PAIRS], mscale;
    const int n = s->rope.n_dims / 2;
    if (!spec_int(r, "rope.scaling.original_context_length", 1, MODEL_MAX_CTX, -1,
                  &s->rope_long_above) ||
        !read_attention_factor(r, &mscale))
        return false;
    if (mscale == 0)
        mscale = (float)rope_longrope_mscale((double)s->n_ctx_train / s->rope_long_above,
                                             s->rope_long_above);
    s->rope_long = s->rope;
    if (!spec_factors(r, "rope_factors_long.weight", n, factors))
        return false;
    rope_scale_by(&s->rope_long, factors);
    if (!spec_factors(r, "rope_factors_short.weight", n, factors))
        return false;
    rope_scale_by(&s->rope, factors);
    s->rope.mscale = s->rope_long.mscale = mscale;
    return true;
}

static bool scale_by_yarn(const struct spec_reader *r, const struct turning *t)
{
    float fast, slow, mscale;
    int original;
    if (!spec_positive(r, "rope.scaling.yarn_beta_fast", 32, &fast) ||
        !spec_positive(r, "rope.scaling.yarn_beta_slow", 1, &slow) ||
        !spec_int(r, "rope.scaling.original_context_length", 1, MODEL_MAX_CTX, r->s->n_ctx_train,
                  &original) ||
        !read_attention_factor(r, &mscale))
        return false;
    if (t->theta <= 1)
        return gguf_err(r->g, r->e, ERR_INVALID, "key %s is %g, expected a number above 1",
                        spec_key(r, "rope.freq_base").text, (double)t->theta);
    const struct rope_yarn y = {
        .theta = t->theta,
        .factor = t->factor,
        .beta_fast = fast,
        .beta_slow = slow,
        .original = original,
        .truncate = !r->a->yarn_in_part_of_pairs,
        .mscale = mscale,
    };
    rope_scale_yarn(&r->s->rope, &y);
    return true;
}

/* Each pair's own factor: Llama 3's scaling, precomputed by the converter. */
static bool scale_by_file(const struct spec_reader *r, const struct turning *t)
{
    const char *name = "rope_freqs.weight";
    float factors[MODEL_MAX_ROPE_PAIRS];
    if (!gguf_find_tensor(r->g, name))
        return true;
    if (r->a->rope_local || gguf_str_is(t->type, "yarn") || has_two_tables(r))
        return gguf_err(r->g, r->e, ERR_UNSUPPORTED,
                        "tensor %s in a model with %s is not supported", name,
                        r->a->rope_local ? "windowed layers" : "another scaling");
    if (!spec_factors(r, name, r->s->rope.n_dims / 2, factors))
        return false;
    rope_scale_by(&r->s->rope, factors);
    return true;
}

/* Linear scaling is what a factor means when no type is given, as in older files. */
static bool read_scaling(const struct spec_reader *r, struct turning *t)
{
    const struct key_name key = spec_key(r, "rope.scaling.type");
    const char *factor =
        spec_has(r, "rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
    t->type = (struct gguf_str){"linear", 6};
    t->factor = 1;
    if (gguf_has(r->g, key.text) && !gguf_string(r->g, key.text, &t->type, r->e))
        return false;
    if (gguf_str_is(t->type, "none") || gguf_str_is(t->type, "longrope"))
        return true;
    if (!gguf_str_is(t->type, "linear") && !gguf_str_is(t->type, "yarn"))
        return gguf_err(r->g, r->e, ERR_UNSUPPORTED,
                        "key %s is \"%s\", which is not supported; these are: none, linear, yarn, "
                        "longrope",
                        key.text, gguf_show(t->type).text);
    return spec_positive(r, factor, 1, &t->factor);
}

static bool apply_scaling(const struct spec_reader *r, const struct turning *t)
{
    const char *attn_factor = "rope.scaling.attn_factor";
    if (has_two_tables(r) || gguf_str_is(t->type, "longrope"))
        return scale_by_tables(r);
    if (gguf_str_is(t->type, "yarn"))
        return scale_by_yarn(r, t);
    float mscale;
    if (!spec_positive(r, attn_factor, 1, &mscale))
        return false;
    if (mscale != 1)
        return gguf_err(r->g, r->e, ERR_UNSUPPORTED,
                        "key %s is %g, which is not supported without yarn or longrope (only 1)",
                        spec_key(r, attn_factor).text, (double)mscale);
    rope_scale_linear(&r->s->rope, (double)t->factor);
    return true;
}

/* Of windowed layers: a base of their own, without scaling. */
static bool read_local(const struct spec_reader *r, const struct turning *t)
{
    float theta;
    const float dflt = r->a->rope_local_default > 0 ? r->a->rope_local_default : t->theta;
    if (!spec_positive(r, "rope.freq_base_swa", dflt, &theta))
        return false;
    if (!r->a->rope_local)
        return theta == t->theta ||
               gguf_err(r->g, r->e, ERR_UNSUPPORTED,
                        "key %s is %g, which is not supported of this architecture (only %g)",
                        spec_key(r, "rope.freq_base_swa").text, (double)theta, (double)t->theta);
    rope_default(&r->s->rope_local, (double)theta, r->s->rope.n_dims);
    return true;
}

bool spec_read_rope(const struct spec_reader *r)
{
    struct turning t;
    const int head_dim = r->s->head_dim;
    int n_dims;
    if (!spec_int(r, "rope.dimension_count", 2, head_dim, head_dim, &n_dims) ||
        !spec_positive(r, "rope.freq_base", 10000, &t.theta))
        return false;
    if (n_dims % 2 != 0)
        return gguf_err(r->g, r->e, ERR_INVALID, "key %s is %d, expected an even number",
                        spec_key(r, "rope.dimension_count").text, n_dims);
    rope_default(&r->s->rope, (double)t.theta, n_dims);
    return read_local(r, &t) && read_scaling(r, &t) && apply_scaling(r, &t) && scale_by_file(r, &t);
}
