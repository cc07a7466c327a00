#include "hf_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Canonical names have ".weight" or ".bias" behind the part. So have the file's, unless the part
 * is given with it. '*' stands for the expert's (or head's) number. Parts that are given for an
 * architecture's row mean only that there; the first name that exists counts. */
struct part {
    const char *canonical, *name;
    enum hf_layout layout;
    int slot;
    const char *rows; /* NULL: any */
};

static const struct part in_layers[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_q", "self_attn.qkv_proj", HF_QKV, 0},
    {"attn_k", "self_attn.k_proj"},
    {"attn_k", "self_attn.qkv_proj", HF_QKV, 1},
    {"attn_v", "self_attn.v_proj"},
    {"attn_v", "self_attn.qkv_proj", HF_QKV, 2},
    {"attn_output", "self_attn.dense", .rows = "phi2"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_layernorm.norms.*", HF_HEADS, .rows = "stablelm"},
    {"attn_k_norm", "self_attn.k_layernorm.norms.*", HF_HEADS, .rows = "stablelm"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"attn_sinks.weight", "self_attn.sinks"},
    {"post_attention_norm", "post_attention_layernorm", .rows = "gemma2 gemma3 olmo2"},
    {"post_attention_norm", "post_self_attn_layernorm", .rows = "glm4"},
    {"ffn_norm", "pre_feedforward_layernorm", .rows = "gemma2 gemma3"},
    {"ffn_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_mlp_layernorm", .rows = "glm4"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    /* MLPs */
    {"ffn_up", "mlp.c_fc", .rows = "starcoder2"},
    {"ffn_down", "mlp.c_proj", .rows = "starcoder2"},
    {"ffn_up", "mlp.fc1", .rows = "phi2"},
    {"ffn_down", "mlp.fc2", .rows = "phi2"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_gate", "mlp.gate_up_proj", HF_HALVES, 0},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_up", "mlp.gate_up_proj", HF_HALVES, 1},
    {"ffn_down", "mlp.down_proj"},
    /* Experts */
    {"ffn_gate_inp", "mlp.router", .rows = "gpt-oss"},
    {"ffn_gate_exps.weight", "mlp.experts.gate_up_proj", HF_STACK_T_PAIRS, 0, "gpt-oss"},
    {"ffn_gate_exps.weight", "mlp.experts.gate_up_proj", HF_MXFP4_PAIRS, 0, "gpt-oss"},
    {"ffn_up_exps.weight", "mlp.experts.gate_up_proj", HF_STACK_T_PAIRS, 1, "gpt-oss"},
    {"ffn_up_exps.weight", "mlp.experts.gate_up_proj", HF_MXFP4_PAIRS, 1, "gpt-oss"},
    {"ffn_down_exps.weight", "mlp.experts.down_proj", HF_STACK_T, 0, "gpt-oss"},
    {"ffn_down_exps.weight", "mlp.experts.down_proj", HF_MXFP4, 0, "gpt-oss"},
    {"ffn_gate_exps.bias", "mlp.experts.gate_up_proj_bias", HF_PAIRS, 0, "gpt-oss"},
    {"ffn_up_exps.bias", "mlp.experts.gate_up_proj_bias", HF_PAIRS, 1, "gpt-oss"},
    {"ffn_down_exps.bias", "mlp.experts.down_proj_bias", HF_WHOLE, 0, "gpt-oss"},
    {"ffn_gate_inp", "block_sparse_moe.router.layer", .rows = "granitemoe"},
    {"ffn_gate_exps", "block_sparse_moe.input_linear", HF_STACK_HALVES, 0, "granitemoe"},
    {"ffn_up_exps", "block_sparse_moe.input_linear", HF_STACK_HALVES, 1, "granitemoe"},
    {"ffn_down_exps", "block_sparse_moe.output_linear", HF_STACK, 0, "granitemoe"},
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_inp", "block_sparse_moe.gate"},
    {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
    {"ffn_up_exps", "mlp.experts.*.up_proj"},
    {"ffn_down_exps", "mlp.experts.*.down_proj"},
    {"ffn_gate_exps", "block_sparse_moe.experts.*.w1"},
    {"ffn_up_exps", "block_sparse_moe.experts.*.w3"},
    {"ffn_down_exps", "block_sparse_moe.experts.*.w2"},
    {"ffn_gate_exps.weight", "mlp.experts.gate_up_proj", HF_STACK_HALVES, 0},
    {"ffn_up_exps.weight", "mlp.experts.gate_up_proj", HF_STACK_HALVES, 1},
    {"ffn_down_exps.weight", "mlp.experts.down_proj", HF_STACK},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
};
static const struct part outside[] = {
    {"token_embd", "embed_tokens"},
    {"output_norm", "final_layernorm", .rows = "phi2"},
    {"output_norm", "norm"},
    {"output", "lm_head"},
};
enum {
    N_IN_LAYERS = sizeof in_layers / sizeof *in_layers,
    N_OUTSIDE = sizeof outside / sizeof *outside,
};

const char *hf_part_at(size_t i, bool *in_layer)
{
    *in_layer = i < N_IN_LAYERS;
    return i < N_IN_LAYERS               ? in_layers[i].canonical
           : i < N_IN_LAYERS + N_OUTSIDE ? outside[i - N_IN_LAYERS].canonical
                                         : NULL;
}

/* "blk.3.attn_q.weight": layer 3 (or -1), "attn_q", ".weight" */
struct parsed {
    int layer;
    const char *part;
    size_t len;         /* of the part */
    const char *suffix; /* ".weight", ".bias" */
};

static bool parse(const char *name, struct parsed *p)
{
    char *end;
    p->layer = -1;
    p->part = name;
    if (strncmp(name, "blk.", 4) == 0) {
        p->layer = (int)strtol(name + 4, &end, 10);
        if (*end != '.')
            return false;
        p->part = end + 1;
    }
    p->suffix = strrchr(p->part, '.');
    p->len = p->suffix ? (size_t)(p->suffix - p->part) : 0;
    return p->suffix;
}

static bool is_for_row(const struct part *part, const char *row)
{
    const size_t n = strlen(row);
    for (const char *at = part->rows; at && (at = strstr(at, row)); at += n)
        if ((at == part->rows || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return false;
}

/* The part's name has the suffix. */
static bool is_exact(const struct part *part)
{
    return strchr(part->canonical, '.');
}

static bool means(const struct part *part, const struct parsed *p)
{
    if (is_exact(part))
        return strcmp(part->canonical, p->part) == 0;
    return strlen(part->canonical) == p->len && memcmp(part->canonical, p->part, p->len) == 0;
}

/* Puts the number where '*' is. */
static bool put_number(char out[HF_MAX_NAME], const char *name, int number)
{
    const char *star = strchr(name, '*');
    const int n =
        star ? snprintf(out, HF_MAX_NAME, "%.*s%d%s", (int)(star - name), name, number, star + 1)
             : snprintf(out, HF_MAX_NAME, "%s", name);
    return n > 0 && n < HF_MAX_NAME;
}

static const struct st_tensor *find_with(const struct hf_names *h, const char *name,
                                         const char *end)
{
    char full[HF_MAX_NAME];
    int n = snprintf(full, sizeof full, "%s%s", name, end);
    return n > 0 && n < HF_MAX_NAME ? hf_shards_find(h->shards, full) : NULL;
}

/* The tensors that stand for "...q_proj.weight" in a quantised checkpoint. */
static void look_up_packed(const struct hf_names *h, struct hf_source *out)
{
    char stem[HF_MAX_NAME];
    const size_t n = strlen(out->name), m = strlen("weight");
    struct hf_packed *p = &out->packed;
    if (n <= m || strcmp(out->name + n - m, "weight") != 0)
        return;
    snprintf(stem, sizeof stem, "%.*s", (int)(n - m), out->name);
    if (h->quant.kind == HF_QUANT_INT4 && (p->data = find_with(h, stem, "qweight"))) {
        p->scales = find_with(h, stem, "scales");
        p->zeros = find_with(h, stem, "qzeros");
        p->g_idx = find_with(h, stem, "g_idx");
        out->is_packed = p->zeros;
    } else if (h->quant.kind == HF_QUANT_FP8 && out->t && out->t->bits == 8) {
        p->data = out->t;
        p->scales = find_with(h, stem, "weight_scale_inv");
        if (!p->scales)
            p->scales = find_with(h, stem, "weight_scale");
        out->is_packed = p->scales;
    }
    if (out->is_packed)
        out->t = p->data;
}

static bool look_up(const struct hf_names *h, const struct part *part, const struct parsed *p,
                    int expert, struct hf_source *out)
{
    char layer[24] = "", name[HF_MAX_NAME];
    const char *prefix = strcmp(part->name, "lm_head") == 0 ? "" : h->prefix;
    if (p->layer >= 0)
        snprintf(layer, sizeof layer, "layers.%d.", p->layer);
    snprintf(out->name, sizeof out->name, "%s%s%s%s", prefix, layer, part->name,
             is_exact(part) ? "" : p->suffix);
    out->layout = part->layout;
    out->slot = part->slot;
    out->scales = NULL;
    out->is_packed = false;
    out->packed = (struct hf_packed){0};
    if (!put_number(name, out->name, expert > 0 ? expert : 0))
        return false;
    if (part->layout == HF_MXFP4 || part->layout == HF_MXFP4_PAIRS) {
        out->t = find_with(h, name, "_blocks");
        out->scales = find_with(h, name, "_scales");
        return out->t && out->scales;
    }
    if (part->layout != HF_HEADS)
        snprintf(out->name, sizeof out->name, "%s", name);
    out->t = hf_shards_find(h->shards, name);
    if (!out->t && prefix[0] == '\0' && strncmp(h->prefix, "language_model.", 15) == 0) {
        snprintf(out->name, sizeof out->name, "language_model.%s%s", part->name, p->suffix);
        out->t = hf_shards_find(h->shards, out->name);
    }
    if (part->layout != HF_HEADS)
        look_up_packed(h, out);
    return out->t;
}

bool hf_source_find(const struct hf_names *h, const char *canonical, int expert,
                    struct hf_source *out)
{
    struct parsed p;
    if (!parse(canonical, &p))
        return false;
    const struct part *parts = p.layer >= 0 ? in_layers : outside;
    const int n = p.layer >= 0 ? N_IN_LAYERS : N_OUTSIDE;
    bool own = false;
    for (int i = 0; i < n; i++)
        own = own || (means(&parts[i], &p) && is_for_row(&parts[i], h->arch->row));
    for (int i = 0; i < n; i++)
        if (means(&parts[i], &p) && (own ? is_for_row(&parts[i], h->arch->row) : !parts[i].rows) &&
            look_up(h, &parts[i], &p, expert, out))
            return true;
    return false;
}

const struct st_tensor *hf_source_head(const struct hf_names *h, const struct hf_source *s, int i)
{
    char name[HF_MAX_NAME];
    return put_number(name, s->name, i) ? hf_shards_find(h->shards, name) : NULL;
}
