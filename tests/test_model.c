/* A model file may say anything about its tensors: it is refused with a message or it runs. */
#include "model_rig.h"
#include "variant_build.h"

#include "test.h"

enum { N_TYPES = 44 }; /* ggml's numbers and some that mean nothing */

static const uint32_t matrix_types[] = {0, 1, 2, 3, 6, 7, 8, 20, 30, 39};
static const size_t n_matrix_types = sizeof matrix_types / sizeof *matrix_types;

/* Wide enough for the types whose blocks have 256 values */
static const uint32_t wide_types[] = {12, 13, 14, 10, 11, 16, 17, 18, 19,
                                      21, 22, 23, 29, 34, 35, 40, 41};
static const struct model_sizes model_wide = {8, 256, 256, 16, 4, 16, true};

static void tiny(struct gguf_build *b, uint32_t type)
{
    build_model(b, &model_tiny, type);
    fill_model(b);
}

/* Where tensor i's entry says its dims (their number just before) and, behind, its type. */
struct entry {
    char name[64];
    unsigned char *dims;
    int n_dims;
};

static struct entry entry_at(struct gguf_build *b, int i)
{
    unsigned char *at = (unsigned char *)b->file.data + 24 + b->keys.len;
    for (;; i--) {
        struct entry y = {0};
        uint64_t len;
        uint32_t n_dims;
        memcpy(&len, at, sizeof len);
        memcpy(y.name, at + 8, len);
        memcpy(&n_dims, at + 8 + len, sizeof n_dims);
        y.n_dims = (int)n_dims;
        y.dims = at + 8 + len + 4;
        if (i == 0)
            return y;
        at = y.dims + n_dims * 8 + 4 + 8;
    }
}

/* An error says which tensor, or an answer comes: no third. */
static bool runs_or_says_why(const struct gguf_build *b, const char *name)
{
    struct err e = {0};
    if (model_rig_run(b->file.data, b->file.len, &e))
        return true;
    assert_int_not_equal(e.code, ERR_NONE);
    assert_contains(e.msg, name);
    return false;
}

static void a_tiny_model_runs_with_matrices_of_every_type(void **state)
{
    for (size_t t = 0; t < n_matrix_types; t++) {
        struct gguf_build b = {0};
        struct err e = {0};
        tiny(&b, matrix_types[t]);
        if (!model_rig_run(b.file.data, b.file.len, &e))
            fail_msg("type %u: %s", matrix_types[t], e.msg);
        build_free(&b);
    }
    for (size_t t = 0; t < sizeof wide_types / sizeof *wide_types; t++) {
        struct gguf_build b = {0};
        struct err e = {0};
        build_model(&b, &model_wide, wide_types[t]);
        fill_model(&b);
        if (!model_rig_run(b.file.data, b.file.len, &e))
            fail_msg("type %u: %s", wide_types[t], e.msg);
        build_free(&b);
    }
}

static void a_norm_of_the_widest_blocks_is_refused(void **state)
{
    struct gguf_build b = {0};
    build_model(&b, &model_wide, 14);
    fill_model(&b);
    for (int i = 0; i < (int)b.n_tensors; i++) {
        struct entry y = entry_at(&b, i);
        uint64_t width;
        memcpy(&width, y.dims, sizeof width);
        for (size_t t = 0; y.n_dims == 1 && width == 256 && t < 3; t++) {
            struct err e = {0};
            memcpy(y.dims + 8, &wide_types[t], 4);
            assert_false(model_rig_run(b.file.data, b.file.len, &e));
            assert_contains(e.msg, y.name);
            assert_contains(e.msg, "expected F32");
            memset(y.dims + 8, 0, 4);
        }
    }
    build_free(&b);
}

static void a_quantised_norm_or_bias_is_refused_by_name(void **state)
{
    static const uint32_t quantised[] = {3, 8};
    struct gguf_build b = {0};
    tiny(&b, 0);
    for (int i = 0; i < (int)b.n_tensors; i++) {
        struct entry y = entry_at(&b, i);
        for (size_t t = 0; y.n_dims == 1 && t < 2; t++) {
            struct err e = {0};
            memcpy(y.dims + 8, &quantised[t], 4);
            assert_false(model_rig_run(b.file.data, b.file.len, &e));
            assert_contains(e.msg, y.name);
            uint64_t width;
            memcpy(&width, y.dims, sizeof width);
            if (width % 32 == 0) { /* others hold no whole block, which is said first */
                assert_contains(e.msg, quantised[t] == 8 ? "Q8_0" : "Q4_1");
                assert_contains(e.msg, "expected F32");
            }
            memset(y.dims + 8, 0, 4);
        }
    }
    build_free(&b);
}

