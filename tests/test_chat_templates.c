#include "chat_templates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf_build.h"
#include "temp_dir.h"

#include "test.h"

static struct chat_templates read_dir(const struct temp_dir *d)
{
    struct chat_templates t = {0};
    struct err e;
    if (!chat_templates_read_dir(&t, d->path, &e))
        fail_msg("%s", e.msg);
    return t;
}

static void expect(const struct chat_templates *t, const char *name, const char *text)
{
    const struct chat_template *c = chat_templates_find(t, name);
    if (!c)
        fail_msg("no template %s", name);
    assert_string_equal(c->text, text);
    assert_int_equal(c->len, strlen(text));
}

static void a_directory_has_templates_in_its_tokenizer_config(void **state)
{
    struct temp_dir d;
    temp_dir_open(&d);
    temp_dir_write(&d, "tokenizer_config.json",
                   "{\"chat_template\": \"one\", \"bos_token\": \"<s>\", \"eos_token\": "
                   "{\"content\": \"</s>\", \"lstrip\": false}, \"pad_token\": null}");
    temp_dir_write(&d, "special_tokens_map.json", "{\"bos_token\": \"no\", \"unk_token\": \"?\"}");
    struct chat_templates t = read_dir(&d);
    assert_int_equal(t.n, 1);
    expect(&t, "default", "one");
    assert_string_equal(t.special[SPECIAL_BOS], "<s>");
    assert_string_equal(t.special[SPECIAL_EOS], "</s>");
    assert_string_equal(t.special[SPECIAL_UNK], "?");
    assert_null(t.special[SPECIAL_PAD]);
    chat_templates_free(&t);
    temp_dir_close(&d);
}

static void templates_may_be_a_list_of_named_ones(void **state)
{
    struct temp_dir d;
    temp_dir_open(&d);
    temp_dir_write(&d, "tokenizer_config.json",
                   "{\"chat_template\": [{\"name\": \"default\", \"template\": \"d\"}, {\"name\": "
                   "\"tool_use\", \"template\": \"t\"}, {\"name\": 1}, 7, {\"name\": \"default\", "
                   "\"template\": \"second\"}]}");
    struct chat_templates t = read_dir(&d);
    assert_int_equal(t.n, 2);
    expect(&t, "default", "d");
    expect(&t, "tool_use", "t");
    assert_null(chat_templates_find(&t, "rag"));
    chat_templates_free(&t);
    temp_dir_close(&d);
}

static void files_of_templates_come_first(void **state)
{
    struct temp_dir d;
    temp_dir_open(&d);
    temp_dir_write(&d, "tokenizer_config.json", "{\"chat_template\": \"config\"}");
    temp_dir_write(&d, "chat_template.json", "{\"chat_template\": \"json\"}");
    struct chat_templates t = read_dir(&d);
    expect(&t, "default", "json");
    chat_templates_free(&t);
    temp_dir_write(&d, "chat_template.jinja", "file\n");
    temp_dir_write(&d, "additional_chat_templates/tool_use.jinja", "tools");
    temp_dir_write(&d, "additional_chat_templates/readme.txt", "no");
    t = read_dir(&d);
    assert_int_equal(t.n, 2);
    expect(&t, "default", "file\n");
    expect(&t, "tool_use", "tools");
    chat_templates_free(&t);
    temp_dir_close(&d);
}

static void broken_files_are_refused_by_name(void **state)
{
    struct temp_dir d;
    struct chat_templates t = {0};
    struct err e;
    temp_dir_open(&d);
    temp_dir_write(&d, "tokenizer_config.json", "{\"chat_template\": ");
    assert_false(chat_templates_read_dir(&t, d.path, &e));
    assert_contains(e.msg, "tokenizer_config.json is no valid JSON");
    chat_templates_free(&t);
    temp_dir_close(&d);
    temp_dir_open(&d); /* nothing there is no error */
    assert_true(chat_templates_read_dir(&t, d.path, &e));
    assert_int_equal(t.n, 0);
    temp_dir_close(&d);
}

static void a_broken_file_takes_no_template_away(void **state)
{
    struct temp_dir d;
    struct chat_templates t = {0};
    struct err e;
    temp_dir_open(&d);
    temp_dir_write(&d, "tokenizer_config.json",
                   "{\"chat_template\": \"one\", \"bos_token\": \"<s>\"}");
    temp_dir_write(&d, "special_tokens_map.json", "{\"bos_token\"");
    assert_false(chat_templates_read_dir(&t, d.path, &e));
    assert_non_null(strstr(e.msg, "special_tokens_map.json"));
    expect(&t, "default", "one");
    assert_string_equal(t.special[SPECIAL_BOS], "<s>");
    chat_templates_free(&t);
    temp_dir_close(&d);
}

static void a_gguf_file_has_named_templates_too(void **state)
{
    static const char *const tokens[] = {"<unk>", "<s>", "</s>"};
    struct gguf_build b = {0};
    struct chat_templates t = {0};
    struct err e;
    build_str(&b, "tokenizer.chat_template.tool_use", "t");
    build_str(&b, "tokenizer.chat_template", "d");
    build_str(&b, "tokenizer.chat_templates_of", "x");
    build_strings(&b, "tokenizer.ggml.tokens", 3, tokens);
    build_u32(&b, "tokenizer.ggml.bos_token_id", 1);
    build_u32(&b, "tokenizer.ggml.unknown_token_id", 0);
    build_u32(&b, "tokenizer.ggml.padding_token_id", 9);
    struct gguf *g = build_open(&b, &e);
    assert_non_null(g);
    assert_true(chat_templates_read_gguf(&t, g, &e));
    assert_int_equal(t.n, 2);
    expect(&t, "default", "d");
    expect(&t, "tool_use", "t");
    assert_string_equal(t.special[SPECIAL_BOS], "<s>");
    assert_string_equal(t.special[SPECIAL_UNK], "<unk>");
    assert_null(t.special[SPECIAL_EOS]);
    assert_null(t.special[SPECIAL_PAD]);
    chat_templates_free(&t);
    gguf_close(g);
    build_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_directory_has_templates_in_its_tokenizer_config),
        cmocka_unit_test(templates_may_be_a_list_of_named_ones),
        cmocka_unit_test(files_of_templates_come_first),
        cmocka_unit_test(broken_files_are_refused_by_name),
        cmocka_unit_test(a_broken_file_takes_no_template_away),
        cmocka_unit_test(a_gguf_file_has_named_templates_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
