/* template_corpus.c: renders a corpus of chat templates and compares with jinja2's results.
 *
 * usage: template_corpus [-v] [NAME…]. The folder templates/ of the corpora (test_data.h) holds
 * _contexts.json and NAME.json as golden/README.md describes them. Prints one line a template
 * that fails, then the sums; -v prints every case that fails. */
#include "template.h"
#include "template_tail.h"
#include "test_data.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct sums {
    int passed, failed, templates, whole;
};

static bool verbose;

static json_t *load(const char *dir, const char *name)
{
    char path[5000];
    json_error_t e;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    json_t *j = json_load_file(path, JSON_ALLOW_NUL, &e);
    if (!j)
        fprintf(stderr, "%s: line %d: %s\n", path, e.line, e.text);
    return j;
}

/* What transformers passes: the messages and tools, the special tokens, the keywords. */
static json_t *make_context(const json_t *given, const json_t *default_vars, const json_t *vars)
{
    json_t *c = json_object(), *kwargs = json_object_get(given, "kwargs");
    json_object_update(c, (json_t *)default_vars);
    json_object_update(c, (json_t *)vars);
    json_object_set(c, "messages", json_object_get(given, "messages"));
    json_t *tools = json_object_get(given, "tools");
    json_object_set_new(c, "tools", tools ? json_incref(tools) : json_null());
    json_object_set_new(c, "documents", json_null());
    json_t *generate = json_object_get(given, "add_generation_prompt");
    json_object_set_new(c, "add_generation_prompt", json_boolean(json_is_true(generate)));
    if (kwargs)
        json_object_update(c, kwargs);
    return c;
}

static void report(const char *name, const char *context, const char *why, const char *want,
                   const char *got)
{
    if (verbose)
        printf("-- %s / %s: %s\n   want: %s\n   got:  %s\n", name, context, why, want, got);
}

static bool same_text(const struct buf *b, const json_t *want)
{
    return b->len == json_string_length(want) &&
           (b->len == 0 || memcmp(b->data, json_string_value(want), b->len) == 0);
}

static bool check_error(const char *name, const char *context, const json_t *c, const char *msg)
{
    const char *want = json_string_value(json_object_get(c, "error"));
    const char *kind = json_string_value(json_object_get(c, "error_kind"));
    if (strcmp(kind, "raise_exception") != 0 || strncmp(want, msg, 500) == 0)
        return true;
    report(name, context, "another message", want, msg);
    return false;
}

static bool run_case(const char *name, const struct template *t, const json_t *c,
                     const json_t *given, json_t *context, int64_t now)
{
    static const char *const trusted[] = {"bos_token", "eos_token", NULL};
    const char *id = json_string_value(json_object_get(c, "context"));
    const json_t *want = json_object_get(c, "expected");
    struct template_input in = {.context = context, .trusted = trusted, .now = now};
    struct rendered out;
    struct err e = {0};
    bool ok = template_render(t, &in, &out, &e);
    if (ok && json_is_true(json_object_get(given, "continue_final_message")))
        ok = template_cut_after(&out, json_object_get(context, "messages"), &e);
    bool passed;
    if (!want) {
        passed = ok ? false : check_error(name, id, c, e.msg);
        if (ok)
            report(name, id, "no error", json_string_value(json_object_get(c, "error")),
                   out.text.data ? out.text.data : "");
    } else {
        passed = ok && same_text(&out.text, want);
        if (!passed)
            report(name, id, ok ? "another text" : "an error", json_string_value(want),
                   ok ? (out.text.data ? out.text.data : "") : e.msg);
    }
    rendered_free(&out);
    return passed;
}

static void run_template(const char *dir, const char *file, const json_t *contexts, int64_t now,
                         struct sums *sums)
{
    json_t *j = load(dir, file), *c;
    const json_t *source = json_object_get(j, "template");
    struct err e = {0};
    struct template *t = template_parse(json_string_value(source), json_string_length(source), &e);
    int passed = 0, failed = 0;
    size_t i;
    if (!t)
        printf("-- %s: %s\n", file, e.msg);
    json_array_foreach(json_object_get(j, "cases"), i, c)
    {
        const char *id = json_string_value(json_object_get(c, "context"));
        const json_t *given = json_object_get(json_object_get(contexts, "contexts"), id);
        json_t *context = make_context(given, json_object_get(contexts, "default_vars"),
                                       json_object_get(j, "vars"));
        bool ok = t && run_case(file, t, c, given, context, now);
        passed += ok;
        failed += !ok;
        json_decref(context);
    }
    if (failed)
        printf("%s: %d of %d cases fail\n", file, failed, passed + failed);
    sums->passed += passed;
    sums->failed += failed;
    sums->templates++;
    sums->whole += failed == 0;
    template_free(t);
    json_decref(j);
}

static bool wanted(const char *file, int n, char **names)
{
    size_t len = strlen(file);
    if (file[0] == '_' || len < 6 || strcmp(file + len - 5, ".json") != 0)
        return false;
    for (int i = 0; i < n; i++)
        if (strncmp(file, names[i], len - 5) == 0 && strlen(names[i]) == len - 5)
            return true;
    return n == 0;
}

static int64_t parse_time(const json_t *now)
{
    struct tm tm = {0};
    if (!json_is_string(now) || !strptime(json_string_value(now), "%Y-%m-%dT%H:%M:%S", &tm))
        return 0;
    return (int64_t)timegm(&tm);
}

int main(int argc, char **argv)
{
    char dir[4500];
    snprintf(dir, sizeof dir, "%s/templates", test_corpus());
    DIR *d = opendir(dir);
    if (!d) {
        printf("SKIPPED: no corpus of chat templates in %s (set TOKEND_CORPUS)\n", dir);
        return 77;
    }
    verbose = argc > 1 && strcmp(argv[1], "-v") == 0;
    json_t *contexts = load(dir, "_contexts.json");
    int64_t now = parse_time(json_object_get(contexts, "now"));
    struct sums sums = {0};
    for (struct dirent *f = readdir(d); f; f = readdir(d))
        if (wanted(f->d_name, argc - 1 - verbose, argv + 1 + verbose))
            run_template(dir, f->d_name, contexts, now, &sums);
    closedir(d);
    json_decref(contexts);
    printf("%d of %d templates whole, %d of %d cases equal\n", sums.whole, sums.templates,
           sums.passed, sums.passed + sums.failed);
    return sums.failed || !sums.passed ? 1 : 0;
}
