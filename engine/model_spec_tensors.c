#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_spec_read.h"

/* What a layer is made of: blk.N.PART. */
enum part {
    ATTN_NORM,
    ATTN_NORM_BIAS,
    Q,
    K,
    V,
    O,
    Q_NORM,
    K_NORM,
    SINKS,
    POST_ATTN_NORM,
    FFN_NORM,
    FFN_NORM_BIAS,
    GATE,
    UP,
    DOWN,
    POST_FFN_NORM,
    ROUTER,
    ROUTER_BIAS,
    GATE_EXPS,
    UP_EXPS,
    DOWN_EXPS,
    GATE_EXPS_BIAS,
    UP_EXPS_BIAS,
    DOWN_EXPS_BIAS,
    GATE_SHARED,
    UP_SHARED,
    DOWN_SHARED,
    SHARED_GATE,
    /* Of some models: all of a group, in all layers that can have it, or none */
    Q_BIAS,
    K_BIAS,
    V_BIAS,
    O_BIAS,
    GATE_BIAS,
    UP_BIAS,
    DOWN_BIAS,
    N_PARTS,
    /* Several in one tensor */
    QKV,
    QKV_BIAS,
    NO_PART = -1
};

static const struct {
    const char *name;
    enum part part;
} names[] = {
    {"attn_norm.weight", ATTN_NORM},
    {"attn_norm.bias", ATTN_NORM_BIAS},
    {"attn_q.weight", Q},
    {"attn_k.weight", K},
    {"attn_v.weight", V},
    {"attn_output.weight", O},
    {"attn_q_norm.weight", Q_NORM},
    {"attn_k_norm.weight", K_NORM},
    {"attn_sinks.weight", SINKS},
    {"post_attention_norm.weight", POST_ATTN_NORM},
    {"ffn_norm.weight", FFN_NORM},
    {"ffn_norm.bias", FFN_NORM_BIAS},
    {"ffn_gate.weight", GATE},
    {"ffn_up.weight", UP},
    {"ffn_down.weight", DOWN},
    {"post_ffw_norm.weight", POST_FFN_NORM},
    {"ffn_gate_inp.weight", ROUTER},
    {"ffn_gate_inp.bias", ROUTER_BIAS},
    {"ffn_gate_exps.weight", GATE_EXPS},
    {"ffn_up_exps.weight", UP_EXPS},
    {"ffn_down_exps.weight", DOWN_EXPS},
    {"ffn_gate_exps.bias", GATE_EXPS_BIAS},
    {"ffn_up_exps.bias", UP_EXPS_BIAS},
    {"ffn_down_exps.bias", DOWN_EXPS_BIAS},
    {"ffn_gate_shexp.weight", GATE_SHARED},
    {"ffn_up_shexp.weight", UP_SHARED},
    {"ffn_down_shexp.weight", DOWN_SHARED},
    {"ffn_gate_inp_shexp.weight", SHARED_GATE},
    {"attn_q.bias", Q_BIAS},
    {"attn_k.bias", K_BIAS},
    {"attn_v.bias", V_BIAS},
    {"attn_output.bias", O_BIAS},
    {"ffn_gate.bias", GATE_BIAS},
    {"ffn_up.bias", UP_BIAS},
    {"ffn_down.bias", DOWN_BIAS},
    {"attn_qkv.weight", QKV},
    {"attn_qkv.bias", QKV_BIAS},
    /* Older converters: a tensor for each expert */
    {"ffn_gate.*.weight", GATE_EXPS},
    {"ffn_up.*.weight", UP_EXPS},
    {"ffn_down.*.weight", DOWN_EXPS},
};
enum { N_NAMES = sizeof names / sizeof *names };

typedef uint64_t part_set; /* a bit a part */
_Static_assert(N_PARTS <= 64, "a bit each");

#define SET(part) ((part_set)1 << (part))
static const part_set QKV_SET = SET(Q) | SET(K) | SET(V);
static const part_set QKV_BIASES = SET(Q_BIAS) | SET(K_BIAS) | SET(V_BIAS);
static const part_set EXPERTS = SET(ROUTER) | SET(GATE_EXPS) | SET(UP_EXPS) | SET(DOWN_EXPS);
static const part_set EXPERT_BIASES = SET(GATE_EXPS_BIAS) | SET(UP_EXPS_BIAS) | SET(DOWN_EXPS_BIAS);
static const part_set SHARED = SET(GATE_SHARED) | SET(UP_SHARED) | SET(DOWN_SHARED);

