#include "safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "hf_shards.h"
#include "temp_dir.h"

#include "test.h"

/* A file of this header and n bytes of data behind it: 0, 1, 2 ... */
static void make(struct buf *b, const char *header, size_t n)
{
    const uint64_t len = strlen(header);
    buf_clear(b);
    buf_add(b, &len, sizeof len);
    buf_add(b, header, len);
    for (size_t i = 0; i < n; i++)
        buf_add_byte(b, (char)i);
}

static void refused(const char *header, size_t n, const char *part)
{
    struct buf b = {0};
    struct err e = {0};
    make(&b, header, n);
    struct safetensors *s = safetensors_open_memory(b.data, b.len, &e);
    if (s)
        fail_msg("accepted: %s", header);
    assert_contains(e.msg, part);
    assert_int_not_equal(e.code, ERR_NONE);
    buf_free(&b);
}

#define T(type, shape, begin, end)                                                                 \
    "{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static void tensors_are_found_by_name(void **state)
{
    struct buf b = {0};
    struct err e;
    make(
        &b,
        "{\"__metadata__\":{\"format\":\"pt\"},\"b\":" T("F16", "[2,3]", "4", "16") ",\"a\":" T(
            "F32", "[]", "0", "4") ",\"none\":" T("I64", "[0,7]", "16",
                                                  "16") ",\"z\":" T("BF16", "[1]", "16", "18") "}"
                                                                                               "  ",
        18);
    struct safetensors *s = safetensors_open_memory(b.data, b.len, &e);
    if (!s)
        fail_msg("%s", e.msg);
    assert_int_equal(safetensors_n(s), 4);
    const struct st_tensor *t = safetensors_find(s, "b");
    assert_non_null(t);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dims[0], 2);
    assert_int_equal(t->dims[1], 3);
    assert_int_equal(t->dims[2], 1);
    assert_true(t->known && t->dtype == DTYPE_F16);
    assert_int_equal(*(const unsigned char *)t->data, 4);
    assert_int_equal(st_tensor_elems(safetensors_find(s, "a")), 1);
    assert_int_equal(st_tensor_elems(safetensors_find(s, "none")), 0);
    assert_false(safetensors_find(s, "none")->known);
    assert_null(safetensors_find(s, "__metadata__"));
    assert_string_equal(safetensors_at(s, 0)->name, "a");
    safetensors_close(s);
    buf_free(&b);
}

static void places_that_do_not_fill_the_data_are_refused(void **state)
{
    refused("{\"a\":" T("F32", "[2]", "0", "8") "}", 7, "the file is cut short");
    refused("{\"a\":" T("F32", "[2]", "0", "8") "}", 9, "8 bytes, but 9 follow");
    refused("{\"a\":" T("F32", "[1]", "0", "4") ",\"b\":" T("F32", "[1]", "2", "6") "}", 6,
            "\"b\" begins at byte 2 of the data, expected 4");
    refused("{\"a\":" T("F32", "[1]", "0", "4") ",\"b\":" T("F32", "[1]", "0", "4") "}", 4,
            "begins at byte 0 of the data, expected 4");
    refused("{\"a\":" T("F32", "[1]", "0", "4") ",\"b\":" T("F32", "[1]", "8", "12") "}", 12,
            "begins at byte 8 of the data, expected 4");
    refused("{\"a\":" T("F32", "[1]", "4", "0") "}", 4, "its data_offsets are 4 and 0");
    refused("{\"a\":" T("F32", "[1]", "-4", "0") "}", 4, "its data_offsets are -4 and 0");
    refused("{\"a\":" T("F32", "[3]", "0", "8") "}", 8, "has 8 bytes, expected 12");
    refused("{\"a\":" T("F4", "[3]", "0", "1") "}", 1, "3 values of type F4");
    refused("{}", 1, "0 bytes, but 1 follow");
}