static void any_type_of_any_tensor_runs_or_is_refused(void **state)
{
    int n_run = 0;
    for (size_t t = 0; t < n_matrix_types; t++) {
        struct gguf_build b = {0};
        tiny(&b, matrix_types[t]);
        for (int i = 0; i < (int)b.n_tensors; i++) {
            struct entry y = entry_at(&b, i);
            unsigned char *at = y.dims + y.n_dims * 8;
            uint32_t was;
            memcpy(&was, at, sizeof was);
            for (uint32_t type = 0; type < N_TYPES; type++) {
                memcpy(at, &type, sizeof type);
                n_run += runs_or_says_why(&b, y.name);
            }
            memcpy(at, &was, sizeof was);
        }
        build_free(&b);
    }
    assert_true(n_run > 300); /* the types that are right, and mixed ones */
}

static void any_dim_of_any_tensor_runs_or_is_refused(void **state)
{
    static const uint64_t dims[] = {0,  1,  2,   3,          8,          16,        31,        32,
                                    33, 64, 128, UINT32_MAX, 1ull << 40, INT64_MAX, UINT64_MAX};
    for (size_t t = 0; t < n_matrix_types; t++) {
        struct gguf_build b = {0};
        tiny(&b, matrix_types[t]);
        for (int i = 0; i < (int)b.n_tensors; i++) {
            struct entry y = entry_at(&b, i);
            for (int d = 0; d < y.n_dims; d++) {
                uint64_t was;
                memcpy(&was, y.dims + d * 8, sizeof was);
                for (size_t k = 0; k < sizeof dims / sizeof *dims; k++) {
                    memcpy(y.dims + d * 8, &dims[k], sizeof dims[k]);
                    runs_or_says_why(&b, "");
                }
                memcpy(y.dims + d * 8, &was, sizeof was);
            }
        }
        build_free(&b);
    }
}

/* Of every architecture; phi3 with tables for long contexts, and gate and up in one tensor */
static void build_kind(struct variant *v, int i)
{
    static const float factors[8] = {1, 2, 3, 1, 2, 3, 1, 2};
    *v = (struct variant){.arch = variant_kinds[i].arch};
    const bool phi3 = strcmp(v->arch, "phi3") == 0;
    if (phi3) {
        build_u32(&v->b, "phi3.rope.scaling.original_context_length", 8);
        build_tensor(&v->b, "rope_factors_long.weight", 3, 0);
        build_tensor(&v->b, "rope_factors_short.weight", 3, 0);
        build_tensor(&v->b, "blk.0.ffn_up.weight", 24, 80);
        v->without[0] = "blk.0.ffn_gate.weight";
        v->without[1] = "blk.0.ffn_up.weight";
    }
    build_variant(v);
    build_file(&v->b);
    fill_model(&v->b);
    if (phi3)
        for (int t = 0; t < 2; t++)
            memcpy((char *)v->b.file.data + v->b.file.len - v->b.data_bytes + 32 * t, factors, 32);
}

static void every_architecture_runs_a_step(void **state)
{
    for (int i = 0; i < N_VARIANT_KINDS; i++) {
        struct variant v;
        struct err e;
        build_kind(&v, i);
        if (!model_rig_run(v.b.file.data, v.b.file.len, &e))
            fail_msg("%s: %s", variant_kinds[i].arch, e.msg);
        build_free(&v.b);
    }
}

/* Whatever a tensor's dims say, and whatever its type. */
static void any_tensor_of_any_architecture_runs_or_is_refused(void **state)
{
    static const uint64_t dims[] = {0, 1, 2, 3, 4, 6, 8, 12, 23, 24, 25, 40, 80, 1ull << 40};
    static const uint32_t types[] = {0, 1, 3, 8, 14, 30, 39};
    for (int k = 0; k < N_VARIANT_KINDS; k++) {
        struct variant v;
        build_kind(&v, k);
        for (int i = 0; i < (int)v.b.n_tensors; i++) {
            struct entry y = entry_at(&v.b, i);
            unsigned char *type = y.dims + y.n_dims * 8;
            for (int d = 0; d < y.n_dims; d++) {
                uint64_t was;
                memcpy(&was, y.dims + d * 8, sizeof was);
                for (size_t n = 0; n < sizeof dims / sizeof *dims; n++) {
                    memcpy(y.dims + d * 8, &dims[n], sizeof was);
                    runs_or_says_why(&v.b, "");
                }
                memcpy(y.dims + d * 8, &was, sizeof was);
            }
            for (size_t n = 0; n < sizeof types / sizeof *types; n++) {
                memcpy(type, &types[n], sizeof *types);
                runs_or_says_why(&v.b, "");
            }
            memset(type, 0, 4);
        }
        build_free(&v.b);
    }
}

