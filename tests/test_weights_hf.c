#include "weights_hf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "log.h"

#include "test.h"

/* A llama of one layer: width 4, two heads of 2, one KV head, MLP of 6, 3 tokens. */
static const char llama[] =
    "{\"model_type\":\"llama\",\"hidden_size\":4,\"num_attention_heads\":2,\"head_dim\":2,"
    "\"num_key_value_heads\":1,\"num_hidden_layers\":1,\"intermediate_size\":6}";
static const struct {
    const char *name, *shape;
    int elems;
} llama_tensors[] = {
    {"model.embed_tokens.weight", "[3,4]", 12},
    {"model.layers.0.input_layernorm.weight", "[4]", 4},
    {"model.layers.0.self_attn.q_proj.weight", "[4,4]", 16},
    {"model.layers.0.self_attn.k_proj.weight", "[2,4]", 8},
    {"model.layers.0.self_attn.v_proj.weight", "[2,4]", 8},
    {"model.layers.0.self_attn.o_proj.weight", "[4,4]", 16},
    {"model.layers.0.post_attention_layernorm.weight", "[4]", 4},
    {"model.layers.0.mlp.gate_proj.weight", "[6,4]", 24},
    {"model.layers.0.mlp.up_proj.weight", "[6,4]", 24},
    {"model.layers.0.mlp.down_proj.weight", "[4,6]", 24},
    {"model.norm.weight", "[4]", 4},
};
enum { N_LLAMA = sizeof llama_tensors / sizeof *llama_tensors };

/* Weights in the making, then opened. Values count up from 0 through the whole file. */
struct made {
    struct buf header, file;
    int n_values, n_zeros; /* the last ones are 0 */
    json_t *config;
    struct model_spec spec;
    struct hf_shards *shards;
    struct weights *w;
};

static void add(struct made *m, const char *name, const char *shape, int elems)
{
    char entry[256];
    snprintf(entry, sizeof entry,
             "%s\"%s\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[%d,%d]}",
             m->header.len ? "," : "{", name, shape, 4 * m->n_values, 4 * (m->n_values + elems));
    buf_add_str(&m->header, entry);
    m->n_values += elems;
}

static void add_llama(struct made *m)
{
    for (int i = 0; i < N_LLAMA; i++)
        add(m, llama_tensors[i].name, llama_tensors[i].shape, llama_tensors[i].elems);
}

static bool open_made(struct made *m, const char *config, struct err *e)
{
    json_error_t why;
    char prefix[64];
    int64_t rows;
    struct hf_quant quant;
    buf_add_byte(&m->header, '}');
    const uint64_t n = m->header.len;
    buf_add(&m->file, &n, sizeof n);
    buf_add(&m->file, m->header.data, m->header.len);
    for (int i = 0; i < m->n_values; i++) {
        const float f = i < m->n_values - m->n_zeros ? (float)i : 0;
        buf_add(&m->file, &f, sizeof f);
    }
    m->config = json_loads(config, 0, &why);
    const struct hf_config c = {{"config.json"}, m->config, m->config, e};
    const struct hf_arch *a = m->config ? hf_arch_of(&c) : NULL;
    m->shards = hf_shards_open_memory(m->file.data, m->file.len, e);
    bool ok = a && m->shards && hf_find_embedding(m->shards, prefix, &rows, e) &&
              hf_quant_read(&c, a, &quant) && hf_spec_read(&c, a, rows, &m->spec);
    if (ok)
        m->w = weights_open_hf(m->shards, "dir", a, &quant, &m->spec, e);
    return m->w;
}

static void close_made(struct made *m)
{
    weights_close(m->w);
    hf_shards_close(m->shards);
    json_decref(m->config);
    buf_free(&m->header);
    buf_free(&m->file);
}

static void refused(struct made *m, const char *config, const char *part)
{
    struct err e = {0};
    if (open_made(m, config, &e))
        fail_msg("accepted: %s", m->header.data);
    assert_contains(e.msg, part);
    close_made(m);
}

/* The first value of what a canonical name gives. */
static float first(const struct made *m, const char *name, int expert, int64_t rows, int64_t cols)
{
    struct weight_view v, looked;
    struct err e;
    if (!weights_get(m->w, name, expert, rows, cols, &v, &e) ||
        !weights_check(m->w, name, expert, rows, cols, &looked, &e))
        fail_msg("%s", e.msg);
    assert_null(looked.data);
    assert_null(looked.owned);
    assert_int_equal(looked.dtype, v.dtype);
    assert_int_equal(v.dtype, DTYPE_F32);
    float f;
    memcpy(&f, v.data, sizeof f);
    weight_view_free(&v);
    return f;
}

