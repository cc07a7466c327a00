#include "gguf.h"

#include <dirent.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf_build.h"
#include "gguf_walk.h"
#include "test_data.h"

#include "test.h"

/* A file with a key of every type and a few tensors. */
static void build_small(struct gguf_build *b)
{
    static const char *const texts[] = {"one", "", "three"};
    const int32_t ints[] = {1, -2, 3};
    const int8_t i8 = -7;
    const uint64_t u64 = UINT64_C(1) << 40, small_u64 = 5;
    const int64_t i64 = INT64_MIN;
    const double f64 = 0.5;
    build_str(b, "general.architecture", "llama");
    build_u32(b, "general.alignment", 32);
    build_u32(b, "a.u32", 4000000000u);
    build_key(b, "a.i8", GGUF_I8, &i8, 1);
    build_key(b, "a.u64", GGUF_U64, &u64, 8);
    build_key(b, "a.small", GGUF_U64, &small_u64, 8);
    build_key(b, "a.i64", GGUF_I64, &i64, 8);
    build_key(b, "a.f64", GGUF_F64, &f64, 8);
    build_f32(b, "a.f32", 1.25f);
    build_bool(b, "a.bool", true);
    build_strings(b, "a.strings", 3, texts);
    build_array(b, "a.ints", GGUF_I32, 3, ints, sizeof ints);
    build_tensor(b, "token_embd.weight", 8, 3);
    build_tensor(b, "output_norm.weight", 8, 0);
    build_tensor_raw(b, "q8_k", 15, 2, (const uint64_t[]){256, 2}, b->data_bytes);
    b->data_bytes += 608; /* to the alignment */
    build_tensor_raw(b, "future", 999, 1, (const uint64_t[]){7}, b->data_bytes);
}

static struct gguf *open_small(struct gguf_build *b)
{
    struct err e;
    build_small(b);
    struct gguf *g = build_open(b, &e);
    if (!g)
        fail_msg("%s", e.msg);
    return g;
}

/* Opening must fail with this part in the message. */
static void refused(struct gguf_build *b, const char *part)
{
    struct err e = {0};
    struct gguf *g = build_open(b, &e);
    assert_null(g);
    assert_contains(e.msg, part);
    assert_int_not_equal(e.code, ERR_NONE);
    build_free(b);
}

/* As refused, of the file's bytes as they are. */
static void bytes_refused(const void *bytes, size_t n, const char *part)
{
    struct err e = {0};
    assert_null(gguf_open_memory(bytes, n, &e));
    assert_contains(e.msg, part);
}

/* --- what is right is read --- */

static void values_are_read_in_every_type(void **state)
{
    struct gguf_build b = {0};
    struct gguf *g = open_small(&b);
    uint32_t u;
    float f;
    bool flag;
    struct gguf_str s;
    assert_true(gguf_u32(g, "a.u32", &u, NULL));
    assert_int_equal(u, 4000000000u);
    assert_true(gguf_u32(g, "a.small", &u, NULL));
    assert_int_equal(u, 5);
    assert_true(gguf_f32(g, "a.f32", &f, NULL) && f == 1.25f);
    assert_true(gguf_f32(g, "a.f64", &f, NULL) && f == 0.5f);
    assert_true(gguf_bool_or(g, "a.bool", false, &flag, NULL) && flag);
    assert_true(gguf_string(g, "general.architecture", &s, NULL));
    assert_int_equal(s.len, 5);
    assert_memory_equal(s.data, "llama", 5);
    gguf_close(g);
    build_free(&b);
}

static void an_absent_key_gives_the_default(void **state)
{
    struct gguf_build b = {0};
    struct gguf *g = open_small(&b);
    uint32_t u;
    float f;
    bool flag;
    uint64_t n = 1;
    assert_true(gguf_u32_or(g, "none", 9, &u, NULL) && u == 9);
    assert_true(gguf_f32_or(g, "none", 9, &f, NULL) && f == 9);
    assert_true(gguf_bool_or(g, "none", true, &flag, NULL) && flag);
    assert_true(gguf_array_len(g, "none", GGUF_STRING, &n, NULL) && n == 0);
    assert_false(gguf_has(g, "none"));
    gguf_close(g);
    build_free(&b);
}

