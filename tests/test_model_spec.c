#include "model_spec.h"

#include <math.h>
#include <unistd.h>

#include "test_data.h"

#include "test.h"

#include "spec_rig.h"

/* As refused, with the standard key replaced. */
static void refused_u32(const char *key, uint32_t value, const char *part)
{
    struct variant v = {.without = {key}};
    build_u32(&v.b, key, value);
    refused(&v, ERR_INVALID, part);
}

static void refused_f32(const char *key, float value, const char *part)
{
    struct variant v = {.without = {key}};
    build_f32(&v.b, key, value);
    refused(&v, ERR_INVALID, part);
}

/* --- what is right --- */

static void a_llama_is_read_with_the_defaults_of_what_it_leaves_out(void **state)
{
    struct variant v = {0};
    struct model_spec s;
    accepted(&v, &s);
    assert_string_equal(s.architecture, "llama");
    assert_string_equal(s.name, "(memory)");
    assert_true(s.n_layers == 2 && s.n_embd == 24 && s.n_ff == 40 && s.n_vocab == 10);
    assert_true(s.n_heads == 4 && s.n_kv_heads == 2 && s.head_dim == 6);
    assert_true(s.n_ctx_train == 128 && s.norm_eps == 1e-5f && s.act == ACT_SILU);
    assert_true(s.rope_style == ROPE_NORMAL && s.rope.n_dims == 6 && s.rope.mscale == 1);
    assert_turns(&s.rope, 1, 10000, 1);
    assert_true(s.gated && s.pre_norms && !s.parallel && s.norm == NORM_RMS && s.n_experts == 0);
    assert_false(s.tied_embeddings || s.qkv_bias || s.o_bias || s.mlp_bias);
    assert_true(s.attention_scale == 1.0f / sqrtf(6) && s.embedding_scale == 1);
    assert_false(s.qk_norm || s.post_norms || s.layers[0] || s.layers[1]);
    assert_int_equal(s.n_params, 2 * (24 * 24 * 2 + 24 * 12 * 2 + 24 * 40 * 3 + 48) + 24 + 480);
}

static void ends_are_the_keys_and_control_tokens_with_known_texts(void **state)
{
    struct variant v = {0};
    struct model_spec s;
    accepted(&v, &s);
    /* eos 8, eot 1, then <|im_end|> 2 and </s> 3; not <|end|> 4, which is a normal token, nor
     * eom, which is not a token at all. */
    assert_int_equal(s.n_eos, 4);
    assert_memory_equal(s.eos, ((const int32_t[]){8, 1, 2, 3}), 16);

    v = (struct variant){.without = {"tokenizer"}};
    accepted(&v, &s);
    assert_int_equal(s.n_eos, 0);
}

static void heads_may_differ_from_the_width(void **state)
{
    struct variant v = {.without = {"llama.attention.head_count"}};
    struct model_spec s;
    build_u32(&v.b, "llama.attention.head_count", 10);
    build_u32(&v.b, "llama.attention.key_length", 32);
    build_u32(&v.b, "llama.attention.value_length", 32);
    build_u32(&v.b, "llama.rope.dimension_count", 16);
    accepted(&v, &s);
    assert_true(s.head_dim == 32 && s.rope.n_dims == 16 && s.n_heads == 10);
    assert_true(s.attention_scale == 1.0f / sqrtf(32));

    v = (struct variant){.without = {"llama.attention.head_count_kv"}};
    accepted(&v, &s);
    assert_int_equal(s.n_kv_heads, 4);
}

static void biases_and_tied_embeddings_are_seen(void **state)
{
    static const char *const names[] = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                                        "ffn_gate", "ffn_up", "ffn_down"};
    struct variant v = {.without = {"output.weight"}};
    struct model_spec s;
    for (int layer = 0; layer < 2; layer++)
        for (int i = 0; i < 7; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s.bias", layer, names[i]);
            build_tensor(&v.b, name, 24, 0);
        }
    accepted(&v, &s);
    assert_true(s.tied_embeddings && s.qkv_bias && s.o_bias && s.mlp_bias);
}

