#include "hf_spec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"

#include "test.h"

/* The spec of a config.json, which has double quotes where this has single ones. */
static bool read_text(const char *text, struct model_spec *out, struct err *e)
{
    json_error_t why;
    char *json = strdup(text);
    for (char *at = json; (at = strchr(at, '\'')); at++)
        *at = '"';
    json_t *config = json_loads(json, 0, &why);
    if (!config)
        fail_msg("%s: %s", why.text, json);
    free(json);
    const json_t *inner = hf_get(config, "text_config");
    const struct hf_config c = {{"config.json"}, config, inner ? inner : config, e};
    const struct hf_arch *a = hf_arch_of(&c);
    bool ok = a && hf_spec_read(&c, a, 100, out);
    json_decref(config);
    return ok;
}

static struct model_spec spec_of(const char *text)
{
    struct model_spec s;
    struct err e;
    if (!read_text(text, &s, &e))
        fail_msg("%s: %s", text, e.msg);
    return s;
}

static void refused(const char *text, enum err_code code, const char *part)
{
    struct model_spec s;
    struct err e = {0};
    if (read_text(text, &s, &e))
        fail_msg("accepted: %s", text);
    assert_contains(e.msg, part);
    assert_contains(e.msg, "config.json");
    assert_int_equal(e.code, code);
}

#define LLAMA "'architectures':['LlamaForCausalLM']"
#define SMALL                                                                                      \
    "'hidden_size':64,'num_attention_heads':4,'num_key_value_heads':4,'num_hidden_layers':4"

static void what_a_config_leaves_out_is_as_in_transformers(void **state)
{
    struct model_spec s = spec_of("{" LLAMA "}");
    assert_string_equal(s.architecture, "llama");
    assert_int_equal(s.n_embd, 4096);
    assert_int_equal(s.n_ff, 11008);
    assert_int_equal(s.n_layers, 32);
    assert_int_equal(s.n_kv_heads, 32);
    assert_int_equal(s.head_dim, 128);
    assert_int_equal(s.n_ctx_train, 2048);
    assert_int_equal(s.n_vocab, 100); /* the embedding's rows */
    assert_int_equal(s.rope_style, ROPE_NEOX);
    assert_float_equal(s.norm_eps, 1e-6, 1e-12);
    assert_float_equal(s.rope.inv_freq[1], pow(10000, -2.0 / 128), 1e-7);
    assert_false(s.tied_embeddings || s.qkv_bias || s.o_bias || s.mlp_bias);
    s = spec_of("{'model_type':'mistral','num_key_value_heads':null}");
    assert_int_equal(s.n_kv_heads, 32);
    assert_int_equal(s.window, 4096);
    s = spec_of("{'text_config':{'hidden_size':2560,'num_hidden_layers':34},'architectures':"
                "['Gemma3ForConditionalGeneration'],'vision_config':{}}");
    assert_string_equal(s.architecture, "gemma3");
    assert_int_equal(s.n_heads, 8);
    assert_int_equal(s.n_kv_heads, 4);
    assert_int_equal(s.head_dim, 256);
    assert_true(s.tied_embeddings);
    assert_float_equal(s.attention_scale, 1.0 / 16, 1e-7);
    assert_float_equal(s.rope.inv_freq[1], pow(1e6, -2.0 / 256), 1e-7);
    assert_float_equal(s.rope_local.inv_freq[1], pow(1e4, -2.0 / 256), 1e-7);
}

