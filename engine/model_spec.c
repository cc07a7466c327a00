#include "model_spec.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model_spec_read.h"
#include "utf8.h"

/* Bounds of sizes. Their products fit: heads * head_dim in an int, and any two of
 * n_vocab, n_ff, n_embd and heads * head_dim in an int64_t with room for bytes. */
enum {
    MAX_EMBD = 1 << 17,
    MAX_FF = 1 << 20,
    MAX_HEADS = 4096,
    MAX_HEAD_DIM = 1024,
    MAX_VOCAB = 1 << 24,
    MAX_CTX = 1 << 24,
};
_Static_assert((int64_t)MAX_HEADS *MAX_HEAD_DIM <= INT_MAX, "heads * head_dim is an int");

/* What the files of an architecture do not say. */
struct architecture {
    const char *name;
    enum act_fn act;
    enum rope_style rope_style;
    bool qk_norm, post_norms;
    bool scales_embedding; /* by sqrt(n_embd) */
    int window_every;      /* unless a key says otherwise; 0: no windows */
    /* The models of so many layers scale scores by 1/sqrt(n_embd / n_heads). */
    int layers_scaled_by_width;
};

static const struct architecture architectures[] = {
    {.name = "llama", .act = ACT_SILU, .rope_style = ROPE_NORMAL},
    /* Norm weights lie in the file as 1 + w. The scale of scores is head_dim's but for the 27B. */
    {.name = "gemma3",
     .act = ACT_GELU_TANH,
     .rope_style = ROPE_NEOX,
     .qk_norm = true,
     .post_norms = true,
     .scales_embedding = true,
     .window_every = 6,
     .layers_scaled_by_width = 62},
};
enum { N_ARCHITECTURES = sizeof architectures / sizeof *architectures };

/* --- single values --- */

/* The name of an architecture's own key: "llama." and the rest. */
struct key_name {
    char text[96];
};
static struct key_name own_key(const struct model_spec *s, const char *rest)
{
    struct key_name k;
    snprintf(k.text, sizeof k.text, "%s.%s", s->architecture, rest);
    return k;
}

static bool check_range(const struct gguf *g, const char *key, uint32_t v, int least, int most,
                        struct err *e)
{
    if (v >= (uint32_t)least && v <= (uint32_t)most)
        return true;
    return gguf_err(g, e, ERR_INVALID, "key %s is %" PRIu32 ", expected %d to %d", key, v, least,
                    most);
}

/* An integer in [least, most]; dflt when absent, or an error when dflt < 0. */
static bool read_int(const struct gguf *g, const struct model_spec *s, const char *rest, int least,
                     int most, int dflt, int *out, struct err *e)
{
    struct key_name key = own_key(s, rest);
    uint32_t v;
    if (dflt >= 0 && !gguf_has(g, key.text)) {
        *out = dflt;
        return true;
    }
    if (gguf_is_array(g, key.text))
        return gguf_err(g, e, ERR_UNSUPPORTED,
                        "key %s is an array, a value for each layer, which is not supported",
                        key.text);
    if (!gguf_u32(g, key.text, &v, e) || !check_range(g, key.text, v, least, most, e))
        return false;
    *out = (int)v;
    return true;
}

/* A finite float above 0; dflt when absent, or an error when dflt is 0. */
static bool read_positive(const struct gguf *g, const struct model_spec *s, const char *rest,
                          float dflt, float *out, struct err *e)
{
    struct key_name key = own_key(s, rest);
    if (!(dflt > 0 ? gguf_f32_or(g, key.text, dflt, out, e) : gguf_f32(g, key.text, out, e)))
        return false;
    if (isfinite(*out) && *out > 0)
        return true;
    return gguf_err(g, e, ERR_INVALID, "key %s is %g, expected a number above 0", key.text,
                    (double)*out);
}

/* --- what kind of model --- */

static const struct architecture *read_architecture(const struct gguf *g, struct model_spec *s,
                                                    struct err *e)
{
    struct gguf_str name;
    char known[128] = "";
    if (!gguf_string(g, "general.architecture", &name, e))
        return NULL;
    for (size_t i = 0, at = 0; i < N_ARCHITECTURES; i++) {
        const struct architecture *a = &architectures[i];
        if (gguf_str_is(name, a->name)) {
            memcpy(s->architecture, name.data, name.len);
            s->act = a->act;
            s->rope_style = a->rope_style;
            s->qk_norm = a->qk_norm;
            s->post_norms = a->post_norms;
            return a;
        }
        at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", a->name);
    }
    gguf_err(g, e, ERR_UNSUPPORTED, "architecture \"%s\" is not supported; these are: %s",
             gguf_show(name).text, known);
    return NULL;
}

