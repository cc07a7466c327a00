#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hf_spec.h"
#include "log.h"
#include "rope_freqs.h"

enum { MAX_FACTOR = 1000000 };

/* The rotary settings of layers of a type ("full_attention"), in either spelling. Transformers 4
 * has rope_scaling beside rope_theta, 5 has both in rope_parameters, where it may be one object
 * for each type of layers. NULL: nothing is said. */
static const json_t *settings_for(const struct hf_config *c, const char *layer_type, bool *nested)
{
    const json_t *old = hf_get(c->model, "rope_scaling");
    const json_t *now = hf_get(c->model, "rope_parameters");
    const json_t *all = old ? old : now;
    *nested = json_is_object(json_object_get(all, "full_attention")) ||
              json_is_object(json_object_get(all, "sliding_attention"));
    return *nested ? hf_get(all, layer_type) : all;
}

struct rope_reader {
    const struct hf_config *c;
    const struct hf_arch *a;
    struct model_spec *s;
    const json_t *in; /* the settings, or NULL */
    struct rope_spec *out;
    double theta;
};

/* The context before any scaling. */
static bool read_original(const struct rope_reader *r, double *out)
{
    const char *key = "original_max_position_embeddings";
    const int dflt = r->a->n_ctx_original ? r->a->n_ctx_original : r->s->n_ctx_train;
    double own;
    return hf_num(r->c, r->in, key, 2, MODEL_MAX_CTX, dflt, &own) &&
           hf_num(r->c, r->c->model, key, 2, MODEL_MAX_CTX, own, out);
}

static bool read_factor(const struct rope_reader *r, double dflt, double *out)
{
    return hf_num(r->c, r->in, "factor", 1e-6, MAX_FACTOR, dflt, out);
}

static bool read_linear(const struct rope_reader *r)
{
    double factor;
    if (!read_factor(r, -1, &factor))
        return false;
    rope_scale_linear(r->out, factor);
    return true;
}

static bool read_llama3(const struct rope_reader *r)
{
    double factor, low, high, original;
    if (!read_factor(r, -1, &factor) ||
        !hf_num(r->c, r->in, "low_freq_factor", 1e-6, MAX_FACTOR, -1, &low) ||
        !hf_num(r->c, r->in, "high_freq_factor", 1e-6, MAX_FACTOR, -1, &high) ||
        !read_original(r, &original))
        return false;
    if (high <= low)
        return hf_err(r->c, ERR_INVALID,
                      "high_freq_factor is %g, expected more than low_freq_factor, %g", high, low);
    rope_scale_llama3(r->out, factor, low, high, original);
    return true;
}

static void apply_yarn(const struct rope_reader *r, const struct rope_yarn *y)
{
    rope_scale_yarn(r->out, y);
    if (y->original * y->factor < 0.99 * r->s->n_ctx_train)
        log_warn("%s: rope mismatch: %g tokens stretched by %g are less than "
                 "max_position_embeddings, %d",
                 r->c->path.text, y->original, y->factor, r->s->n_ctx_train);
    if (y->original * y->factor > r->s->n_ctx_train && y->original * y->factor <= MODEL_MAX_CTX)
        r->s->n_ctx_train = (int)(y->original * y->factor);
}

static bool read_yarn(const struct rope_reader *r)
{
    struct rope_yarn y = {.theta = r->theta};
    double mscale, mscale_all;
    if (!read_factor(r, -1, &y.factor) ||
        !hf_num(r->c, r->in, "beta_fast", 0, MAX_FACTOR, 32, &y.beta_fast) ||
        !hf_num(r->c, r->in, "beta_slow", 0, MAX_FACTOR, 1, &y.beta_slow) ||
        !hf_num(r->c, r->in, "attention_factor", 0, MAX_FACTOR, 0, &y.mscale) ||
        !hf_num(r->c, r->in, "mscale", 0, MAX_FACTOR, 0, &mscale) ||
        !hf_num(r->c, r->in, "mscale_all_dim", 0, MAX_FACTOR, 0, &mscale_all) ||
        !hf_bool(r->c, r->in, "truncate", true, &y.truncate) || !read_original(r, &y.original))
        return false;
    if (y.beta_fast == 0)
        y.beta_fast = 32;
    if (y.beta_slow == 0)
        y.beta_slow = 1;
    if (y.mscale == 0 && mscale > 0 && mscale_all > 0)
        y.mscale = rope_yarn_mscale(y.factor, mscale) / rope_yarn_mscale(y.factor, mscale_all);
    apply_yarn(r, &y);
    return true;
}