static void arrays_are_walked_in_order(void **state)
{
    struct gguf_build b = {0};
    struct gguf *g = open_small(&b);
    struct gguf_string_iter it = {0};
    struct gguf_str s;
    const void *data;
    uint64_t n;
    assert_true(gguf_array_len(g, "a.strings", GGUF_STRING, &n, NULL) && n == 3);
    assert_true(gguf_strings(g, "a.strings", &it, NULL));
    assert_true(gguf_next_string(&it, &s) && s.len == 3 && memcmp(s.data, "one", 3) == 0);
    assert_true(gguf_next_string(&it, &s) && s.len == 0);
    assert_true(gguf_next_string(&it, &s) && s.len == 5 && memcmp(s.data, "three", 5) == 0);
    assert_false(gguf_next_string(&it, &s));
    assert_true(gguf_array(g, "a.ints", GGUF_I32, &data, &n, NULL) && n == 3);
    assert_memory_equal(data, ((const int32_t[]){1, -2, 3}), 12);
    assert_true(gguf_is_array(g, "a.ints"));
    assert_false(gguf_is_array(g, "a.u32"));
    gguf_close(g);
    build_free(&b);
}

static void a_wrong_type_is_an_error_that_names_both(void **state)
{
    struct gguf_build b = {0};
    struct gguf *g = open_small(&b);
    struct err e;
    uint32_t u;
    float f;
    uint64_t n;
    const void *data;
    struct gguf_str s;
    assert_false(gguf_u32(g, "a.f32", &u, &e));
    assert_contains(e.msg, "key a.f32 is of type F32, expected an integer");
    assert_false(gguf_u32_or(g, "a.ints", 0, &u, &e));
    assert_contains(e.msg, "key a.ints is of type array of I32, expected an integer");
    assert_false(gguf_u32(g, "none", &u, &e));
    assert_contains(e.msg, "key none is missing");
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_false(gguf_f32(g, "a.u32", &f, &e));
    assert_contains(e.msg, "expected a float");
    assert_false(gguf_string(g, "a.u32", &s, &e));
    assert_contains(e.msg, "expected string");
    assert_false(gguf_array(g, "a.ints", GGUF_U32, &data, &n, &e));
    assert_contains(e.msg, "array of I32, expected array of U32");
    assert_false(gguf_array_len(g, "a.strings", GGUF_F32, &n, &e));
    assert_contains(e.msg, "array of string, expected array of F32");
    gguf_close(g);
    build_free(&b);
}

static void an_integer_that_does_not_fit_is_an_error_with_its_value(void **state)
{
    struct gguf_build b = {0};
    struct gguf *g = open_small(&b);
    struct err e;
    uint32_t u;
    assert_false(gguf_u32(g, "a.i8", &u, &e));
    assert_contains(e.msg, "a.i8 is -7, expected 0 to 4294967295");
    assert_false(gguf_u32(g, "a.u64", &u, &e));
    assert_contains(e.msg, "a.u64 is 1099511627776, expected");
    assert_false(gguf_u32(g, "a.i64", &u, &e));
    assert_contains(e.msg, "a.i64 is -9223372036854775808, expected");
    gguf_close(g);
    build_free(&b);
}

static void tensors_are_found_by_name(void **state)
{
    struct gguf_build b = {0};
    struct gguf *g = open_small(&b);
    assert_int_equal(gguf_n_tensors(g), 4);
    const struct gguf_tensor *t = gguf_find_tensor(g, "token_embd.weight");
    assert_ptr_equal(t, gguf_tensor_at(g, 0));
    assert_true(t->known && t->dtype == DTYPE_F32 && t->n_dims == 2);
    assert_int_equal(t->bytes, 96);
    assert_ptr_equal(t->data, b.file.data + t->offset);
    assert_int_equal(t->offset % 32, 0);
    assert_null(gguf_find_tensor(g, "token_embd"));
    gguf_close(g);
    build_free(&b);
}

