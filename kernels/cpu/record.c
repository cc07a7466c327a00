#include "record.h"

#include <assert.h>

#include "moe.h"
#include "step.h"

static struct cpu_backend *cpu(struct backend *b)
{
    return (struct cpu_backend *)b;
}

struct step_inputs *record_step_begin(struct backend *base)
{
    struct cpu_backend *b = cpu(base);
    b->n_plan = 0;
    b->inputs.n_rows = b->inputs.n_seqs = b->inputs.n_logits = 0;
    return &b->inputs;
}

static struct record *record(struct backend *base, enum op op)
{
    struct cpu_backend *b = cpu(base);
    assert(b->n_plan < b->max_plan);
    struct record *r = &b->plan[b->n_plan++];
    r->op = op;
    return r;
}

static bool is_vector(const struct weight *w, int64_t width)
{
    return w && w->vector && w->cols == width;
}

void record_embed(struct backend *base, struct activation *x, const struct weight *table,
                  float scale)
{
    assert(x->f && x->width == table->cols);
    struct record *r = record(base, OP_EMBED);
    r->embed.x = x;
    r->embed.table = table;
    r->embed.scale = scale;
}

void record_norm(struct backend *base, struct activation *out, const struct activation *x,
                 const struct norm *n)
{
    assert(x->f && out->width == x->width && (!n || is_vector(n->w, x->width)));
    assert(!n || !n->bias || is_vector(n->bias, x->width));
    (void)is_vector;
    struct record *r = record(base, OP_NORM);
    r->norm.out = out;
    r->norm.x = x;
    r->norm.norm = n ? *n : (struct norm){0};
}

void record_norm_add(struct backend *base, struct activation *x, const struct activation *y,
                     const struct norm *n)
{
    assert(n && x->f && x != y && x->logit_rows == y->logit_rows);
    record_norm(base, x, y, n);
    cpu(base)->plan[cpu(base)->n_plan - 1].op = OP_NORM_ADD;
}

void record_norm_logit_rows(struct backend *base, struct activation *out,
                            const struct activation *x, const struct norm *n)
{
    assert(out->logit_rows && !x->logit_rows);
    record_norm(base, out, x, n);
}

void record_linear(struct backend *base, enum linear_into into, enum act_fn act,
                   const struct activation *x, int n_w, const struct weight *const *w,
                   const struct weight *const *bias, struct activation *const *outs)
{
    bool gated = into == INTO_ACT_MUL;
    assert(n_w >= 1 && n_w <= 3 && (!gated || (n_w == 2 && w[0]->rows == w[1]->rows)));
    assert(into != INTO_ACT || (n_w == 1 && act != ACT_SWIGLU_CLAMPED));
    struct record *r = record(base, OP_LINEAR);
    r->linear.into = into;
    r->linear.act = act;
    r->linear.x = x;
    r->linear.n_w = n_w;
    for (int i = 0; i < n_w; i++) {
        const struct activation *out = outs[gated ? 0 : i];
        assert(w[i]->cols == x->width && dtype_is_quantised(w[i]->type) == x->quantised);
        assert(out->width == w[i]->rows && out->logit_rows == x->logit_rows);
        assert(into != INTO_ADD || out->f);
        assert(!bias || !bias[i] || is_vector(bias[i], w[i]->rows));
        r->linear.w[i] = w[i];
        r->linear.bias[i] = bias ? bias[i] : NULL;
        r->linear.outs[i] = outs[gated ? 0 : i];
        (void)out;
    }
}

static bool norms_heads(const struct qk_norm *n, int n_heads, const struct kv_pool *kv)
{
    int64_t heads = n->span == QK_NORM_HEAD ? 1 : n_heads;
    int64_t kv_heads = n->span == QK_NORM_HEAD ? 1 : kv->n_kv_heads;
    return is_vector(n->q, heads * kv->head_dim) && is_vector(n->k, kv_heads * kv->head_dim);
}

