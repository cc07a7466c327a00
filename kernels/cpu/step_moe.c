/* A mixture of experts. Rows choose their experts; the (row, expert) pairs are sorted by expert
 * and their rows gathered, so that an expert is a matrix product over all rows that want it and
 * its weights are read once a step for every step_tile of them. A unit is a few panels of one
 * expert. With few rows it is bound by reading the chosen experts, with many by multiplications,
 * as any linear.
 *
 * A row's choice depends on its own logits only, a product on its own row only (step_linear.c),
 * and a row's results are added in the order of its own choice: bits do not depend on the rest
 * of the step. */
#include "moe.h"

#include <assert.h>
#include <string.h>

#include "step.h"

static void choose(struct cpu_backend *b, const struct record *r, int member)
{
    struct moe *m = r->moe.moe;
    const struct moe_config *c = &m->config;
    const struct activation *logits = r->moe.router_logits;
    int first, end;
    while (step_row_share(b, b->inputs.n_rows, team_claim(b->team), &first, &end))
        for (int row = first; row < end; row++) {
            size_t at = (size_t)row * c->n_used;
            b->kernels->route(logits->f + (size_t)row * logits->stride, c->n_experts, c->n_used,
                              c->renormalise, b->workers[member].row, m->chosen + at,
                              m->share + at);
        }
}

static void add_jobs(struct moe *m, int expert, int first, int end)
{
    int x = step_tile(m->x), middle = step_tile(m->middle), tile = x < middle ? x : middle;
    for (int t = first; t < end; t += tile)
        m->jobs[m->n_jobs++] = (struct moe_job){expert, t, end - t < tile ? end - t : tile};
}

/* A counting sort of the slots by expert, rows ascending; by one member. */
static void sort_slots(struct moe *m, int n_rows)
{
    const struct moe_config *c = &m->config;
    int n = n_rows * c->n_used, at = 0;
    memset(m->next, 0, (size_t)c->n_experts * sizeof *m->next);
    for (int i = 0; i < n; i++)
        m->next[m->chosen[i]]++;
    m->n_jobs = 0;
    for (int e = 0; e < c->n_experts; e++) {
        int count = m->next[e];
        add_jobs(m, e, at, at + count);
        m->next[e] = at;
        at += count;
    }
    for (int i = 0; i < n; i++) {
        m->slot[i] = m->next[m->chosen[i]]++;
        m->row[m->slot[i]] = i / c->n_used;
    }
}

static void copy_quantised(const struct activation *to, int to_stride, int slot,
                           const struct activation *x, int x_stride, int row)
{
    size_t n = (size_t)x->planes;
    for (int k = 0; k < x->width / QBLOCK; k++) {
        size_t a = (size_t)k * to_stride + slot * n, from = (size_t)k * x_stride + row * n;
        memcpy(to->q + a * QBLOCK, x->q + from * QBLOCK, n * QBLOCK);
        memcpy(to->sums + 2 * a, x->sums + 2 * from, n * 2 * sizeof *to->sums);
        memcpy(to->d + a, x->d + from, n * sizeof *to->d);
        memcpy(to->s + a, x->s + from, n * sizeof *to->s);
    }
}

static void gather(struct cpu_backend *b, const struct record *r)
{
    const struct moe *m = r->moe.moe;
    const struct activation *x = r->moe.x, *to = m->x;
    int n_rows = b->inputs.n_rows, n = n_rows * m->config.n_used, first, end;
    while (step_row_share(b, n, team_claim(b->team), &first, &end))
        for (int s = first; s < end; s++)
            if (x->quantised)
                copy_quantised(to, activation_qstride(to, n), s, x, activation_qstride(x, n_rows),
                               m->row[s]);
            else
                memcpy(to->f + (size_t)s * to->stride, x->f + (size_t)m->row[s] * x->stride,
                       (size_t)x->width * sizeof(float));
}

/* --- products --- */

/* How each job's panels are cut into units */
struct cut {
    int panels, panels_a_unit, units_a_job;
};

static struct cut cut_up(const struct cpu_backend *b, const struct moe *m, int panels, int least)
{
    int want = (int)((int64_t)m->n_jobs * panels / (team_size(b->team) * 8));
    want = want < least ? least : want > LINEAR_PANELS ? LINEAR_PANELS : want;
    struct cut c = {panels, want - want % least, 0};
    c.units_a_job = (panels + c.panels_a_unit - 1) / c.panels_a_unit;
    return c;
}

/* Panels [p0, p1) of a job's expert, n_outs values from `out` on */
struct piece {
    const struct moe_job *job;
    int p0, p1, out, n_outs;
};

static struct piece piece_at(const struct moe *m, const struct cut *c, int u, int width)
{
    struct piece p = {.job = &m->jobs[u / c->units_a_job]};
    p.p0 = u % c->units_a_job * c->panels_a_unit;
    p.p1 = p.p0 + c->panels_a_unit < c->panels ? p.p0 + c->panels_a_unit : c->panels;
    p.out = p.p0 * PANEL;
    p.n_outs = width < p.p1 * PANEL ? width - p.out : p.p1 * PANEL - p.out;
    return p;
}

