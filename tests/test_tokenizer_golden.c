/* Token ids of real vocabularies against those of the reference implementations. The goldens
 * are in the big corpus; the vocabularies are the default model (TOKEND_MODEL) and, where
 * TOKEND_VOCABS names a folder, what the corpus's fetch_tokenizers.py put there. */
#include "tokenizer.h"

#include <dirent.h>
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
                         const json_t *want, enum control_rule rule, const struct text_span *spans,
                         size_t n_spans)
{
    struct token_list ids = {0};
    struct err e = {0};
    const char *s = json_string_value(text);
    size_t n = json_string_length(text);
    if (!tokenizer_encode(t, s, n, rule, spans, n_spans, &ids, &e))
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

/* References of these kinds read control tokens as plain text. */
static bool is_plain_kind(const char *kind)
{
    return kind && (strcmp(kind, "gguf-spm") == 0 || strcmp(kind, "sentencepiece") == 0 ||
                    strcmp(kind, "tekken") == 0);
}

/* Text that no span covers is plain, but for what no user may write: turn markers that the
 * reference reads always, and control tokens that a Unigram model finds by itself. */
static bool spans_read_as_plain(const char *text)
{
    return strchr(text, '<') == NULL;
}

static size_t check_cases(const struct tokenizer *t, const char *name, const json_t *golden)
{
    size_t i;
    const json_t *c, *cases = json_object_get(golden, "cases");
    bool plain_kind = is_plain_kind(json_string_value(json_object_get(golden, "kind")));
    json_array_foreach(cases, i, c)
    {
        const json_t *text = json_object_get(c, "text"), *ids = json_object_get(c, "ids"),
                     *plain = json_object_get(c, "plain_ids"),
                     *decoded = json_object_get(c, "decoded");
        const struct text_span all = {0, json_string_length(text)};
        if (!plain_kind) {
            check_encode(t, name, text, ids, CONTROL_ALL, NULL, 0);
            check_encode(t, name, text, ids, CONTROL_SPANS, &all, 1);
        }
        check_encode(t, name, text, plain ? plain : ids, CONTROL_NONE, NULL, 0);
        if (spans_read_as_plain(json_string_value(text)))
            check_encode(t, name, text, plain ? plain : ids, CONTROL_SPANS, NULL, 0);
        check_decode(t, name, ids, decoded ? decoded : text);
    }
    return json_array_size(cases);
}

static struct tokenizer *open_vocab(const char *path, const char *encoding)
{
    struct err e = {0};
    struct tokenizer *t = tokenizer_open(path, encoding, &e);
    if (!t)
        fail_msg("%s: %s", path, e.msg);
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
    const char *member = json_string_value(json_object_get(source, "member"));
    file = member ? member : file;
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
    struct tokenizer *t = open_vocab(model, NULL);
    assert_int_equal(tokenizer_bos(t), 1);
    assert_int_equal(tokenizer_eos(t), 2);
    assert_false(tokenizer_adds_bos(t));
    assert_int_equal(tokenizer_find(t, "<|im_end|>", 10), 2);
    assert_true(tokenizer_is_control(t, 2));
    print_message("%zu cases\n", check_cases(t, "gguf-smollm2", golden));
    tokenizer_free(t);
    json_decref(golden);
}

/* What a bare rank file's golden is called, and its encoding. */
static const char *encoding_of(const char *name)
{
    static const char *const pairs[][2] = {
        {"cl100k_base", "cl100k_base"},     {"o200k_base", "o200k_base"},
        {"o200k_harmony", "o200k_harmony"}, {"llama3-tiktoken", "llama3"},
        {"llama4-tiktoken", "llama4"},      {"qwen-tiktoken", "qwen"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (strcmp(name, pairs[i][0]) == 0)
            return pairs[i][1];
    return NULL;
}

static void check_ends(const struct tokenizer *t, const char *name, const json_t *golden)
{
    size_t n;
    struct token_list have = {0};
    const json_t *prefix = json_object_get(golden, "prefix_ids");
    have.ids = (int32_t *)tokenizer_prefix(t, &n);
    have.n = n;
    if (prefix && !same_ids(prefix, &have))
        fail_msg("%s: other ids go before a text", name);
}

/* WordPiece is refused by name. */
static void check_refused(const char *path)
{
    struct err e = {0};
    assert_null(tokenizer_open(path, NULL, &e));
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    assert_contains(e.msg, "WordPiece");
}

static bool check_vocab(const char *name)
{
    char path[8192];
    json_t *golden = read_golden(name);
    bool found = golden && find_vocab(golden, path, sizeof path);
    if (found && strstr(name, "bert")) {
        check_refused(path);
    } else if (found) {
        struct tokenizer *t = open_vocab(path, encoding_of(name));
        check_ends(t, name, golden);
        print_message("%s: %zu cases\n", name, check_cases(t, name, golden));
        tokenizer_free(t);
    } else if (golden) {
        print_message("SKIPPED %s: its vocabulary is not in TOKEND_VOCABS\n", name);
    }
    json_decref(golden);
    return found;
}

static void ids_of_real_vocabularies_equal_the_reference(void **state)
{
    char folder[8192], name[300];
    int n = 0;
    if (!getenv("TOKEND_VOCABS")) {
        print_message("SKIPPED: TOKEND_VOCABS names no folder (fetch_tokenizers.py fills one)\n");
        skip();
    }
    snprintf(folder, sizeof folder, "%s/tokenizers", test_corpus());
    DIR *dir = opendir(folder);
    if (!dir) {
        print_message("SKIPPED: no corpus at %s; set TOKEND_CORPUS\n", folder);
        skip();
    }
    for (struct dirent *d; (d = readdir(dir));) {
        size_t len = strlen(d->d_name);
        if (len < 6 || strcmp(d->d_name + len - 5, ".json") != 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(len - 5), d->d_name);
        n += check_vocab(name);
    }
    closedir(dir);
    print_message("%d vocabularies\n", n);
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
    struct tokenizer *t = open_vocab(path, NULL);
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

/* The same of a Hugging Face directory, with all that goes around a text. */
static bool check_directory(const char *model)
{
    char path[8192];
    json_error_t why;
    size_t n_prefix, n_suffix;
    snprintf(path, sizeof path, "%s/models/%s/golden.json", test_corpus(), model);
    json_t *golden = json_load_file(path, 0, &why);
    if (!golden)
        return false;
    snprintf(path, sizeof path, "%s/models/%s", test_corpus(), model);
    struct tokenizer *t = open_vocab(path, NULL);
    const json_t *prompt = prompt_with_text(golden), *text = json_object_get(prompt, "text");
    struct token_list ids = {0};
    const int32_t *prefix = tokenizer_prefix(t, &n_prefix),
                  *suffix = tokenizer_suffix(t, &n_suffix);
    for (size_t i = 0; i < n_prefix; i++)
        assert_true(token_list_add(&ids, prefix[i]));
    assert_true(tokenizer_encode(t, json_string_value(text), json_string_length(text), CONTROL_ALL,
                                 NULL, 0, &ids, NULL));
    for (size_t i = 0; i < n_suffix; i++)
        assert_true(token_list_add(&ids, suffix[i]));
    if (!same_ids(json_object_get(prompt, "ids"), &ids)) {
        show_difference(model, text, json_object_get(prompt, "ids"), &ids);
        fail();
    }
    token_list_free(&ids);
    tokenizer_free(t);
    json_decref(golden);
    return true;
}

static void prompts_of_hugging_face_directories_equal_the_reference(void **state)
{
    char folder[8192];
    int n = 0;
    snprintf(folder, sizeof folder, "%s/models", test_corpus());
    DIR *dir = opendir(folder);
    if (!dir) {
        print_message("SKIPPED: no corpus at %s; set TOKEND_CORPUS\n", folder);
        skip();
    }
    for (struct dirent *d; (d = readdir(dir));)
        n += d->d_name[0] != '.' && check_directory(d->d_name);
    closedir(dir);
    print_message("%d directories\n", n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_of_the_default_model_equal_the_reference),
        cmocka_unit_test(ids_of_real_vocabularies_equal_the_reference),
        cmocka_unit_test(prompts_of_the_small_models_equal_the_reference),
        cmocka_unit_test(prompts_of_hugging_face_directories_equal_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
