#include <stdio.h>
#include <string.h>

#include "model_spec_read.h"

/* What a layer is made of: blk.N.PART. */
static const char *const parts[] = {
    "attn_norm.weight",
    "attn_q.weight",
    "attn_k.weight",
    "attn_v.weight",
    "attn_output.weight",
    "ffn_norm.weight",
    "ffn_gate.weight",
    "ffn_up.weight",
    "ffn_down.weight",
    /* of some architectures */
    "attn_q_norm.weight",
    "attn_k_norm.weight",
    "post_attention_norm.weight",
    "post_ffw_norm.weight",
    /* of some models */
    "attn_q.bias",
    "attn_k.bias",
    "attn_v.bias",
    "attn_output.bias",
    "ffn_gate.bias",
    "ffn_up.bias",
    "ffn_down.bias",
};
enum {
    QK_NORM = 9,
    POST_NORM = QK_NORM + 2,
    QKV_BIAS = POST_NORM + 2,
    O_BIAS = QKV_BIAS + 3,
    MLP_BIAS = O_BIAS + 1,
    N_PARTS = MLP_BIAS + 3,
};
_Static_assert(N_PARTS == sizeof parts / sizeof *parts, "every part has its place");

static const char *const outside_layers[] = {"token_embd.weight", "output_norm.weight",
                                             "output.weight", "rope_freqs.weight"};

static bool is_required(const struct model_spec *s, int part)
{
    return part < QK_NORM || (part < POST_NORM && s->qk_norm) ||
           (part >= POST_NORM && part < QKV_BIAS && s->post_norms);
}

/* "blk.12.attn_q.weight" gives the index of its part; -1 for any other name, or a layer that
 * the model does not have. */
static int layer_part(struct gguf_str name, int n_layers)
{
    size_t at = 4;
    int layer = 0;
    if (name.len < 4 || memcmp(name.data, "blk.", 4) != 0)
        return -1;
    while (at < name.len && at < 8 && name.data[at] >= '0' && name.data[at] <= '9')
        layer = layer * 10 + (name.data[at++] - '0');
    bool leading_zero = at > 5 && name.data[4] == '0';
    if (at == 4 || at == name.len || leading_zero || name.data[at] != '.' || layer >= n_layers)
        return -1;
    const struct gguf_str part = {name.data + at + 1, name.len - at - 1};
    for (int i = 0; i < N_PARTS; i++)
        if (gguf_str_is(part, parts[i]))
            return i;
    return -1;
}

/* A tensor that the forward pass would not read is a feature that it does not have. */
static bool check_used(const struct gguf *g, const struct model_spec *s,
                       const struct gguf_tensor *t, int part, struct err *e)
{
    if (part >= QKV_BIAS || (part >= 0 && is_required(s, part)))
        return true;
    for (size_t i = 0; i < sizeof outside_layers / sizeof *outside_layers; i++)
        if (gguf_str_is(t->name, outside_layers[i]))
            return true;
    return gguf_err(g, e, ERR_UNSUPPORTED,
                    "tensor \"%s\" is not part of a model of this architecture that is supported",
                    gguf_show(t->name).text);
}

/* In all layers, or, if not required, in none. */
static bool check_complete(const struct gguf *g, const struct model_spec *s, int part, int count,
                           struct err *e)
{
    if (count == s->n_layers || (count == 0 && !is_required(s, part)))
        return true;
    for (int i = 0; i < s->n_layers; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s", i, parts[part]);
        if (!gguf_find_tensor(g, name))
            return gguf_err(g, e, ERR_NOT_FOUND,
                            "tensor %s is missing; %d of the %d layers have it", name, count,
                            s->n_layers);
    }
    return true;
}

/* Biases that the forward pass adds together: all of parts[first .. first + n) or none. */
static bool check_group(const struct gguf *g, const int *counts, int first, int n, bool *present,
                        struct err *e)
{
    *present = counts[first] > 0;
    for (int i = first + 1; i < first + n; i++)
        if ((counts[i] > 0) != *present)
            return gguf_err(g, e, ERR_UNSUPPORTED,
                            "layers have %s without %s; only both or none are supported",
                            parts[*present ? first : i], parts[*present ? i : first]);
    return true;
}

bool model_spec_read_tensors(const struct gguf *g, struct model_spec *s, struct err *e)
{
    int counts[N_PARTS] = {0};
    s->n_params = 0;
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        int part = layer_part(t->name, s->n_layers);
        if (!check_used(g, s, t, part, e))
            return false;
        if (part >= 0)
            counts[part]++;
        s->n_params += (uint64_t)(t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3]);
    }
    for (int i = 0; i < N_PARTS; i++)
        if (!check_complete(g, s, i, counts[i], e))
            return false;
    return check_group(g, counts, QKV_BIAS, 3, &s->qkv_bias, e) &&
           check_group(g, counts, O_BIAS, 1, &s->o_bias, e) &&
           check_group(g, counts, MLP_BIAS, 3, &s->mlp_bias, e);
}