static void linear_rope_scaling_is_read_in_old_and_new_spelling(void **state)
{
    struct variant v = {0};
    struct model_spec s;
    build_str(&v.b, "llama.rope.scaling.type", "linear");
    build_f32(&v.b, "llama.rope.scaling.factor", 4);
    accepted(&v, &s);
    assert_turns(&s.rope, 1, 10000, 4);
    v = (struct variant){0};
    build_f32(&v.b, "llama.rope.scale_linear", 2);
    accepted(&v, &s);
    assert_turns(&s.rope, 1, 10000, 2);
    v = (struct variant){0};
    build_str(&v.b, "llama.rope.scaling.type", "none");
    build_f32(&v.b, "llama.rope.scaling.factor", 4);
    accepted(&v, &s);
    assert_turns(&s.rope, 1, 10000, 1);
}

/* Six layers of a kind */
static void assert_windows(const struct model_spec *s, const char *windowed)
{
    for (int i = 0; i < 6; i++)
        assert_int_equal(s->layers[i], windowed[i] == 'w' ? LAYER_WINDOWED | LAYER_ROPE_LOCAL : 0);
}

static void a_gemma3_is_read_with_what_its_file_does_not_say(void **state)
{
    struct variant v = {.arch = "gemma3", .n_layers = 6, .without = {"output.weight"}};
    struct model_spec s;
    build_str(&v.b, "gemma3.rope.scaling.type", "linear");
    build_f32(&v.b, "gemma3.rope.scaling.factor", 8);
    build_f32(&v.b, "gemma3.rope.freq_base", 1e6f);
    accepted(&v, &s);
    assert_string_equal(s.architecture, "gemma3");
    assert_true(s.act == ACT_GELU_TANH && s.rope_style == ROPE_NEOX);
    assert_true(s.qk_norm && s.post_norms && s.tied_embeddings);
    assert_true(s.embedding_scale == sqrtf(24) && s.attention_scale == 1.0f / sqrtf(6));
    assert_turns(&s.rope, 1, 1e6, 8);
    assert_turns(&s.rope_local, 1, 10000, 1);
    assert_int_equal(s.window, 64);
    assert_windows(&s, "wwwwwf");
}

static void a_gemma3_may_say_what_is_usually_known(void **state)
{
    struct variant v = {.arch = "gemma3", .n_layers = 6};
    struct model_spec s;
    build_u32(&v.b, "gemma3.attention.sliding_window_pattern", 3);
    build_f32(&v.b, "gemma3.rope.freq_base_swa", 500);
    build_f32(&v.b, "gemma3.attention.scale", 0.25f);
    accepted(&v, &s);
    assert_turns(&s.rope_local, 1, 500, 1);
    assert_true(s.attention_scale == 0.25f);
    assert_windows(&s, "wwfwwf");
}

/* Its query_pre_attn_scalar is n_embd / n_heads, which no key says. */
static void the_largest_gemma3_scales_scores_by_its_width(void **state)
{
    struct variant v = {
        .arch = "gemma3", .n_layers = 62, .without = {"gemma3.attention.head_count"}};
    struct model_spec s;
    build_u32(&v.b, "gemma3.attention.head_count", 2);
    build_u32(&v.b, "gemma3.attention.key_length", 6);
    build_u32(&v.b, "gemma3.attention.value_length", 6);
    accepted(&v, &s);
    assert_true(s.head_dim == 6 && s.attention_scale == 1.0f / sqrtf(12));
}

static void neutral_values_of_unknown_features_are_fine(void **state)
{
    struct variant v = {0};
    struct model_spec s;
    build_u32(&v.b, "llama.expert_count", 0);
    build_f32(&v.b, "llama.logit_scale", 1);
    build_u32(&v.b, "llama.attention.sliding_window", 128);
    build_bool(&v.b, "llama.attention.causal", true);
    build_str(&v.b, "general.type", "model");
    accepted(&v, &s);
}

