#include "hf_unread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ends_in.h"
#include "log.h"
#include "weights_hf.h"

/* --- what is read --- */

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool bias_is_read(const struct model_spec *s, const char *part)
{
    static const char *const qkv[] = {"attn_q", "attn_k", "attn_v"};
    for (int i = 0; i < 3; i++)
        if (strcmp(part, qkv[i]) == 0)
            return s->qkv_bias;
    return strcmp(part, "attn_output") == 0    ? s->o_bias
           : strcmp(part, "ffn_gate_inp") == 0 ? s->router_bias
           : strcmp(part, "output") == 0       ? s->out_bias
           : strstr(part, "_exps")             ? s->expert_bias
           : strstr(part, "_shexp")            ? false
           : strstr(part, "norm")              ? s->norm_bias
                                               : s->mlp_bias;
}

static bool weight_is_read(const struct model_spec *s, int layer, const char *part)
{
    const bool experts = layer >= 0 && model_spec_has_experts(s, layer);
    if (strcmp(part, "output") == 0)
        return !s->tied_embeddings;
    if (starts_with(part, "attn_q_norm") || starts_with(part, "attn_k_norm"))
        return s->qk_norm;
    if (strcmp(part, "attn_norm") == 0)
        return s->pre_norms;
    if (strcmp(part, "ffn_norm") == 0)
        return s->pre_norms && !s->parallel;
    if (starts_with(part, "post_"))
        return s->post_norms;
    if (starts_with(part, "attn_sinks"))
        return s->attention_sinks;
    if (strcmp(part, "ffn_gate_inp_shexp") == 0)
        return experts && s->n_ff_shared > 0 && s->shared_gate;
    if (strstr(part, "_shexp"))
        return experts && s->n_ff_shared > 0;
    if (strstr(part, "_exps") || strcmp(part, "ffn_gate_inp") == 0)
        return experts;
    if (strcmp(part, "ffn_gate") == 0)
        return !experts && s->gated;
    return !starts_with(part, "ffn_") || !experts;
}

enum use { UNKNOWN, READ, NOT_CONFIGURED };

struct marks {
    const struct hf_names *names;
    const struct model_spec *s;
    unsigned char *of; /* [hf_shards_n] enum use */
};

static void mark(struct marks *m, const struct st_tensor *t, bool read)
{
    unsigned char *use = &m->of[hf_shards_index(m->names->shards, t)];
    if (*use != READ)
        *use = read ? READ : NOT_CONFIGURED;
}

static void mark_source(struct marks *m, const struct hf_source *src, bool read)
{
    mark(m, src->t, read);
    const struct st_tensor *const beside[] = {src->scales, src->packed.scales, src->packed.zeros,
                                              src->packed.g_idx};
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        if (beside[i])
            mark(m, beside[i], read);
    if (src->layout != HF_HEADS)
        return;
    const struct st_tensor *t;
    for (int i = 1; (t = hf_source_head(m->names, src, i)); i++)
        mark(m, t, read);
}

static void mark_part(struct marks *m, int layer, const char *part)
{
    struct hf_source src;
    char name[96];
    const bool given = strchr(part, '.'); /* with its suffix */
    for (int bias = 0; bias < 2; bias++) {
        const char *suffix = given ? "" : bias ? ".bias" : ".weight";
        if (layer >= 0)
            snprintf(name, sizeof name, "blk.%d.%s%s", layer, part, suffix);
        else
            snprintf(name, sizeof name, "%s%s", part, suffix);
        const bool is_bias = strstr(name, ".bias");
        const bool read =
            weight_is_read(m->s, layer, part) && (!is_bias || bias_is_read(m->s, part));
        for (int x = 0; x < (strstr(part, "_exps") ? m->s->n_experts : 1); x++)
            if (hf_source_find(m->names, name, x, &src))
                mark_source(m, &src, read);
    }
}

/* --- what is not --- */