static void biases_are_as_the_architecture_names_them(void **state)
{
    struct model_spec s = spec_of("{" LLAMA ",'attention_bias':true,'mlp_bias':false}");
    assert_true(s.qkv_bias && s.o_bias && !s.mlp_bias);
    s = spec_of("{'model_type':'qwen2'}");
    assert_true(s.qkv_bias && !s.o_bias);
    s = spec_of("{'model_type':'starcoder2'}");
    assert_true(s.qkv_bias && s.o_bias && s.mlp_bias && s.tied_embeddings);
    s = spec_of("{'model_type':'starcoder2','use_bias':false}");
    assert_false(s.qkv_bias || s.o_bias || s.mlp_bias);
    assert_true(s.norm_bias);
    s = spec_of("{'model_type':'phi'}");
    assert_true(s.qkv_bias && s.o_bias && s.mlp_bias && s.out_bias);
    s = spec_of("{'model_type':'glm4'}");
    assert_true(s.qkv_bias && !s.o_bias);
    s = spec_of("{'model_type':'stablelm','use_qkv_bias':true,'use_parallel_residual':true}");
    assert_true(s.qkv_bias && !s.o_bias && s.parallel);
}

/* Layers that have the flag, as a string of digits. */
static void expect_layers(const char *text, enum layer_flags f, const char *want)
{
    const struct model_spec s = spec_of(text);
    char got[64] = "";
    for (int i = 0; i < s.n_layers; i++)
        got[i] = model_spec_layer_has(&s, i, f) ? '1' : '0';
    if (strcmp(got, want) != 0)
        fail_msg("%s: %s, expected %s", text, got, want);
}

static void windows_are_those_of_the_layers_that_have_them(void **state)
{
    const enum layer_flags w = LAYER_WINDOWED;
    expect_layers("{" SMALL ",'model_type':'mistral','sliding_window':8}", w, "1111");
    expect_layers("{" SMALL ",'model_type':'mistral','sliding_window':null}", w, "0000");
    expect_layers("{" SMALL ",'model_type':'llama','sliding_window':8}", w, "0000");
    expect_layers("{" SMALL ",'model_type':'mixtral'}", w, "0000");
    expect_layers("{" SMALL ",'model_type':'phi3','sliding_window':8}", w, "1111");
    expect_layers("{" SMALL ",'model_type':'qwen2','sliding_window':8}", w, "0000");
    expect_layers("{" SMALL ",'model_type':'qwen2','sliding_window':8,"
                  "'use_sliding_window':true,'max_window_layers':1}",
                  w, "0111");
    expect_layers("{" SMALL ",'model_type':'qwen3','sliding_window':8,"
                  "'use_sliding_window':true,'layer_types':['full_attention','sliding_attention',"
                  "'full_attention','full_attention']}",
                  w, "0100");
    expect_layers("{" SMALL ",'model_type':'gemma2'}", w, "1010");
    expect_layers("{" SMALL ",'model_type':'gemma3_text'}", w, "1111");
    expect_layers("{" SMALL ",'model_type':'gemma3_text','sliding_window_pattern':3}", w, "1101");
    expect_layers("{" SMALL ",'model_type':'gemma3_text','sliding_window_pattern':3}",
                  LAYER_ROPE_LOCAL, "1101");
    expect_layers("{" SMALL ",'model_type':'olmo2'}", w, "0000");
    expect_layers("{" SMALL ",'model_type':'olmo3'}", w, "1110");
    expect_layers("{" SMALL ",'model_type':'cohere2'}", w, "1110");
    expect_layers("{" SMALL ",'model_type':'cohere2'}", LAYER_NO_ROPE, "0001");
    expect_layers("{" SMALL ",'model_type':'gpt_oss'}", w, "1010");
    expect_layers("{" SMALL ",'model_type':'smollm3'}", LAYER_NO_ROPE, "0001");
    expect_layers("{" SMALL ",'model_type':'smollm3','no_rope_layer_interval':2}", LAYER_NO_ROPE,
                  "0101");
    expect_layers("{" SMALL ",'model_type':'smollm3','no_rope_layers':[0,1,1,0],"
                  "'use_sliding_window':true,'sliding_window':8}",
                  w, "1001");
    expect_layers("{" SMALL ",'model_type':'qwen3_moe','decoder_sparse_step':2,"
                  "'mlp_only_layers':[3]}",
                  LAYER_DENSE, "1011");
}

