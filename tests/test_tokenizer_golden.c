/* Token ids of real vocabularies against those of the reference implementations. The goldens
 * are in the big corpus; the vocabularies are the default model (TOKEND_MODEL) and, where
 * TOKEND_VOCABS names a folder, what the corpus's fetch_tokenizers.py put there. */
#include "tokenizer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "test_data.h"

#include "test.h"

static void show_difference(const char *name, const json_t *text, const json_t *want,
                            const struct token_list *have)
{
    char *t = json_dumps(text, JSON_ENCODE_ANY), *w = json_dumps(want, JSON_ENCODE_ANY);
    print_message("%s: %.300s\n  expected %.600s\n  have    ", name, t, w);
    for (size_t i = 0; i < have->n && i < 100; i++)
        print_message(" %d", have->ids[i]);
    print_message("\n");
    free(t);
    free(w);
}

static bool same_ids(const json_t *want, const struct token_list *have)
{
    if (json_array_size(want) != have->n)
        return false;
    for (size_t i = 0; i < have->n; i++)
        if (json_integer_value(json_array_get(want, i)) != have->ids[i])
            return false;
    return true;
}

static void check_encode(const struct tokenizer *t, const char *name, const json_t *text,
                         const json_t *want, enum control_rule rule)
{
    struct token_list ids = {0};
    struct err e = {0};
    const char *s = json_string_value(text);
    size_t n = json_string_length(text);
    if (!tokenizer_encode(t, s, n, rule, NULL, 0, &ids, &e))
        fail_msg("%s: %s", name, e.msg);
    if (!same_ids(want, &ids)) {
        show_difference(name, text, want, &ids);
        fail();
    }
    token_list_free(&ids);
}

static void check_decode(const struct tokenizer *t, const char *name, const json_t *ids,
                         const json_t *text)
{
    struct detokenizer d = {.at_start = true};
    char *out = malloc(json_array_size(ids) * 4096 + 64);
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(ids); i++)
        n += detokenizer_add(&d, t, (int32_t)json_integer_value(json_array_get(ids, i)), false,
                             out + n);
    n += detokenizer_flush(&d, out + n);
    if (n != json_string_length(text) || memcmp(out, json_string_value(text), n) != 0)
        fail_msg("%s: decoded \"%.*s\", expected \"%s\"", name, (int)n, out,
                 json_string_value(text));
    free(out);
}

static size_t check_cases(const struct tokenizer *t, const char *name, const json_t *golden)
{
    size_t i;
    const json_t *c, *cases = json_object_get(golden, "cases");
    const char *kind = json_string_value(json_object_get(golden, "kind"));
    bool spm = kind && strcmp(kind, "gguf-spm") == 0;
    json_array_foreach(cases, i, c)
    {
        const json_t *text = json_object_get(c, "text"), *ids = json_object_get(c, "ids"),
                     *plain = json_object_get(c, "plain_ids"),
                     *decoded = json_object_get(c, "decoded");
        if (!spm) /* whose reference reads control tokens as text */
            check_encode(t, name, text, ids, CONTROL_ALL);
        check_encode(t, name, text, plain ? plain : ids, CONTROL_NONE);
        check_encode(t, name, text, plain ? plain : ids, CONTROL_SPANS);
        check_decode(t, name, ids, decoded ? decoded : text);
    }
    return json_array_size(cases);
}

static struct tokenizer *open_vocab(const char *path)
{
    struct err e = {0};
    struct gguf *g = gguf_open(path, &e);
    if (!g)
        fail_msg("%s", e.msg);
    struct tokenizer *t = tokenizer_open_gguf(g, &e);
    if (!t)
        fail_msg("%s: %s", path, e.msg);
    gguf_close(g);
    return t;
}

static json_t *read_golden(const char *name)
{
    char path[8192];
    json_error_t why;
    snprintf(path, sizeof path, "%s/tokenizers/%s.json", test_corpus(), name);
    json_t *golden = json_load_file(path, JSON_ALLOW_NUL, &why);
    if (!golden)
        print_message("SKIPPED: no corpus at %s (%s); set TOKEND_CORPUS\n", path, why.text);
    return golden;
}

/* The file as fetch_tokenizers.py names it: the start of its hash, then its own name. */
static bool find_vocab(const json_t *golden, char *path, size_t cap)
{
    const char *folder = getenv("TOKEND_VOCABS");
    const json_t *source = json_object_get(golden, "source");
    const char *file = json_string_value(json_object_get(source, "path"));
    const char *sha = json_string_value(json_object_get(source, "sha256"));
    if (!folder || !file || !sha)
        return false;
    const char *slash = strrchr(file, '/');
    snprintf(path, cap, "%s/%.12s-%s", folder, sha, slash ? slash + 1 : file);
    FILE *f = fopen(path, "rb");
    if (f)
        fclose(f);
    return f != NULL;
}

