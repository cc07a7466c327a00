/* cmd_bench.c: how fast this machine runs a model.
 *
 * Prefill: `batch` requests of depth + prompt tokens arrive together, of which the first
 * `depth` are in the prefix cache. Measured from the first one's first step to the last one's
 * first token, over the tokens that were computed.
 * Decode: `batch` requests whose `depth` tokens are in the prefix cache generate together.
 * Measured from the last one's first token to the end.
 * Tokens are random and differ between samples, so that nothing else is found in the cache. With
 * --shared-depth the requests of a sample have their `depth` tokens in common. */
#include "bench_plot.h"
#include "bench_run.h"
#include "commands.h"
#include "loaded_model.h"
#include "output.h"
#include "svg_plot.h"

#include "engine.h"
#include "settings.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LIST = 32, MAX_BATCH = 1024 };

struct number_list {
    int n;
    int64_t at[MAX_LIST];
};

struct bench_options {
    const char *model, *svg, *device, *kv_cache_dtype, *dtype, *quantization, *activation_bits;
    struct number_list threads, prompt, generate, depth, batch;
    int64_t repeat;
    bool json, help, own_depths, shared_depth, pin_threads, batch_invariant;
};

struct bench {
    struct bench_run run;
    bool json, shared_depth;
    int repeat;
    struct bench_results *results;
};

/* --- options --- */

static const char help_text[] =
    "usage: tokend bench MODEL [options]\n"
    "       tokend bench claims MODEL [--out DIR]   (bench claims --help)\n"
    "\n"
    "Measures prefill and decode throughput. MODEL is a GGUF file, a Hugging Face directory or\n"
    "a hub name in the local cache. Lists are numbers with commas; every combination is\n"
    "measured.\n"
    "\n"
    "  --threads LIST    threads; 0: all it may use (0)\n"
    "  --pin-threads     each on a core of its own\n"
    "  --batch-invariant  on a GPU: as the server with that flag\n"
    "  --prompt LIST     new prompt tokens of a prefill test; 0: none (512)\n"
    "  --generate LIST   generated tokens of a decode test; 0: none (64)\n"
    "  --depth LIST      tokens that are in the cache before (0)\n"
    "  --batch LIST      requests that run together (1)\n"
    "  --shared-depth    the requests of a batch have these tokens in common, and so their pages\n"
    "  --device auto|cuda|cpu  as of serve (auto)\n"
    "  --kv-cache-dtype, --dtype, --quantization, --activation-bits  as of serve (auto, auto,\n"
    "                    none, auto)\n"
    "  --repeat N        samples of each test (3)\n"
    "  --json            one JSON object a line and sample, instead of the table\n"
    "  --svg FILE        also a picture. Not every combination is measured then, but each depth\n"
    "                    with the first batch size, and decode of each batch size at the first\n"
    "                    depth; without lists depths 0,512,1024,2048 and batches 1,2,4,8,16,32\n";

static bool parse_list(const char *flag, const char *text, int64_t min, int64_t max,
                       struct number_list *out, struct err *e)
{
    char one[32];
    out->n = 0;
    for (const char *p = text;; p++) {
        size_t len = strcspn(p, ",");
        if (len == 0 || len >= sizeof one || out->n == MAX_LIST)
            return err_set(e, ERR_INVALID, "%s %s: expected up to %d numbers with commas between",
                           flag, text, MAX_LIST);
        memcpy(one, p, len);
        one[len] = '\0';
        if (!parse_int(one, min, max, &out->at[out->n++], e))
            return err_prefix(e, "%s %s", flag, text);
        p += len;
        if (*p == '\0')
            return true;
    }
}

static bool parse_one(const char *flag, const char *text, int64_t min, int64_t max, int64_t *out,
                      struct err *e)
{
    return parse_int(text, min, max, out, e) || err_prefix(e, "%s %s", flag, text);
}

