/* What each architecture's files say and do not say: its spec, or an error by name. */
#include "model_spec.h"

#include "test.h"

#include "spec_rig.h"

static void refused_arch(const char *arch, const char *without, enum err_code code,
                         const char *part)
{
    struct variant v = {.arch = arch, .without = {without}};
    refused(&v, code, part);
}

static void assert_layers(const struct model_spec *s, const uint8_t *want)
{
    for (int i = 0; i < s->n_layers; i++)
        if (s->layers[i] != want[i])
            fail_msg("layer %d is %d, expected %d", i, s->layers[i], want[i]);
}

/* --- what is right --- */

static void every_architecture_is_read(void **state)
{
    for (int i = 0; i < N_VARIANT_KINDS; i++) {
        struct variant v = {.arch = variant_kinds[i].arch};
        struct model_spec s;
        struct err e;
        accepted(&v, &s);
        assert_string_equal(s.architecture, variant_kinds[i].arch);
        assert_int_equal(s.n_experts, variant_kinds[i].experts ? 4 : 0);
        assert_true(model_spec_check(&s, &e));
    }
}

/* Every tensor of every architecture is missed by name. */
static void a_tensor_that_is_missing_is_named(void **state)
{
    for (int i = 0; i < N_VARIANT_KINDS; i++) {
        struct variant all = {.arch = variant_kinds[i].arch};
        struct gguf *g = open_variant(&all);
        for (uint64_t t = 0; t < gguf_n_tensors(g); t++) {
            const struct gguf_str n = gguf_tensor_at(g, t)->name;
            char name[96], part[160];
            snprintf(name, sizeof name, "%.*s", (int)n.len, n.data);
            if (strncmp(name, "blk.1.", 6) != 0 || strstr(name, "ffn_gate_inp.weight"))
                continue; /* a layer without router is a dense one */
            struct variant v = {.arch = variant_kinds[i].arch, .without = {name}};
            snprintf(part, sizeof part, "tensor %s is missing; 1 of the 2 layers", name);
            if (strstr(name, "post_attention_norm") && variant_kinds[i].sinks)
                strcpy(part, "tensor blk.1.ffn_norm.weight is missing; 1 of the 2 layers");
            refused(&v, ERR_NOT_FOUND, part);
        }
        gguf_close(g);
        build_free(&all.b);
    }
}

static void gemma2_has_caps_and_a_window_where_its_file_is_silent(void **state)
{
    static const uint8_t want[3] = {LAYER_WINDOWED, 0, LAYER_WINDOWED};
    struct variant v = {.arch = "gemma2", .n_layers = 3};
    struct model_spec s;
    accepted(&v, &s);
    assert_true(s.attention_soft_cap == 50 && s.logit_soft_cap == 30 && s.window == 4096);
    assert_layers(&s, want);
    v = (struct variant){
        .arch = "gemma2", .n_layers = 46, .without = {"gemma2.attention.head_count"}};
    build_u32(&v.b, "gemma2.attention.head_count", 2);
    build_u32(&v.b, "gemma2.attention.key_length", 6);
    build_u32(&v.b, "gemma2.attention.value_length", 6);
    accepted(&v, &s);
    assert_true(s.attention_scale == 1.0f / sqrtf(12)); /* the 27B: by the width */
}