static void unknown_types_are_listed_but_not_given_for_use(void **state)
{
    struct gguf_build b = {0};
    struct gguf *g = open_small(&b);
    struct err e;
    const struct gguf_tensor *t = gguf_find_tensor(g, "q8_k");
    assert_false(t->known);
    assert_string_equal(t->type_name, "Q8_K");
    assert_int_equal(t->bytes, 584);
    assert_null(gguf_want_tensor(g, "q8_k", 2, t->dims, &e));
    assert_contains(e.msg, "tensor q8_k is of type Q8_K");
    assert_contains(e.msg, "not supported; these are: F32, F16");
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    t = gguf_find_tensor(g, "future");
    assert_false(t->known);
    assert_null(gguf_want_tensor(g, "future", 1, t->dims, &e));
    assert_contains(e.msg, "type unknown (ggml's number 999)");
    gguf_close(g);
    build_free(&b);
}

static void a_wanted_tensor_must_have_the_shape(void **state)
{
    struct gguf_build b = {0};
    struct gguf *g = open_small(&b);
    struct err e;
    const int64_t right[] = {8, 3, 1}, wrong[] = {3, 8};
    assert_non_null(gguf_want_tensor(g, "token_embd.weight", 2, right, &e));
    assert_non_null(gguf_want_tensor(g, "token_embd.weight", 3, right, &e));
    assert_non_null(gguf_want_tensor(g, "output_norm.weight", 1, right, &e));
    assert_null(gguf_want_tensor(g, "token_embd.weight", 1, right, &e));
    assert_null(gguf_want_tensor(g, "token_embd.weight", 2, wrong, &e));
    assert_contains(e.msg, "tensor token_embd.weight has the dims [8, 3], expected [3, 8]");
    assert_null(gguf_want_tensor(g, "output.weight", 2, right, &e));
    assert_contains(e.msg, "tensor output.weight is missing");
    gguf_close(g);
    build_free(&b);
}

static void strings_are_shown_escaped_and_cut(void **state)
{
    char text[200];
    memset(text, 'x', sizeof text);
    assert_string_equal(gguf_show((struct gguf_str){"a\n\x1b\"\xff", 5}).text,
                        "a\\x0a\\x1b\\x22\\xff");
    struct gguf_shown s = gguf_show((struct gguf_str){text, sizeof text});
    assert_int_equal(strlen(s.text), sizeof s.text - 1);
    assert_contains(s.text, "x...");
    memset(text, 1, sizeof text);
    s = gguf_show((struct gguf_str){text, sizeof text});
    assert_contains(s.text, "\\x01...");
}

static void version_2_is_read(void **state)
{
    struct gguf_build b = {.version = 2};
    struct gguf *g = open_small(&b);
    gguf_close(g);
    build_free(&b);
}

/* --- what is wrong is refused --- */

static void files_of_other_kinds_are_refused_by_what_they_are(void **state)
{
    struct gguf_build b = {0};
    struct err e;
    build_small(&b);
    build_file(&b);
    bytes_refused("", 0, "not a GGUF file");
    bytes_refused("GGU", 3, "it starts with \"GGU\"");
    bytes_refused("PK\x03\x04....", 8, "it starts with \"PK\\x03\\x04\"");
    bytes_refused("version https://git-lfs.github.com/spec/v1", 42, "git lfs pull");
    bytes_refused("GGUF\3\0\0\0", 8, "a file of 8 bytes; a GGUF header has 24");
    memcpy(b.file.data + 4, "\0\0\0\3", 4);
    bytes_refused(b.file.data, b.file.len, "big-endian");
    memcpy(b.file.data + 4, "\1\0\0\0", 4);
    bytes_refused(b.file.data, b.file.len, "GGUF version 1; versions 2 and 3 are supported");
    build_free(&b);

    assert_null(gguf_open("/", &e));
    assert_contains(e.msg, "/ is a directory");
    assert_null(gguf_open("/dev/null", &e));
    assert_contains(e.msg, "/dev/null is not a regular file");
    assert_null(gguf_open("/no/such.gguf", &e));
    assert_contains(e.msg, "cannot open /no/such.gguf: No such file");
}

