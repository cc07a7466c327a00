#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gguf_build.h"
#include "model_file.h"
#include "test_data.h"
#include "weights.h"

#include "test.h"

/* A built file and the weights in it. */
struct opened {
    struct gguf_build b;
    struct gguf *g;
    struct weights *w;
};

static void open_built(struct opened *o)
{
    struct err e;
    o->g = build_open(&o->b, &e);
    o->w = o->g ? weights_open_gguf(o->g, &e) : NULL;
    if (!o->w)
        fail_msg("%s", e.msg);
}

static void close_built(struct opened *o)
{
    weights_close(o->w);
    gguf_close(o->g);
    build_free(&o->b);
}

/* Bytes between a view and the tensor that it should be a part of. */
static ptrdiff_t at(const struct opened *o, const char *tensor, const char *name, int expert,
                    int64_t rows, int64_t cols)
{
    struct weight_view v;
    struct err e;
    if (!weights_get(o->w, name, expert, rows, cols, &v, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(v.rows, rows);
    assert_int_equal(v.cols, cols);
    const struct gguf_tensor *t = gguf_find_tensor(o->g, tensor);
    ptrdiff_t d = (const char *)v.data - (const char *)t->data;
    assert_true(d >= 0 &&
                (uint64_t)d + (uint64_t)rows * dtype_row_bytes(v.dtype, cols) <= t->bytes);
    weight_view_free(&v);
    return d;
}

static void refused(const struct opened *o, const char *name, int expert, int64_t rows,
                    int64_t cols, const char *part)
{
    struct weight_view v;
    struct err e;
    assert_false(weights_get(o->w, name, expert, rows, cols, &v, &e));
    assert_contains(e.msg, part);
}

static void fused_tensors_are_given_in_parts(void **state)
{
    struct opened o = {0};
    build_tensor(&o.b, "blk.0.attn_qkv.weight", 8, 12 + 4 + 4);
    build_tensor(&o.b, "blk.0.attn_qkv.bias", 20, 0);
    build_tensor(&o.b, "blk.0.ffn_up.weight", 8, 2 * 6);
    build_tensor(&o.b, "blk.1.ffn_up.weight", 8, 6);
    build_tensor(&o.b, "blk.2.ffn_up.weight", 8, 12);
    build_tensor(&o.b, "blk.2.ffn_gate.weight", 8, 6);
    open_built(&o);
    assert_int_equal(at(&o, "blk.0.attn_qkv.weight", "blk.0.attn_q.weight", -1, 12, 8), 0);
    assert_int_equal(at(&o, "blk.0.attn_qkv.weight", "blk.0.attn_k.weight", -1, 4, 8), 12 * 32);
    assert_int_equal(at(&o, "blk.0.attn_qkv.weight", "blk.0.attn_v.weight", -1, 4, 8), 16 * 32);
    assert_int_equal(at(&o, "blk.0.attn_qkv.bias", "blk.0.attn_k.bias", -1, 1, 4), 12 * 4);
    assert_int_equal(at(&o, "blk.0.ffn_up.weight", "blk.0.ffn_gate.weight", -1, 6, 8), 0);
    assert_int_equal(at(&o, "blk.0.ffn_up.weight", "blk.0.ffn_up.weight", -1, 6, 8), 6 * 32);
    assert_int_equal(at(&o, "blk.1.ffn_up.weight", "blk.1.ffn_up.weight", -1, 6, 8), 0);
    refused(&o, "blk.1.ffn_gate.weight", -1, 6, 8, "blk.1.ffn_gate.weight is missing");
    refused(&o, "blk.2.ffn_up.weight", -1, 6, 8, "has the dims [8, 12], expected [8, 6]");
    refused(&o, "blk.0.attn_k.weight", -1, 11, 8, "as a part of it");
    refused(&o, "blk.0.attn_q.weight", -1, 21, 8, "as a part of it");
    refused(&o, "blk.0.attn_q.weight", -1, 12, 9, "as a part of it");
    assert_true(weights_has(o.w, "blk.0.attn_v.weight"));
    assert_false(weights_has(o.w, "blk.1.ffn_gate.weight"));
    assert_false(weights_has(o.w, "blk.1.attn_v.weight"));
    close_built(&o);
}

static void experts_are_found_together_and_apart(void **state)
{
    struct opened o = {0};
    build_tensor_raw(&o.b, "blk.0.ffn_gate_exps.weight", 8, 3, (const uint64_t[]){32, 6, 4}, 0);
    o.b.data_bytes = 832; /* 4 experts of 6 rows of 34 bytes, and the padding */
    build_tensor(&o.b, "blk.1.ffn_gate.0.weight", 8, 6);
    build_tensor(&o.b, "blk.1.ffn_gate.3.weight", 8, 6);
    open_built(&o);
    struct weight_view v;
    struct err e;
    const char *fused = "blk.0.ffn_gate_exps.weight", *apart = "blk.1.ffn_gate_exps.weight";
    assert_int_equal(at(&o, fused, fused, 3, 6, 32), 3 * 6 * 34);
    assert_int_equal(at(&o, "blk.1.ffn_gate.3.weight", apart, 3, 6, 8), 0);
    refused(&o, fused, 4, 6, 32, "has the dims [32, 6, 4], expected [32, 6, above 4]");
    refused(&o, fused, -1, 6, 32, "expected [32, 6]");
    refused(&o, apart, 2, 6, 8, "is missing");
    assert_true(weights_has(o.w, apart));
    assert_true(weights_check(o.w, fused, 3, 6, 32, &v, &e) && v.dtype == DTYPE_Q8_0 && !v.data);
    assert_true(weights_check(o.w, apart, 3, 6, 8, &v, &e) && v.dtype == DTYPE_F32 && !v.data);
    assert_false(weights_check(o.w, apart, 2, 6, 8, &v, &e));
    assert_contains(e.msg, "is missing");
    assert_false(weights_all_f32(o.w));
    close_built(&o);
}

/* --- split files --- */

struct parts {
    char dir[64];
    char path[3][128];
};

static void write_file(const char *path, const struct buf *b)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b->data, 1, b->len, f), b->len);
    fclose(f);
}