static void expect_same_rope(const char *a, const char *b)
{
    const struct model_spec x = spec_of(a), y = spec_of(b);
    assert_memory_equal(&x.rope, &y.rope, sizeof x.rope);
    assert_memory_equal(&x.rope_local, &y.rope_local, sizeof x.rope_local);
    assert_int_equal(x.n_ctx_train, y.n_ctx_train);
}

static void both_spellings_of_rotary_settings_mean_the_same(void **state)
{
    expect_same_rope("{" LLAMA ",'rope_theta':500000,'rope_scaling':{'rope_type':'llama3','factor':"
                     "8,'low_freq_factor':1,'high_freq_factor':4,"
                     "'original_max_position_embeddings':512}}",
                     "{" LLAMA ",'rope_parameters':{'rope_theta':5e5,'type':'llama3','factor':8.0,"
                     "'low_freq_factor':1.0,'high_freq_factor':4.0,"
                     "'original_max_position_embeddings':512}}");
    expect_same_rope("{" LLAMA ",'rope_scaling':{'type':'linear','factor':4}}",
                     "{" LLAMA ",'rope_parameters':{'rope_type':'linear','factor':4}}");
    expect_same_rope("{" SMALL ",'model_type':'gemma3_text','rope_theta':9e5,"
                     "'rope_local_base_freq':8e3,'rope_scaling':{'rope_type':'linear','factor':8}}",
                     "{" SMALL ",'model_type':'gemma3_text','rope_parameters':{'full_attention':"
                     "{'rope_type':'linear','factor':8,'rope_theta':9e5},'sliding_attention':"
                     "{'rope_type':'default','rope_theta':8e3}}}");
    expect_same_rope("{" SMALL ",'model_type':'phi','partial_rotary_factor':0.25}",
                     "{" SMALL ",'model_type':'phi','rope_parameters':{'partial_rotary_factor':"
                     "0.25,'rope_type':'default'}}");
    expect_same_rope("{" LLAMA ",'rope_scaling':null}",
                     "{" LLAMA ",'rope_scaling':{'type':'dynamic','factor':4}}");
}

static void scalings_change_frequencies_and_context(void **state)
{
    const struct model_spec plain = spec_of("{" LLAMA "}");
    struct model_spec s = spec_of("{" LLAMA ",'rope_scaling':{'type':'linear','factor':4}}");
    assert_float_equal(s.rope.inv_freq[5] * 4, plain.rope.inv_freq[5], 1e-7);
    assert_int_equal(s.n_ctx_train, 2048);
    s = spec_of("{" LLAMA ",'rope_scaling':{'type':'yarn','factor':4}}");
    assert_int_equal(s.n_ctx_train, 4 * 2048);
    assert_float_equal(s.rope.mscale, 0.1 * log(4) + 1, 1e-6);
    assert_float_equal(s.rope.inv_freq[0], plain.rope.inv_freq[0], 1e-9);
    assert_float_equal(s.rope.inv_freq[63] * 4, plain.rope.inv_freq[63], 1e-9);
    s = spec_of("{" LLAMA ",'rope_scaling':{'type':'yarn','factor':4,'mscale':2,"
                "'mscale_all_dim':1}}");
    assert_float_equal(s.rope.mscale, (0.2 * log(4) + 1) / (0.1 * log(4) + 1), 1e-6);
    s = spec_of("{" LLAMA ",'rope_scaling':{'type':'yarn','factor':4,'attention_factor':1.5}}");
    assert_float_equal(s.rope.mscale, 1.5, 1e-6);
    s = spec_of("{" SMALL ",'model_type':'phi3','max_position_embeddings':512,"
                "'original_max_position_embeddings':128,'rope_scaling':{'type':'su',"
                "'short_factor':[1,2,1,1,1,1,1,1],'long_factor':[1,4,1,1,1,1,1,1]}}");
    assert_int_equal(s.rope_long_above, 128);
    assert_float_equal(s.rope.inv_freq[1], 2 * s.rope_long.inv_freq[1], 1e-7);
    assert_float_equal(s.rope.mscale, sqrt(1 + log(4) / log(128)), 1e-6);
    assert_float_equal(s.rope_long.mscale, s.rope.mscale, 0);
}