/* Only a whole model can be served: not an adapter, a projector or a part of a split file. */
static bool check_whole_model(const struct gguf *g, struct err *e)
{
    struct gguf_str type;
    uint32_t parts;
    if (gguf_has(g, "general.type")) {
        if (!gguf_string(g, "general.type", &type, e))
            return false;
        if (!gguf_str_is(type, "model"))
            return gguf_err(g, e, ERR_UNSUPPORTED, "general.type is \"%s\", expected \"model\"",
                            gguf_show(type).text);
    }
    if (!gguf_u32_or(g, "split.count", 1, &parts, e))
        return false;
    return gguf_is_whole(g) || gguf_err(g, e, ERR_UNSUPPORTED,
                                        "one of %" PRIu32 " files of a split model without the "
                                        "others",
                                        parts);
}

/* The name goes into answers and logs: valid UTF-8 without control characters. */
static void copy_name(struct model_spec *s, struct gguf_str name)
{
    size_t at = 0;
    for (size_t i = 0, len; i < name.len; i += len) {
        const char *c = name.data + i;
        len = (size_t)utf8_char(c, name.len - i);
        bool shown = len > 1 || (len == 1 && *c >= 0x20 && *c != 0x7F);
        if (at + (shown ? len : 1) >= sizeof s->name)
            break;
        memcpy(s->name + at, shown ? c : "?", shown ? len : 1);
        at += shown ? len : 1;
        len += len == 0;
    }
    s->name[at] = '\0';
}

static bool read_name(const struct gguf *g, struct model_spec *s, struct err *e)
{
    struct gguf_str name = {0};
    if (gguf_has(g, "general.name") && !gguf_string(g, "general.name", &name, e))
        return false;
    if (name.len == 0) {
        const char *slash = strrchr(gguf_path(g), '/');
        name.data = slash ? slash + 1 : gguf_path(g);
        name.len = strlen(name.data);
        if (name.len > 5 && memcmp(name.data + name.len - 5, ".gguf", 5) == 0)
            name.len -= 5;
    }
    copy_name(s, name);
    return true;
}

/* --- features that we do not compute --- */

static bool refuse_experts(const struct gguf *g, const struct model_spec *s, struct err *e)
{
    int n;
    if (!read_int(g, s, "expert_count", 0, INT_MAX, 0, &n, e))
        return false;
    if (n > 0)
        return gguf_err(g, e, ERR_UNSUPPORTED,
                        "a mixture of experts (%s is %d), which is not supported",
                        own_key(s, "expert_count").text, n);
    return true;
}

/* Factors that other models of the family use; anything but `neutral` changes the result. */
static bool refuse_factors(const struct gguf *g, const struct model_spec *s, struct err *e)
{
    static const struct {
        const char *rest;
        float neutral;
    } factors[] = {
        {"embedding_scale", 1},
        {"residual_scale", 1},
        {"logit_scale", 1},
        {"attn_logit_softcapping", 0},
        {"final_logit_softcapping", 0},
        {"attention.clamp_kqv", 0},
        {"attention.max_alibi_bias", 0},
        {"rope.scaling.attn_factor", 1},
    };
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        struct key_name key = own_key(s, factors[i].rest);
        float v;
        if (!gguf_f32_or(g, key.text, factors[i].neutral, &v, e))
            return false;
        if (v != factors[i].neutral)
            return gguf_err(g, e, ERR_UNSUPPORTED,
                            "key %s is %g, which is not supported (only %g, or none)", key.text,
                            (double)v, (double)factors[i].neutral);
    }
    return true;
}

static bool refuse_other_attention(const struct gguf *g, const struct model_spec *s, struct err *e)
{
    struct key_name causal = own_key(s, "attention.causal");
    bool is_causal;
    if (!gguf_bool_or(g, causal.text, true, &is_causal, e))
        return false;
    if (!is_causal)
        return gguf_err(g, e, ERR_UNSUPPORTED,
                        "key %s is false; attention to later tokens is not supported", causal.text);
    return true;
}