static void get_refused(const struct made *m, const char *name, int64_t rows, int64_t cols,
                        const char *part)
{
    struct weight_view v;
    struct err e;
    assert_false(weights_get(m->w, name, -1, rows, cols, &v, &e));
    assert_contains(e.msg, part);
    e.msg[0] = '\0';
    assert_false(weights_check(m->w, name, -1, rows, cols, &v, &e));
    assert_contains(e.msg, part);
}

static void a_checkpoint_is_read_by_canonical_names(void **state)
{
    struct made m = {0};
    struct err e;
    add_llama(&m);
    add(&m, "lm_head.weight", "[3,4]", 12);
    if (!open_made(&m, llama, &e))
        fail_msg("%s", e.msg);
    assert_float_equal(first(&m, "token_embd.weight", -1, 3, 4), 0, 0);
    assert_float_equal(first(&m, "blk.0.attn_norm.weight", -1, 1, 4), 12, 0);
    assert_float_equal(first(&m, "blk.0.attn_k.weight", -1, 2, 4), 32, 0);
    assert_float_equal(first(&m, "output.weight", -1, 3, 4), m.n_values - 12, 0);
    assert_int_equal(weights_hf_elems(m.w), m.n_values);
    assert_true(weights_all_f32(m.w));
    get_refused(&m, "blk.0.attn_k.weight", 2, 5, "has the shape [2, 4], expected [2, 5]");
    get_refused(&m, "blk.1.attn_k.weight", 2, 4, "no tensor for blk.1.attn_k.weight");
    get_refused(&m, "blk.0.attn_k.bias", 1, 2, "no tensor for blk.0.attn_k.bias");
    get_refused(&m, "nothing", 1, 2, "no tensor for nothing");
    close_made(&m);
}

static void fused_tensors_are_given_in_parts(void **state)
{
    struct made m = {0};
    struct err e;
    add(&m, "model.embed_tokens.weight", "[3,4]", 12);
    add(&m, "model.layers.0.self_attn.qkv_proj.weight", "[8,4]", 32);
    add(&m, "model.layers.0.mlp.gate_up_proj.weight", "[12,4]", 48);
    if (!open_made(&m,
                   "{\"model_type\":\"phi3\",\"hidden_size\":4,\"num_attention_heads\":2,"
                   "\"num_key_value_heads\":1,\"num_hidden_layers\":1,\"intermediate_size\":6}",
                   &e))
        fail_msg("%s", e.msg);
    assert_float_equal(first(&m, "blk.0.attn_q.weight", -1, 4, 4), 12, 0);
    assert_float_equal(first(&m, "blk.0.attn_k.weight", -1, 2, 4), 12 + 16, 0);
    assert_float_equal(first(&m, "blk.0.attn_v.weight", -1, 2, 4), 12 + 24, 0);
    assert_float_equal(first(&m, "blk.0.ffn_gate.weight", -1, 6, 4), 44, 0);
    assert_float_equal(first(&m, "blk.0.ffn_up.weight", -1, 6, 4), 44 + 24, 0);
    get_refused(&m, "blk.0.ffn_up.weight", 5, 4, "has the shape [12, 4], expected [10, 4]");
    close_made(&m);
}

static void experts_lie_apart_or_stacked_or_across(void **state)
{
    struct made m = {0};
    struct err e;
    add(&m, "model.embed_tokens.weight", "[3,4]", 12);
    add(&m, "model.layers.0.mlp.experts.gate_up_proj", "[2,4,6]", 48);
    add(&m, "model.layers.0.mlp.experts.down_proj", "[2,3,4]", 24);
    add(&m, "model.layers.0.mlp.experts.gate_up_proj_bias", "[2,6]", 12);
    if (!open_made(&m,
                   "{\"model_type\":\"gpt_oss\",\"hidden_size\":4,\"num_attention_heads\":2,"
                   "\"head_dim\":2,\"num_key_value_heads\":1,\"num_hidden_layers\":1,"
                   "\"intermediate_size\":3,\"num_local_experts\":2,\"num_experts_per_tok\":1}",
                   &e))
        fail_msg("%s", e.msg);
    struct weight_view v;
    assert_true(weights_get(m.w, "blk.0.ffn_up_exps.weight", 1, 3, 4, &v, &e));
    const float *f = v.data; /* [out][in]: columns 1, 3, 5 of expert 1's [in][2 * out] */
    assert_float_equal(f[0], 12 + 24 + 1, 0);
    assert_float_equal(f[1], 12 + 24 + 6 + 1, 0);
    assert_float_equal(f[4], 12 + 24 + 3, 0);
    weight_view_free(&v);
    assert_true(weights_get(m.w, "blk.0.ffn_down_exps.weight", 1, 4, 3, &v, &e));
    f = v.data;
    assert_float_equal(f[0], 60 + 12, 0);
    assert_float_equal(f[1], 60 + 12 + 4, 0);
    assert_float_equal(f[3], 60 + 12 + 1, 0);
    weight_view_free(&v);
    assert_true(weights_get(m.w, "blk.0.ffn_gate_exps.bias", -1, 2, 3, &v, &e));
    f = v.data;
    assert_float_equal(f[1], 84 + 2, 0);
    assert_float_equal(f[3], 84 + 6, 0);
    weight_view_free(&v);
    close_made(&m);
}