static void gpt_oss_is_stretched_where_its_config_says_nothing(void **state)
{
    const char *said = "{'model_type':'gpt_oss','rope_scaling':{'rope_type':'yarn','factor':32,"
                       "'beta_fast':32,'beta_slow':1,'truncate':false,"
                       "'original_max_position_embeddings':4096}}";
    expect_same_rope("{'model_type':'gpt_oss'}", said);
    expect_same_rope("{'model_type':'gpt_oss','rope_scaling':null,'transformers_version':'5.1.0'}",
                     said);
    struct model_spec s = spec_of("{'model_type':'gpt_oss'}");
    assert_float_equal(s.rope.mscale, 0.1 * log(32) + 1, 1e-6);
    assert_float_equal(s.rope.inv_freq[31], pow(150000, -62.0 / 64) / 32, 1e-12);
    s = spec_of("{'model_type':'gpt_oss','rope_scaling':null}");
    assert_float_equal(s.rope.mscale, 1, 0);
    s = spec_of("{'model_type':'gpt_oss','rope_parameters':{'rope_theta':1e4}}");
    assert_float_equal(s.rope.mscale, 1, 0);
    assert_float_equal(s.rope.inv_freq[1], pow(1e4, -2.0 / 64), 1e-7);
}

static void phi_3_was_trained_on_4096_tokens_where_its_config_says_nothing(void **state)
{
    const struct model_spec s =
        spec_of("{" SMALL ",'model_type':'phi3','max_position_embeddings':131072,"
                "'rope_scaling':{'type':'longrope','short_factor':[1,1,1,1,1,1,1,1],"
                "'long_factor':[1,4,1,1,1,1,1,1]}}");
    assert_int_equal(s.rope_long_above, 4096);
    assert_float_equal(s.rope.mscale, sqrt(1 + log(32) / log(4096)), 1e-6);
}

static void theta_is_the_default_of_the_version_that_wrote_the_file(void **state)
{
    static const char *const types[] = {"cohere", "olmo3"};
    for (int i = 0; i < 2; i++) {
        char text[256];
        const char *const v5[] = {"'transformers_version':'5.0.0'", "'rope_parameters':{}"};
        for (int k = 0; k < 2; k++) {
            snprintf(text, sizeof text, "{" SMALL ",'model_type':'%s',%s}", types[i], v5[k]);
            assert_float_equal(spec_of(text).rope.inv_freq[1], pow(5e5, -2.0 / 16), 1e-7);
        }
        snprintf(text, sizeof text, "{" SMALL ",'model_type':'%s','transformers_version':'4.57.1'}",
                 types[i]);
        assert_float_equal(spec_of(text).rope.inv_freq[1], pow(1e4, -2.0 / 16), 1e-7);
    }
    const struct model_spec s = spec_of("{" LLAMA ",'transformers_version':'5.0.0'}");
    assert_float_equal(s.rope.inv_freq[1], pow(1e4, -2.0 / 128), 1e-7);
}

