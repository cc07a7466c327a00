#include "plan_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "hf_quant.h"
#include "hf_shards.h"
#include "hf_spec.h"
#include "model.h"
#include "model_file.h"
#include "model_path.h"
#include "weights_imagined.h"
#include "weights_quantised.h"

enum { MAX_CONFIG = 4 << 20 };

/* Llama 2 (Touvron et al. 2023), as their config.json says. */
static const struct {
    const char *name;
    int n_embd, n_ff, n_layers, n_heads, n_kv_heads;
} built_in[] = {
    {"llama-2-7b", 4096, 11008, 32, 32, 32},
    {"llama-2-13b", 5120, 13824, 40, 40, 40},
    {"llama-2-70b", 8192, 28672, 80, 64, 8},
};

static json_t *built_in_config(const char *name)
{
    for (size_t i = 0; i < sizeof built_in / sizeof *built_in; i++)
        if (strcasecmp(built_in[i].name, name) == 0)
            return json_pack(
                "{s:[s], s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:b, s:s}", "architectures",
                "LlamaForCausalLM", "model_type", "llama", "hidden_size", built_in[i].n_embd,
                "intermediate_size", built_in[i].n_ff, "num_hidden_layers", built_in[i].n_layers,
                "num_attention_heads", built_in[i].n_heads, "num_key_value_heads",
                built_in[i].n_kv_heads, "vocab_size", 32000, "max_position_embeddings", 4096,
                "rms_norm_eps", 1e-5, "tie_word_embeddings", 0, "torch_dtype", "float16");
    return NULL;
}

/* --- counting --- */

static uint64_t expert_params(const struct model_spec *s)
{
    uint64_t n = 0;
    for (int i = 0; i < s->n_layers; i++)
        if (model_spec_has_experts(s, i))
            n += (uint64_t)(s->gated ? 3 : 2) * (uint64_t)s->n_experts * (uint64_t)s->n_embd *
                 (uint64_t)s->n_ff_expert;
    return n;
}

/* Bytes of a layer's experts, all being of the first one's types; w has been checked. */
static uint64_t expert_bytes(const struct weights *w, const struct model_spec *s, int layer)
{
    static const char *const parts[] = {"gate", "up", "down"};
    uint64_t n = 0;
    for (int k = 0; k < 3; k++) {
        const bool down = k == 2;
        const int64_t rows = down ? s->n_embd : s->n_ff_expert;
        const int64_t cols = down ? s->n_ff_expert : s->n_embd;
        char name[64];
        struct weight_view v;
        snprintf(name, sizeof name, "blk.%d.ffn_%s_exps.weight", layer, parts[k]);
        if (weights_check(w, name, 0, rows, cols, &v, NULL))
            n += (uint64_t)rows * dtype_row_bytes(v.dtype, cols) * (uint64_t)s->n_experts;
    }
    return n;
}

static void count_active(struct plan_model *m)
{
    const struct model_spec *s = &m->spec;
    const uint64_t experts = expert_params(s);
    const uint64_t table = s->tied_embeddings ? 0 : (uint64_t)s->n_vocab * (uint64_t)s->n_embd;
    uint64_t used = 0;
    if (s->n_experts > 0)
        used = experts / (uint64_t)s->n_experts * (uint64_t)s->n_experts_used;
    m->active_params = s->n_params - experts - table + used;
}

/* By the walk that loads a model, so that nothing is forgotten. */
static bool count_params(struct model_spec *s, struct err *e)
{
    static const struct imagined_types floats = {DTYPE_F32, DTYPE_F32, DTYPE_F32};
    struct weights *w = weights_open_imagined(&floats, e);
    const bool ok = w && model_check(w, s, &s->n_params, NULL, e);
    weights_close(w);
    s->n_params /= sizeof(float);
    return ok;
}

static bool count_bytes(struct plan_model *m, const struct weights *w, struct err *e)
{
    if (!model_check(w, &m->spec, &m->weight_bytes, NULL, e))
        return false;
    for (int i = 0; i < m->spec.n_layers; i++)
        if (model_spec_has_experts(&m->spec, i))
            m->expert_bytes += expert_bytes(w, &m->spec, i);
    return true;
}

static bool count(struct plan_model *m, const struct weights *w, enum dtype quantise, struct err *e)
{
    if (!count_params(&m->spec, e))
        return false;
    count_active(m);
    if (quantise == DTYPE_COUNT)
        return count_bytes(m, w, e);
    struct weights *quantised = weights_open_quantised(w, quantise, NULL, e);
    const bool ok = quantised && count_bytes(m, quantised, e);
    weights_close(quantised);
    m->is_quantised = true;
    return ok;
}