/* Row `expert` of a float matrix, from column `first` on; layout.h has its form */
static void bias_values(const struct weight *w, int expert, int first, int n, float *out)
{
    const uint8_t *panel = w->data + (size_t)(expert / PANEL) * w->panel_bytes;
    for (int i = 0; i < n; i++) {
        size_t at = (size_t)(first + i) * PANEL + (size_t)(expert % PANEL);
        uint16_t half;
        if (w->vector) {
            out[i] = w->vector[first + i];
        } else if (w->type == DTYPE_F32) {
            memcpy(&out[i], panel + at * 4, 4);
        } else {
            memcpy(&half, panel + at * 2, 2);
            out[i] = w->type == DTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
        }
    }
}

/* y = the piece of w times the job's rows, plus bias */
static void product(const struct cpu_backend *b, const struct weight *w, const struct weight *bias,
                    const struct rows_view *x, const struct piece *p, float *y)
{
    float more[LINEAR_PANELS * PANEL];
    step_product(b, w, x, p->job->t0, p->job->n, p->p0, p->p1, y);
    if (!bias)
        return;
    bias_values(bias, p->job->expert, p->out, p->n_outs, more);
    for (int t = 0; t < p->job->n; t++, y += LINEAR_STRIDE)
        for (int i = 0; i < p->n_outs; i++)
            y[i] += more[i];
}

static void store(const struct cpu_backend *b, const struct activation *out, int n_slots,
                  const struct piece *p, const float *y)
{
    const struct tile at = {p->job->t0, p->job->n, p->out, p->n_outs};
    step_store(b, out, n_slots, &at, y);
}

/* middle = act(gate(x)) * up(x) */
static void gate_and_up(struct cpu_backend *b, const struct record *r, int member)
{
    const struct moe *m = r->moe.moe;
    const struct moe_layer *l = &r->moe.layer;
    const struct moe_config *c = &m->config;
    int n = b->inputs.n_rows * c->n_used;
    struct cut cut = cut_up(b, m, l->gate[0]->panels, m->middle->quantised ? 2 : 1);
    struct rows_view x = step_view(m->x, n);
    float *gate = b->workers[member].out, *up = gate + TOKEN_TILE * LINEAR_STRIDE;
    for (int u; (u = team_claim(b->team)) < m->n_jobs * cut.units_a_job;) {
        struct piece p = piece_at(m, &cut, u, c->n_ff);
        product(b, l->gate[p.job->expert], l->gate_bias, &x, &p, gate);
        product(b, l->up[p.job->expert], l->up_bias, &x, &p, up);
        for (int t = 0; t < p.job->n; t++)
            b->kernels->act_mul(c->act, gate + t * LINEAR_STRIDE, up + t * LINEAR_STRIDE,
                                (p.p1 - p.p0) * PANEL);
        store(b, m->middle, n, &p, gate);
    }
}

static void down(struct cpu_backend *b, const struct record *r, int member)
{
    const struct moe *m = r->moe.moe;
    const struct moe_layer *l = &r->moe.layer;
    int n = b->inputs.n_rows * m->config.n_used;
    struct cut cut = cut_up(b, m, l->down[0]->panels, 1);
    struct rows_view middle = step_view(m->middle, n);
    float *y = b->workers[member].out;
    for (int u; (u = team_claim(b->team)) < m->n_jobs * cut.units_a_job;) {
        struct piece p = piece_at(m, &cut, u, m->config.n_embd);
        product(b, l->down[p.job->expert], l->down_bias, &middle, &p, y);
        store(b, m->y, n, &p, y);
    }
}

static void mix(struct cpu_backend *b, const struct record *r)
{
    const struct moe *m = r->moe.moe;
    const struct activation *out = r->moe.out;
    int used = m->config.n_used, first, end;
    while (step_row_share(b, b->inputs.n_rows, team_claim(b->team), &first, &end))
        for (int row = first; row < end; row++)
            b->kernels->mix(out->f + (size_t)row * out->stride, r->moe.into == INTO_ADD, m->y->f,
                            m->y->stride, m->slot + (size_t)row * used,
                            m->share + (size_t)row * used, used, out->width);
}

void step_moe(struct cpu_backend *b, const struct record *r, int member)
{
    choose(b, r, member);
    team_barrier(b->team, member);
    if (team_claim(b->team) == 0)
        sort_slots(r->moe.moe, b->inputs.n_rows);
    team_barrier(b->team, member);
    gather(b, r);
    team_barrier(b->team, member);
    gate_and_up(b, r, member);
    team_barrier(b->team, member);
    down(b, r, member);
    team_barrier(b->team, member);
    mix(b, r);
}