static void names_are_made_valid_utf8(void **state)
{
    static const struct {
        const char *is, *becomes;
    } cases[] = {
        {"Modèle 模型 🙂", "Modèle 模型 🙂"},
        {"a\nb\x7f", "a?b?"},
        {"\xff\xc3x\xe2\x82", "??x??"},
        {"\xed\xa0\x80\xf4\x90\x80\x80\xc0\x80\xe0\x80\x80", "????????????"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct variant v = {0};
        struct model_spec s;
        build_str(&v.b, "general.name", cases[i].is);
        accepted(&v, &s);
        assert_string_equal(s.name, cases[i].becomes);
    }
    struct variant v = {0};
    struct model_spec s;
    char name[200] = "x";
    for (size_t i = 1; i + 3 < sizeof name; i += 2)
        strcpy(name + i, "é");
    build_str(&v.b, "general.name", name);
    accepted(&v, &s);
    assert_int_equal(strlen(s.name), 127);
}

/* --- what is not --- */

static void other_architectures_are_refused_by_name(void **state)
{
    struct variant v = {.without = {"general.architecture"}};
    build_str(&v.b, "general.architecture", "mamba\n2");
    refused(&v, ERR_UNSUPPORTED,
            "architecture \"mamba\\x0a2\" is not supported; these are: llama, qwen2, ");
    v = (struct variant){.without = {"general.architecture"}};
    build_str(&v.b, "general.architecture", "deepseek2");
    refused(&v, ERR_UNSUPPORTED,
            "\"deepseek2\", which has multi-head latent attention (MLA) is not supported");
    v = (struct variant){.without = {"general.architecture"}};
    refused(&v, ERR_NOT_FOUND, "key general.architecture is missing");
}

static void features_that_we_do_not_compute_are_refused_by_name(void **state)
{
    static const uint32_t heads[] = {4, 2};
    struct variant v = {.arch = "gemma3"};
    build_u32(&v.b, "gemma3.expert_count", 8);
    refused(&v, ERR_UNSUPPORTED, "a mixture of experts (gemma3.expert_count is 8)");
    v.without[0] = "llama.attention.head_count";
    build_array(&v.b, "llama.attention.head_count", GGUF_U32, 2, heads, sizeof heads);
    refused(&v, ERR_UNSUPPORTED, "key llama.attention.head_count is an array");
    build_str(&v.b, "llama.rope.scaling.type", "dynamic");
    refused(&v, ERR_UNSUPPORTED, "llama.rope.scaling.type is \"dynamic\"");
    build_f32(&v.b, "llama.attn_logit_softcapping", 50);
    refused(&v, ERR_UNSUPPORTED, "llama.attn_logit_softcapping is 50");
    build_f32(&v.b, "llama.logit_scale", 0.5f);
    refused(&v, ERR_UNSUPPORTED, "llama.logit_scale is 0.5");
    build_bool(&v.b, "llama.attention.causal", false);
    refused(&v, ERR_UNSUPPORTED, "llama.attention.causal is false");
    build_u32(&v.b, "llama.attention.kv_lora_rank", 512);
    refused(&v, ERR_UNSUPPORTED, "llama.attention.kv_lora_rank is 512: multi-head latent");
    build_f32(&v.b, "llama.rope.scaling.attn_factor", 2);
    refused(&v, ERR_UNSUPPORTED, "attn_factor is 2, which is not supported without yarn");
    build_bool(&v.b, "llama.use_parallel_residual", true);
    refused(&v, ERR_UNSUPPORTED, "llama.use_parallel_residual is true");
    build_str(&v.b, "general.type", "adapter");
    refused(&v, ERR_UNSUPPORTED, "general.type is \"adapter\"");
    build_u32(&v.b, "split.count", 3);
    refused(&v, ERR_UNSUPPORTED, "one of 3 files of a split model");
    build_u32(&v.b, "llama.attention.value_length", 8);
    refused(&v, ERR_UNSUPPORTED, "keys of 6 and values of 8");
}

/* Reads the model, returns what that logs. */
static void log_of(struct variant *v, char *out, size_t cap)
{
    struct model_spec s;
    int ends[2], saved = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    accepted(v, &s);
    dup2(saved, STDERR_FILENO);
    close(ends[1]);
    close(saved);
    ssize_t n = read(ends[0], out, cap - 1);
    out[n < 0 ? 0 : n] = '\0';
    close(ends[0]);
}

static void keys_of_the_architecture_that_are_not_known_are_named(void **state)
{
    char log[4096], key[64];
    struct variant v = {.without = {"tokenizer.ggml.eom_token_id"}};
    build_u32(&v.b, "llama.vocab_size", 10);
    build_u32(&v.b, "llamas.vocab", 1);
    log_of(&v, log, sizeof log);
    assert_string_equal(log, "");
    build_u32(&v.b, "llama.attention.twist", 1);
    build_str(&v.b, "llama.\x1b[31m", "");
    log_of(&v, log, sizeof log);
    assert_contains(log, "not known here are ignored: llama.attention.twist, llama.");
    assert_null(strchr(log, '\x1b'));
    for (int i = 0; i < 99; i++) {
        snprintf(key, sizeof key, "llama.a_key_of_some_length.%d", i);
        build_u32(&v.b, key, 1);
    }
    log_of(&v, log, sizeof log);
    assert_contains(log, "length.0, llama.a_key_of_some_length.1, ");
    assert_int_equal(strchr(log, '\n') - log, strlen(log) - 1);
}

/* A softmax over the chosen experts is one over all, divided by the sum of the chosen. */
static void experts_weighed_among_the_chosen_are_renormalised(void **state)
{
    for (uint32_t f = 0; f < 4; f++) {
        struct model_spec s;
        struct variant v = {.arch = "qwen2moe"};
        build_u32(&v.b, "qwen2moe.expert_gating_func", f);
        if (f == 2) {
            refused(&v, ERR_UNSUPPORTED, "qwen2moe.expert_gating_func is 2: experts chosen by");
            continue;
        }
        accepted(&v, &s);
        assert_int_equal(s.router_renormalise, f == 3);
    }
}

static void what_a_gemma3_must_have_is_missed_by_name(void **state)
{
    static const char *const tensors[] = {"blk.1.attn_q_norm.weight", "blk.0.attn_k_norm.weight",
                                          "blk.1.post_attention_norm.weight",
                                          "blk.0.post_ffw_norm.weight"};
    struct variant v = {.arch = "gemma3", .without = {"gemma3.attention.sliding_window"}};
    char part[96];
    refused(&v, ERR_NOT_FOUND, "key gemma3.attention.sliding_window is missing");
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        v = (struct variant){.arch = "gemma3", .without = {tensors[i]}};
        snprintf(part, sizeof part, "tensor %s is missing; 1 of the 2 layers", tensors[i]);
        refused(&v, ERR_NOT_FOUND, part);
    }
}