static void ids_of_the_default_model_equal_the_reference(void **state)
{
    const char *model = getenv("TOKEND_MODEL");
    if (!model) {
        print_message("SKIPPED: TOKEND_MODEL does not name SmolLM2's file (config/model.sh)\n");
        skip();
    }
    json_t *golden = read_golden("gguf-smollm2");
    if (!golden)
        skip();
    struct tokenizer *t = open_vocab(model);
    assert_int_equal(tokenizer_bos(t), 1);
    assert_int_equal(tokenizer_eos(t), 2);
    assert_false(tokenizer_adds_bos(t));
    assert_int_equal(tokenizer_find(t, "<|im_end|>", 10), 2);
    assert_true(tokenizer_is_control(t, 2));
    print_message("%zu cases\n", check_cases(t, "gguf-smollm2", golden));
    tokenizer_free(t);
    json_decref(golden);
}

static void check_vocab(const char *name)
{
    char path[8192];
    json_t *golden = read_golden(name);
    if (golden && find_vocab(golden, path, sizeof path)) {
        struct tokenizer *t = open_vocab(path);
        print_message("%s: %zu cases\n", name, check_cases(t, name, golden));
        tokenizer_free(t);
    } else if (golden) {
        print_message("SKIPPED %s: its vocabulary is not in TOKEND_VOCABS\n", name);
    }
    json_decref(golden);
}

static void ids_of_other_vocabularies_equal_the_reference(void **state)
{
    static const char *const names[] = {
        "ggml-vocab-gpt-2",
        "ggml-vocab-llama-bpe",
        "ggml-vocab-qwen2",
        "ggml-vocab-command-r",
        "ggml-vocab-refact",
        "ggml-vocab-starcoder",
        "llamacpp-inout-llama-bpe",
        "llamacpp-inout-qwen2",
        "llamacpp-inout-command-r",
        "llamacpp-inout-refact",
        "llamacpp-inout-starcoder",
        "llamacpp-inout-falcon",
        "llamacpp-inout-gpt-2",
        "llamacpp-inout-deepseek-coder",
        "llamacpp-inout-deepseek-llm",
        "llamacpp-inout-mpt",
        "llamacpp-inout-qwen35",
        "ggml-vocab-llama-spm",
        "ggml-vocab-baichuan",
        "gguf-gemma3-270m",
        "llamacpp-inout-llama-spm",
        "llamacpp-inout-phi-3",
    };
    if (!getenv("TOKEND_VOCABS")) {
        print_message("SKIPPED: TOKEND_VOCABS names no folder (fetch_tokenizers.py fills one)\n");
        skip();
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_vocab(names[i]);
}

static const json_t *prompt_with_text(const json_t *golden)
{
    size_t i;
    const json_t *p;
    json_array_foreach(json_object_get(golden, "prompts"), i, p)
    {
        if (json_object_get(p, "text"))
            return p;
    }
    return NULL;
}

/* As the server makes a prompt: BOS where the model wants one, then the text. */
static void check_model_prompt(const char *model)
{
    char path[8192];
    json_error_t why;
    snprintf(path, sizeof path, "%s/gguf/%s.gguf.golden.json", test_corpus(), model);
    json_t *golden = json_load_file(path, 0, &why);
    if (!golden) {
        print_message("SKIPPED: no corpus at %s (%s); set TOKEND_CORPUS\n", path, why.text);
        skip();
    }
    snprintf(path, sizeof path, "%s/gguf/%s.gguf", test_corpus(), model);
    struct tokenizer *t = open_vocab(path);
    const json_t *prompt = prompt_with_text(golden), *text = json_object_get(prompt, "text");
    assert_non_null(text);
    struct token_list ids = {0};
    if (tokenizer_adds_bos(t))
        assert_true(token_list_add(&ids, tokenizer_bos(t)));
    assert_true(tokenizer_encode(t, json_string_value(text), json_string_length(text), CONTROL_ALL,
                                 NULL, 0, &ids, NULL));
    if (!same_ids(json_object_get(prompt, "ids"), &ids)) {
        show_difference(model, text, json_object_get(prompt, "ids"), &ids);
        fail();
    }
    token_list_free(&ids);
    tokenizer_free(t);
    json_decref(golden);
}

static void prompts_of_the_small_models_equal_the_reference(void **state)
{
    static const char *const models[] = {"llama2.F16",  "llama2.BF16", "llama2.Q8_0",
                                         "gemma2.F16",  "gemma3.F16",  "mistral.F16",
                                         "mixtral.F16", "phi3.F16",    "phi3_sw.F16"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        check_model_prompt(models[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_of_the_default_model_equal_the_reference),
        cmocka_unit_test(ids_of_other_vocabularies_equal_the_reference),
        cmocka_unit_test(prompts_of_the_small_models_equal_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
