#include <stdio.h>
#include <string.h>

#include "log.h"
#include "model_spec_read.h"

/* Keys of an architecture's own that are read, refused unless they mean nothing, or said by the
 * tensors, too. */
static const char *const known[] = {
    "attention.causal",
    "attention.clamp_kqv",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.kv_lora_rank",
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",
    "attention.max_alibi_bias",
    "attention.output_scale",
    "attention.q_lora_rank",
    "attention.scale",
    "attention.shared_kv_layers",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.temperature_scale",
    "attention.value_length",
    "attn_logit_softcapping",
    "block_count",
    "context_length",
    "embedding_length",
    "embedding_scale",
    "expert_count",
    "expert_feed_forward_length",
    "expert_gating_func",
    "expert_group_count",
    "expert_shared_feed_forward_length",
    "expert_used_count",
    "expert_weights_norm",
    "expert_weights_scale",
    "feed_forward_length",
    "final_logit_softcapping",
    "interleave_moe_layer_step",
    "logit_scale",
    "nextn_predict_layers",
    "residual_scale",
    "rope.dimension_count",
    "rope.dimension_sections",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scale_linear",
    "rope.scaling.attn_factor",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_log_multiplier",
    "router_logit_softcapping",
    "ssm.state_size",
    "tensor_data_layout",
    "use_parallel_residual",
    "vocab_size",
};

static bool is_known(struct gguf_str key, size_t prefix)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i]) == key.len - prefix &&
            memcmp(known[i], key.data + prefix, key.len - prefix) == 0)
            return true;
    return false;
}

void spec_warn_of_unknown(const struct spec_reader *r)
{
    const struct key_name own = spec_key(r, "");
    const size_t prefix = strlen(own.text);
    char names[400] = "";
    size_t at = 0;
    for (uint64_t i = 0; i < gguf_n_keys(r->g); i++) {
        enum gguf_type type;
        const struct gguf_str key = gguf_key_at(r->g, i, &type);
        if (key.len <= prefix || memcmp(key.data, own.text, prefix) != 0 || is_known(key, prefix))
            continue;
        const int n =
            snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "", gguf_show(key).text);
        if (n < 0 || (size_t)n >= sizeof names - at) {
            names[at] = '\0';
            break; /* enough of them */
        }
        at += (size_t)n;
    }
    if (at > 0)
        log_warn("%s: keys that are not known here are ignored: %s", gguf_path(r->g), names);
}