/* A name of this part, for messages. */
static const char *part_name(enum part p)
{
    for (int i = 0; i < N_NAMES; i++)
        if (names[i].part == p)
            return names[i].name;
    return "?";
}

static part_set mlp_biases(const struct model_spec *s)
{
    return (s->gated ? SET(GATE_BIAS) : 0) | SET(UP_BIAS) | SET(DOWN_BIAS);
}

static part_set required_of_mlp(const struct model_spec *s, int layer)
{
    if (!model_spec_has_experts(s, layer))
        return (s->gated ? SET(GATE) : 0) | SET(UP) | SET(DOWN);
    return EXPERTS | (s->router_bias ? SET(ROUTER_BIAS) : 0) |
           (s->expert_bias ? EXPERT_BIASES : 0) | (s->n_ff_shared > 0 ? SHARED : 0) |
           (s->n_ff_shared > 0 && s->shared_gate ? SET(SHARED_GATE) : 0);
}

static part_set required(const struct model_spec *s, int layer)
{
    part_set set = QKV_SET | SET(O) | required_of_mlp(s, layer);
    if (s->pre_norms)
        set |= SET(ATTN_NORM) | (s->norm_bias ? SET(ATTN_NORM_BIAS) : 0);
    if (s->pre_norms && !s->parallel)
        set |= SET(FFN_NORM) | (s->norm_bias ? SET(FFN_NORM_BIAS) : 0);
    if (s->post_norms)
        set |= SET(POST_ATTN_NORM) | SET(POST_FFN_NORM);
    if (s->qk_norm)
        set |= SET(Q_NORM) | SET(K_NORM);
    return set | (s->attention_sinks ? SET(SINKS) : 0);
}

static part_set optional(const struct model_spec *s, int layer)
{
    return QKV_BIASES | SET(O_BIAS) | (model_spec_has_experts(s, layer) ? 0 : mlp_biases(s));
}

/* --- from tensors to parts --- */

/* "12.attn_q.weight" gives 12 and leaves "attn_q.weight"; -1: no number and dot. */
static int cut_number(struct gguf_str *name)
{
    size_t at = 0;
    int n = 0;
    while (at < name->len && at < 4 && name->data[at] >= '0' && name->data[at] <= '9')
        n = n * 10 + (name->data[at++] - '0');
    const bool leading_zero = at > 1 && name->data[0] == '0';
    if (at == 0 || at == name->len || leading_zero || name->data[at] != '.')
        return -1;
    *name = (struct gguf_str){name->data + at + 1, name->len - at - 1};
    return n;
}

static bool cut_start(struct gguf_str *name, const char *start, size_t n)
{
    if (name->len < n || memcmp(name->data, start, n) != 0)
        return false;
    *name = (struct gguf_str){name->data + n, name->len - n};
    return true;
}

/* Is this the name, in which "*" stands for an expert's number? */
static bool matches(struct gguf_str name, const char *known, int n_experts)
{
    const char *star = strchr(known, '*');
    if (!star)
        return gguf_str_is(name, known);
    if (!cut_start(&name, known, (size_t)(star - known)))
        return false;
    const int expert = cut_number(&name);
    return expert >= 0 && expert < n_experts && gguf_str_is(name, star + 2);
}

/* "blk.12.attn_q.weight" gives layer 12 and its part; NO_PART for any other name, or a layer that
 * the model does not have. */
static enum part part_of(const struct model_spec *s, struct gguf_str name, int *layer)
{
    if (!cut_start(&name, "blk.", 4) || (*layer = cut_number(&name)) < 0 || *layer >= s->n_layers)
        return NO_PART;
    for (int i = 0; i < N_NAMES; i++)
        if (matches(name, names[i].name, s->n_experts))
            return names[i].part;
    return NO_PART;
}

/* The parts that a tensor holds. One called up may hold gate and up; gpt-oss calls the norm
 * before its experts the one behind attention. */
static part_set parts_in(const struct spec_reader *r, const struct gguf_tensor *t, enum part p,
                         int layer)
{
    const struct model_spec *s = r->s;
    const int64_t n_out = p == UP_BIAS ? t->dims[0] : t->dims[1];
    switch (p) {
    case NO_PART:
        return 0;
    case QKV:
        return QKV_SET;
    case QKV_BIAS:
        return QKV_BIASES;
    case UP:
    case UP_BIAS:
        if (s->gated && n_out == 2 * (int64_t)s->n_ff)
            return p == UP ? SET(GATE) | SET(UP) : SET(GATE_BIAS) | SET(UP_BIAS);
        return SET(p);
    case POST_ATTN_NORM:
        if (!s->post_norms && s->pre_norms && !spec_layer_tensor(r, layer, "ffn_norm.weight"))
            return SET(FFN_NORM);
        return SET(p);
    default:
        return SET(p);
    }
}

