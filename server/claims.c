#include "claims.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void claims_row(struct claims *c, const char *claim, const char *unit, double off, double on,
                bool more_is_better, const char *fmt, ...)
{
    if (c->n_rows == CLAIMS_MAX_ROWS)
        return;
    struct claim_row *r = &c->rows[c->n_rows++];
    va_list args;
    *r = (struct claim_row){.claim = claim, .unit = unit, .off = off, .on = on,
                            .more_is_better = more_is_better};
    va_start(args, fmt);
    vsnprintf(r->measured, sizeof r->measured, fmt, args);
    va_end(args);
}

struct claim_plot *claims_plot(struct claims *c, const char *title, const char *x_unit,
                               const char *y_unit, const char *off, const char *on)
{
    struct claim_plot *p = &c->plots[c->n_plots++]; /* a claim has one at most */
    *p = (struct claim_plot){title, x_unit, y_unit, off, on, {{0}}, {{0}}, 0, 0};
    return p;
}

bool claims_open(struct claims *c, struct bench_run *run, const struct engine_config *config,
                 struct err *e)
{
    if (!bench_run_open(run, config, c->model, e))
        return false;
    snprintf(c->backend, sizeof c->backend, "%s", engine_get_info(run->engine)->backend);
    return true;
}

/* Three digits */
static void add_number(struct buf *out, double v)
{
    buf_addf(out, v >= 100 ? "%.0f" : v >= 10 ? "%.1f" : "%.2f", v);
}

void claims_table(const struct claims *c, struct buf *out)
{
    buf_addf(out, "| feature | what was measured (%s) | off | on | |\n", c->backend);
    buf_add_str(out, "| --- | --- | ---: | ---: | --- |\n");
    for (int i = 0; i < c->n_rows; i++) {
        const struct claim_row *r = &c->rows[i];
        const double off = r->more_is_better ? r->on : r->off;
        const double on = r->more_is_better ? r->off : r->on;
        buf_addf(out, "| %s | %s | ", r->claim, r->measured);
        add_number(out, r->off);
        buf_addf(out, " %s | ", r->unit);
        add_number(out, r->on);
        buf_addf(out, " %s | ", r->unit);
        if (on > 0)
            add_number(out, off / on);
        buf_add_str(out, on > 0 ? " x |\n" : " |\n");
    }
}

void claims_svg(const struct claims *c, const char *model, struct buf *out)
{
    struct plot_panel panels[CLAIMS_MAX_PLOTS];
    char title[160], note[192];
    for (int i = 0; i < c->n_plots; i++) {
        const struct claim_plot *p = &c->plots[i];
        panels[i] = (struct plot_panel){
            .title = p->title,
            .x_unit = p->x_unit,
            .y_unit = p->y_unit,
            .series = {{p->off_label, p->off, p->n_off}, {p->on_label, p->on, p->n_on}},
            .n_series = 2,
        };
    }
    snprintf(title, sizeof title, "What features of an inference server are worth: %s", model);
    snprintf(note, sizeof note, "tokend bench claims, %s", c->backend);
    const struct plot_figure figure = {title, note, panels, c->n_plots};
    svg_plot_write(&figure, out);
}
