/* Opening a tokenizer from hostile or odd metadata: a clear error, or something that works. */
#include "tokenizer.h"

#include <stdlib.h>

#include "pretokenizer_gguf.h"
#include "vocab_build.h"

#include "test.h"

static void start(struct vocab_build *v)
{
    vocab_start(v);
    vocab_merge(v, "a b");
    vocab_token(v, "<s>", T_CONTROL);
}

static void refuse(struct vocab_build *v, const char *pre, enum err_code code, const char *says)
{
    struct err e = {0};
    assert_null(vocab_open(v, pre, &e));
    assert_int_equal(e.code, code);
    assert_contains(e.msg, says);
}

static struct tokenizer *opened(struct vocab_build *v, const char *pre)
{
    struct err e = {0};
    struct tokenizer *t = vocab_open(v, pre, &e);
    if (!t)
        fail_msg("%s", e.msg);
    return t;
}

static size_t count(const struct tokenizer *t, const char *text)
{
    struct token_list ids = {0};
    struct err e = {0};
    if (!tokenizer_encode(t, text, strlen(text), CONTROL_ALL, NULL, 0, &ids, &e))
        fail_msg("%s", e.msg);
    size_t n = ids.n;
    token_list_free(&ids);
    return n;
}

static int32_t last_id(const struct tokenizer *t, const char *text)
{
    struct token_list ids = {0};
    assert_true(tokenizer_encode(t, text, strlen(text), CONTROL_ALL, NULL, 0, &ids, NULL));
    int32_t id = ids.ids[ids.n - 1];
    token_list_free(&ids);
    return id;
}

static void every_known_pre_tokenizer_opens_and_an_unknown_one_is_named(void **state)
{
    struct vocab_build v = {0};
    for (size_t i = 0; pretokenizer_gguf_name(i); i++) {
        start(&v);
        struct tokenizer *t = opened(&v, pretokenizer_gguf_name(i));
        assert_int_equal(count(t, "ab<s>"), 2);
        tokenizer_free(t);
    }
    start(&v);
    refuse(&v, "gpt-9", ERR_UNSUPPORTED, "tokenizer.ggml.pre: unknown pre-tokenizer \"gpt-9\"");
    start(&v);
    refuse(&v, "gpt", ERR_UNSUPPORTED, "\"gpt\"");
    start(&v);
    refuse(&v, NULL, ERR_UNSUPPORTED, "tokenizer.ggml.pre is absent");
}

static void another_kind_of_tokenizer_is_named(void **state)
{
    struct gguf_build b = {0};
    struct err e = {0};
    build_str(&b, "tokenizer.ggml.model", "rwkv");
    struct gguf *g = build_open(&b, &e);
    assert_null(tokenizer_open_gguf(g, &e));
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    assert_contains(e.msg, "\"rwkv\"");
    gguf_close(g);
    build_free(&b);
    g = build_open(&b, &e);
    assert_null(tokenizer_open_gguf(g, &e));
    assert_contains(e.msg, "tokenizer.ggml.model");
    gguf_close(g);
    build_free(&b);
}

static void missing_and_uneven_arrays_are_refused(void **state)
{
    struct vocab_build v = {0};
    start(&v);
    v.n_types--;
    v.types.len -= 4;
    refuse(&v, "gpt-2", ERR_INVALID, "has 257 entries, tokenizer.ggml.tokens has 258");
    refuse(&v, "gpt-2", ERR_INVALID, "tokenizer.ggml.tokens has 0 entries");

    struct err e = {0};
    start(&v); /* no types at all */
    build_str(&v.file, "tokenizer.ggml.model", "gpt2");
    build_str(&v.file, "tokenizer.ggml.pre", "gpt-2");
    build_array(&v.file, "tokenizer.ggml.tokens", GGUF_STRING, v.n_tokens, v.tokens.data,
                v.tokens.len);
    struct gguf *g = build_open(&v.file, &e);
    assert_null(tokenizer_open_gguf(g, &e));
    assert_contains(e.msg, "tokenizer.ggml.token_type is absent");
    gguf_close(g);
    vocab_free(&v);
}

static void an_unknown_token_type_is_refused(void **state)
{
    struct vocab_build v = {0};
    start(&v);
    vocab_token(&v, "x1", 7);
    refuse(&v, "gpt-2", ERR_INVALID, "tokenizer.ggml.token_type[258] is 7");
    start(&v);
    vocab_token(&v, "x1", -1);
    refuse(&v, "gpt-2", ERR_INVALID, "[258] is -1");
}