static void what_a_gemma3_cannot_have_is_refused_by_name(void **state)
{
    static const uint32_t pattern[] = {1, 0};
    struct variant v = {.arch = "gemma3"};
    build_f32(&v.b, "gemma3.final_logit_softcapping", -30);
    refused(&v, ERR_INVALID, "gemma3.final_logit_softcapping is -30, expected a number of at");
    v = (struct variant){.arch = "gemma3", .n_layers = 3};
    build_array(&v.b, "gemma3.attention.sliding_window_pattern", GGUF_U32, 2, pattern,
                sizeof pattern);
    refused(&v, ERR_INVALID, "sliding_window_pattern has 2 values, expected 3");
    v.arch = "gemma3";
    build_u32(&v.b, "gemma3.attention.sliding_window_pattern", 0);
    refused(&v, ERR_INVALID, "sliding_window_pattern is 0, expected 1 to 512");
    v = (struct variant){.arch = "gemma3", .without = {"gemma3.attention.sliding_window"}};
    build_u32(&v.b, "gemma3.attention.sliding_window", 0);
    refused(&v, ERR_INVALID, "sliding_window is 0, expected 1 to");
    v.arch = "gemma3";
    build_f32(&v.b, "gemma3.rope.freq_base_swa", 0);
    refused(&v, ERR_INVALID, "rope.freq_base_swa is 0");
    v.arch = "gemma3";
    build_tensor(&v.b, "rope_freqs.weight", 3, 0);
    refused(&v, ERR_UNSUPPORTED, "rope_freqs.weight in a model with windowed layers");
}