static void empty_files_fifos_and_long_paths_are_refused(void **state)
{
    char dir[] = "/tmp/tokend-gguf-XXXXXX", path[64], longer[1024];
    struct err e;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/empty", dir);
    fclose(fopen(path, "w"));
    assert_null(gguf_open(path, &e));
    assert_contains(e.msg, "is empty");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_null(gguf_open(path, &e));
    assert_contains(e.msg, "not a regular file");
    unlink(path);
    rmdir(dir);
    memset(longer, 'y', sizeof longer);
    memcpy(longer + sizeof longer - 6, ".gguf", 6);
    assert_null(gguf_open(longer, &e));
    assert_contains(e.msg, "yyy.gguf: File name too long");
}

static void every_truncation_is_refused(void **state)
{
    struct gguf_build b = {0};
    build_small(&b);
    build_file(&b);
    for (size_t n = 0; n < b.file.len; n++) {
        struct err e = {0};
        char *cut = malloc(n ? n : 1); /* of its own, so that ASan sees a read past it */
        memcpy(cut, b.file.data, n);
        struct gguf *g = gguf_open_memory(cut, n, &e);
        if (g)
            fail_msg("a file cut at %zu of %zu bytes was opened", n, b.file.len);
        assert_contains(e.msg, "(memory): ");
        gguf_close(g);
        free(cut);
    }
    build_free(&b);
}

/* Whatever stands anywhere: an error, or a file whose every part can be read. */
static void every_overwritten_number_is_survived(void **state)
{
    static const uint64_t values[] = {0,          1,          2,          9,
                                      0x7F,       0xFF,       0x7FFFFFFF, 0x80000000,
                                      UINT32_MAX, INT64_MAX,  UINT64_MAX, 1ull << 63,
                                      1ull << 32, 1ull << 61, 8,          0xFFFFFFFFFFFFFFE0};
    static const size_t widths[] = {1, 4, 8};
    struct gguf_build b = {0};
    unsigned sum = 0, opened = 0, errors = 0;
    build_small(&b);
    build_file(&b);
    char *copy = malloc(b.file.len);
    for (size_t at = 0; at + 8 <= b.file.len - b.data_bytes; at++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++)
            for (size_t w = 0; w < 3; w++) {
                struct err e = {0};
                memcpy(copy, b.file.data, b.file.len);
                memcpy(copy + at, &values[v], widths[w]);
                struct gguf *g = gguf_open_memory(copy, b.file.len, &e);
                if (g)
                    sum += gguf_walk(g), opened++;
                else
                    assert_true(strlen(e.msg) > strlen("(memory): ")), errors++;
                gguf_close(g);
            }
    assert_true(sum > 0 && opened > 0 && errors > 0);
    free(copy);
    build_free(&b);
}

static void counts_that_cannot_fit_are_refused(void **state)
{
    struct gguf_build b = {0};
    b.n_tensors = UINT64_MAX;
    refused(&b, "18446744073709551615 tensors, at most 16777216");
    b.n_tensors = 1000;
    refused(&b, "1000 tensors, but the file of 32 bytes is too short");
    b.n_keys = 1000;
    refused(&b, "1000 keys, but the file of 32 bytes is too short");
    build_array(&b, "a", GGUF_STRING, UINT64_MAX / 8, NULL, 0);
    refused(&b, "key 0 \"a\": 2305843009213693951 strings");
    build_array(&b, "a", GGUF_U64, UINT64_MAX / 8 + 2, NULL, 0); /* 8 * n wraps to 8 */
    refused(&b, "key 0 \"a\": its array at byte");
}

