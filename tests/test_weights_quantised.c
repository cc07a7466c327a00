#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_build.h"
#include "weights_quantised.h"

#include "test.h"

/* Tensors of F16, but one quantised, each [cols][rows] of values from -1 to 1. */
struct opened {
    struct gguf_build b;
    struct gguf *g;
    struct weights *file, *w;
    struct backend *backend;
};

static const struct {
    const char *name;
    uint64_t cols, rows;
    uint32_t ggml_type;
} tensors[] = {
    {"token_embd.weight", 512, 5, 1},        {"output.weight", 256, 5, 1},
    {"blk.0.attn_q.weight", 768, 40, 1},     {"blk.0.attn_k.weight", 96, 7, 1},
    {"blk.0.attn_v.weight", 40, 7, 1},       {"blk.0.attn_output.weight", 256, 4, 8},
    {"blk.0.attn_q_norm.weight", 256, 4, 1}, {"blk.0.ffn_gate_inp.weight", 256, 4, 1},
    {"blk.0.ffn_gate_exps.bias", 256, 4, 1}, {"blk.0.ffn_norm.weight", 256, 0, 1},
};
#define N_TENSORS (sizeof tensors / sizeof *tensors)

static float value(uint64_t i)
{
    return sinf((float)i * 0.7f) * 0.9f;
}

static void open_built(struct opened *o, enum dtype t)
{
    struct err e;
    const struct backend_config c = {2, 1, 1, 1, 1};
    *o = (struct opened){0};
    for (size_t i = 0; i < N_TENSORS; i++) {
        const uint64_t dims[] = {tensors[i].cols, tensors[i].rows};
        uint64_t n = dims[0] * (dims[1] ? dims[1] : 1);
        build_tensor_raw(&o->b, tensors[i].name, tensors[i].ggml_type, dims[1] ? 2 : 1, dims,
                         o->b.data_bytes);
        o->b.data_bytes += (n * 2 + 31) / 32 * 32;
    }
    build_file(&o->b);
    for (uint64_t i = 0; i < o->b.data_bytes / 2; i++) {
        uint16_t h = f32_to_f16(value(i));
        memcpy(o->b.file.data + o->b.file.len - o->b.data_bytes + 2 * i, &h, 2);
    }
    o->g = gguf_open_memory(o->b.file.data, o->b.file.len, &e);
    o->file = o->g ? weights_open_gguf(o->g, &e) : NULL;
    o->backend = backend_cpu_open(&c, &e);
    o->w = o->file && o->backend ? weights_open_quantised(o->file, t, o->backend, &e) : NULL;
    if (!o->w)
        fail_msg("%s", e.msg);
}

static void close_built(struct opened *o)
{
    weights_close(o->w);
    weights_close(o->file);
    o->backend->ops->close(o->backend);
    gguf_close(o->g);
    build_free(&o->b);
}

static struct weight_view view_of(const struct weights *w, size_t i)
{
    struct weight_view v;
    struct err e;
    const int64_t rows = tensors[i].rows ? (int64_t)tensors[i].rows : 1;
    if (!weights_get(w, tensors[i].name, -1, rows, (int64_t)tensors[i].cols, &v, &e))
        fail_msg("%s", e.msg);
    return v;
}

static void each_is(enum dtype asked, const enum dtype *types)
{
    struct opened o;
    open_built(&o, asked);
    for (size_t i = 0; i < N_TENSORS; i++) {
        struct weight_view v = view_of(o.w, i);
        if (v.dtype != types[i])
            fail_msg("%s asked, %s is %s, expected %s", dtype_info(asked)->name, tensors[i].name,
                     dtype_info(v.dtype)->name, dtype_info(types[i])->name);
        struct weight_view looked;
        struct err e;
        assert_true(weights_check(o.w, tensors[i].name, -1, v.rows, v.cols, &looked, &e));
        assert_int_equal(looked.dtype, v.dtype);
        assert_null(looked.data);
        weight_view_free(&v);
    }
    close_built(&o);
}