static void sizes_out_of_bounds_are_refused_with_the_bounds(void **state)
{
    refused_u32("llama.block_count", 0, "llama.block_count is 0, expected 1 to 512");
    refused_u32("llama.block_count", 513, "llama.block_count is 513, expected 1 to 512");
    refused_u32("llama.embedding_length", 0, "embedding_length is 0");
    refused_u32("llama.embedding_length", UINT32_MAX, "embedding_length is 4294967295");
    refused_u32("llama.feed_forward_length", 0, "feed_forward_length is 0");
    refused_u32("llama.feed_forward_length", 1 << 30, "feed_forward_length is 1073741824");
    refused_u32("llama.context_length", 0, "context_length is 0");
    refused_u32("llama.context_length", 0x80000000, "context_length is 2147483648");
    refused_u32("llama.attention.head_count", 0, "head_count is 0");
    refused_u32("llama.attention.head_count", 16, "does not divide by 16 heads");
    refused_u32("llama.attention.head_count", 8, "heads of 3, expected an even number");
    refused_u32("llama.attention.head_count_kv", 0, "head_count_kv is 0");
    refused_u32("llama.attention.head_count_kv", 3, "4 attention heads do not divide by 3");
    refused_u32("llama.attention.head_count_kv", 8, "4 attention heads do not divide by 8");
    refused_u32("llama.attention.key_length", 1026, "key_length is 1026, expected 1 to 1024");
    refused_u32("llama.rope.dimension_count", 8, "dimension_count is 8, expected 2 to 6");
    refused_u32("llama.rope.dimension_count", 3, "dimension_count is 3, expected an even");
}

static void numbers_that_make_no_sense_are_refused(void **state)
{
    refused_f32("llama.attention.layer_norm_rms_epsilon", 0, "epsilon is 0");
    refused_f32("llama.attention.layer_norm_rms_epsilon", NAN, "epsilon is nan");
    refused_f32("llama.rope.freq_base", -1, "freq_base is -1, expected a number above 0");
    refused_f32("llama.rope.freq_base", INFINITY, "freq_base is inf");
    refused_f32("llama.rope.scaling.factor", 0, "rope.scaling.factor is 0");
    refused_f32("llama.context_length", 128, "context_length is of type F32");
}

static void missing_sizes_are_refused_by_name(void **state)
{
    static const char *const keys[] = {
        "llama.block_count",          "llama.context_length",
        "llama.embedding_length",     "llama.feed_forward_length",
        "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon",
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct variant v = {.without = {keys[i]}};
        char part[128];
        snprintf(part, sizeof part, "key %s is missing", keys[i]);
        refused(&v, ERR_NOT_FOUND, part);
    }
}

static void missing_tensors_are_refused_by_name(void **state)
{
    struct variant v = {.without = {"token_embd.weight"}};
    refused(&v, ERR_NOT_FOUND, "tensor token_embd.weight is missing");
    v.without[0] = "blk.1.ffn_up.weight";
    refused(&v, ERR_NOT_FOUND, "tensor blk.1.ffn_up.weight is missing; 1 of the 2 layers");
    build_tensor(&v.b, "blk.0.attn_output.bias", 24, 0);
    refused(&v, ERR_NOT_FOUND, "tensor blk.1.attn_output.bias is missing");
    build_tensor(&v.b, "blk.0.attn_q.bias", 24, 0);
    build_tensor(&v.b, "blk.1.attn_q.bias", 24, 0);
    refused(&v, ERR_UNSUPPORTED, "layers have attn_q.bias without attn_k.bias");
}

static void tensors_that_would_not_be_used_are_refused(void **state)
{
    static const char *const names[] = {
        "blk.0.attn_q_norm.weight",
        "blk.0.post_ffw_norm.weight",
        "blk.2.attn_q.weight",
        "blk.01.attn_q.weight",
        "blk..attn_q.weight",
        "output_norm.bias",
        "blk.99999999999.x",
        "blk.0",
        "blk.",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct variant v = {0};
        char part[128];
        build_tensor(&v.b, names[i], 24, 0);
        snprintf(part, sizeof part, "tensor \"%s\" is not part of a model", names[i]);
        refused(&v, ERR_UNSUPPORTED, part);
    }
}

static void what_two_tensors_have_is_refused(void **state)
{
    struct variant v = {0};
    build_tensor(&v.b, "blk.0.attn_qkv.weight", 24, 48);
    refused(&v, ERR_INVALID, "tensor blk.0.attn_q.weight has what another one has, too");
    v.without[0] = "blk.1.ffn_up.weight";
    build_tensor(&v.b, "blk.1.ffn_up.weight", 24, 80); /* gate and up */
    refused(&v, ERR_INVALID, "tensor blk.1.ffn_gate.weight has what another one has, too");
}

static void rope_factors_are_checked(void **state)
{
    struct variant v = {0};
    build_tensor(&v.b, "rope_freqs.weight", 3, 0);
    refused(&v, ERR_INVALID, "rope_freqs.weight: value 0 is 0, expected a number above 0");
    build_tensor(&v.b, "rope_freqs.weight", 6, 0);
    refused(&v, ERR_INVALID, "rope_freqs.weight has the dims [6], expected [3]");
}