static void unknown_and_nested_value_types_are_refused(void **state)
{
    struct gguf_build b = {0};
    build_key(&b, "a", 13, "12345678", 8);
    refused(&b, "key 0 \"a\": type 13 at byte");
    build_array(&b, "a", 77, 1, "12345678", 8);
    refused(&b, "key 0 \"a\": array of element type 77");
    build_array(&b, "a", GGUF_ARRAY, 1, "\4\0\0\0\0\0\0\0\0\0\0\0", 12);
    refused(&b, "key 0 \"a\": arrays of arrays are not supported");
}

static void duplicate_names_are_refused(void **state)
{
    struct gguf_build b = {0};
    build_u32(&b, "a.b", 1);
    build_u32(&b, "a.c", 1);
    build_u32(&b, "a.b", 1);
    refused(&b, "two keys are named \"a.b\"");
    build_tensor(&b, "t", 8, 0);
    build_tensor(&b, "u", 8, 0);
    build_tensor(&b, "t", 8, 0);
    refused(&b, "two tensors are named \"t\"");
}

static void a_name_in_a_message_is_escaped(void **state)
{
    struct gguf_build b = {0};
    build_u32(&b, "a\n\x1b[31m", 1);
    build_u32(&b, "a\n\x1b[31m", 1);
    refused(&b, "named \"a\\x0a\\x1b[31m\"");
}

static void bad_alignments_are_refused(void **state)
{
    static const uint32_t bad[] = {0, 1, 4, 24, 48, 1u << 21, UINT32_MAX};
    struct gguf_build b = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        build_u32(&b, "general.alignment", bad[i]);
        refused(&b, "expected a power of two from 8 to 1048576");
    }
    build_str(&b, "general.alignment", "32");
    refused(&b, "general.alignment is of type string, expected U32");
}

static void a_tensor_outside_the_file_is_refused(void **state)
{
    struct gguf_build b = {0};
    const uint64_t dims[4] = {64, 2, 1, 1};
    build_tensor(&b, "ok", 8, 0);
    build_tensor_raw(&b, "t", 0, 2, dims, 0);
    refused(&b, "tensor 1 \"t\": 512 bytes of F32 at offset 0 run past the 32 bytes");
    build_tensor_raw(&b, "t", 0, 2, dims, UINT64_MAX - 31);
    refused(&b, "tensor 0 \"t\": 512 bytes of F32 at offset 18446744073709551584 run past");
    build_tensor_raw(&b, "t", 0, 2, dims, 16);
    refused(&b, "offset 16 is not a multiple of the alignment, 32");
    build_tensor_raw(&b, "t", 999, 2, dims, 64);
    refused(&b, "of unknown at offset 64 run past");
}

static void bad_dims_are_refused(void **state)
{
    struct gguf_build b = {0};
    const uint64_t zero[2] = {32, 0}, huge[1] = {UINT64_MAX}, odd[2] = {33, 2};
    const uint64_t overflow[4] = {1ull << 32, 1ull << 30, 2, 1};
    const uint64_t bytes_overflow[2] = {1ull << 31, 1ull << 31};
    build_tensor_raw(&b, "t", 0, 0, zero, 0);
    build_tensor_raw(&b, "u", 0, 0, zero, 0);
    refused(&b, "tensor 0 \"t\": 0 dims, expected 1 to 4");
    build_tensor_raw(&b, "t", 0, 5, (const uint64_t[]){1, 1, 1, 1, 1}, 0);
    refused(&b, "5 dims, expected 1 to 4");
    build_tensor_raw(&b, "t", 0, 2, zero, 0);
    refused(&b, "dim 1 is 0, expected at least 1");
    build_tensor_raw(&b, "t", 0, 1, huge, 0);
    refused(&b, "dim 0 is 18446744073709551615, expected a number of elements below 2^63");
    build_tensor_raw(&b, "t", 0, 4, overflow, 0);
    refused(&b, "dim 2 is 2, expected a number of elements below 2^63");
    build_tensor_raw(&b, "t", 28, 2, bytes_overflow, 0);
    refused(&b, "run past");
    build_tensor_raw(&b, "t", 8, 2, odd, 0);
    refused(&b, "rows of 33 values, expected a multiple of 32, the block of Q8_0");
}