static bool is_outside_layers(const struct model_spec *s, struct gguf_str name)
{
    static const char *const all[] = {"token_embd.weight",
                                      "output_norm.weight",
                                      "output.weight",
                                      "output.bias",
                                      "rope_freqs.weight",
                                      "rope_factors_long.weight",
                                      "rope_factors_short.weight"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (gguf_str_is(name, all[i]))
            return true;
    return s->norm_bias && gguf_str_is(name, "output_norm.bias");
}

/* A tensor that the forward pass would not read is a feature that it does not have. */
static bool take_tensor(const struct spec_reader *r, const struct gguf_tensor *t, part_set *have)
{
    int layer = 0;
    const enum part p = part_of(r->s, t->name, &layer);
    const part_set set = parts_in(r, t, p, layer);
    const bool used = set && !(set & ~(required(r->s, layer) | optional(r->s, layer)));
    if (used && (have[layer] & set & ~EXPERTS)) /* those may be in a tensor each */
        return gguf_err(r->g, r->e, ERR_INVALID, "tensor %s has what another one has, too",
                        gguf_show(t->name).text);
    if (used)
        have[layer] |= set;
    if (used || is_outside_layers(r->s, t->name))
        return true;
    return gguf_err(r->g, r->e, ERR_UNSUPPORTED,
                    "tensor \"%s\" is not part of a model of this architecture that is supported",
                    gguf_show(t->name).text);
}

/* --- what is missing --- */

static bool missing(const struct spec_reader *r, const part_set *have, int layer, enum part p)
{
    int count = 0;
    for (int i = 0; i < r->s->n_layers; i++)
        count += (have[i] & SET(p)) != 0;
    return gguf_err(r->g, r->e, ERR_NOT_FOUND,
                    "tensor blk.%d.%s is missing; %d of the %d layers have it", layer, part_name(p),
                    count, r->s->n_layers);
}

static bool check_set(const struct spec_reader *r, const part_set *have, int layer, part_set set)
{
    for (int p = 0; p < N_PARTS; p++)
        if ((set & SET(p)) && !(have[layer] & SET(p)))
            return missing(r, have, layer, (enum part)p);
    return true;
}

/* Biases that the forward pass adds together: in every layer that can have them, all or none. */
static bool check_biases(const struct spec_reader *r, const part_set *have, part_set group,
                         bool *present)
{
    part_set any = 0;
    for (int i = 0; i < r->s->n_layers; i++)
        any |= have[i] & group;
    *present = any;
    if (!any)
        return true;
    for (int p = 0, with = -1; p < N_PARTS; p++)
        if (any & SET(p))
            with = p;
        else if ((group & SET(p)) && (with >= 0 || any >> p))
            return gguf_err(
                r->g, r->e, ERR_UNSUPPORTED,
                "layers have %s without %s; only both or none are supported",
                part_name(with >= 0 ? (enum part)with : (enum part)__builtin_ctzll(any)),
                part_name((enum part)p));
    for (int i = 0; i < r->s->n_layers; i++)
        if (!check_set(r, have, i, group & optional(r->s, i)))
            return false;
    return true;
}

static bool check_complete(const struct spec_reader *r, const part_set *have)
{
    struct model_spec *s = r->s;
    for (int i = 0; i < s->n_layers; i++)
        if (!check_set(r, have, i, required(s, i)))
            return false;
    return check_biases(r, have, QKV_BIASES, &s->qkv_bias) &&
           check_biases(r, have, SET(O_BIAS), &s->o_bias) &&
           check_biases(r, have, mlp_biases(s), &s->mlp_bias);
}

bool spec_read_tensors(const struct spec_reader *r)
{
    part_set have[MODEL_MAX_LAYERS] = {0};
    struct model_spec *s = r->s;
    if (r->a->qk_norm == MAYBE)
        s->qk_norm = spec_layer_tensor(r, 0, "attn_q_norm.weight");
    s->out_bias = gguf_find_tensor(r->g, "output.bias");
    if (s->norm_bias && !gguf_find_tensor(r->g, "output_norm.bias"))
        return gguf_err(r->g, r->e, ERR_NOT_FOUND, "tensor output_norm.bias is missing");
    s->n_params = 0;
    for (uint64_t i = 0; i < gguf_n_tensors(r->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(r->g, i);
        if (!take_tensor(r, t, have))
            return false;
        s->n_params += (uint64_t)(t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3]);
    }
    return check_complete(r, have);
}