static void windows_are_every_layers_or_a_patterns(void **state)
{
    static const uint8_t cohere[5] = {LAYER_WINDOWED, LAYER_WINDOWED, LAYER_WINDOWED, LAYER_NO_ROPE,
                                      LAYER_WINDOWED};
    static const uint8_t local = LAYER_WINDOWED | LAYER_ROPE_LOCAL;
    static const uint8_t olmo3[3] = {0, LAYER_WINDOWED | LAYER_ROPE_LOCAL, 0};
    static const uint8_t none[3] = {0}, all[2] = {LAYER_WINDOWED, LAYER_WINDOWED};
    static const unsigned char flags[3] = {0, 1, 0};
    struct variant v = {.arch = "cohere2", .n_layers = 5};
    struct model_spec s;
    accepted(&v, &s);
    assert_layers(&s, cohere);
    v = (struct variant){.arch = "olmo2", .n_layers = 3};
    accepted(&v, &s);
    assert_layers(&s, none);
    v = (struct variant){.arch = "olmo2", .n_layers = 3};
    build_u32(&v.b, "olmo2.attention.sliding_window", 64);
    build_array(&v.b, "olmo2.attention.sliding_window_pattern", GGUF_BOOL, 3, flags, sizeof flags);
    accepted(&v, &s);
    assert_layers(&s, olmo3);
    v = (struct variant){.arch = "olmo2", .n_layers = 4};
    build_u32(&v.b, "olmo2.attention.sliding_window", 64);
    accepted(&v, &s);
    assert_layers(&s, (const uint8_t[]){local, local, local, 0});
    v = (struct variant){.arch = "phi3"};
    build_u32(&v.b, "phi3.attention.sliding_window", 100);
    accepted(&v, &s);
    assert_layers(&s, all);
    v = (struct variant){.arch = "phi3"};
    build_u32(&v.b, "phi3.attention.sliding_window", 100);
    build_u32(&v.b, "phi3.attention.sliding_window_pattern", 2);
    accepted(&v, &s);
    assert_layers(&s, (const uint8_t[]){LAYER_WINDOWED, 0});
    v = (struct variant){.arch = "phi3"};
    build_u32(&v.b, "phi3.attention.sliding_window", 128); /* the context */
    accepted(&v, &s);
    assert_layers(&s, none);
}

static void smollm3_turns_three_layers_of_four(void **state)
{
    static const uint8_t want[5] = {0, 0, 0, LAYER_NO_ROPE, 0};
    struct variant v = {.arch = "smollm3", .n_layers = 5};
    struct model_spec s;
    accepted(&v, &s);
    assert_layers(&s, want);
}

static void granites_factors_of_0_mean_none(void **state)
{
    struct variant v = {.arch = "granite"};
    struct model_spec s;
    build_f32(&v.b, "granite.embedding_scale", 12);
    build_f32(&v.b, "granite.residual_scale", 0.5f);
    build_f32(&v.b, "granite.logit_scale", 8);
    build_f32(&v.b, "granite.attention.scale", 0.125f);
    accepted(&v, &s);
    assert_true(s.embedding_scale == 12 && s.residual_scale == 0.5f && s.logit_scale == 0.125f);
    assert_true(s.attention_scale == 0.125f && s.layers[0] == 0);
    v = (struct variant){.arch = "granite"};
    build_f32(&v.b, "granite.embedding_scale", 0);
    build_f32(&v.b, "granite.residual_scale", 0);
    build_f32(&v.b, "granite.logit_scale", 0);
    build_bool(&v.b, "granite.rope.scaling.finetuned", false); /* means: turn nothing */
    accepted(&v, &s);
    assert_true(s.embedding_scale == 1 && s.residual_scale == 1 && s.logit_scale == 1);
    assert_int_equal(s.layers[1], LAYER_NO_ROPE);
}

static void parts_in_one_tensor_are_known(void **state)
{
    struct variant v = {.arch = "phi3",
                        .without = {"attn_q.weight", "attn_k.weight", "attn_v.weight",
                                    "ffn_gate.weight", "ffn_up.weight"}};
    struct model_spec s;
    for (int i = 0; i < 2; i++) {
        std_part(&v, i, "attn_qkv.weight", 24, 48, 0);
        std_part(&v, i, "attn_qkv.bias", 48, 0, 0);
        build_tensor(&v.b, i ? "blk.1.ffn_up.weight" : "blk.0.ffn_up.weight", 24, 80);
    }
    accepted(&v, &s);
    assert_true(s.qkv_bias && s.gated);
}

static void experts_may_have_a_tensor_each(void **state)
{
    struct variant v = {
        .experts = true,
        .without = {"ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight"}};
    struct model_spec s;
    for (int i = 0; i < 2; i++)
        for (int x = 0; x < 4; x++) {
            char name[64];
            snprintf(name, sizeof name, "ffn_gate.%d.weight", x);
            std_part(&v, i, name, 24, 8, 0);
            snprintf(name, sizeof name, "ffn_up.%d.weight", x);
            std_part(&v, i, name, 24, 8, 0);
            snprintf(name, sizeof name, "ffn_down.%d.weight", x);
            std_part(&v, i, name, 8, 24, 0);
        }
    accepted(&v, &s);
    assert_true(s.n_experts == 4 && s.n_experts_used == 2 && s.n_ff_expert == 8);
    assert_true(s.router_renormalise);
}