static void merges_must_name_tokens(void **state)
{
    static const struct {
        const char *merge, *says;
    } bad[] = {
        {"abc", "merges[1] is \"abc\": expected two tokens and a space"},
        {"", "merges[1] is \"\""},
        {" ", "merges[1] is \" \""},
        {"a ", "merges[1]: \"\" is not in the vocabulary"},
        {"zz a", "merges[1]: \"zz\" is not in the vocabulary"},
        {"a zz", "merges[1]: \"zz\" is not in the vocabulary"},
        {"b a", "merges[1]: \"ba\" is not in the vocabulary"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct vocab_build v = {0};
        start(&v);
        vocab_merge_only(&v, bad[i].merge);
        refuse(&v, "gpt-2", ERR_INVALID, bad[i].says);
    }
}

static void special_ids_out_of_range_are_refused(void **state)
{
    struct vocab_build v = {0};
    start(&v);
    build_u32(&v.file, "tokenizer.ggml.bos_token_id", 258);
    refuse(&v, "gpt-2", ERR_INVALID,
           "tokenizer.ggml.bos_token_id is 258: the vocabulary has 258 tokens");
    start(&v);
    build_u32(&v.file, "tokenizer.ggml.eos_token_id", UINT32_MAX);
    refuse(&v, "gpt-2", ERR_INVALID, "tokenizer.ggml.eos_token_id is 4294967295");
    start(&v);
    build_str(&v.file, "tokenizer.ggml.eos_token_id", "2");
    refuse(&v, "gpt-2", ERR_INVALID, "tokenizer.ggml.eos_token_id");
}

static void what_the_file_says_of_bos_and_eos_is_told(void **state)
{
    struct vocab_build v = {0};
    start(&v);
    struct tokenizer *t = opened(&v, "gpt-2");
    assert_int_equal(tokenizer_bos(t), -1);
    assert_int_equal(tokenizer_eos(t), -1);
    assert_false(tokenizer_adds_bos(t) || tokenizer_adds_eos(t));
    tokenizer_free(t);

    start(&v);
    build_u32(&v.file, "tokenizer.ggml.bos_token_id", 257);
    t = opened(&v, "llama-bpe"); /* whose models want it unless the file says otherwise */
    assert_int_equal(tokenizer_bos(t), 257);
    assert_true(tokenizer_adds_bos(t));
    tokenizer_free(t);

    start(&v);
    build_u32(&v.file, "tokenizer.ggml.bos_token_id", 257);
    build_u32(&v.file, "tokenizer.ggml.eos_token_id", 256);
    build_bool(&v.file, "tokenizer.ggml.add_bos_token", false);
    build_bool(&v.file, "tokenizer.ggml.add_eos_token", true);
    t = opened(&v, "llama-bpe");
    assert_false(tokenizer_adds_bos(t));
    assert_true(tokenizer_adds_eos(t));
    assert_int_equal(tokenizer_eos(t), 256);
    tokenizer_free(t);
}

static void odd_tokens_do_no_harm(void **state)
{
    struct vocab_build v = {0};
    start(&v);
    vocab_token(&v, "", T_NORMAL);
    vocab_token(&v, "", T_CONTROL);
    vocab_token(&v, "", T_USER);
    int32_t raw = vocab_token(&v, "\xE6\xBC\xA2 x", T_NORMAL);    /* not in the alphabet */
    int32_t broken = vocab_token_n(&v, "a\xFF\xC4", 3, T_NORMAL); /* not UTF-8 */
    int32_t broken_control = vocab_token_n(&v, "\xFF\0", 2, T_CONTROL);
    vocab_token(&v, "\xA9", T_USER); /* would cut a character of the text */
    int32_t first = vocab_token(&v, "twice", T_NORMAL), second = vocab_token(&v, "twice", T_NORMAL);
    int32_t control = vocab_token(&v, "ab", T_CONTROL); /* as an ordinary one is already */
    struct tokenizer *t = opened(&v, "llama-bpe");
    size_t n;
    assert_int_equal(count(t, "ab"), 1);
    assert_int_equal(count(t, "\xE6\xBC\xA2 x"), 5);
    assert_int_equal(last_id(t, "\xC3\xA9"), 0xA9);
    assert_memory_equal(tokenizer_piece(t, raw, &n), "\xE6\xBC\xA2 x", 5);
    assert_memory_equal(tokenizer_piece(t, broken, &n), "a\xFF\xC4", 3);
    assert_memory_equal(tokenizer_piece(t, broken_control, &n), "\xFF", 2);
    assert_int_equal(n, 2);
    assert_true(tokenizer_is_control(t, broken_control));
    assert_int_equal(tokenizer_find(t, "twice", 5), second);
    assert_int_not_equal(first, second);
    assert_int_equal(tokenizer_find(t, "ab", 2), control);
    assert_int_equal(tokenizer_find(t, "", 0), -1);
    assert_int_equal(tokenizer_find(t, "no such", 7), -1);
    assert_int_equal(tokenizer_n_vocab(t), control + 1);
    tokenizer_free(t);
}

static void of_equal_merges_the_first_counts(void **state)
{
    struct vocab_build v = {0};
    vocab_start(&v);
    vocab_merge(&v, "b c");
    vocab_merge(&v, "a b");
    vocab_merge_only(&v, "b c");
    struct tokenizer *t = opened(&v, "gpt-2");
    struct token_list ids = {0};
    assert_true(tokenizer_encode(t, "abc", 3, CONTROL_NONE, NULL, 0, &ids, NULL));
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.ids[1], 256);
    token_list_free(&ids);
    tokenizer_free(t);
}

static void too_much_control_text_is_refused(void **state)
{
    struct vocab_build v = {0};
    char *text = malloc(5 << 20);
    memset(text, 'a', 5 << 20);
    start(&v);
    vocab_token_n(&v, text, 5 << 20, T_CONTROL);
    refuse(&v, "gpt-2", ERR_LIMIT, "control and user-defined tokens hold more than");
    start(&v);
    vocab_token_n(&v, text, 5 << 20, T_NORMAL);
    struct tokenizer *t = opened(&v, "gpt-2");
    assert_int_equal(count(t, "aaa"), 3);
    tokenizer_free(t);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_known_pre_tokenizer_opens_and_an_unknown_one_is_named),
        cmocka_unit_test(another_kind_of_tokenizer_is_named),
        cmocka_unit_test(missing_and_uneven_arrays_are_refused),
        cmocka_unit_test(an_unknown_token_type_is_refused),
        cmocka_unit_test(merges_must_name_tokens),
        cmocka_unit_test(special_ids_out_of_range_are_refused),
        cmocka_unit_test(what_the_file_says_of_bos_and_eos_is_told),
        cmocka_unit_test(odd_tokens_do_no_harm),
        cmocka_unit_test(of_equal_merges_the_first_counts),
        cmocka_unit_test(too_much_control_text_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