/* Reads one flag; the value may follow after '=' or as the next argument. */
static bool parse_flag(struct bench_options *o, int argc, char **argv, int *i, struct err *e)
{
    const struct {
        const char *name;
        struct number_list *list; /* or … */
        int64_t *one;             /* … or … */
        const char **choice;      /* … of a setting; none of them: text */
        int64_t min, max;
    } flags[] = {
        {"--threads", &o->threads, NULL, NULL, 0, 1024},
        {"--prompt", &o->prompt, NULL, NULL, 0, 1 << 24},
        {"--generate", &o->generate, NULL, NULL, 0, 1 << 24},
        {"--depth", &o->depth, NULL, NULL, 0, 1 << 24},
        {"--batch", &o->batch, NULL, NULL, 1, MAX_BATCH},
        {"--repeat", NULL, &o->repeat, NULL, 1, 1000},
        {"--device", NULL, NULL, &o->device, 0, 0},
        {"--activation-bits", NULL, NULL, &o->activation_bits, 0, 0},
        {"--kv-cache-dtype", NULL, NULL, &o->kv_cache_dtype, 0, 0},
        {"--dtype", NULL, NULL, &o->dtype, 0, 0},
        {"--quantization", NULL, NULL, &o->quantization, 0, 0},
        {"--svg", NULL, NULL, NULL, 0, 0},
    };
    const char *arg = argv[*i];
    const size_t len = strcspn(arg, "=");
    for (size_t k = 0; k < sizeof flags / sizeof *flags; k++) {
        if (strlen(flags[k].name) != len || strncmp(arg, flags[k].name, len) != 0)
            continue;
        if (arg[len] == '\0' && *i + 1 >= argc)
            return err_set(e, ERR_INVALID, "%s: expected a value after it", arg);
        const char *value = arg[len] ? arg + len + 1 : argv[++*i];
        const int64_t min = flags[k].min, max = flags[k].max;
        if (flags[k].list)
            return parse_list(flags[k].name, value, min, max, flags[k].list, e);
        if (flags[k].one)
            return parse_one(flags[k].name, value, min, max, flags[k].one, e);
        if (flags[k].choice) {
            *flags[k].choice = value;
            return parse_choice(flags[k].name + 2, value, e) ||
                   err_prefix(e, "%s %s", flags[k].name, value);
        }
        o->svg = value;
        return true;
    }
    return err_set(e, ERR_INVALID, "unknown flag %s; see tokend bench --help", arg);
}

static int64_t largest(const struct number_list *l)
{
    int64_t m = 0;
    for (int i = 0; i < l->n; i++)
        m = l->at[i] > m ? l->at[i] : m;
    return m;
}

/* Told before the first of several numbers of threads is measured, not at the one that fails. */
static bool check_pinning(const struct bench_options *o, struct err *e)
{
    cpu_set_t allowed;
    if (!o->pin_threads || sched_getaffinity(0, sizeof allowed, &allowed))
        return true;
    const int n = CPU_COUNT(&allowed);
    return largest(&o->threads) <= n ||
           err_set(e, ERR_INVALID,
                   "--threads %lld cannot be pinned: the process may use %d processor%s",
                   (long long)largest(&o->threads), n, n == 1 ? "" : "s");
}

/* Depths and batches that were not given; a picture wants more of them than a table. */
static bool complete_options(struct bench_options *o, struct err *e)
{
    const int lines = (o->prompt.n > o->generate.n ? o->prompt.n : o->generate.n) * o->threads.n;
    if (!o->model)
        return err_set(e, ERR_INVALID, "expected a MODEL; see tokend bench --help");
    if (largest(&o->prompt) == 0 && largest(&o->generate) == 0)
        return err_set(e, ERR_INVALID, "--prompt 0 and --generate 0: nothing to measure");
    if (o->svg && lines > PLOT_MAX_SERIES)
        return err_set(e, ERR_INVALID, "--svg: %d lines a plot; at most %d can be told apart",
                       lines, PLOT_MAX_SERIES);
    o->own_depths = o->depth.n == 0;
    if (o->own_depths)
        o->depth =
            o->svg ? (struct number_list){4, {0, 512, 1024, 2048}} : (struct number_list){1, {0}};
    if (o->batch.n == 0)
        o->batch =
            o->svg ? (struct number_list){6, {1, 2, 4, 8, 16, 32}} : (struct number_list){1, {1}};
    return true;
}

