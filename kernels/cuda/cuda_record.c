/* cuda_record.c: the recording functions of the table. They check what a debug build can and append
 * to the plan. */
#include "cuda_record.h"

#include "cuda_backend.h"

#include <assert.h>
#include <string.h>

/* --- the plan --- */

bool cuda_plan_grow(struct cuda_backend *b, int n_layers, struct err *e)
{
    const int n = 32 * n_layers + CUDA_FIRST_PLAN;
    struct record *plan = blocks_take(&b->blocks, (size_t)n, sizeof *plan, "step plan", NULL, e);
    if (!plan)
        return false;
    if (b->plan) {
        memcpy(plan, b->plan, (size_t)b->n_plan * sizeof *plan);
        blocks_give(&b->blocks, b->plan, NULL);
    }
    b->plan = plan;
    b->max_plan = n;
    return true;
}

struct step_inputs *cuda_step_begin(struct backend *base)
{
    struct cuda_backend *b = cuda_of(base);
    b->n_plan = b->n_windows = 0;
    cuda_sampler_begin(b);
    b->inputs.n_rows = b->inputs.n_seqs = b->inputs.n_logits = 0;
    for (struct activation *a = b->host_rows; a; a = a->next_host)
        a->written = false;
    return &b->inputs;
}

static struct record *record(struct backend *base, enum op op, struct activation *out,
                             const struct activation *x)
{
    struct cuda_backend *b = cuda_of(base);
    assert(b->n_plan < b->max_plan);
    struct record *r = &b->plan[b->n_plan++];
    memset(r, 0, sizeof *r); /* to the last byte: plans are compared */
    r->op = op;
    r->out = out;
    r->x = x;
    out->written = true;
    return r;
}

/* Reads float32 rows: of a buffer that is typed for a linear, its producers write both. */
static void reads_f(struct backend *base, const struct activation *x)
{
    assert(x->f);
    if (!x->wants_f)
        cuda_graphs_forget(cuda_of(base));
    ((struct activation *)x)->wants_f = true;
}

static bool is_vector(const struct weight *w, int64_t width)
{
    return w && w->vector && w->cols == width;
}

/* --- operations --- */

void cuda_record_embed(struct backend *base, struct activation *x, const struct weight *table,
                       float scale)
{
    assert(x->form == ROWS_PLAIN && x->width == table->cols);
    struct record *r = record(base, OP_EMBED, x, NULL);
    r->embed.table = table;
    r->embed.scale = scale;
}

static void set_norm(struct cuda_norm *to, const struct norm *n, int width)
{
    (void)is_vector;
    (void)width;
    if (!n)
        return;
    assert(is_vector(n->w, width) && (!n->bias || is_vector(n->bias, width)));
    to->kind = n->kind;
    to->w = n->w->vector;
    to->bias = n->bias ? n->bias->vector : NULL;
    to->eps = n->eps;
}

void cuda_record_norm(struct backend *base, struct activation *out, const struct activation *x,
                      const struct norm *n)
{
    assert(out->width == x->width);
    reads_f(base, x);
    set_norm(&record(base, OP_NORM, out, x)->norm, n, x->width);
}

void cuda_record_norm_add(struct backend *base, struct activation *x, const struct activation *y,
                          const struct norm *n)
{
    assert(n && x->form == ROWS_PLAIN && x != y && x->logit_rows == y->logit_rows);
    cuda_record_norm(base, x, y, n);
    cuda_of(base)->plan[cuda_of(base)->n_plan - 1].op = OP_NORM_ADD;
}

void cuda_record_norm_logit_rows(struct backend *base, struct activation *out,
                                 const struct activation *x, const struct norm *n)
{
    assert(out->logit_rows && !x->logit_rows);
    cuda_record_norm(base, out, x, n);
}

static void reads_type(struct backend *base, const struct activation *x, enum dtype type)
{
    if (x->form != ROWS_QUANTISED && type != x->rows.type)
        reads_f(base, x);
}

/* The rows that a linear of this weight reads are there. */
static void reads_as(struct backend *base, const struct activation *x, const struct weight *w)
{
    assert(w->matrix.data && w->cols == x->width && x->form != ROWS_PLAIN);
    assert(cuda_is_quantised(w->type) == (x->form == ROWS_QUANTISED));
    reads_type(base, x, w->type);
}

void cuda_record_linear(struct backend *base, enum linear_into into, enum act_fn act,
                        const struct activation *x, int n_w, const struct weight *const *w,
                        const struct weight *const *bias, struct activation *const *outs)
{
    const bool gated = into == INTO_ACT_MUL;
    assert(n_w >= 1 && n_w <= CUDA_MAX_JOBS);
    assert(!gated || (n_w == 2 && w[0]->rows == w[1]->rows));
    assert(into != INTO_ACT || (n_w == 1 && act != ACT_SWIGLU_CLAMPED));
    struct record *r = record(base, OP_LINEAR, outs[0], x);
    r->linear.into = into;
    r->linear.act = act;
    r->linear.n_w = n_w;
    for (int i = 0; i < n_w; i++) {
        struct activation *out = outs[gated ? 0 : i];
        reads_as(base, x, w[i]);
        assert(out->width == w[i]->rows && out->logit_rows == x->logit_rows);
        assert(out->form == ROWS_PLAIN || (into != INTO_ADD && (gated || n_w == 1)));
        assert(!bias || !bias[i] || is_vector(bias[i], w[i]->rows));
        r->linear.w[i] = w[i];
        r->linear.bias[i] = bias ? bias[i] : NULL;
        r->linear.outs[i] = out;
        out->written = true;
    }
}