static void odd_sizes_run_or_are_refused(void **state)
{
    static const uint32_t sizes[] = {1, 2, 3, 16, 17, 33};
    enum { N = sizeof sizes / sizeof *sizes };
    for (int i = 0; i < N * N * N; i++) {
        const struct model_sizes s = {.n_vocab = sizes[i % N],
                                      .n_embd = sizes[i / N % N],
                                      .n_ff = sizes[i / N / N],
                                      .n_heads = 3,
                                      .n_kv_heads = i % 2 ? 3 : 1,
                                      .head_dim = i % 3 ? 2 : 6,
                                      .biases = i % 5 > 1};
        struct gguf_build b = {0};
        build_model(&b, &s, i % 2);
        fill_model(&b);
        bool one_row = s.n_vocab == 1 || s.n_embd == 1 || s.n_ff == 1;
        if (runs_or_says_why(&b, "one row") == one_row)
            fail_msg("vocabulary %u, width %u, feed-forward %u", s.n_vocab, s.n_embd, s.n_ff);
        build_free(&b);
    }
}

/* --- what only whole models show --- */

static bool variant_runs(struct variant v, struct err *e)
{
    build_variant(&v);
    build_file(&v.b);
    fill_model(&v.b);
    const bool ok = model_rig_run(v.b.file.data, v.b.file.len, e);
    build_free(&v.b);
    return ok;
}

static void experts_in_tensors_of_their_own_are_of_one_class(void **state)
{
    struct err e;
    const struct variant v = {.arch = "llama", .experts = true, .times = 4, .apart = true};
    struct variant all = v, first = v, others = v;
    assert_true(variant_runs(v, &e));
    all.type = all.first_type = 8;
    assert_true(variant_runs(all, &e));
    first.first_type = 8;
    assert_false(variant_runs(first, &e));
    assert_contains(e.msg, "tensor blk.0.ffn_gate.1.weight is of type F32, expected a type that is "
                           "quantised");
    others.type = 8;
    assert_false(variant_runs(others, &e));
    assert_contains(e.msg, "tensor blk.0.ffn_gate.1.weight is of type Q8_0, expected a type that "
                           "is not quantised");
}

static void a_fused_tensor_with_rows_too_many_is_refused(void **state)
{
    struct err e;
    assert_true(variant_runs((struct variant){.arch = "phi3", .fused = 1}, &e));
    assert_false(variant_runs((struct variant){.arch = "phi3", .fused = 2}, &e));
    assert_contains(e.msg, "tensor blk.0.attn_qkv.weight has the dims [24, 49], expected [24, 48]");
}

static bool variant_checks(struct variant v, uint64_t *bytes, struct err *e)
{
    build_variant(&v);
    build_file(&v.b);
    struct model_file *f = model_file_open_memory(v.b.file.data, v.b.file.len, e);
    const struct model_spec *s = f ? model_file_spec(f, e) : NULL;
    if (!s)
        fail_msg("%s", e->msg);
    const bool ok = model_check(model_file_weights(f, e), s, bytes, NULL, e);
    model_file_close(f);
    build_free(&v.b);
    return ok;
}

static void a_model_can_be_checked_without_loading(void **state)
{
    struct err e;
    uint64_t bytes;
    struct variant v = {.arch = "gpt-oss"};
    assert_true(variant_checks(v, &bytes, &e));
    v = (struct variant){.n_layers = 1};
    const uint64_t layer = 4 * (24 + 24 * 24 + 2 * 12 * 24 + 24 * 24 + 24 + 3 * 40 * 24);
    assert_true(variant_checks(v, &bytes, &e));
    assert_int_equal(bytes, layer + 4 * (2 * 24 * 10 + 24));
    v = (struct variant){.arch = "phi3", .fused = 2};
    assert_false(variant_checks(v, &bytes, &e));
    assert_contains(e.msg, "expected [24, 48]");
    v = (struct variant){.experts = true, .times = 4, .apart = true, .first_type = 8};
    assert_false(variant_checks(v, &bytes, &e));
    assert_contains(e.msg, "blk.0.ffn_gate.1.weight is of type F32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_can_be_checked_without_loading),
        cmocka_unit_test(experts_in_tensors_of_their_own_are_of_one_class),
        cmocka_unit_test(a_fused_tensor_with_rows_too_many_is_refused),
        cmocka_unit_test(a_tiny_model_runs_with_matrices_of_every_type),
        cmocka_unit_test(a_quantised_norm_or_bias_is_refused_by_name),
        cmocka_unit_test(a_norm_of_the_widest_blocks_is_refused),
        cmocka_unit_test(any_type_of_any_tensor_runs_or_is_refused),
        cmocka_unit_test(any_dim_of_any_tensor_runs_or_is_refused),
        cmocka_unit_test(every_architecture_runs_a_step),
        cmocka_unit_test(any_tensor_of_any_architecture_runs_or_is_refused),
        cmocka_unit_test(odd_sizes_run_or_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
