#include "bench_plot.h"

#include "output.h"
#include "svg_plot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum panel_kind { PREFILL_BY_DEPTH, DECODE_BY_DEPTH, DECODE_BY_BATCH, N_PANELS };

/* One panel while its lines are being collected. */
struct lines {
    struct plot_point *points[PLOT_MAX_SERIES];
    char labels[PLOT_MAX_SERIES][64];
    struct bench_scenario of[PLOT_MAX_SERIES];
};

bool bench_results_add(struct bench_results *r, const struct bench_scenario *s, double speed,
                       struct err *e)
{
    if (r->n == r->cap) {
        const int cap = r->cap ? 2 * r->cap : 64;
        struct bench_result *v = realloc(r->v, (size_t)cap * sizeof *v);
        if (!v)
            return err_set(e, ERR_MEMORY, "no memory for the results");
        r->v = v;
        r->cap = cap;
    }
    r->v[r->n++] = (struct bench_result){*s, speed};
    return true;
}

void bench_results_free(struct bench_results *r)
{
    free(r->v);
    *r = (struct bench_results){0};
}

static bool in_panel(const struct bench_results *r, const struct bench_scenario *s,
                     enum panel_kind kind)
{
    if (kind == PREFILL_BY_DEPTH)
        return s->prompt > 0 && s->batch == r->batch;
    if (kind == DECODE_BY_DEPTH)
        return s->generate > 0 && s->batch == r->batch;
    return s->generate > 0 && s->depth == r->depth;
}

static int by_x(const void *a, const void *b)
{
    const struct plot_point *p = a, *q = b;
    return p->x < q->x ? -1 : p->x > q->x;
}

/* The line of a result, made if there is none yet; -1: no room, or no memory. */
static int line_of(struct lines *l, struct plot_panel *p, const struct bench_scenario *s, int most)
{
    int i = 0;
    while (i < p->n_series && (l->of[i].threads != s->threads || l->of[i].prompt != s->prompt ||
                               l->of[i].generate != s->generate))
        i++;
    if (i < p->n_series)
        return i;
    if (i == PLOT_MAX_SERIES || !(l->points[i] = calloc((size_t)most, sizeof *l->points[i])))
        return -1;
    l->of[i] = *s;
    snprintf(l->labels[i], sizeof l->labels[i], "%d tokens; threads: %d", s->prompt + s->generate,
             s->threads); /* one of the two is 0 */
    p->series[i] = (struct plot_series){.label = l->labels[i], .points = l->points[i]};
    p->n_series++;
    return i;
}

static bool collect(const struct bench_results *r, enum panel_kind kind, struct lines *l,
                    struct plot_panel *p, struct err *e)
{
    for (int i = 0; i < r->n; i++) {
        const struct bench_scenario *s = &r->v[i].scenario;
        if (!in_panel(r, s, kind))
            continue;
        const int line = line_of(l, p, s, r->n);
        if (line < 0)
            return err_set(e, ERR_LIMIT, "no room for more than %d lines a plot", PLOT_MAX_SERIES);
        l->points[line][p->series[line].n++] = (struct plot_point){
            .x = kind == DECODE_BY_BATCH ? s->batch : s->depth,
            .y = r->v[i].speed,
        };
    }
    for (int i = 0; i < p->n_series; i++)
        qsort(l->points[i], (size_t)p->series[i].n, sizeof *l->points[i], by_x);
    return true;
}

/* "AMD EPYC 9B14", as Linux calls the first core; or nothing. */
static void machine_name(char *out, size_t cap)
{
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "r");
    out[0] = '\0';
    while (f && !out[0] && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (colon && strncmp(line, "model name", 10) == 0)
            snprintf(out, cap, "%.*s, ", (int)strcspn(colon + 2, "\n"), colon + 2);
    }
    if (f)
        fclose(f);
}

/* The panel's title; it tells the length if all its lines have the same. */
static void write_title(const struct bench_results *r, enum panel_kind kind, const struct lines *l,
                        const struct plot_panel *p, char *out, size_t cap)
{
    const int n = l->of[0].prompt + l->of[0].generate;
    bool same = true;
    for (int i = 1; i < p->n_series; i++)
        same = same && l->of[i].prompt + l->of[i].generate == n;
    char what[48];
    snprintf(what, sizeof what, same ? "%s of %d tokens" : "%s",
             kind == PREFILL_BY_DEPTH ? "Prefill" : "Decode", n);
    if (kind == DECODE_BY_BATCH)
        snprintf(out, cap, "%s, at depth %d", what, r->depth);
    else
        snprintf(out, cap, r->batch == 1 ? "%s, one sequence" : "%s, %d sequences", what, r->batch);
}

/* The last part of the model's path. */
static void write_name(const char *model, char *out, size_t cap)
{
    size_t end = strlen(model);
    while (end > 1 && model[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && model[start - 1] != '/')
        start--;
    snprintf(out, cap, "tokend bench: %.*s", (int)(end - start), model + start);
}

bool bench_plot_write(const struct bench_results *r, const char *model, const char *path,
                      struct err *e)
{
    struct lines lines[N_PANELS] = {0};
    struct plot_panel panels[N_PANELS];
    char titles[N_PANELS][80], title[256], machine[128], note[320];
    struct buf text = {0};
    bool ok = true;
    int n = 0;
    for (int i = 0; ok && i < N_PANELS; i++) {
        struct plot_panel *p = &panels[n];
        *p = (struct plot_panel){
            .title = titles[i],
            .x_unit = i == DECODE_BY_BATCH ? "sequences" : "tokens in the cache before (depth)",
            .y_unit = "tokens/s",
        };
        ok = collect(r, (enum panel_kind)i, &lines[i], p, e);
        write_title(r, (enum panel_kind)i, &lines[i], p, titles[i], sizeof titles[i]);
        n += p->n_series > 0;
    }
    machine_name(machine, sizeof machine);
    write_name(model, title, sizeof title);
    snprintf(note, sizeof note, "%s%s; mean of %d", machine, r->backend, r->repeat);
    if (ok) {
        svg_plot_write(&(struct plot_figure){title, note, panels, n}, &text);
        ok = output_file("--svg", path, &text, e);
    }
    buf_free(&text);
    for (int i = 0; i < N_PANELS; i++)
        for (int k = 0; k < PLOT_MAX_SERIES; k++)
            free(lines[i].points[k]);
    return ok;
}
