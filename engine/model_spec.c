#include "model_spec.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model_spec_read.h"
#include "utf8.h"

/* --- what kind of model --- */

static const struct architecture *read_architecture(const struct gguf *g, struct err *e)
{
    struct gguf_str name;
    if (!gguf_string(g, "general.architecture", &name, e))
        return NULL;
    const struct architecture *a = architecture_find(name.data, name.len);
    if (a)
        return a;
    const char *why = architecture_refused(name.data, name.len);
    gguf_err(g, e, ERR_UNSUPPORTED, "architecture \"%s\"%s%s is not supported; these are: %s",
             gguf_show(name).text, why ? ", which has " : "", why ? why : "",
             architecture_names().text);
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

/* Factors that other models of the family use; anything but `neutral` changes the result. */
static bool refuse_factors(const struct spec_reader *r)
{
    const bool granite = r->a->logit_scale == SCALE_DIVIDES;
    const struct {
        const char *rest;
        float neutral;
        bool read; /* by spec_read_scales */
    } factors[] = {
        {"embedding_scale", 1, granite},
        {"residual_scale", 1, granite},
        {"logit_scale", 1, r->a->logit_scale != SCALE_NONE},
        {"attn_logit_softcapping", 0, r->a->soft_caps},
        {"final_logit_softcapping", 0, r->a->soft_caps},
        {"router_logit_softcapping", 0, false},
        {"attention.clamp_kqv", 0, false},
        {"attention.max_alibi_bias", 0, false},
        {"attention.temperature_scale", 0, false},
        {"attention.output_scale", 1, false},
        {"expert_weights_scale", 1, false},
        {"rope.scaling.yarn_ext_factor", 1, false},
        {"rope.scaling.yarn_log_multiplier", 0, false},
    };
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        const struct key_name key = spec_key(r, factors[i].rest);
        float v;
        if (factors[i].read)
            continue;
        if (!gguf_f32_or(r->g, key.text, factors[i].neutral, &v, r->e))
            return false;
        if (v != factors[i].neutral)
            return gguf_err(r->g, r->e, ERR_UNSUPPORTED,
                            "key %s is %g, which is not supported (only %g, or none)", key.text,
                            (double)v, (double)factors[i].neutral);
    }
    return true;
}

/* Numbers above which a model has what we do not compute. */
static bool refuse_counts(const struct spec_reader *r)
{
    static const struct {
        const char *rest;
        int most;
        const char *what;
    } counts[] = {
        {"attention.kv_lora_rank", 0, "multi-head latent attention (MLA)"},
        {"attention.q_lora_rank", 0, "multi-head latent attention (MLA)"},
        {"expert_group_count", 1, "groups of experts"},
        {"interleave_moe_layer_step", 1, "experts in some layers by a step"},
        {"nextn_predict_layers", 0, "layers that predict further tokens"},
        {"attention.shared_kv_layers", 0, "layers that share keys and values"},
        {"ssm.state_size", 0, "state-space layers"},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        int n;
        if (!spec_int(r, counts[i].rest, 0, INT_MAX, 0, &n))
            return false;
        if (n > counts[i].most)
            return gguf_err(r->g, r->e, ERR_UNSUPPORTED, "key %s is %d: %s, which is not supported",
                            spec_key(r, counts[i].rest).text, n, counts[i].what);
    }
    return true;
}

static bool refuse_other_attention(const struct spec_reader *r)
{
    const struct key_name causal = spec_key(r, "attention.causal"),
                          sections = spec_key(r, "rope.dimension_sections"),
                          parallel = spec_key(r, "use_parallel_residual");
    bool is_causal, is_parallel;
    if (!gguf_bool_or(r->g, causal.text, true, &is_causal, r->e) ||
        !gguf_bool_or(r->g, parallel.text, r->a->parallel, &is_parallel, r->e))
        return false;
    if (!is_causal)
        return gguf_err(r->g, r->e, ERR_UNSUPPORTED,
                        "key %s is false; attention to later tokens is not supported", causal.text);
    if (is_parallel != r->a->parallel && !r->a->may_be_parallel)
        return gguf_err(r->g, r->e, ERR_UNSUPPORTED,
                        "key %s is %s, which is not supported of this architecture", parallel.text,
                        is_parallel ? "true" : "false");
    if (gguf_has(r->g, sections.text))
        return gguf_err(r->g, r->e, ERR_UNSUPPORTED,
                        "key %s: positions of several dimensions are not supported", sections.text);
    r->s->parallel = is_parallel;
    return true;
}

bool model_spec_from_gguf(const struct gguf *g, struct model_spec *out, struct err *e)
{
    const struct architecture *a;
    if (!check_whole_model(g, e) || !(a = read_architecture(g, e)))
        return false;
    *out = (struct model_spec){0};
    const struct spec_reader r = {g, a, out, e};
    architecture_apply(a, out);
    if (!read_name(g, out, e) || !refuse_factors(&r) || !refuse_counts(&r) ||
        !refuse_other_attention(&r) || !spec_read_sizes(&r) || !spec_read_layers(&r) ||
        !spec_read_experts(&r) || !spec_read_scales(&r) || !spec_read_rope(&r) ||
        !spec_read_tensors(&r) || !spec_read_eos(&r))
        return false;
    spec_warn_of_unknown(&r);
    return model_spec_check(out, e) || err_prefix(e, "%s", gguf_path(g));
}