/* Three parts with a tensor each, the second with `no` and `count` for its own. */
static void write_parts(struct parts *p, uint32_t no, uint32_t count, uint32_t n_tensors)
{
    strcpy(p->dir, "/tmp/tokend-split-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    for (uint32_t i = 0; i < 3; i++) {
        struct gguf_build b = {0};
        char name[32];
        if (i == 0) {
            build_str(&b, "general.architecture", "llama");
            build_u32(&b, "split.tensors.count", n_tensors);
        }
        build_u32(&b, "split.no", i == 1 ? no : i);
        build_u32(&b, "split.count", i == 1 ? count : 3);
        snprintf(name, sizeof name, "t%u.weight", i);
        build_tensor(&b, name, 8, 2 + i);
        build_file(&b);
        snprintf(p->path[i], sizeof p->path[i], "%s/m-%05u-of-00003.gguf", p->dir, i + 1);
        write_file(p->path[i], &b.file);
        build_free(&b);
    }
}

static void remove_parts(struct parts *p)
{
    for (int i = 0; i < 3; i++)
        unlink(p->path[i]);
    rmdir(p->dir);
}

static void part_refused(struct parts *p, int i, const char *part)
{
    struct err e;
    assert_null(model_file_open(p->path[i], &e));
    assert_contains(e.msg, part);
}

static void a_split_model_is_opened_by_its_first_file(void **state)
{
    struct parts p;
    struct err e;
    struct weight_view v;
    write_parts(&p, 1, 3, 3);
    struct model_file *f = model_file_open(p.path[0], &e);
    if (!f)
        fail_msg("%s", e.msg);
    const struct weights *w = model_file_weights(f, &e);
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "t%d.weight", i);
        assert_true(weights_get(w, name, -1, 2 + i, 8, &v, &e));
        assert_true(((const float *)v.data)[8] == 0);
    }
    model_file_close(f);
    part_refused(&p, 1, "part 2 of a model that is split into 3; name the first");
    unlink(p.path[2]);
    part_refused(&p, 0, "1 of the 3 parts are missing: ...-00003-of-00003.gguf");
    unlink(p.path[1]);
    part_refused(&p, 0, "2 of the 3 parts are missing: ...-00002-of-00003.gguf, ...-00003");
    remove_parts(&p);
}

static void parts_that_do_not_belong_together_are_refused(void **state)
{
    struct parts p;
    write_parts(&p, 2, 3, 3);
    part_refused(&p, 0, "part 3 of 3 by its header, expected part 2 of 3");
    remove_parts(&p);
    write_parts(&p, 1, 4, 3);
    part_refused(&p, 0, "part 2 of 4 by its header, expected part 2 of 3");
    remove_parts(&p);
    write_parts(&p, 1, 3, 4);
    part_refused(&p, 0, "the 3 parts have 3 tensors, expected 4");
    char other[128];
    snprintf(other, sizeof other, "%s/other.gguf", p.dir);
    assert_int_equal(rename(p.path[0], other), 0);
    memcpy(p.path[0], other, sizeof other);
    part_refused(&p, 0, "whose name should end in \"-00001-of-00003.gguf\"");
    remove_parts(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_tensors_are_given_in_parts),
        cmocka_unit_test(experts_are_found_together_and_apart),
        cmocka_unit_test(a_split_model_is_opened_by_its_first_file),
        cmocka_unit_test(parts_that_do_not_belong_together_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