static void ministral_3_is_served_within_its_original_context(void **state)
{
    const char *rope = "'rope_parameters':{'rope_type':'yarn','rope_theta':1e6,'factor':16,"
                       "'original_max_position_embeddings':16384,'mscale':1,'mscale_all_dim':1,"
                       "'llama_4_scaling_beta':0.1}";
    char text[512];
    snprintf(text, sizeof text,
             "{'architectures':['Mistral3ForConditionalGeneration'],'vision_config':{},"
             "'text_config':{'model_type':'ministral3',%s}}",
             rope);
    const struct model_spec s = spec_of(text);
    assert_int_equal(s.n_ctx_train, 16384);
    assert_int_equal(s.window, 0);
    assert_int_equal(s.n_layers, 34);
    assert_float_equal(s.rope.mscale, 1, 0);
    refused("{'model_type':'ministral3'}", ERR_INVALID, "rope_parameters is missing");
    refused("{'architectures':['Mistral3ForConditionalGeneration'],'text_config':{'model_type':"
            "'ministral9'}}",
            ERR_UNSUPPORTED, "\"ministral9\" is not supported");
}

static void gelu_of_a_gemma_is_the_approximation(void **state)
{
    assert_int_equal(spec_of("{'model_type':'gemma','hidden_act':'gelu'}").act, ACT_GELU_TANH);
    assert_int_equal(spec_of("{'model_type':'phi','hidden_act':'gelu'}").act, ACT_GELU);
}

static void scales_are_those_of_the_architecture(void **state)
{
    struct model_spec s = spec_of("{" SMALL ",'model_type':'granite','embedding_multiplier':12,"
                                  "'residual_multiplier':0.22,'attention_multiplier':0.0078,"
                                  "'logits_scaling':8}");
    assert_float_equal(s.embedding_scale, 12, 0);
    assert_float_equal(s.residual_scale, 0.22, 1e-6);
    assert_float_equal(s.attention_scale, 0.0078, 1e-7);
    assert_float_equal(s.logit_scale, 0.125, 1e-7);
    s = spec_of("{" SMALL ",'model_type':'cohere'}");
    assert_float_equal(s.logit_scale, 0.0625, 0);
    assert_int_equal(s.rope_style, ROPE_NORMAL);
    assert_false(s.qk_norm);
    s = spec_of("{" SMALL ",'model_type':'gemma2','attn_logit_softcapping':null}");
    assert_float_equal(s.attention_soft_cap, 0, 0);
    assert_float_equal(s.logit_soft_cap, 30, 0);
    assert_float_equal(s.embedding_scale, 8, 1e-6);
    s = spec_of("{" SMALL ",'model_type':'qwen2_moe'}");
    assert_false(s.router_renormalise);
    assert_int_equal(s.n_ff, 0);
    assert_int_equal(s.n_ff_expert, 1408);
    assert_int_equal(s.n_ff_shared, 5632);
    assert_int_equal(s.n_experts, 60);
    s = spec_of("{" SMALL ",'model_type':'mixtral'}");
    assert_true(s.router_renormalise);
    assert_int_equal(s.n_ff_expert, 14336);
}

static void what_is_not_computed_is_refused_by_name(void **state)
{
    const enum err_code no = ERR_UNSUPPORTED, bad = ERR_INVALID;
    refused("{'architectures':['DeepseekV3ForCausalLM']}", no, "multi-head latent attention");
    refused("{'model_type':'deepseek_v2'}", no, "multi-head latent attention");
    refused("{'architectures':['BertModel']}", no, "\"BertModel\" is not supported");
    refused("{}", bad, "neither architectures nor model_type");
    refused("{'architectures':[7]}", bad, "expected a list of names");
    refused("{" LLAMA ",'hidden_act':'relu'}", no, "hidden_act is \"relu\"");
    refused("{" LLAMA ",'rope_scaling':{'type':'mrope'}}", no, "rope_type is \"mrope\"");
    refused("{" LLAMA ",'partial_rotary_factor':0.5}", no, "partial_rotary_factor is 0.5");
    refused("{" SMALL ",'model_type':'phi','qk_layernorm':true}", no, "qk_layernorm true");
    refused("{" SMALL ",'model_type':'gemma3_text','use_bidirectional_attention':true}", no,
            "use_bidirectional_attention is not supported");
    refused("{" SMALL ",'model_type':'gemma3_text','use_bidirectional_attention':1}", no,
            "use_bidirectional_attention is not supported");
    refused("{'model_type':'gpt_oss','swiglu_limit':5}", no, "swiglu_limit 5");
    refused("{" SMALL ",'model_type':'gemma2','layer_types':['full_attention',"
            "'chunked_attention','full_attention','full_attention']}",
            no, "layer_types has \"chunked_attention\" at layer 1");
    refused("{" SMALL ",'model_type':'phi3','rope_scaling':{'type':'longrope','short_mscale':1.1,"
            "'short_factor':[],'long_factor':[]}}",
            no, "short_mscale");
    refused("{" LLAMA ",'head_dim':65}", no, "heads of 65");
}

