/* Golden models in Hugging Face directories: the corpus' models/NAME, or those of a directory that
 * is given (tests/reference/tiny_checkpoints.py makes one). */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "test.h"

#include "golden_rig.h"

enum { MAX_CASES = 128 };

struct corpus {
    struct CMUnitTest cases[MAX_CASES];
    int n;
};

/* Weights are float (or made so), and the reference computes in float32. Rounding keys and values
 * to f16 alone moves the logits of some by more than others' (NumPy says the same). */
static const struct limits exact = {1e-3, "f32"}, rounded = {2e-2, "f16", NULL, 16},
                           touchy = {1e-1, "f16", NULL, 16};
/* Weights of BF16 are multiplied with activations rounded to bf16. */
static const struct limits bf16 = {1e-1, "f16", NULL, 8};
/* Weights of four bits are multiplied with activations of eight bits, or of 16. */
static const struct limits quantised = {5e-1, "f32"}, fine = {2e-2, "f32", NULL, 16};

static json_t *read_golden(const char *dir)
{
    char path[4400];
    json_error_t why;
    snprintf(path, sizeof path, "%s/golden.json", dir);
    json_t *golden = json_load_file(path, 0, &why);
    if (!golden)
        fail_msg("%s: %s", path, why.text);
    return golden;
}

/* Texts of prompts, with what the tokenizer puts around them, are the golden ids. */
static void check_texts(const struct model_file *file, const char *name, const json_t *prompts)
{
    struct err e;
    size_t i;
    json_t *p;
    if (!json_object_get(json_array_get(prompts, 0), "text"))
        return; /* a directory without a tokenizer */
    struct tokenizer *t = model_file_tokenizer(file, &e);
    if (!t)
        fail_msg("%s: %s", name, e.msg);
    json_array_foreach(prompts, i, p)
    {
        const json_t *text = json_object_get(p, "text"), *ids = json_object_get(p, "ids");
        struct token_list got = {0};
        size_t n_before, n_behind;
        const int32_t *before = tokenizer_prefix(t, &n_before),
                      *behind = tokenizer_suffix(t, &n_behind);
        if (!text)
            continue;
        for (size_t k = 0; k < n_before; k++)
            token_list_add(&got, before[k]);
        assert_true(tokenizer_encode(t, json_string_value(text), json_string_length(text),
                                     CONTROL_ALL, NULL, 0, &got, &e));
        for (size_t k = 0; k < n_behind; k++)
            token_list_add(&got, behind[k]);
        assert_int_equal(got.n, json_array_size(ids));
        for (size_t k = 0; k < got.n; k++)
            assert_int_equal(got.ids[k], json_integer_value(json_array_get(ids, k)));
        token_list_free(&got);
    }
    tokenizer_free(t);
}

static void check_dir(const char *dir, const char *name, const json_t *prompts, int max_len,
                      struct limits lim)
{
    struct engine_config c = golden_config(lim);
    struct rig r;
    c.max_model_len = max_len;
    c.widen = lim.logprob < 2e-2;
    rig_open_path(&r, dir, &c);
    check_golden(name, &r, prompts, lim);
    check_texts(r.file, name, prompts);
    rig_close(&r);
}

/* The reference turns by the short table up to the trained context, and by the long one beyond
 * it; we, like other servers, choose by the longest text that is allowed. */
static void check_longrope(const char *dir, const char *name, const json_t *golden)
{
    json_t *brief = json_array();
    size_t i;
    json_t *p;
    json_array_foreach(json_object_get(golden, "prompts"), i, p)
    {
        const char *which = json_string_value(json_object_get(p, "rope_factors"));
        if (which && strcmp(which, "short") == 0)
            json_array_append(brief, p);
    }
    check_dir(dir, name, brief, 128, exact);
    check_dir(dir, name, json_object_get(golden, "prompts_long_always"), 0, exact);
    json_decref(brief);
}

static void a_directory_gives_the_golden_numbers(void **state)
{
    const char *dir = *state, *name = strrchr(dir, '/') + 1;
    json_t *golden = read_golden(dir);
    const json_t *max_len = json_object_get(golden, "max_model_len");
    if (max_len) {
        check_dir(dir, name, json_object_get(golden, "prompts"), (int)json_integer_value(max_len),
                  exact);
        if (strstr(name, "int4")) {
            check_dir(dir, name, json_object_get(golden, "prompts"), 0, quantised);
            check_dir(dir, name, json_object_get(golden, "prompts"), 0, fine);
        }
    } else if (json_object_get(golden, "prompts_long_always"))
        check_longrope(dir, name, golden);
    else if (strstr(name, "mxfp4")) {
        check_dir(dir, name, json_object_get(golden, "prompts"), 0, exact);
        check_dir(dir, name, json_object_get(golden, "prompts"), 0, quantised);
        check_dir(dir, name, json_object_get(golden, "prompts"), 0, fine);
    } else {
        check_dir(dir, name, json_object_get(golden, "prompts"), 0, exact);
        check_dir(dir, name, json_object_get(golden, "prompts"), 0,
                  golden_touchy(name) ? touchy : rounded);
        if (strcmp(name, "mistral") == 0) /* the corpus' dense one of BF16 */
            check_dir(dir, name, json_object_get(golden, "prompts"), 0, bf16);
    }
    json_decref(golden);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct CMUnitTest *)a)->name, ((const struct CMUnitTest *)b)->name);
}

static void find_cases(struct corpus *c, const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && (d = readdir(dir)) && c->n < MAX_CASES;) {
        if (d->d_name[0] == '.')
            continue;
        char *name = malloc(strlen(path) + strlen(d->d_name) + 2);
        sprintf(name, "%s/%s", path, d->d_name);
        c->cases[c->n++] = (struct CMUnitTest){
            .name = strrchr(name, '/') + 1,
            .test_func = a_directory_gives_the_golden_numbers,
            .initial_state = name,
        };
    }
    if (dir)
        closedir(dir);
    qsort(c->cases, (size_t)c->n, sizeof *c->cases, by_name);
    if (c->n == 0)
        printf("SKIPPED: no golden models in %s (set TOKEND_CORPUS)\n", path);
}

int main(int argc, char **argv)
{
    struct corpus c = {.n = 0};
    char path[4200];
    snprintf(path, sizeof path, "%s%s", argc > 1 ? argv[1] : test_corpus(),
             argc > 1 ? "" : "/models");
    find_cases(&c, path);
    int failed = c.n ? _cmocka_run_group_tests("corpus", c.cases, (size_t)c.n, NULL, NULL) : 0;
    for (int i = 0; i < c.n; i++)
        free(c.cases[i].initial_state);
    return failed;
}