static bool is_vision(const char *name)
{
    static const char *const starts[] = {"vision_tower.", "multi_modal_projector.",
                                         "model.vision_tower.", "model.multi_modal_projector."};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (starts_with(name, starts[i]))
            return true;
    return false;
}

/* Tables that are made from config.json, and scales of activations and caches in eight bits, which
 * are not of eight bits here. */
static bool is_table(const char *name)
{
    static const char *const ends[] = {
        "rotary_emb.inv_freq", ".masked_bias", ".input_scale",   ".k_scale", ".v_scale",
        ".kv_scale",           ".q_scale",     ".input_scale_ub"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_in(name, ends[i]))
            return true;
    return false;
}

/* Values: of four bits there are two a byte, and scales are none. */
static uint64_t elems_of(const struct st_tensor *t)
{
    static const char *const beside[] = {"_scales", ".scales",       ".qzeros",
                                         ".g_idx",  ".weight_scale", ".weight_scale_inv"};
    const uint64_t n = (uint64_t)st_tensor_elems(t);
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        if (ends_in(t->name, beside[i]))
            return 0;
    return ends_in(t->name, "_blocks") || ends_in(t->name, ".qweight") ? 2 * t->bytes : n;
}

/* Some converters give every layer a bias. */
static bool is_zero(const struct st_tensor *t)
{
    const char *bytes = t->data;
    for (uint64_t i = 0; i < t->bytes; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

static bool judge(const struct marks *m, const char *dir, uint64_t *elems, struct err *e)
{
    size_t n_vision = 0, n_biases = 0;
    for (size_t i = 0; i < hf_shards_n(m->names->shards); i++) {
        const struct st_tensor *t = hf_shards_at(m->names->shards, i);
        if (m->of[i] == READ) {
            *elems += elems_of(t);
        } else if (is_vision(t->name))
            n_vision++;
        else if (m->of[i] == NOT_CONFIGURED && ends_in(t->name, "bias") && is_zero(t))
            n_biases++;
        else if (!is_table(t->name) && !(m->of[i] == NOT_CONFIGURED && strstr(t->name, "lm_head.")))
            return err_set(e, ERR_UNSUPPORTED,
                           "%s: tensor \"%s\" is not part of a %s model as config.json describes "
                           "it",
                           dir, hf_show(t->name).text, m->names->arch->type);
    }
    if (n_vision)
        log_info("%s: its vision part (%zu tensors) is left aside: text only", dir, n_vision);
    if (n_biases)
        log_info("%s: %zu biases that config.json does not speak of are all zero: not read", dir,
                 n_biases);
    return true;
}

bool hf_count_read(const struct hf_names *names, const struct model_spec *s, const char *dir,
                   uint64_t *elems, struct err *e)
{
    struct marks m = {names, s, calloc(hf_shards_n(names->shards) + 1, 1)};
    const char *part;
    bool in_layer;
    if (!m.of)
        return err_set(e, ERR_MEMORY, "no memory for the tensors' names");
    *elems = 0;
    for (size_t i = 0; (part = hf_part_at(i, &in_layer)); i++)
        for (int layer = in_layer ? 0 : -1; layer < (in_layer ? s->n_layers : 0); layer++)
            mark_part(&m, layer, part);
    bool ok = judge(&m, dir, elems, e);
    free(m.of);
    return ok;
}

bool hf_find_embedding(const struct hf_shards *s, char prefix[64], int64_t *rows, struct err *e)
{
    static const char *const prefixes[] = {"model.", "language_model.model.",
                                           "model.language_model.", ""};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        char name[96];
        snprintf(name, sizeof name, "%sembed_tokens.weight", prefixes[i]);
        const struct st_tensor *t = hf_shards_find(s, name);
        if (!t)
            continue;
        snprintf(prefix, 64, "%s", prefixes[i]);
        *rows = t->n_dims == 2 ? t->dims[0] : 0;
        return true;
    }
    return err_set(e, ERR_NOT_FOUND, "no tensor model.embed_tokens.weight: not a text model");
}