/* --- from a configuration --- */

static enum dtype plain_type(const char *name)
{
    return strcmp(name, "float32") == 0    ? DTYPE_F32
           : strcmp(name, "bfloat16") == 0 ? DTYPE_BF16
                                           : DTYPE_F16;
}

/* What the loader makes of a checkpoint that is so quantised. */
static struct imagined_types types_of(const struct hf_quant *q, enum dtype plain)
{
    switch (q->kind) {
    case HF_QUANT_MXFP4:
        return (struct imagined_types){plain, DTYPE_MXFP4, plain};
    case HF_QUANT_INT4:
        return (struct imagined_types){DTYPE_Q4_Z, DTYPE_Q4_Z, plain};
    case HF_QUANT_FP8:
        return (struct imagined_types){DTYPE_F16, DTYPE_F16, plain};
    case HF_QUANT_NONE:
        break;
    }
    return (struct imagined_types){plain, plain, plain};
}

static bool read_config(const json_t *json, const char *path, enum dtype quantise,
                        struct plan_model *m, struct err *e)
{
    struct hf_config c = {file_map_shown(path), json, json, e};
    struct hf_quant quant;
    const char *type, *newer;
    const json_t *text = hf_get(json, "text_config");
    if (json_is_object(text))
        c.model = text;
    const struct hf_arch *a = hf_arch_of(&c);
    if (!a || !hf_quant_read(&c, a, &quant) || !hf_spec_read(&c, a, -1, &m->spec) ||
        !hf_text(&c, c.top, "torch_dtype", "float16", &type) ||
        !hf_text(&c, c.top, "dtype", type, &newer))
        return false;
    m->plain = plain_type(newer);
    m->is_quantised = quant.kind == HF_QUANT_MXFP4 || quant.kind == HF_QUANT_INT4;
    const struct imagined_types types = types_of(&quant, m->plain);
    struct weights *w = weights_open_imagined(&types, e);
    const bool ok = w && count(m, w, quantise, e);
    weights_close(w);
    return ok;
}

static bool read_config_file(const char *path, enum dtype quantise, struct plan_model *m,
                             struct err *e)
{
    json_t *json = json_file_read(path, MAX_CONFIG, e);
    const bool ok = json && read_config(json, path, quantise, m, e);
    json_decref(json);
    return ok;
}

/* --- from files --- */

/* A directory with config.json and without weights */
static bool has_only_config(const char *dir, char config[4096])
{
    struct stat st;
    struct err why;
    if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode) ||
        snprintf(config, 4096, "%s/config.json", dir) >= 4096 || stat(config, &st) != 0)
        return false;
    struct hf_shards *shards = hf_shards_open(dir, &why);
    hf_shards_close(shards);
    return !shards && why.code == ERR_NOT_FOUND;
}

static void note_type(void *arg, const char *type, uint64_t bytes)
{
    struct plan_model *m = arg;
    enum dtype t;
    if (!dtype_from_name(type, &t) || dtype_info(t)->block_elems > 1)
        m->is_quantised |= bytes > 0;
    else if (t == DTYPE_BF16 || t == DTYPE_F16)
        m->plain = t;
}

static bool read_files(const char *path, enum dtype quantise, struct plan_model *m, struct err *e)
{
    struct model_file *f = model_file_open(path, e);
    const struct model_spec *s = f ? model_file_spec(f, e) : NULL;
    const struct weights *w = s ? model_file_weights(f, e) : NULL;
    if (w) {
        m->spec = *s;
        m->plain = DTYPE_F32;
        model_file_each_tensor(f, note_type, m);
    }
    const bool ok = w && count(m, w, quantise, e);
    model_file_close(f);
    return ok;
}

bool plan_model_read(const char *model, enum dtype quantise, struct plan_model *out, struct err *e)
{
    char config[4096];
    struct stat st;
    *out = (struct plan_model){0};
    json_t *json = stat(model, &st) == 0 ? NULL : built_in_config(model);
    if (json) {
        const bool ok = read_config(json, model, quantise, out, e);
        snprintf(out->spec.name, sizeof out->spec.name, "%s", model);
        json_decref(json);
        return ok;
    }
    const size_t n = strlen(model);
    if (n > 5 && strcmp(model + n - 5, ".json") == 0)
        return read_config_file(model, quantise, out, e);
    char *path = model_path_find(model, e);
    const bool ok =
        path && (has_only_config(path, config) ? read_config_file(config, quantise, out, e)
                                               : read_files(path, quantise, out, e));
    free(path);
    return ok;
}