void record_rope_write_kv(struct backend *base, int layer, const struct qk_norm *norm,
                          const struct rope *rope, int n_heads, struct activation *q,
                          struct activation *k, struct activation *v)
{
    const struct kv_pool *kv = &cpu(base)->kv;
    assert(kv->data && layer >= 0 && layer < kv->n_layers && q->f && k->f && v->f);
    assert(q->width == n_heads * kv->head_dim && k->width == kv->n_kv_heads * kv->head_dim);
    assert(v->width == k->width && (!rope || rope->n_dims <= kv->head_dim));
    assert(!norm || norms_heads(norm, n_heads, kv));
    (void)kv, (void)norms_heads;
    struct record *r = record(base, OP_ROPE_WRITE_KV);
    r->rope.layer = layer;
    r->rope.norm = norm ? *norm : (struct qk_norm){0};
    r->rope.rope = rope;
    r->rope.n_heads = n_heads;
    r->rope.q = q;
    r->rope.k = k;
    r->rope.v = v;
}

void record_attention(struct backend *base, int layer, const struct attention_config *c,
                      const struct weight *sinks, struct activation *out,
                      const struct activation *q)
{
    const struct kv_pool *kv = &cpu(base)->kv;
    assert(kv->data && layer >= 0 && layer < kv->n_layers && q->f);
    assert(c->n_kv_heads == kv->n_kv_heads && c->head_dim == kv->head_dim);
    assert(c->n_heads % c->n_kv_heads == 0 && q->width == c->n_heads * c->head_dim);
    assert(out->width == q->width && !out->logit_rows);
    assert(!sinks || is_vector(sinks, c->n_heads));
    (void)kv;
    struct record *r = record(base, OP_ATTENTION);
    r->attention.layer = layer;
    r->attention.config = *c;
    r->attention.sinks = sinks ? sinks->vector : NULL;
    r->attention.out = out;
    r->attention.q = q;
}

void record_soft_cap(struct backend *base, struct activation *x, float cap)
{
    assert(x->f && x->logit_rows && cap > 0);
    struct record *r = record(base, OP_SOFT_CAP);
    r->soft_cap.x = x;
    r->soft_cap.cap = cap;
}

void record_gated_add(struct backend *base, struct activation *x, const struct activation *y,
                      const struct activation *in, const struct weight *w)
{
    assert(x->f && y->f && in->f && x != y && x->width == y->width && is_vector(w, in->width));
    assert(x->logit_rows == y->logit_rows && x->logit_rows == in->logit_rows);
    struct record *r = record(base, OP_GATED_ADD);
    r->gated_add.x = x;
    r->gated_add.y = y;
    r->gated_add.in = in;
    r->gated_add.w = w;
}

/* Every expert's matrices have the config's shape and class, so that any may be chosen. */
static bool are_experts(const struct moe *m, const struct moe_layer *l)
{
    const struct moe_config *c = &m->config;
    for (int e = 0; e < c->n_experts; e++) {
        const struct weight *g = l->gate[e], *u = l->up[e], *d = l->down[e];
        if (g->rows != c->n_ff || u->rows != c->n_ff || d->rows != c->n_embd ||
            g->cols != c->n_embd || u->cols != c->n_embd || d->cols != c->n_ff ||
            dtype_is_quantised(g->type) != m->x->quantised ||
            dtype_is_quantised(u->type) != m->x->quantised ||
            dtype_is_quantised(d->type) != m->middle->quantised)
            return false;
    }
    return true;
}

static bool is_bias(const struct weight *w, int n_experts, int width)
{
    return !w || (w->rows == n_experts && w->cols == width && !dtype_is_quantised(w->type));
}

void record_moe(struct backend *base, struct moe *m, const struct moe_layer *l,
                enum linear_into into, const struct activation *x,
                const struct activation *router_logits, struct activation *out)
{
    const struct moe_config *c = &m->config;
    assert(into == INTO_STORE || into == INTO_ADD);
    assert(x->width == c->n_embd && x->quantised == m->x->quantised && !x->logit_rows);
    assert(router_logits->f && router_logits->width == c->n_experts && !router_logits->logit_rows);
    assert(out->f && out->width == c->n_embd && !out->logit_rows && out != x);
    assert(are_experts(m, l) && is_bias(l->gate_bias, c->n_experts, c->n_ff));
    assert(is_bias(l->up_bias, c->n_experts, c->n_ff));
    assert(is_bias(l->down_bias, c->n_experts, c->n_embd));
    (void)c, (void)are_experts, (void)is_bias;
    struct record *r = record(base, OP_MOE);
    r->moe.moe = m;
    r->moe.layer = *l;
    r->moe.into = into;
    r->moe.x = x;
    r->moe.router_logits = router_logits;
    r->moe.out = out;
}