static void a_layer_without_router_is_dense(void **state)
{
    static const uint8_t want[3] = {0, LAYER_DENSE, 0};
    struct variant v = {.arch = "qwen3moe",
                        .n_layers = 3,
                        .without = {"blk.1.ffn_gate_inp.weight", "blk.1.ffn_gate_exps.weight",
                                    "blk.1.ffn_up_exps.weight", "blk.1.ffn_down_exps.weight"}};
    struct model_spec s;
    std_part(&v, 1, "ffn_gate.weight", 24, 40, 0);
    std_part(&v, 1, "ffn_up.weight", 24, 40, 0);
    std_part(&v, 1, "ffn_down.weight", 40, 24, 0);
    accepted(&v, &s);
    assert_layers(&s, want);
    assert_true(s.n_ff == 40 && s.n_ff_expert == 8);
}

static void experts_are_sized_by_keys_or_tensors(void **state)
{
    struct variant v = {.arch = "qwen2moe"};
    struct model_spec s;
    accepted(&v, &s);
    assert_true(s.n_ff_expert == 8 && s.n_ff_shared == 16 && s.shared_gate);
    assert_false(s.router_renormalise || s.router_bias || s.expert_bias);
    v = (struct variant){.arch = "qwen2moe"};
    build_bool(&v.b, "qwen2moe.expert_weights_norm", true);
    accepted(&v, &s);
    assert_true(s.router_renormalise);
    v = (struct variant){.arch = "gpt-oss"};
    accepted(&v, &s);
    assert_true(s.router_bias && s.expert_bias && s.attention_sinks && s.router_renormalise);
    assert_true(s.act == ACT_SWIGLU_CLAMPED && s.pre_norms && !s.post_norms);
}

static void yarn_and_longrope_are_read(void **state)
{
    struct variant v = {.arch = "qwen2"};
    struct model_spec s;
    build_str(&v.b, "qwen2.rope.scaling.type", "yarn");
    build_f32(&v.b, "qwen2.rope.scaling.factor", 4);
    build_u32(&v.b, "qwen2.rope.scaling.original_context_length", 32);
    accepted(&v, &s);
    assert_true(fabsf(s.rope.mscale - 1.1386294f) < 1e-6f);
    assert_turns(&s.rope, 0, 10000, 1);
    assert_turns(&s.rope, 2, 10000, 4);
    v = (struct variant){.arch = "phi3"};
    build_u32(&v.b, "phi3.rope.scaling.original_context_length", 16);
    build_tensor(&v.b, "rope_factors_long.weight", 3, 0);
    build_tensor(&v.b, "rope_factors_short.weight", 3, 0);
    build_variant(&v);
    build_file(&v.b);
    unsigned char *data = (unsigned char *)v.b.file.data + v.b.file.len - v.b.data_bytes;
    const float factors[2][8] = {{4, 4, 4}, {2, 2, 2}}; /* tensors begin at multiples of 32 bytes */
    memcpy(data, factors, sizeof factors);
    struct err e;
    struct gguf *g = gguf_open_memory(v.b.file.data, v.b.file.len, &e);
    assert_true(model_spec_from_gguf(g, &s, &e));
    assert_turns(&s.rope, 1, 10000, 2);
    assert_turns(&s.rope_long, 1, 10000, 4);
    assert_int_equal(s.rope_long_above, 16);
    /* sqrt(1 + ln(128 / 16) / ln(16)) */
    assert_true(fabsf(s.rope.mscale - 1.3228757f) < 1e-6f && s.rope_long.mscale == s.rope.mscale);
    gguf_close(g);
    build_free(&v.b);
}

static void a_value_for_each_layer_may_be_one_for_all(void **state)
{
    static const uint32_t heads[] = {4, 4};
    struct variant v = {.without = {"llama.attention.head_count"}};
    struct model_spec s;
    build_array(&v.b, "llama.attention.head_count", GGUF_U32, 2, heads, sizeof heads);
    accepted(&v, &s);
    assert_int_equal(s.n_heads, 4);
}