static bool parse_options(struct bench_options *o, int argc, char **argv, struct err *e)
{
    *o = (struct bench_options){
        .threads = {1, {0}},
        .prompt = {1, {512}},
        .generate = {1, {64}},
        .repeat = 3,
        .device = "auto",
        .kv_cache_dtype = "auto",
        .dtype = "auto",
        .quantization = "none",
        .activation_bits = "auto",
    };
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            o->json = true;
        } else if (strcmp(argv[i], "--shared-depth") == 0) {
            o->shared_depth = true;
        } else if (strcmp(argv[i], "--pin-threads") == 0) {
            o->pin_threads = true;
        } else if (strcmp(argv[i], "--batch-invariant") == 0) {
            o->batch_invariant = true;
        } else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            o->help = true;
            return true;
        } else if (argv[i][0] == '-' && argv[i][1]) {
            if (!parse_flag(o, argc, argv, &i, e))
                return false;
        } else if (o->model) {
            return err_set(e, ERR_INVALID, "%s: one model at a time", argv[i]);
        } else {
            o->model = argv[i];
        }
    }
    return complete_options(o, e) && check_pinning(o, e);
}

/* --- running requests --- */

/* Runs `batch` requests: the first n tokens of each of the [batch][stride] prompts. */
static bool run_batch(struct bench *b, const int32_t *ids, int stride, int n, int max_tokens,
                      struct request **q, int batch, struct err *e)
{
    bool ok = true;
    for (int i = 0; ok && i < batch; i++)
        ok = bench_submit(&b->run, ids + (size_t)i * (size_t)stride, n, max_tokens, &q[i], e);
    return ok && bench_wait(&b->run, q, batch, e);
}

static double prefill_speed(struct request *const *q, int batch)
{
    double from = q[0]->t_scheduled, to = q[0]->t_first_token, tokens = 0;
    for (int i = 0; i < batch; i++) {
        from = fmin(from, q[i]->t_scheduled);
        to = fmax(to, q[i]->t_first_token);
        tokens += q[i]->n_prompt - atomic_load(&q[i]->n_cached);
    }
    return tokens / (to - from);
}

static double decode_speed(struct request *const *q, int batch)
{
    double from = q[0]->t_first_token, to = q[0]->t_ended, tokens = 0;
    for (int i = 0; i < batch; i++) {
        from = fmax(from, q[i]->t_first_token);
        to = fmax(to, q[i]->t_ended);
        tokens += atomic_load(&q[i]->choices[0].n_tokens) - 1;
    }
    return tokens / (to - from);
}

static bool sample(struct bench *b, const struct bench_scenario *s, double *speed, struct err *e)
{
    const int total = s->depth + s->prompt > 0 ? s->depth + s->prompt : 1;
    struct request *q[MAX_BATCH] = {NULL};
    int32_t *ids = bench_random_prompts(&b->run, s->batch, total, b->shared_depth ? s->depth : 0);
    if (!ids)
        return err_set(e, ERR_MEMORY, "no memory for %d prompts", s->batch);
    const int fill = b->shared_depth ? 1 : s->batch;
    /* What earlier samples left is of no use to these prompts; without it they take memory that
     * was used before. */
    engine_reset_prefix_cache(b->run.engine);
    bool ok = s->depth == 0 || run_batch(b, ids, total, s->depth, 0, q, fill, e);
    bench_free(&b->run, q, s->batch);
    ok = ok && run_batch(b, ids, total, total, 1 + s->generate, q, s->batch, e);
    if (ok)
        *speed = s->generate ? decode_speed(q, s->batch) : prefill_speed(q, s->batch);
    bench_free(&b->run, q, s->batch);
    free(ids);
    return ok;
}

/* --- output --- */

