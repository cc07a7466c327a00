/* A linear operation as units: (tile of tokens, a few panels of one weight). A unit's results go
 * to a small buffer and from there, by the epilogue, to the output: written directly, a panel's
 * 16 rows of every token would fall into the same few sets of the cache. */
#include "step.h"

#include <assert.h>
#include <string.h>

/* Of more rows than these, smaller units: what waits for the epilogue then lies in the L2 cache,
 * and who is ready waits less for the last unit. Not of BF16, whose units round their rows. */
#define MANY_ROWS 32

struct split {
    int n, tile, n_tiles; /* rows of the step, rows of a tile */
    int panels_a_unit;    /* even where results are quantised in blocks of 32 */
    int units_of[3];      /* of each weight, a tile */
    int units_a_tile;
};

static struct split split_up(const struct cpu_backend *b, const struct record *r)
{
    int n_w = r->linear.into == INTO_ACT_MUL ? 1 : r->linear.n_w, panels = 0, least = 1;
    struct split s = {.n = step_rows(b, r->linear.x), .tile = step_tile(r->linear.x)};
    for (int i = 0; i < n_w; i++) {
        panels += r->linear.w[i]->panels;
        least = r->linear.outs[i]->quantised ? 2 : least;
    }
    s.n_tiles = (s.n + s.tile - 1) / s.tile;
    int want = panels * (s.n_tiles ? s.n_tiles : 1) / (team_size(b->team) * 8);
    const bool rounds = r->linear.w[0]->type == DTYPE_BF16 && !r->linear.x->exact;
    int most = s.n > MANY_ROWS && !rounds ? LINEAR_PANELS / 2 : LINEAR_PANELS;
    s.panels_a_unit = want < least ? least : want > most ? most : want;
    s.panels_a_unit -= s.panels_a_unit % least;
    for (int i = 0; i < n_w; i++) {
        s.units_of[i] = (r->linear.w[i]->panels + s.panels_a_unit - 1) / s.panels_a_unit;
        s.units_a_tile += s.units_of[i];
    }
    return s;
}

/* One unit: panels [p0, p1) of weight `which`, rows [t0, t0 + n) */
struct unit {
    int which, p0, p1, t0, n;
    int n_outs; /* output rows that exist (the last panel is padded) */
};

static struct unit unit_at(const struct split *s, const struct record *r, int u)
{
    int tile = u / s->units_a_tile, i = 0;
    u %= s->units_a_tile;
    while (u >= s->units_of[i])
        u -= s->units_of[i++];
    const struct weight *w = r->linear.w[i];
    struct unit unit = {.which = i, .p0 = u * s->panels_a_unit, .t0 = tile * s->tile};
    unit.p1 = unit.p0 + s->panels_a_unit < w->panels ? unit.p0 + s->panels_a_unit : w->panels;
    unit.n = s->n - unit.t0 < s->tile ? s->n - unit.t0 : s->tile;
    int64_t left = w->rows - (int64_t)unit.p0 * PANEL, own = (unit.p1 - unit.p0) * PANEL;
    unit.n_outs = (int)(left < own ? left : own);
    return unit;
}

static void add_bias(const struct weight *bias, const struct unit *u, float *y)
{
    if (!bias)
        return;
    const float *from = bias->vector + (size_t)u->p0 * PANEL;
    for (int t = 0; t < u->n; t++)
        for (int i = 0; i < u->n_outs; i++)
            y[t * LINEAR_STRIDE + i] += from[i];
}

void step_product(const struct cpu_backend *b, const struct weight *w, const struct rows_view *x,
                  int t0, int n, int p0, int p1, float *y)
{
    int planes = x->planes, width = (p1 - p0) * PANEL;
    b->kernels->linear(w, x, t0 * planes, n * planes, p0, p1, y, LINEAR_STRIDE);
    if (planes == 1)
        return;
    for (int t = 0; t < n; t++, y += LINEAR_STRIDE) {
        const float *high = y + t * LINEAR_STRIDE, *low = high + LINEAR_STRIDE;
        for (int i = 0; i < width; i++)
            y[i] = high[i] + low[i];
    }
}

void step_store(const struct cpu_backend *b, const struct activation *out, int n_rows,
                const struct tile *at, const float *y)
{
    for (int row = at->row; row < at->row + at->n; row++, y += LINEAR_STRIDE) {
        if (out->quantised)
            b->kernels->quantise(out, activation_qstride(out, n_rows), row, at->first / QBLOCK, y,
                                 at->n_outs / QBLOCK);
        else
            memcpy(out->f + (size_t)row * out->stride + at->first, y,
                   (size_t)at->n_outs * sizeof *y);
    }
}

static void add(const struct activation *out, const struct unit *u, const float *y)
{
    for (int t = 0; t < u->n; t++, y += LINEAR_STRIDE) {
        float *to = out->f + (size_t)(u->t0 + t) * out->stride + u->p0 * PANEL;
        for (int i = 0; i < u->n_outs; i++)
            to[i] += y[i];
    }
}

static void product(const struct cpu_backend *b, const struct record *r, int which,
                    const struct unit *u, const struct rows_view *x, float *y)
{
    step_product(b, r->linear.w[which], x, u->t0, u->n, u->p0, u->p1, y);
    add_bias(r->linear.bias[which], u, y);
}

static void run_unit(const struct cpu_backend *b, const struct record *r, const struct unit *u,
                     const struct rows_view *x, int n_rows, float *buffer)
{
    struct activation *out = r->linear.outs[u->which];
    int padded = (u->p1 - u->p0) * PANEL;
    product(b, r, u->which, u, x, buffer);
    if (r->linear.into == INTO_ADD) {
        add(out, u, buffer);
        return;
    }
    if (r->linear.into == INTO_ACT_MUL) {
        float *up = buffer + TOKEN_TILE * LINEAR_STRIDE;
        product(b, r, 1, u, x, up);
        for (int t = 0; t < u->n; t++)
            b->kernels->act_mul(r->linear.act, buffer + t * LINEAR_STRIDE, up + t * LINEAR_STRIDE,
                                padded);
    }
    if (r->linear.into == INTO_ACT)
        for (int t = 0; t < u->n; t++)
            b->kernels->act(r->linear.act, buffer + t * LINEAR_STRIDE, padded);
    step_store(b, out, n_rows, &(struct tile){u->t0, u->n, u->p0 * PANEL, u->n_outs}, buffer);
}

void step_linear(struct cpu_backend *b, const struct record *r, int member)
{
    const struct activation *x = r->linear.x;
    struct split s = split_up(b, r);
    struct rows_view view = step_view(x, s.n);
    for (int i; (i = team_take(b->team, member, s.units_a_tile * s.n_tiles)) >= 0;) {
        struct unit u = unit_at(&s, r, i);
        run_unit(b, r, &u, &view, s.n, b->workers[member].out);
    }
}