/* Of gpt-oss "<|end|>" ends a message of a turn; of others the turn. */
static void what_ends_a_turn_depends_on_the_other_tokens(void **state)
{
    static const char *const harmony[] = {"<|end|>", "<|return|>", "<|call|>", "<|endoftext|>"};
    static const char *const phi[] = {"<|end|>", "<|user|>", "<|assistant|>", "<|endoftext|>"};
    static const int32_t types[] = {3, 3, 3, 3};
    struct variant v = {.arch = "gpt-oss", .without = {"tokenizer"}};
    struct model_spec s;
    build_strings(&v.b, "tokenizer.ggml.tokens", 4, harmony);
    build_array(&v.b, "tokenizer.ggml.token_type", GGUF_I32, 4, types, sizeof types);
    accepted(&v, &s);
    assert_true(s.n_eos == 3 && s.eos[0] == 1 && s.eos[1] == 2 && s.eos[2] == 3);
    v = (struct variant){.arch = "phi3", .without = {"tokenizer"}};
    build_strings(&v.b, "tokenizer.ggml.tokens", 4, phi);
    build_array(&v.b, "tokenizer.ggml.token_type", GGUF_I32, 4, types, sizeof types);
    accepted(&v, &s);
    assert_true(s.n_eos == 2 && s.eos[0] == 3 && s.eos[1] == 0);
}

/* --- what is not --- */

static void what_an_architecture_must_say_is_missed_by_name(void **state)
{
    refused_arch("command-r", "command-r.logit_scale", ERR_NOT_FOUND, "command-r.logit_scale");
    refused_arch("cohere2", "cohere2.attention.sliding_window", ERR_NOT_FOUND, "sliding_window");
    refused_arch("gpt-oss", "gpt-oss.attention.sliding_window", ERR_NOT_FOUND, "sliding_window");
    refused_arch("phi2", "phi2.attention.layer_norm_epsilon", ERR_NOT_FOUND, "layer_norm_epsilon");
    refused_arch("phi2", "output_norm.bias", ERR_NOT_FOUND, "tensor output_norm.bias is missing");
    refused_arch("qwen3moe", "qwen3moe.expert_count", ERR_NOT_FOUND, "qwen3moe.expert_count");
    refused_arch("qwen3moe", "qwen3moe.expert_used_count", ERR_NOT_FOUND, "expert_used_count");
}

static void features_of_other_architectures_are_refused(void **state)
{
    struct variant v = {.arch = "qwen2"};
    build_f32(&v.b, "qwen2.residual_scale", 0.5f);
    refused(&v, ERR_UNSUPPORTED, "qwen2.residual_scale is 0.5");
    v.arch = "qwen2";
    build_u32(&v.b, "qwen2.attention.sliding_window", 64);
    refused(&v, ERR_UNSUPPORTED, "qwen2.attention.sliding_window is 64");
    v.arch = "qwen2";
    std_part(&v, 0, "attn_sinks.weight", 4, 0, 0);
    refused(&v, ERR_UNSUPPORTED, "tensor \"blk.0.attn_sinks.weight\" is not part");
    v.arch = "qwen3moe";
    std_part(&v, 0, "exp_probs_b.bias", 4, 0, 0);
    refused(&v, ERR_UNSUPPORTED, "exp_probs_b.bias");
    v.arch = "qwen3moe";
    std_part(&v, 0, "ffn_up_shexp.weight", 24, 16, 0);
    refused(&v, ERR_UNSUPPORTED, "ffn_up_shexp.weight");
    v.arch = "stablelm";
    build_bool(&v.b, "stablelm.use_parallel_residual", true);
    refused(&v, ERR_UNSUPPORTED, "blk.0.ffn_norm.weight\" is not part"); /* one norm for both */
    v.arch = "cohere2";
    build_f32(&v.b, "cohere2.rope.freq_base_swa", 5000);
    refused(&v, ERR_UNSUPPORTED, "cohere2.rope.freq_base_swa is 5000");
    v.arch = "glm4";
    build_u32(&v.b, "glm4.nextn_predict_layers", 1);
    refused(&v, ERR_UNSUPPORTED, "nextn_predict_layers is 1");
}

static void refused_key(const char *arch, const char *rest, uint32_t value, enum err_code code,
                        const char *part)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", arch, rest);
    struct variant v = {.arch = arch, .without = {key}};
    build_u32(&v.b, key, value);
    refused(&v, code, part);
}