static void gemmas_norms_are_one_more(void **state)
{
    struct made m = {0};
    struct err e;
    add(&m, "model.embed_tokens.weight", "[3,4]", 12);
    add(&m, "model.norm.weight", "[4]", 4);
    if (!open_made(&m, "{\"model_type\":\"gemma\",\"hidden_size\":4,\"num_hidden_layers\":1}", &e))
        fail_msg("%s", e.msg);
    assert_float_equal(first(&m, "output_norm.weight", -1, 1, 4), 13, 0);
    assert_float_equal(first(&m, "token_embd.weight", -1, 3, 4), 0, 0);
    close_made(&m);
}

static void what_a_model_has_no_use_for_is_passed_over(void **state)
{
    struct made m = {0};
    struct err e;
    add_llama(&m);
    const int n = m.n_values;
    add(&m, "lm_head.weight", "[3,4]", 12); /* tied: the embeddings count */
    add(&m, "model.layers.0.self_attn.rotary_emb.inv_freq", "[1]", 1);
    add(&m, "vision_tower.patch.weight", "[2]", 2);
    add(&m, "model.layers.0.self_attn.k_scale", "[]", 1);
    add(&m, "model.layers.0.self_attn.q_proj.bias", "[4]", 4); /* attention_bias is false */
    m.n_zeros = 4;
    if (!open_made(&m,
                   "{\"model_type\":\"llama\",\"hidden_size\":4,\"num_attention_heads\":2,"
                   "\"num_key_value_heads\":1,\"num_hidden_layers\":1,\"intermediate_size\":6,"
                   "\"tie_word_embeddings\":true}",
                   &e))
        fail_msg("%s", e.msg);
    assert_int_equal(weights_hf_elems(m.w), n);
    close_made(&m);
}

static void tensors_of_a_feature_that_is_not_there_are_refused(void **state)
{
    static const char *const names[] = {
        "model.layers.0.self_attn.q_norm.weight", "model.layers.1.input_layernorm.weight",
        "model.layers.0.mlp.router.weight",       "model.layers.0.self_attn.q_proj.lora_A",
        "model.layers.00.input_layernorm.weight", "score.weight",
        "model.layers.0.self_attn.q_proj.bias",   "model.layers.0.input_layernorm.bias",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct made m = {0};
        add_llama(&m);
        add(&m, names[i], "[4]", 4);
        refused(&m, llama, "is not part of a llama model as config.json describes it");
    }
    struct made m = {0};
    add(&m, "transformer.wte.weight", "[3,4]", 12);
    refused(&m, llama, "no tensor model.embed_tokens.weight");
}

static void kinds_of_quantisation_that_are_not_read_are_refused_by_name(void **state)
{
    static const char *const cases[][2] = {
        {"{\"quant_method\":\"bitsandbytes\"}", "quant_method \"bitsandbytes\""},
        {"{\"quant_method\":\"gptq\",\"bits\":8}", "not of 4 bits"},
        {"{\"quant_method\":\"awq\",\"version\":\"gemv\"}", "of another version than gemm"},
        {"{\"quant_method\":\"mxfp4\"}", "quant_method \"mxfp4\""},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\"}",
         "quant_method \"compressed-tensors\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct made m = {0};
        char config[512];
        add_llama(&m);
        snprintf(config, sizeof config, "%.*s,\"quantization_config\":%s}", (int)sizeof llama - 2,
                 llama, cases[i][0]);
        refused(&m, config, cases[i][1]);
    }
}

int main(void)
{
    log_setup(LOG_ERROR, LOG_TEXT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_is_read_by_canonical_names),
        cmocka_unit_test(fused_tensors_are_given_in_parts),
        cmocka_unit_test(experts_lie_apart_or_stacked_or_across),
        cmocka_unit_test(gemmas_norms_are_one_more),
        cmocka_unit_test(what_a_model_has_no_use_for_is_passed_over),
        cmocka_unit_test(tensors_of_a_feature_that_is_not_there_are_refused),
        cmocka_unit_test(kinds_of_quantisation_that_are_not_read_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