static void print_sample(const struct bench_scenario *s, double speed)
{
    printf("{\"test\": \"%s\", \"threads\": %d, \"prompt\": %d, \"generate\": %d, \"depth\": %d, "
           "\"batch\": %d, \"tokens_per_second\": %.3f}\n",
           s->test, s->threads, s->prompt, s->generate, s->depth, s->batch, speed);
}

static void print_row(const struct bench_scenario *s, int n, double sum, double squares,
                      double best)
{
    const double mean = sum / n;
    const double deviation = n > 1 ? sqrt(fmax(0, squares - sum * mean) / (n - 1)) : 0;
    printf("%-8s %7d %7d %8d %7d %6d   %10.1f ± %-8.1f %10.1f\n", s->test, s->threads, s->prompt,
           s->generate, s->depth, s->batch, mean, deviation, best);
}

static bool measure(struct bench *b, const struct bench_scenario *s, struct err *e)
{
    double sum = 0, squares = 0, best = 0, speed;
    for (int i = 0; i < b->repeat; i++) {
        if (!sample(b, s, &speed, e))
            return false;
        sum += speed;
        squares += speed * speed;
        best = fmax(best, speed);
        if (b->json)
            print_sample(s, speed);
        if (!output_flush(e))
            return false;
    }
    if (!b->json)
        print_row(s, b->repeat, sum, squares, best);
    return output_flush(e) && bench_results_add(b->results, s, sum / b->repeat, e);
}

/* One depth and batch, numbers d and k of their lists. */
static bool measure_at(struct bench *b, const struct bench_options *o, int threads, int d, int k,
                       struct err *e)
{
    struct bench_scenario s = {
        .threads = threads, .depth = (int)o->depth.at[d], .batch = (int)o->batch.at[k]};
    const bool prefill = !o->svg || k == 0, decode = prefill || d == 0;
    bool ok = true;
    s.test = "prefill";
    for (int i = 0; ok && prefill && i < o->prompt.n; i++) {
        s.prompt = (int)o->prompt.at[i];
        ok = s.prompt == 0 || measure(b, &s, e);
    }
    s.test = "decode";
    s.prompt = 0;
    for (int i = 0; ok && decode && i < o->generate.n; i++) {
        s.generate = (int)o->generate.at[i];
        ok = s.generate == 0 || measure(b, &s, e);
    }
    return ok;
}

static bool measure_all(struct bench *b, const struct bench_options *o, int threads, struct err *e)
{
    bool ok = true;
    for (int d = 0; d < o->depth.n; d++)
        for (int k = 0; ok && k < o->batch.n; k++)
            ok = measure_at(b, o, threads, d, k, e);
    return ok;
}

static struct engine_config config_of(const struct bench_options *o, int threads)
{
    const int batch = (int)largest(&o->batch);
    /* The server's default step; or what lets a batch whose prompts are cached, but for their
     * last page, begin to decode together. */
    const int step = 512;
    const int64_t longest =
        largest(&o->depth) +
        (largest(&o->prompt) > largest(&o->generate) ? largest(&o->prompt) : largest(&o->generate));
    return (struct engine_config){
        .max_model_len = (int)longest + 2,
        .max_num_seqs = batch,
        .max_num_batched_tokens = batch * 17 > step ? batch * 17 : step,
        .block_size = 16,
        .threads = threads,
        .pin_threads = o->pin_threads,
        .batch_invariant = o->batch_invariant,
        .prefix_caching = true,
        .async_scheduling = true,
    };
}

/* "cpu: vnni, 2 threads", without the threads where runs differ in them. */
static void name_backend(struct bench_results *r, const char *backend, bool with_threads)
{
    const char *comma = with_threads ? NULL : strrchr(backend, ',');
    snprintf(r->backend, sizeof r->backend, "%.*s",
             comma ? (int)(comma - backend) : (int)strlen(backend), backend);
}

/* What does not fit, in words of this command: the engine's advice names flags of serve. Other
 * errors speak for themselves. */
