/* Tokenizers of files other than GGUF: what is told apart by content, what is refused, the
 * promises about control tokens, and what a hostile file may cost. Ids are compared with the
 * libraries by tests/e2e/test_tokenize.py. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "buf.h"
#include "tokenizer.h"

#include "test.h"

static char dir[] = "/tmp/tokend-tokenizer-XXXXXX";

static int make_dir(void **state)
{
    return mkdtemp(dir) ? 0 : 1;
}

static const char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void write_file(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(path_of(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static int remove_all(void **state)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "file"};
    for (size_t i = 0; i < 3; i++)
        unlink(path_of(names[i]));
    return rmdir(dir);
}

static void refuses(const char *text, const char *encoding, enum err_code code, const char *part)
{
    struct err e = {0};
    write_file("file", text, strlen(text));
    struct tokenizer *t = tokenizer_open(path_of("file"), encoding, &e);
    assert_null(t);
    assert_contains(e.msg, part);
    assert_int_equal(e.code, code);
}

static struct tokenizer *opens(const char *text, const char *encoding)
{
    struct err e = {0};
    write_file("file", text, strlen(text));
    struct tokenizer *t = tokenizer_open(path_of("file"), encoding, &e);
    if (!t)
        fail_msg("%s", e.msg);
    return t;
}

static void check(const struct tokenizer *t, const char *text, enum control_rule rule,
                  const struct text_span *spans, size_t k, const char *want)
{
    struct token_list ids = {0};
    struct buf have = {0};
    struct err e = {0};
    if (!tokenizer_encode(t, text, strlen(text), rule, spans, k, &ids, &e))
        fail_msg("%s", e.msg);
    for (size_t i = 0; i < ids.n; i++)
        buf_addf(&have, i ? " %d" : "%d", ids.ids[i]);
    assert_string_equal(have.data ? have.data : "", want);
    buf_free(&have);
    token_list_free(&ids);
}

static void check_decoded(const struct tokenizer *t, const int32_t *ids, size_t n, bool at_start,
                          const char *want)
{
    struct detokenizer d = {.at_start = at_start};
    char out[512];
    size_t len = 0;
    for (size_t i = 0; i < n; i++)
        len += detokenizer_add(&d, t, ids[i], false, out + len);
    len += detokenizer_flush(&d, out + len);
    out[len] = 0;
    assert_string_equal(out, want);
}

#define MODEL(vocab, merges)                                                                       \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{" vocab "},\"merges\":[" merges "]"

static void a_file_is_told_by_its_content(void **state)
{
    refuses("{}", NULL, ERR_INVALID, "neither a tokenizer.json");
    refuses("{", NULL, ERR_INVALID, "line 1");
    refuses("YQ== 0\n", NULL, ERR_INVALID, "encoding");
    refuses("# Notes\n", NULL, ERR_INVALID, "not a tokenizer file: expected GGUF, tokenizer.json");
    refuses("YQ== 0\n", "nonsense", ERR_UNSUPPORTED, "unknown encoding \"nonsense\"");
    refuses("{" MODEL("\"a\":0", "") "}}", "llama3", ERR_INVALID, "rank files only");
    refuses("YQ== 0\nYQ== x\n", "qwen", ERR_INVALID, "line 2");
    refuses("YQ== 0\nYg== 0\n", "qwen", ERR_INVALID, "line 2");
    refuses("YQ== 151644\n", "qwen", ERR_INVALID, "another encoding");
    refuses("\x0A\x7F...", NULL, ERR_INVALID, "protocol buffer");
    tokenizer_free(opens("YQ== 0\nYg== 1\nYWI= 2\n", "qwen"));
}

static void a_missing_file_is_named(void **state)
{
    struct err e = {0};
    assert_null(tokenizer_open(path_of("absent"), NULL, &e));
    assert_contains(e.msg, "absent");
    assert_null(tokenizer_open(dir, NULL, &e));
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_contains(e.msg, "tokenizer.json");
}

#define CONTROL(normalized)                                                                        \
    "{" MODEL("\"a\":0,\"b\":1,\"<\":2,\">\":3,\"<a\":4,\"<a>\":5",                                \
              "\"< a\",\"<a >\"") "},\"normalizer\":{\"type\":\"Lowercase\"},\"added_tokens\":["   \
                                  "{\"id\":5,\"content\":\"<a>\",\"special\":true,"                \
                                  "\"normalized\":" normalized "},"                                \
                                  "{\"id\":6,\"content\":\"<|b|>\",\"special\":false,"             \
                                  "\"normalized\":" normalized "}]}"

static void text_never_becomes_a_control_token(void **state)
{
    for (int normalized = 0; normalized < 2; normalized++) {
        struct tokenizer *t = opens(normalized ? CONTROL("true") : CONTROL("false"), NULL);
        const struct text_span second = {3, 6}, cut = {0, 2};
        check(t, "<a><a>", CONTROL_ALL, NULL, 0, "5 5");
        check(t, "<a><a>", CONTROL_NONE, NULL, 0, "4 3 4 3");
        check(t, "<a><a>", CONTROL_SPANS, NULL, 0, "4 3 4 3");
        check(t, "<a><a>", CONTROL_SPANS, &second, 1, "4 3 5");
        check(t, "<a>", CONTROL_SPANS, &cut, 1, "4 3");
        check(t, "<|b|>", CONTROL_NONE, NULL, 0, "6");
        check(t, "<|b|>", CONTROL_SPANS, NULL, 0, "2 1 3");
        tokenizer_free(t);
    }
}

static void flags_of_added_tokens_take_spaces_and_look_around(void **state)
{
    struct tokenizer *t =
        opens("{" MODEL("\"a\":0,\" \":1",
                        "") "},\"added_tokens\":["
                            "{\"content\":\"L\",\"lstrip\":true,\"normalized\":false},"
                            "{\"content\":\"R\",\"rstrip\":true,\"normalized\":false},"
                            "{\"content\":\"aa\",\"single_word\":true,\"normalized\":false}]}",
              NULL);
    check(t, "a  L  a", CONTROL_ALL, NULL, 0, "0 2 1 1 0");
    check(t, "a  R  a", CONTROL_ALL, NULL, 0, "0 1 1 3 0");
    check(t, "aa aaa", CONTROL_ALL, NULL, 0, "4 1 0 0 0");
    tokenizer_free(t);
}

static void decoding_a_whole_text_drops_the_space_that_encoding_adds(void **state)
{
    static const int32_t ids[] = {1, 0, 1, 0}, bytes[] = {2, 3, 2};
    struct tokenizer *t = opens(
        "{" MODEL("\"a\":0,\"\xE2\x96\x81\":1,\"<0xC3>\":2,\"<0xA9>\":3",
                  "") ",\"byte_fallback\":true},\"decoder\":{\"type\":\"Sequence\",\"decoders\":["
                      "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xE2\x96\x81\"},\"content\":"
                      "\" \"},"
                      "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
                      "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}}",
        NULL);
    check_decoded(t, ids, 4, true, "a a");
    check_decoded(t, ids, 4, false, " a a");
    check_decoded(t, bytes, 3, true, "\xC3\xA9\xEF\xBF\xBD");
    tokenizer_free(t);
    t = opens(
        "{" MODEL("\"a\":0,\"\xE2\x96\x81\":1",
                  "") "},\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\","
                      "\"prepend_scheme\":\"always\"}}",
        NULL);
    check_decoded(t, ids, 4, true, "a a");
    tokenizer_free(t);
}

static void a_directory_says_what_goes_around_a_text(void **state)
{
    static const char json[] = "{" MODEL("\"a\":0,\"<s>\":1,\"</s>\":2", "") "}}";
    static const char config[] =
        "{\"tokenizer_class\":\"LlamaTokenizerFast\",\"add_bos_token\":true,\"add_eos_token\":true,"
        "\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</s>\"},\"added_tokens_decoder\":"
        "{\"3\":{\"content\":\"<|x|>\",\"special\":true}}}";
    struct err e = {0};
    size_t n;
    write_file("tokenizer.json", json, strlen(json));
    write_file("tokenizer_config.json", config, strlen(config));
    struct tokenizer *t = tokenizer_open(dir, NULL, &e);
    if (!t)
        fail_msg("%s", e.msg);
    assert_int_equal(*tokenizer_prefix(t, &n), 1);
    assert_int_equal(n, 1);
    assert_int_equal(*tokenizer_suffix(t, &n), 2);
    assert_int_equal(tokenizer_bos(t), 1);
    assert_int_equal(tokenizer_eos(t), 2);
    assert_true(tokenizer_adds_bos(t));
    check(t, "a<|x|><s>", CONTROL_ALL, NULL, 0, "0 3 1");
    assert_true(tokenizer_is_control(t, 3));
    tokenizer_free(t);
}

static void a_hostile_file_is_refused_before_it_costs(void **state)
{
    refuses("{" MODEL("\"a\":2147483647", "") "}}", NULL, ERR_LIMIT, "2147483647");
    refuses("{" MODEL("\"a\":-1", "") "}}", NULL, ERR_LIMIT, "-1");
    refuses("{" MODEL("\"a\":0", "\"a b\"") "}}", NULL, ERR_INVALID, "\"b\" is not in");
    refuses("{" MODEL("\"a\":0", "\"a a\"") "}}", NULL, ERR_INVALID, "\"aa\" is not in");
    refuses("{" MODEL("\"a\":0", "\"a\"") "}}", NULL, ERR_INVALID, "two tokens");
    struct buf deep = {0};
    buf_add_str(&deep, "{" MODEL("\"a\":0", "") "},\"normalizer\":");
    for (int i = 0; i < 12; i++)
        buf_add_str(&deep, "{\"type\":\"Sequence\",\"normalizers\":[");
    buf_add_str(&deep, "{\"type\":\"NFC\"}");
    for (int i = 0; i < 12; i++)
        buf_add_str(&deep, "]}");
    buf_add_str(&deep, "}");
    refuses(deep.data, NULL, ERR_LIMIT, "sequences inside each other");
    buf_free(&deep);
}

static void a_pattern_that_backtracks_without_end_is_stopped(void **state)
{
    struct tokenizer *t =
        opens("{" MODEL("\"a\":0",
                        "") "},\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":"
                            "{\"Regex\":\"(a*)*b\"},\"behavior\":\"Isolated\",\"invert\":false}}",
              NULL);
    struct token_list ids = {0};
    struct err e = {0};
    char text[64];
    memset(text, 'a', sizeof text);
    clock_t start = clock();
    if (!tokenizer_encode(t, text, sizeof text, CONTROL_NONE, NULL, 0, &ids, &e))
        assert_int_equal(e.code, ERR_LIMIT);
    assert_true(clock() - start < 20 * CLOCKS_PER_SEC);
    token_list_free(&ids);
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_file_is_named),
        cmocka_unit_test(a_file_is_told_by_its_content),
        cmocka_unit_test(text_never_becomes_a_control_token),
        cmocka_unit_test(flags_of_added_tokens_take_spaces_and_look_around),
        cmocka_unit_test(decoding_a_whole_text_drops_the_space_that_encoding_adds),
        cmocka_unit_test(a_directory_says_what_goes_around_a_text),
        cmocka_unit_test(a_hostile_file_is_refused_before_it_costs),
        cmocka_unit_test(a_pattern_that_backtracks_without_end_is_stopped),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_all);
}