static void wrong_values_are_refused_with_what_would_be_right(void **state)
{
    const enum err_code bad = ERR_INVALID;
    refused("{" LLAMA ",'hidden_size':'64'}", bad, "hidden_size is \"64\", expected a whole");
    refused("{" LLAMA ",'hidden_size':-1}", bad, "hidden_size is -1, expected 1 to");
    refused("{" LLAMA ",'hidden_size':1e300}", bad, "hidden_size is 1e300");
    refused("{" LLAMA ",'num_hidden_layers':100000}", bad, "num_hidden_layers is 100000");
    refused("{" LLAMA ",'num_attention_heads':3}", bad, "does not divide by");
    refused("{" LLAMA ",'num_key_value_heads':5}", bad, "num_key_value_heads, 5");
    refused("{" LLAMA ",'rms_norm_eps':'x'}", bad, "rms_norm_eps is \"x\"");
    refused("{" LLAMA ",'attention_bias':1}", bad, "attention_bias is 1, expected true or false");
    refused("{" LLAMA ",'rope_scaling':{'type':'linear'}}", bad, "factor is missing");
    refused("{" LLAMA ",'rope_scaling':{'type':'linear','factor':0}}", bad, "factor is 0");
    refused("{" LLAMA ",'rope_scaling':7}", bad, "the rotary settings are 7");
    refused("{" LLAMA ",'rope_scaling':{'type':'llama3','factor':8,'low_freq_factor':4,"
            "'high_freq_factor':1}}",
            bad, "high_freq_factor is 1");
    refused("{" SMALL ",'model_type':'gemma2','layer_types':[]}", bad, "expected a list of 4");
    refused("{" SMALL ",'model_type':'phi3','rope_scaling':{'type':'longrope','short_factor':"
            "[1,2],'long_factor':[1,2]}}",
            bad, "expected a list of 8 numbers");
    refused("{'model_type':'mixtral','num_local_experts':1}", bad, "num_local_experts is 1");
    refused("{'model_type':'mixtral','num_experts_per_tok':9}", bad, "num_experts_per_tok is 9");
}

int main(void)
{
    log_setup(LOG_ERROR, LOG_TEXT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_config_leaves_out_is_as_in_transformers),
        cmocka_unit_test(biases_are_as_the_architecture_names_them),
        cmocka_unit_test(windows_are_those_of_the_layers_that_have_them),
        cmocka_unit_test(both_spellings_of_rotary_settings_mean_the_same),
        cmocka_unit_test(scalings_change_frequencies_and_context),
        cmocka_unit_test(gpt_oss_is_stretched_where_its_config_says_nothing),
        cmocka_unit_test(phi_3_was_trained_on_4096_tokens_where_its_config_says_nothing),
        cmocka_unit_test(theta_is_the_default_of_the_version_that_wrote_the_file),
        cmocka_unit_test(ministral_3_is_served_within_its_original_context),
        cmocka_unit_test(gelu_of_a_gemma_is_the_approximation),
        cmocka_unit_test(scales_are_those_of_the_architecture),
        cmocka_unit_test(what_is_not_computed_is_refused_by_name),
        cmocka_unit_test(wrong_values_are_refused_with_what_would_be_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