/* Queries that grow with their position, but not within the original context, which is the limit
 * here. */
static bool limit_by_query_scale(const struct rope_reader *r)
{
    double beta, original;
    if (!hf_num(r->c, r->in, "llama_4_scaling_beta", 0, MAX_FACTOR, 0, &beta) ||
        !read_original(r, &original))
        return false;
    if (beta == 0 || original >= r->s->n_ctx_train)
        return true;
    log_warn("%s: llama_4_scaling_beta is not supported beyond the original context: %g tokens "
             "instead of %d",
             r->c->path.text, original, r->s->n_ctx_train);
    r->s->n_ctx_train = (int)original;
    return true;
}

/* Two tables; which one, the reference decides at every call by the length of the text, which no
 * KV cache survives. As other servers do, a context above the original one takes the long table
 * for all. */
static bool read_longrope(const struct rope_reader *r)
{
    const int n = r->out->n_dims / 2;
    float table[MODEL_MAX_ROPE_PAIRS];
    double original, factor, mscale;
    if (r->out != &r->s->rope)
        return hf_err(r->c, ERR_UNSUPPORTED, "longrope of windowed layers is not supported");
    if (hf_get(r->in, "short_mscale") || hf_get(r->in, "long_mscale"))
        return hf_err(r->c, ERR_UNSUPPORTED, "longrope with short_mscale is not supported");
    if (!read_original(r, &original) || !read_factor(r, r->s->n_ctx_train / original, &factor) ||
        !hf_num(r->c, r->in, "attention_factor", 0, MAX_FACTOR, 0, &mscale))
        return false;
    r->out->mscale = (float)(mscale > 0 ? mscale : rope_longrope_mscale(factor, original));
    r->s->rope_long = *r->out;
    r->s->rope_long_above = (int)original;
    if (!hf_numbers(r->c, r->in, "short_factor", n, 1e-6, MAX_FACTOR, table))
        return false;
    rope_scale_by(&r->s->rope, table);
    if (!hf_numbers(r->c, r->in, "long_factor", n, 1e-6, MAX_FACTOR, table))
        return false;
    rope_scale_by(&r->s->rope_long, table);
    return true;
}

/* Scaling by the length of the text begins beyond the trained context, which is our limit. */
static bool read_dynamic(const struct rope_reader *r)
{
    log_info("%s: rope_type \"dynamic\" changes nothing within the trained context of %d tokens, "
             "which is the limit here",
             r->c->path.text, r->s->n_ctx_train);
    return true;
}

static bool read_default(const struct rope_reader *r)
{
    (void)r;
    return true;
}

static bool read_scaling(const struct rope_reader *r)
{
    static const struct {
        const char *name;
        bool (*read)(const struct rope_reader *);
    } kinds[] = {
        {"default", read_default}, {"linear", read_linear},     {"llama3", read_llama3},
        {"yarn", read_yarn},       {"longrope", read_longrope}, {"su", read_longrope},
        {"dynamic", read_dynamic},
    };
    const char *type, *old;
    if (!hf_text(r->c, r->in, "type", "default", &old) ||
        !hf_text(r->c, r->in, "rope_type", old, &type))
        return false;
    if (strcmp(r->a->row, "phi3") == 0 && strcmp(old, "yarn") == 0)
        type = "longrope"; /* what its first files called it */
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, type) == 0)
            return kinds[i].read(r);
    return hf_err(r->c, ERR_UNSUPPORTED,
                  "rope_type is \"%s\", which is not supported; these are: default, linear, "
                  "llama3, yarn, longrope, dynamic",
                  hf_show(type).text);
}