static void a_name_longer_than_the_specification_allows_is_refused(void **state)
{
    struct gguf_build b = {0};
    char *name = malloc(65537);
    memset(name, 'n', 65536);
    name[65536] = '\0';
    build_u32(&b, name, 1);
    refused(&b, "its name has 65536 bytes, at most 65535");
    free(name);
}

/* Quadratic work would take minutes here: 10^10 comparisons. */
static void a_hundred_thousand_keys_and_tensors_are_quick(void **state)
{
    enum { N = 100000 };
    struct gguf_build b = {0};
    struct err e;
    char name[32];
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "name.%d", i);
        build_u32(&b, name, (uint32_t)i);
        build_tensor_raw(&b, name, 24, 1, (const uint64_t[]){1}, 0);
    }
    b.data_bytes = 32;
    struct gguf *g = build_open(&b, &e);
    assert_non_null(g);
    for (int i = 0; i < N; i++) {
        uint32_t v;
        snprintf(name, sizeof name, "name.%d", i);
        assert_true(gguf_u32(g, name, &v, NULL) && v == (uint32_t)i);
        assert_ptr_equal(gguf_find_tensor(g, name), gguf_tensor_at(g, (uint64_t)i));
    }
    gguf_close(g);
    build_free(&b);
}

/* --- real files --- */

static void open_and_walk(const char *path)
{
    struct err e;
    struct gguf *g = gguf_open(path, &e);
    if (!g)
        fail_msg("%s", e.msg);
    assert_string_equal(gguf_path(g), path);
    assert_true(gguf_n_tensors(g) > 0 && gguf_walk(g) != 0);
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++)
        assert_true(gguf_tensor_at(g, i)->bytes > 0);
    gguf_close(g);
}

static void every_golden_file_opens(void **state)
{
    const char *corpus = test_corpus();
    char dir[4200], path[4500];
    int opened = 0;
    snprintf(dir, sizeof dir, "%s/gguf", corpus);
    DIR *d = opendir(dir);
    if (!d) {
        print_message("SKIPPED: no golden files in %s (set TOKEND_CORPUS)\n", dir);
        skip();
    }
    for (struct dirent *f; (f = readdir(d));) {
        size_t n = strlen(f->d_name);
        if (n < 5 || strcmp(f->d_name + n - 5, ".gguf") != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, f->d_name);
        open_and_walk(path);
        opened++;
    }
    closedir(d);
    assert_true(opened >= 46);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_read_in_every_type),
        cmocka_unit_test(an_absent_key_gives_the_default),
        cmocka_unit_test(arrays_are_walked_in_order),
        cmocka_unit_test(a_wrong_type_is_an_error_that_names_both),
        cmocka_unit_test(an_integer_that_does_not_fit_is_an_error_with_its_value),
        cmocka_unit_test(tensors_are_found_by_name),
        cmocka_unit_test(unknown_types_are_listed_but_not_given_for_use),
        cmocka_unit_test(a_wanted_tensor_must_have_the_shape),
        cmocka_unit_test(strings_are_shown_escaped_and_cut),
        cmocka_unit_test(version_2_is_read),
        cmocka_unit_test(files_of_other_kinds_are_refused_by_what_they_are),
        cmocka_unit_test(empty_files_fifos_and_long_paths_are_refused),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_overwritten_number_is_survived),
        cmocka_unit_test(counts_that_cannot_fit_are_refused),
        cmocka_unit_test(unknown_and_nested_value_types_are_refused),
        cmocka_unit_test(duplicate_names_are_refused),
        cmocka_unit_test(a_name_in_a_message_is_escaped),
        cmocka_unit_test(bad_alignments_are_refused),
        cmocka_unit_test(a_tensor_outside_the_file_is_refused),
        cmocka_unit_test(bad_dims_are_refused),
        cmocka_unit_test(a_name_longer_than_the_specification_allows_is_refused),
        cmocka_unit_test(a_hundred_thousand_keys_and_tensors_are_quick),
        cmocka_unit_test(every_golden_file_opens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