static bool refuse_window(const struct gguf *g, const struct model_spec *s, struct err *e)
{
    int window;
    if (!read_int(g, s, "attention.sliding_window", 0, INT_MAX, 0, &window, e))
        return false;
    if (window > 0 && window < s->n_ctx_train)
        return gguf_err(g, e, ERR_UNSUPPORTED,
                        "key %s is %d, which is not supported below the context length, %d",
                        own_key(s, "attention.sliding_window").text, window, s->n_ctx_train);
    return true;
}

/* --- sizes --- */

static bool read_vocab(const struct gguf *g, struct model_spec *s, struct err *e)
{
    const struct gguf_tensor *t = gguf_find_tensor(g, "token_embd.weight");
    uint64_t n_tokens;
    if (!t)
        return gguf_err(g, e, ERR_NOT_FOUND, "tensor token_embd.weight is missing");
    if (t->dims[1] > MAX_VOCAB)
        return gguf_err(g, e, ERR_LIMIT,
                        "tensor token_embd.weight has %" PRId64 " rows, at most %d are supported",
                        t->dims[1], MAX_VOCAB);
    s->n_vocab = (int)t->dims[1];
    s->tied_embeddings = !gguf_find_tensor(g, "output.weight");
    if (!gguf_array_len(g, "tokenizer.ggml.tokens", GGUF_STRING, &n_tokens, e))
        return false;
    if (n_tokens > (uint64_t)s->n_vocab)
        return gguf_err(g, e, ERR_INVALID,
                        "the tokenizer has %" PRIu64
                        " tokens, but token_embd.weight has only %d rows",
                        n_tokens, s->n_vocab);
    return true;
}

static bool read_heads(const struct gguf *g, struct model_spec *s, struct err *e)
{
    int value_dim;
    if (!read_int(g, s, "attention.head_count", 1, MAX_HEADS, -1, &s->n_heads, e) ||
        !read_int(g, s, "attention.head_count_kv", 1, MAX_HEADS, s->n_heads, &s->n_kv_heads, e))
        return false;
    if (s->n_heads % s->n_kv_heads != 0)
        return gguf_err(g, e, ERR_INVALID, "%d attention heads do not divide by %d key-value heads",
                        s->n_heads, s->n_kv_heads);
    bool has_dim = gguf_has(g, own_key(s, "attention.key_length").text);
    if (!has_dim && s->n_embd % s->n_heads != 0)
        return gguf_err(g, e, ERR_INVALID,
                        "an embedding of %d does not divide by %d heads, and key %s is missing",
                        s->n_embd, s->n_heads, own_key(s, "attention.key_length").text);
    int dflt = s->n_embd / s->n_heads;
    if (!read_int(g, s, "attention.key_length", 1, MAX_HEAD_DIM, dflt, &s->head_dim, e) ||
        !read_int(g, s, "attention.value_length", 1, MAX_HEAD_DIM, dflt, &value_dim, e))
        return false;
    if (value_dim != s->head_dim)
        return gguf_err(g, e, ERR_UNSUPPORTED,
                        "keys of %d and values of %d a head; different sizes are not supported",
                        s->head_dim, value_dim);
    if (s->head_dim < 2 || s->head_dim % 2 != 0 || s->head_dim > MAX_HEAD_DIM)
        return gguf_err(g, e, ERR_INVALID, "heads of %d, expected an even number from 2 to %d",
                        s->head_dim, MAX_HEAD_DIM);
    return true;
}

static bool read_windows(const struct gguf *g, const struct architecture *a, struct model_spec *s,
                         struct err *e)
{
    if (a->window_every == 0)
        return refuse_window(g, s, e);
    return read_int(g, s, "attention.sliding_window", 1, INT_MAX, -1, &s->window, e) &&
           read_int(g, s, "attention.sliding_window_pattern", 1, MODEL_MAX_LAYERS, a->window_every,
                    &s->window_every, e) &&
           read_positive(g, s, "rope.freq_base_swa", 10000, &s->rope_theta_windowed, e);
}

static bool read_scales(const struct gguf *g, const struct architecture *a, struct model_spec *s,
                        struct err *e)
{
    int dim = s->n_layers == a->layers_scaled_by_width ? s->n_embd / s->n_heads : s->head_dim;
    s->embedding_scale = a->scales_embedding ? sqrtf((float)s->n_embd) : 1.0f;
    return read_positive(g, s, "attention.scale", 1.0f / sqrtf((float)(dim > 0 ? dim : 1)),
                         &s->attention_scale, e);
}