static void entries_of_wrong_kinds_are_refused(void **state)
{
    refused("{\"a\":7}", 0, "not an object");
    refused("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "has no dtype");
    refused("{\"a\":" T("Q9", "[1]", "0", "4") "}", 4, "is of type \"Q9\", which is not known");
    refused("{\"a\":" T("F32", "7", "0", "4") "}", 4, "its shape is not a list");
    refused("{\"a\":" T("F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "its shape is not a list");
    refused("{\"a\":" T("F32", "[-1]", "0", "4") "}", 4, "size 0 of its shape is no number");
    refused("{\"a\":" T("F32", "[1.5]", "0", "4") "}", 4, "size 0 of its shape is no number");
    refused("{\"a\":" T("F32", "[4294967296,4294967296]", "0", "4") "}", 4,
            "more elements than fit");
    refused("{\"a\":" T("F32", "[1]", "0", "4.5") "}", 4, "data_offsets are not two numbers");
    refused("{\"a\":" T("F32", "[1]", "0,2", "4") "}", 4, "data_offsets are not two numbers");
    refused("{\"a\":" T("F32", "[1]", "0", "4") ",\"a\":" T("F32", "[1]", "0", "4") "}", 4,
            "duplicate");
}

static void headers_that_are_none_are_refused(void **state)
{
    struct err e;
    char deep[5000];
    refused("[]", 0, "its header is no JSON object");
    refused("", 0, "its header is no JSON object");
    refused("{\"a\":", 0, "its header is no JSON object");
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    refused(deep, 0, "its header is no JSON object");
    assert_null(safetensors_open_memory("1234567", 7, &e));
    assert_contains(e.msg, "7 bytes is no safetensors file");
    assert_null(safetensors_open_memory("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, &e));
    assert_contains(e.msg, "should have 18446744073709551615 bytes");
    assert_null(
        safetensors_open_memory("version https://git-lfs.github.com/spec/v1\noid sha", 50, &e));
    assert_contains(e.msg, "Git LFS pointer");
}

/* --- sharded --- */

static void write_shard(const struct temp_dir *d, const char *name, const char *tensor)
{
    char header[128];
    struct buf b = {0};
    snprintf(header, sizeof header, "{\"%s\":" T("F32", "[1]", "0", "4") "}", tensor);
    make(&b, header, 4);
    temp_dir_write_bytes(d, name, b.data, b.len);
    buf_free(&b);
}

static void index_refused(const struct temp_dir *d, const char *map, const char *part)
{
    struct buf text = {0};
    struct err e;
    buf_add_str(&text, "{\"weight_map\":");
    buf_add_str(&text, map);
    buf_add_str(&text, "}");
    temp_dir_write_bytes(d, "model.safetensors.index.json", text.data, text.len);
    buf_free(&text);
    if (hf_shards_open(d->path, &e))
        fail_msg("accepted: %.500s", map);
    assert_contains(e.msg, part);
}

static void an_index_names_few_files_however_many_tensors_it_has(void **state)
{
    struct temp_dir d;
    struct buf map = {0};
    temp_dir_open(&d);
    for (int i = 0; i < 60000; i++) {
        char entry[64];
        snprintf(entry, sizeof entry, "%s\"t%d\":\"m-%d.safetensors\"", i ? "," : "{", i, i % 1999);
        buf_add_str(&map, entry);
    }
    buf_add_str(&map, "}");
    index_refused(&d, map.data, "1999 of the 1999 files of weights are missing");
    map.len--;
    buf_add_str(&map, ",\"a\":\"a.safetensors\",\"b\":\"b.safetensors\"}");
    index_refused(&d, map.data, "more than 2000 files of weights");
    buf_free(&map);
    temp_dir_close(&d);
}

static void an_index_names_the_files(void **state)
{
    struct temp_dir d;
    struct err e;
    temp_dir_open(&d);
    write_shard(&d, "m-1.safetensors", "a");
    write_shard(&d, "m-2.safetensors", "b");
    temp_dir_write(&d, "model.safetensors.index.json",
                   "{\"metadata\":{},\"weight_map\":{\"b\":\"m-2.safetensors\",\"a\":\"m-1."
                   "safetensors\"}}");
    struct hf_shards *s = hf_shards_open(d.path, &e);
    if (!s)
        fail_msg("%s", e.msg);
    assert_int_equal(hf_shards_n_files(s), 2);
    assert_int_equal(hf_shards_n(s), 2);
    assert_string_equal(hf_shards_at(s, 0)->name, "a");
    assert_int_equal(hf_shards_index(s, hf_shards_find(s, "b")), 1);
    assert_null(hf_shards_find(s, "c"));
    hf_shards_close(s);
    index_refused(&d, "{\"a\":\"m-1.safetensors\",\"c\":\"m-2.safetensors\"}",
                  "has no tensor \"c\"");
    index_refused(&d, "{\"a\":\"m-1.safetensors\",\"b\":\"m-3.safetensors\"}",
                  "1 of the 2 files of weights are missing: m-3.safetensors");
    index_refused(&d, "{\"a\":\"../m-1.safetensors\"}", "expected the name of a .safetensors file");
    index_refused(&d, "{\"a\":\"/etc/m.safetensors\"}", "expected the name of a .safetensors file");
    index_refused(&d, "{\"a\":\"model.bin\"}", "expected the name of a .safetensors file");
    index_refused(&d, "{\"a\":7}", "expected the name of a .safetensors file");
    index_refused(&d, "{}", "has no weight_map");
    index_refused(&d, "[]", "has no weight_map");
    write_shard(&d, "m-2.safetensors", "a");
    index_refused(&d, "{\"a\":\"m-1.safetensors\",\"b\":\"m-2.safetensors\"}",
                  "two of its files have a tensor \"a\"");
    temp_dir_close(&d);
}

static void a_directory_of_another_kind_is_told_what_it_is(void **state)
{
    static const char *const cases[][3] = {
        {"pytorch_model.bin", "x", "PyTorch weights are not read; save the model as safetensors"},
        {"model.gguf", "x", "name that file itself"},
        {"weights.safetensors", "x", "expected model.safetensors"},
        {"adapter_config.json", "{}", "is an adapter, not a model"},
        {"readme.md", "x", "has no weights: expected model.safetensors"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct temp_dir d;
        struct err e;
        temp_dir_open(&d);
        temp_dir_write(&d, cases[i][0], cases[i][1]);
        assert_null(hf_shards_open(d.path, &e));
        assert_contains(e.msg, cases[i][2]);
        temp_dir_close(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_found_by_name),
        cmocka_unit_test(places_that_do_not_fill_the_data_are_refused),
        cmocka_unit_test(entries_of_wrong_kinds_are_refused),
        cmocka_unit_test(headers_that_are_none_are_refused),
        cmocka_unit_test(an_index_names_the_files),
        cmocka_unit_test(an_index_names_few_files_however_many_tensors_it_has),
        cmocka_unit_test(a_directory_of_another_kind_is_told_what_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