static void set_qk_norm(struct cuda_qk_norm *to, const struct qk_norm *n, int n_heads,
                        const struct cuda_kv *kv)
{
    if (!n)
        return;
    const bool one = n->span == QK_NORM_HEAD;
    assert(is_vector(n->q, (one ? 1 : n_heads) * kv->head_dim));
    assert(is_vector(n->k, (one ? 1 : kv->n_kv_heads) * kv->head_dim));
    (void)one;
    (void)n_heads;
    (void)kv;
    to->kind = n->kind;
    to->span = n->span;
    to->q = n->q->vector;
    to->k = n->k->vector;
    to->eps = n->eps;
}

void cuda_record_rope_write_kv(struct backend *base, int layer, const struct qk_norm *norm,
                               const struct rope *rope, int n_heads, struct activation *q,
                               struct activation *k, struct activation *v)
{
    const struct cuda_kv *kv = &cuda_of(base)->kv;
    assert(kv->pool && layer >= 0 && layer < kv->n_layers);
    assert(q->form == ROWS_PLAIN && k->form == ROWS_PLAIN && v->form == ROWS_PLAIN);
    assert(q->width == n_heads * kv->head_dim && k->width == kv->n_kv_heads * kv->head_dim);
    assert(v->width == k->width && (!rope || rope->rope.n_dims <= kv->head_dim));
    struct record *r = record(base, OP_ROPE_WRITE_KV, q, k);
    r->rope.layer = layer;
    r->rope.n_heads = n_heads;
    set_qk_norm(&r->rope.norm, norm, n_heads, kv);
    r->rope.rope = rope;
    r->rope.q = q;
    r->rope.k = k;
    r->rope.v = v;
}

/* The step's plan of attention for layers of this window */
static int window_of(struct cuda_backend *b, int window)
{
    int i = 0;
    while (i < b->n_windows && b->windows[i] != window)
        i++;
    assert(i < CUDA_MAX_WINDOWS);
    if (i == b->n_windows)
        b->windows[b->n_windows++] = window;
    return i;
}

void cuda_record_attention(struct backend *base, int layer, const struct attention_config *c,
                           const struct weight *sinks, struct activation *out,
                           const struct activation *q)
{
    struct cuda_backend *b = cuda_of(base);
    assert(b->kv.pool && layer >= 0 && layer < b->kv.n_layers && q->form == ROWS_PLAIN);
    assert(c->n_kv_heads == b->kv.n_kv_heads && c->head_dim == b->kv.head_dim);
    assert(c->n_heads == b->attention.n_heads && q->width == c->n_heads * c->head_dim);
    assert(out->width == q->width && !out->logit_rows);
    assert(!sinks || is_vector(sinks, c->n_heads));
    struct record *r = record(base, OP_ATTENTION, out, q);
    r->attention.layer = layer;
    r->attention.window = window_of(b, c->window);
    r->attention.config = *c;
    r->attention.sinks = sinks ? sinks->vector : NULL;
}

void cuda_record_soft_cap(struct backend *base, struct activation *x, float cap)
{
    assert(x->form == ROWS_PLAIN && x->logit_rows && cap > 0);
    record(base, OP_SOFT_CAP, x, x)->cap = cap;
}

void cuda_record_gated_add(struct backend *base, struct activation *x, const struct activation *y,
                           const struct activation *in, const struct weight *w)
{
    assert(x->form == ROWS_PLAIN && x != y && x->width == y->width && is_vector(w, in->width));
    assert(x->logit_rows == y->logit_rows && x->logit_rows == in->logit_rows);
    reads_f(base, y);
    reads_f(base, in);
    struct record *r = record(base, OP_GATED_ADD, x, y);
    r->gated_add.in = in;
    r->gated_add.w = w->vector;
}

void cuda_record_moe(struct backend *base, struct moe *m, const struct moe_layer *l,
                     enum linear_into into, const struct activation *x,
                     const struct activation *router_logits, struct activation *out)
{
    assert(into == INTO_STORE || into == INTO_ADD);
    assert(x->width == m->moe.n_embd && !x->logit_rows && out->form == ROWS_PLAIN);
    assert(router_logits->form == ROWS_PLAIN && router_logits->width == m->moe.n_experts);
    assert(out->width == m->moe.n_embd && !out->logit_rows && out != x);
    assert(cuda_is_quantised(m->moe.x_reader) == (x->form == ROWS_QUANTISED));
    reads_type(base, x, m->moe.x_reader);
    struct record *r = record(base, OP_MOE, out, x);
    r->moe.into = into;
    r->moe.moe = m;
    r->moe.layer = cuda_moe_layer_of(m, l);
    r->moe.logits = router_logits;
}