static void a_tokenizer_that_does_not_fit_the_model_is_refused(void **state)
{
    static const char *const tokens[11] = {"", "", "", "", "", "", "", "", "", "", ""};
    static const char *const ends[4] = {"<|im_end|>", "<|im_end|>", "<|im_end|>", "<|im_end|>"};
    static const int32_t types[3] = {3, 3, 3};
    struct variant v = {.without = {"tokenizer"}};
    build_strings(&v.b, "tokenizer.ggml.tokens", 11, tokens);
    refused(&v, ERR_INVALID, "has 11 tokens, but token_embd.weight has only 10 rows");
    v.without[0] = "tokenizer";
    build_strings(&v.b, "tokenizer.ggml.tokens", 4, ends);
    build_array(&v.b, "tokenizer.ggml.token_type", GGUF_I32, 3, types, sizeof types);
    refused(&v, ERR_INVALID, "token_type has 3 elements, expected 4");
}

static void too_many_end_tokens_are_refused(void **state)
{
    const char *ends[17];
    int32_t types[17];
    struct variant v = {.without = {"tokenizer", "token_embd.weight"}};
    for (int i = 0; i < 17; i++) {
        ends[i] = "<|im_end|>";
        types[i] = 3;
    }
    build_tensor(&v.b, "token_embd.weight", 24, 17);
    build_strings(&v.b, "tokenizer.ggml.tokens", 17, ends);
    build_array(&v.b, "tokenizer.ggml.token_type", GGUF_I32, 17, types, sizeof types);
    refused(&v, ERR_LIMIT, "more than 16 tokens that end a generation");
}

/* --- real files --- */

static bool read_spec(const char *path, struct model_spec *s, struct err *e)
{
    struct gguf *g = gguf_open(path, e);
    bool ok = g && model_spec_from_gguf(g, s, e);
    gguf_close(g);
    return ok;
}

static void golden_path(char *out, size_t size, const char *name)
{
    snprintf(out, size, "%s/gguf/%s.gguf", test_corpus(), name);
}

static void golden_spec(const char *name, struct model_spec *s)
{
    char path[4500];
    struct err e;
    golden_path(path, sizeof path, name);
    if (!read_spec(path, s, &e))
        fail_msg("%s", e.msg);
}

static void need_corpus(void)
{
    char path[4500];
    golden_path(path, sizeof path, "llama2.F16");
    FILE *f = fopen(path, "rb");
    if (!f) {
        print_message("SKIPPED: no golden file %s (set TOKEND_CORPUS)\n", path);
        skip();
    }
    fclose(f);
}

static void golden_files_are_read(void **state)
{
    static const char *const llama2[] = {"llama2.F16", "llama2.BF16", "llama2.Q8_0"};
    static const char *const llama_k[] = {"llama_k.F16", "llama_k.BF16", "llama_k.Q8_0",
                                          "llama_k.Q4_1", "llama_k.Q4_K_M"};
    struct model_spec s;
    need_corpus();
    for (size_t i = 0; i < 3; i++) {
        golden_spec(llama2[i], &s);
        assert_true(s.n_layers == 3 && s.n_embd == 64 && s.n_ff == 160 && s.n_vocab == 608);
        assert_true(s.n_heads == 4 && s.n_kv_heads == 4 && s.head_dim == 16 && s.rope.n_dims == 16);
        assert_turns(&s.rope, 3, 10000, 2);
        assert_true(s.norm_eps == 1e-6f && !s.tied_embeddings && s.n_ctx_train == 1024);
        assert_true(s.n_eos == 1 && s.eos[0] == 2);
        assert_string_equal(s.name, "Llama2");
    }
    golden_spec("llama3.F16", &s);
    assert_true(s.n_layers == 3 && s.n_embd == 64 && s.n_ff == 176 && s.n_vocab == 640);
    assert_true(s.n_heads == 4 && s.n_kv_heads == 2 && s.head_dim == 16);
    assert_turns(&s.rope, 0, 500000, 1);
    assert_turns(&s.rope, 7, 500000, 8); /* the file's factor */
    assert_true(s.n_eos >= 1 && s.eos[0] == 639 && s.norm_eps == 1e-5f);
    for (size_t i = 0; i < 5; i++) {
        golden_spec(llama_k[i], &s);
        assert_true(s.n_layers == 2 && s.n_embd == 256 && s.n_ff == 256 && s.n_vocab == 576);
        assert_true(s.n_heads == 4 && s.n_kv_heads == 2 && s.head_dim == 64);
        assert_turns(&s.rope, 31, 500000, 8);
        assert_int_equal(s.eos[0], 575);
    }
    golden_spec("gemma3.F16", &s);
    assert_true(s.n_layers == 6 && s.n_heads == 4 && s.n_kv_heads == 1 && s.head_dim == 32);
    assert_true(s.window == 32 && s.embedding_scale == 8);
    assert_windows(&s, "wwwwwf");
    assert_turns(&s.rope, 5, 1e6, 8);
    assert_turns(&s.rope_local, 5, 1e4, 1);
    assert_true(s.tied_embeddings && s.eos[0] == 1);
    golden_spec("mistral.F16", &s);
    assert_int_equal(s.head_dim, 32);
}