static void hostile_numbers_of_experts_are_refused(void **state)
{
    const enum err_code invalid = ERR_INVALID;
    refused_key("qwen3moe", "expert_count", 0, invalid, "expert_count is 0, expected 2 to 1024");
    refused_key("qwen3moe", "expert_count", 1, invalid, "expert_count is 1, expected 2 to 1024");
    refused_key("qwen3moe", "expert_count", 1025, invalid, "expert_count is 1025");
    refused_key("qwen3moe", "expert_count", UINT32_MAX, invalid, "expert_count is 4294967295");
    refused_key("llama", "expert_count", 1, ERR_UNSUPPORTED, "expected 2 or more");
    refused_key("qwen3moe", "expert_used_count", 0, invalid, "used_count is 0, expected 1 to 4");
    refused_key("qwen3moe", "expert_used_count", 5, invalid, "used_count is 5, expected 1 to 4");
    refused_key("qwen3moe", "expert_feed_forward_length", 0, invalid, "length is 0, expected 1");
    refused_key("qwen3moe", "expert_feed_forward_length", 1 << 30, invalid,
                "expected 1 to 1048576");
    refused_key("qwen2moe", "expert_shared_feed_forward_length", 1 << 30, invalid, "0 to 1048576");
    refused_key("qwen3moe", "expert_group_count", 2, ERR_UNSUPPORTED, "groups of experts");
}

static void layers_without_experts_need_a_width(void **state)
{
    struct variant v = {.arch = "qwen3moe",
                        .without = {"qwen3moe.feed_forward_length", "blk.1.ffn_gate_inp.weight",
                                    "blk.1.ffn_gate_exps.weight", "blk.1.ffn_up_exps.weight",
                                    "blk.1.ffn_down_exps.weight"}};
    std_part(&v, 1, "ffn_gate.weight", 24, 40, 0);
    std_part(&v, 1, "ffn_up.weight", 24, 40, 0);
    std_part(&v, 1, "ffn_down.weight", 40, 24, 0);
    refused(&v, ERR_INVALID, "layer 1 has no experts, and its feed-forward part no width");
}

static void yarn_variant(struct variant *v, float theta, float factor, uint32_t original)
{
    *v = (struct variant){.arch = "qwen2"};
    build_f32(&v->b, "qwen2.rope.freq_base", theta);
    build_str(&v->b, "qwen2.rope.scaling.type", "yarn");
    build_f32(&v->b, "qwen2.rope.scaling.factor", factor);
    build_u32(&v->b, "qwen2.rope.scaling.original_context_length", original);
}

static void hostile_rotary_numbers_are_refused(void **state)
{
    struct variant v;
    yarn_variant(&v, 1, 4, 32);
    refused(&v, ERR_INVALID, "qwen2.rope.freq_base is 1, expected a number above 1");
    yarn_variant(&v, 10000, 0, 32);
    refused(&v, ERR_INVALID, "qwen2.rope.scaling.factor is 0");
    yarn_variant(&v, 10000, 4, 0);
    refused(&v, ERR_INVALID, "original_context_length is 0, expected 1 to");
    yarn_variant(&v, 10000, 4, 32);
    build_f32(&v.b, "qwen2.rope.scaling.yarn_beta_slow", -1);
    refused(&v, ERR_INVALID, "yarn_beta_slow is -1");
    yarn_variant(&v, 10000, 4, 32);
    build_f32(&v.b, "qwen2.rope.scaling.yarn_ext_factor", 0.5f);
    refused(&v, ERR_UNSUPPORTED, "yarn_ext_factor is 0.5");
    yarn_variant(&v, 10000, 4, 32);
    build_tensor(&v.b, "rope_freqs.weight", 3, 0);
    refused(&v, ERR_UNSUPPORTED, "rope_freqs.weight in a model with another scaling");
    v = (struct variant){.arch = "llama"};
    build_str(&v.b, "llama.rope.scaling.type", "linear");
    build_f32(&v.b, "llama.rope.scaling.factor", 1e-45f);
    refused(&v, ERR_INVALID, "rotary frequencies are not finite numbers");
}