static bool read_sizes(const struct gguf *g, struct model_spec *s, struct err *e)
{
    return read_vocab(g, s, e) &&
           read_int(g, s, "block_count", 1, MODEL_MAX_LAYERS, -1, &s->n_layers, e) &&
           read_int(g, s, "embedding_length", 1, MAX_EMBD, -1, &s->n_embd, e) &&
           read_int(g, s, "feed_forward_length", 1, MAX_FF, -1, &s->n_ff, e) &&
           read_int(g, s, "context_length", 1, MAX_CTX, -1, &s->n_ctx_train, e) &&
           read_heads(g, s, e) &&
           read_positive(g, s, "attention.layer_norm_rms_epsilon", 0, &s->norm_eps, e);
}

/* --- rotary embedding --- */

/* Linear scaling is what a factor means when no type is given, as in older files. */
static bool read_rope_scaling(const struct gguf *g, struct model_spec *s, struct err *e)
{
    struct key_name key = own_key(s, "rope.scaling.type");
    struct gguf_str type = {"linear", 6};
    const char *factor = "rope.scaling.factor";
    if (gguf_has(g, key.text) && !gguf_string(g, key.text, &type, e))
        return false;
    s->rope_linear_scale = 1;
    if (gguf_str_is(type, "none"))
        return true;
    if (!gguf_str_is(type, "linear"))
        return gguf_err(g, e, ERR_UNSUPPORTED,
                        "key %s is \"%s\", which is not supported; these are: none, linear",
                        key.text, gguf_show(type).text);
    if (!gguf_has(g, own_key(s, factor).text))
        factor = "rope.scale_linear";
    return read_positive(g, s, factor, 1, &s->rope_linear_scale, e);
}

static bool read_rope_factors(const struct gguf *g, struct model_spec *s, struct err *e)
{
    const char *name = "rope_freqs.weight";
    const int64_t dims[1] = {s->rope_dims / 2};
    s->rope_freq_factors = gguf_find_tensor(g, name);
    if (!s->rope_freq_factors)
        return true;
    const struct gguf_tensor *t = gguf_want_tensor(g, name, 1, dims, e);
    if (!t)
        return false;
    if (s->window > 0)
        return gguf_err(g, e, ERR_UNSUPPORTED,
                        "tensor %s in a model with windowed layers is not supported", name);
    if (t->dtype != DTYPE_F32)
        return gguf_err(g, e, ERR_UNSUPPORTED, "tensor %s is of type %s, expected F32", name,
                        t->type_name);
    for (int64_t i = 0; i < dims[0]; i++) {
        float f;
        memcpy(&f, (const char *)t->data + i * (int64_t)sizeof f, sizeof f);
        if (!isfinite(f) || f <= 0)
            return gguf_err(g, e, ERR_INVALID,
                            "tensor %s: value %" PRId64 " is %g, expected a number above 0", name,
                            i, (double)f);
    }
    return true;
}

static bool read_rope(const struct gguf *g, struct model_spec *s, struct err *e)
{
    if (!read_int(g, s, "rope.dimension_count", 2, s->head_dim, s->head_dim, &s->rope_dims, e) ||
        !read_positive(g, s, "rope.freq_base", 10000, &s->rope_theta, e))
        return false;
    if (s->rope_dims % 2 != 0)
        return gguf_err(g, e, ERR_INVALID, "key %s is %d, expected an even number",
                        own_key(s, "rope.dimension_count").text, s->rope_dims);
    return read_rope_scaling(g, s, e) && read_rope_factors(g, s, e);
}

bool model_spec_from_gguf(const struct gguf *g, struct model_spec *out, struct err *e)
{
    struct model_spec s = {0};
    const struct architecture *a;
    if (!check_whole_model(g, e) || !(a = read_architecture(g, &s, e)) || !read_name(g, &s, e) ||
        !refuse_experts(g, &s, e) || !refuse_factors(g, &s, e) ||
        !refuse_other_attention(g, &s, e) || !read_sizes(g, &s, e) || !read_windows(g, a, &s, e) ||
        !read_scales(g, a, &s, e) || !read_rope(g, &s, e) || !model_spec_read_tensors(g, &s, e) ||
        !model_spec_read_eos(g, &s, e))
        return false;
    *out = s;
    return true;
}