static void the_default_model_is_read(void **state)
{
    char path[4500];
    struct model_spec s;
    struct err e;
    test_default_model(path, sizeof path);
    FILE *f = fopen(path, "rb");
    if (!f) {
        print_message("SKIPPED: no %s (config/quickstart.sh fetches it)\n", path);
        skip();
    }
    fclose(f);
    if (!read_spec(path, &s, &e))
        fail_msg("%s", e.msg);
    assert_true(s.n_layers == 30 && s.n_embd == 576 && s.n_ff == 1536 && s.n_vocab == 49152);
    assert_true(s.n_heads == 9 && s.n_kv_heads == 3 && s.head_dim == 64 && s.rope.n_dims == 64);
    assert_turns(&s.rope, 9, 1e5, 1);
    assert_true(s.n_ctx_train == 8192 && s.norm_eps == 1e-5f);
    assert_true(s.tied_embeddings && !s.qkv_bias);
    assert_int_equal(s.n_params, 134515008);
    assert_int_equal(s.n_eos, 2);
    assert_true(s.eos[0] == 2 && s.eos[1] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_the_architecture_that_are_not_known_are_named),
        cmocka_unit_test(experts_weighed_among_the_chosen_are_renormalised),
        cmocka_unit_test(a_llama_is_read_with_the_defaults_of_what_it_leaves_out),
        cmocka_unit_test(ends_are_the_keys_and_control_tokens_with_known_texts),
        cmocka_unit_test(heads_may_differ_from_the_width),
        cmocka_unit_test(biases_and_tied_embeddings_are_seen),
        cmocka_unit_test(linear_rope_scaling_is_read_in_old_and_new_spelling),
        cmocka_unit_test(a_gemma3_is_read_with_what_its_file_does_not_say),
        cmocka_unit_test(a_gemma3_may_say_what_is_usually_known),
        cmocka_unit_test(the_largest_gemma3_scales_scores_by_its_width),
        cmocka_unit_test(what_a_gemma3_must_have_is_missed_by_name),
        cmocka_unit_test(what_a_gemma3_cannot_have_is_refused_by_name),
        cmocka_unit_test(neutral_values_of_unknown_features_are_fine),
        cmocka_unit_test(names_are_made_valid_utf8),
        cmocka_unit_test(other_architectures_are_refused_by_name),
        cmocka_unit_test(features_that_we_do_not_compute_are_refused_by_name),
        cmocka_unit_test(sizes_out_of_bounds_are_refused_with_the_bounds),
        cmocka_unit_test(numbers_that_make_no_sense_are_refused),
        cmocka_unit_test(missing_sizes_are_refused_by_name),
        cmocka_unit_test(missing_tensors_are_refused_by_name),
        cmocka_unit_test(tensors_that_would_not_be_used_are_refused),
        cmocka_unit_test(what_two_tensors_have_is_refused),
        cmocka_unit_test(rope_factors_are_checked),
        cmocka_unit_test(a_tokenizer_that_does_not_fit_the_model_is_refused),
        cmocka_unit_test(too_many_end_tokens_are_refused),
        cmocka_unit_test(golden_files_are_read),
        cmocka_unit_test(the_default_model_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