static bool read_dims(const struct rope_reader *r, int *out)
{
    double part;
    const char *key = "partial_rotary_factor";
    const bool may = r->a->partial_rotary > 0;
    if (!hf_num(r->c, r->c->model, key, 0, 1, may ? r->a->partial_rotary : 1, &part) ||
        !hf_num(r->c, r->in, key, 0, 1, part, &part))
        return false;
    *out = (int)(r->s->head_dim * part);
    if (*out < 2 || *out % 2 != 0 || (!may && part != 1))
        return hf_err(r->c, ERR_UNSUPPORTED,
                      "%s is %g: heads of %d that turn %d dims are not supported", key, part,
                      r->s->head_dim, *out);
    return true;
}

/* Files of transformers 5 say so, or have its key. */
static bool is_v5(const struct hf_config *c)
{
    const char *version = json_string_value(hf_get(c->top, "transformers_version"));
    return hf_get(c->model, "rope_parameters") || (version && atoi(version) >= 5);
}

/* What counts where no settings are. An explicit null meant "none" before transformers 5, which
 * takes it for absent. */
static void default_scaling(const struct rope_reader *r)
{
    if (!r->a->yarn || (hf_is_null(r->c->model, "rope_scaling") && !is_v5(r->c)))
        return;
    struct rope_yarn y = *r->a->yarn;
    y.theta = r->theta;
    apply_yarn(r, &y);
}

static bool read_one(struct rope_reader *r, double theta)
{
    int n_dims;
    if (r->in && !json_is_object(r->in))
        return hf_err(r->c, ERR_INVALID, "the rotary settings are %s, expected an object",
                      hf_show_value(r->in).text);
    if (!hf_num(r->c, r->in, "rope_theta", 1e-3, 1e15, theta, &r->theta) || !read_dims(r, &n_dims))
        return false;
    rope_default(r->out, r->theta, n_dims);
    if (r->in)
        return read_scaling(r) && limit_by_query_scale(r);
    if (r->out == &r->s->rope)
        default_scaling(r);
    return true;
}

/* Transformers 5 changed some defaults, so that a file without a theta means what the version that
 * wrote it computed. */
static double default_theta(const struct hf_config *c, const struct hf_arch *a)
{
    if (a->theta_v5 > 0 && is_v5(c))
        return a->theta_v5;
    return a->theta > 0 ? a->theta : 10000;
}

bool hf_read_rope(const struct hf_config *c, const struct hf_arch *a, struct model_spec *s)
{
    bool nested, local = false;
    double theta, theta_local;
    struct rope_reader r = {.c = c, .a = a, .s = s, .out = &s->rope};
    r.in = settings_for(c, "full_attention", &nested);
    if (!r.in && strcmp(a->type, "ministral3") == 0)
        return hf_err(c, ERR_INVALID, "rope_parameters is missing");
    if (!hf_num(c, c->model, "rope_theta", 1e-3, 1e15, default_theta(c, a), &theta) ||
        !read_one(&r, theta))
        return false;
    for (int i = 0; i < s->n_layers; i++)
        local = local || (s->layers[i] & LAYER_ROPE_LOCAL);
    if (!local)
        return true;
    const bool gemma = a->plus_one;
    r.in = nested ? settings_for(c, "sliding_attention", &nested) : NULL;
    r.out = &s->rope_local;
    return hf_num(c, c->model, "rope_local_base_freq", 1e-3, 1e15, gemma ? 10000 : r.theta,
                  &theta_local) &&
           read_one(&r, theta_local);
}