static void half_a_longrope_is_refused(void **state)
{
    struct variant v = {.arch = "phi3"};
    build_tensor(&v.b, "rope_factors_long.weight", 3, 0);
    refused(&v, ERR_NOT_FOUND, "phi3.rope.scaling.original_context_length is missing");
    v.arch = "phi3";
    build_u32(&v.b, "phi3.rope.scaling.original_context_length", 64);
    build_tensor(&v.b, "rope_factors_long.weight", 3, 0);
    refused(&v, ERR_INVALID, "rope_factors_long.weight: value 0 is 0");
    v.arch = "phi3";
    build_u32(&v.b, "phi3.rope.scaling.original_context_length", 64);
    build_tensor(&v.b, "rope_factors_short.weight", 3, 0);
    refused(&v, ERR_NOT_FOUND, "rope_factors_long.weight");
    v.arch = "phi3";
    build_str(&v.b, "phi3.rope.scaling.type", "longrope");
    build_u32(&v.b, "phi3.rope.scaling.original_context_length", 64);
    refused(&v, ERR_NOT_FOUND, "rope_factors_long.weight");
}

static void scales_out_of_all_bounds_are_refused(void **state)
{
    struct variant v = {.arch = "granite"};
    build_f32(&v.b, "granite.residual_scale", 1e-30f);
    refused(&v, ERR_INVALID, "the scale of residuals is 1e-30");
    v.arch = "granite";
    build_f32(&v.b, "granite.logit_scale", -1);
    refused(&v, ERR_INVALID, "granite.logit_scale is -1");
    v.arch = "granite";
    build_f32(&v.b, "granite.logit_scale", 1e-45f);
    refused(&v, ERR_INVALID, "the scale of logits is inf");
}

/* Of readers of other files, too, what a spec promises is checked. */
static void a_spec_out_of_bounds_is_refused(void **state)
{
    struct variant v = {.arch = "qwen2moe"};
    struct model_spec good, s;
    struct err e;
    accepted(&v, &good);
    int *const numbers[] = {&s.n_layers,        &s.n_embd,      &s.n_heads,     &s.n_kv_heads,
                            &s.head_dim,        &s.n_vocab,     &s.n_ctx_train, &s.n_experts_used,
                            &s.rope.n_dims,     &s.n_ff_expert, &s.n_ff_shared, &s.n_eos,
                            &s.rope_long.n_dims};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        s = good;
        *numbers[i] = -1;
        assert_false(model_spec_check(&s, &e));
        s = good;
        *numbers[i] = INT32_MAX;
        assert_false(model_spec_check(&s, &e));
    }
    float *const floats[] = {&s.norm_eps,           &s.embedding_scale, &s.residual_scale,
                             &s.logit_scale,        &s.attention_scale, &s.rope.mscale,
                             &s.attention_soft_cap, &s.rope.inv_freq[1]};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        s = good;
        *floats[i] = NAN;
        assert_false(model_spec_check(&s, &e));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_architecture_is_read),
        cmocka_unit_test(a_tensor_that_is_missing_is_named),
        cmocka_unit_test(gemma2_has_caps_and_a_window_where_its_file_is_silent),
        cmocka_unit_test(windows_are_every_layers_or_a_patterns),
        cmocka_unit_test(smollm3_turns_three_layers_of_four),
        cmocka_unit_test(granites_factors_of_0_mean_none),
        cmocka_unit_test(parts_in_one_tensor_are_known),
        cmocka_unit_test(experts_may_have_a_tensor_each),
        cmocka_unit_test(a_layer_without_router_is_dense),
        cmocka_unit_test(experts_are_sized_by_keys_or_tensors),
        cmocka_unit_test(yarn_and_longrope_are_read),
        cmocka_unit_test(a_value_for_each_layer_may_be_one_for_all),
        cmocka_unit_test(what_ends_a_turn_depends_on_the_other_tokens),
        cmocka_unit_test(what_an_architecture_must_say_is_missed_by_name),
        cmocka_unit_test(features_of_other_architectures_are_refused),
        cmocka_unit_test(hostile_numbers_of_experts_are_refused),
        cmocka_unit_test(layers_without_experts_need_a_width),
        cmocka_unit_test(hostile_rotary_numbers_are_refused),
        cmocka_unit_test(half_a_longrope_is_refused),
        cmocka_unit_test(scales_out_of_all_bounds_are_refused),
        cmocka_unit_test(a_spec_out_of_bounds_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