static bool explain(struct err *e, const struct engine_config *c)
{
    if (e->code != ERR_MEMORY && e->code != ERR_LIMIT)
        return false;
    if (e->code == ERR_MEMORY && strstr(e->msg, "--"))
        return err_set(e, ERR_MEMORY,
                       "memory does not hold a context of %d tokens for a batch of %d beside the "
                       "model: lower --depth, --prompt, --generate or --batch",
                       c->max_model_len, c->max_num_seqs);
    return err_prefix(e, "a context of %d tokens, as these tests want", c->max_model_len);
}

static bool run_with_threads(const struct bench_options *o, const struct model_file *m, int threads,
                             struct bench_results *results, struct err *e)
{
    struct engine_config c = config_of(o, threads);
    struct bench b = {.json = o->json,
                      .shared_depth = o->shared_depth,
                      .repeat = (int)o->repeat,
                      .results = results};
    bool ok = engine_config_types(&c, o->kv_cache_dtype, o->dtype, o->quantization,
                                  o->activation_bits, e) &&
              engine_config_device(&c, o->device, false, e) &&
              (bench_run_open(&b.run, &c, m, e) || explain(e, &c));
    if (ok)
        name_backend(results, engine_get_info(b.run.engine)->backend, o->threads.n == 1);
    if (ok && !o->json)
        printf("# %s\n# %s\n%-8s %7s %7s %8s %7s %6s   %10s ± %-8s %10s\n", o->model,
               engine_get_info(b.run.engine)->backend, "test", "threads", "prompt", "generate", "depth",
               "batch", "tokens/s", "dev.", "best");
    ok = ok && measure_all(&b, o, engine_get_info(b.run.engine)->threads, e);
    bench_run_close(&b.run);
    return ok;
}

/* Told before the minutes that measuring takes. */
static bool check_writable(const char *path, struct err *e)
{
    FILE *f = path ? fopen(path, "ab") : NULL;
    if (f)
        fclose(f);
    return f || !path || err_errno(e, "--svg %s", path);
}

/* Depths that nobody asked for are those that the model's context holds. */
static void fit_depths(struct bench_options *o, const struct model_spec *spec)
{
    const int64_t depth = largest(&o->depth), context = config_of(o, 0).max_model_len;
    while (o->own_depths && o->depth.n > 1 &&
           context - depth + o->depth.at[o->depth.n - 1] > spec->n_ctx_train)
        o->depth.n--;
}

static bool check_context(const struct bench_options *o, const struct model_spec *spec,
                          struct err *e)
{
    const int longest = config_of(o, 0).max_model_len;
    return longest <= spec->n_ctx_train ||
           err_set(e, ERR_LIMIT,
                   "--depth with --prompt or --generate is a context of %d tokens; the model's has "
                   "%d",
                   longest, spec->n_ctx_train);
}

static bool run(struct bench_options *o, struct err *e)
{
    struct bench_results results = {
        .depth = (int)o->depth.at[0], .batch = (int)o->batch.at[0], .repeat = (int)o->repeat};
    struct model_file *m = model_file_open(o->model, e);
    const struct model_spec *spec = m ? model_file_spec(m, e) : NULL;
    bool ok = spec && check_writable(o->svg, e);
    if (ok)
        fit_depths(o, spec);
    ok = ok && check_context(o, spec, e);
    for (int i = 0; ok && i < o->threads.n; i++)
        ok = run_with_threads(o, m, (int)o->threads.at[i], &results, e);
    ok = ok && (!o->svg || bench_plot_write(&results, o->model, o->svg, e));
    bench_results_free(&results);
    model_file_close(m);
    return ok;
}

int cmd_bench(int argc, char **argv)
{
    struct bench_options o;
    struct err e;
    if (argc > 1 && strcmp(argv[1], "claims") == 0)
        return cmd_claims(argc - 1, argv + 1);
    if (!parse_options(&o, argc, argv, &e)) {
        output_error("bench", "%s", e.msg);
        return 2;
    }
    if (o.help) {
        fputs(help_text, stdout);
        return 0;
    }
    if (run(&o, &e))
        return 0;
    output_error("bench", "%s", e.msg);
    return 1;
}