static void matrices_are_quantised_as_far_as_their_rows_allow(void **state)
{
    each_is(DTYPE_Q4_K,
            (const enum dtype[]){DTYPE_Q6_K, DTYPE_Q6_K, DTYPE_Q4_K, DTYPE_Q5_0, DTYPE_F16,
                                 DTYPE_Q8_0, DTYPE_F16, DTYPE_F16, DTYPE_F16, DTYPE_F16});
    each_is(DTYPE_Q5_K,
            (const enum dtype[]){DTYPE_Q6_K, DTYPE_Q6_K, DTYPE_Q5_K, DTYPE_Q5_1, DTYPE_F16,
                                 DTYPE_Q8_0, DTYPE_F16, DTYPE_F16, DTYPE_F16, DTYPE_F16});
    each_is(DTYPE_Q6_K,
            (const enum dtype[]){DTYPE_Q6_K, DTYPE_Q6_K, DTYPE_Q6_K, DTYPE_Q8_0, DTYPE_F16,
                                 DTYPE_Q8_0, DTYPE_F16, DTYPE_F16, DTYPE_F16, DTYPE_F16});
    each_is(DTYPE_Q4_0,
            (const enum dtype[]){DTYPE_Q6_K, DTYPE_Q6_K, DTYPE_Q4_0, DTYPE_Q4_0, DTYPE_F16,
                                 DTYPE_Q8_0, DTYPE_F16, DTYPE_F16, DTYPE_F16, DTYPE_F16});
    each_is(DTYPE_Q8_0,
            (const enum dtype[]){DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_F16,
                                 DTYPE_Q8_0, DTYPE_F16, DTYPE_F16, DTYPE_F16, DTYPE_F16});
}

static void every_row_is_near_what_the_file_has(void **state)
{
    static float want[40 * 768], got[40 * 768];
    struct opened o;
    open_built(&o, DTYPE_Q5_1);
    for (size_t i = 0; i < 4; i++) {
        struct weight_view v = view_of(o.w, i), from = view_of(o.file, i);
        dtype_to_f32(from.dtype, from.data, want, from.rows * from.cols);
        dtype_to_f32(v.dtype, v.data, got, v.rows * v.cols);
        for (int64_t k = 0; k < v.rows * v.cols; k++)
            if (fabsf(got[k] - want[k]) > 0.04f)
                fail_msg("%s value %d: %g, expected %g", tensors[i].name, (int)k, (double)got[k],
                         (double)want[k]);
        weight_view_free(&v);
        weight_view_free(&from);
    }
    close_built(&o);
}

static void what_became_of_the_matrices_is_told(void **state)
{
    struct opened o;
    char text[400];
    open_built(&o, DTYPE_Q4_K);
    assert_int_equal(quantised_counts_describe(weights_quantised_counts(o.w), text, sizeof text),
                     0);
    assert_string_equal(text, "quantised 0 of 0 matrices");
    for (size_t i = 0; i < N_TENSORS; i++) {
        struct weight_view v = view_of(o.w, i);
        weight_view_free(&v);
    }
    assert_int_equal(quantised_counts_describe(weights_quantised_counts(o.w), text, sizeof text),
                     4);
    assert_string_equal(text, "quantised 4 of 6 matrices: 1 Q5_0, 1 Q4_K, 2 Q6_K; 1 are quantised "
                              "already and stay (rows of 40 do not divide into its blocks)");
    close_built(&o);
}

static void a_missing_tensor_is_still_missing(void **state)
{
    struct opened o;
    struct weight_view v;
    struct err e;
    open_built(&o, DTYPE_Q8_0);
    assert_false(weights_get(o.w, "blk.1.attn_q.weight", -1, 4, 256, &v, &e));
    assert_contains(e.msg, "blk.1.attn_q.weight is missing");
    assert_false(weights_check(o.w, "blk.1.attn_q.weight", -1, 4, 256, &v, &e));
    assert_true(weights_has(o.w, "output.weight"));
    assert_false(weights_all_f32(o.w));
    close_built(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_are_quantised_as_far_as_their_rows_allow),
        cmocka_unit_test(every_row_is_near_what_the_file_has),
        cmocka_unit_test(what_became_of_the_matrices_is_told),
        cmocka_unit_test(a_missing_tensor_is_still_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
