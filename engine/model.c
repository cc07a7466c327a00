#include "model.h"

#include <stdlib.h>

#include "model_impl.h"

/* normed = the norm of the stream, or the stream itself where layers have no pre-norms. */
static void read_stream(struct model *m, const struct norm *n, const struct reads *r)
{
    for (int c = 0; c < N_CLASSES; c++)
        if (r->by[c])
            m->backend->ops->norm(m->backend, m->normed.of[c], m->x, m->spec.pre_norms ? n : NULL);
}

/* out = in · Wᵀ + b, stored, added or through the activation */
static void linear(struct model *m, enum linear_into into, const struct feed *in,
                   const struct matrix *w, const struct weight *bias, struct activation *out)
{
    m->backend->ops->linear(m->backend, into, m->spec.act, in->of[w->class], 1,
                            (const struct weight *const[]){w->w},
                            bias ? (const struct weight *const[]){bias} : NULL, &out);
}

/* What attention and MLP make goes onto the stream, or beside it, to be normed first. */
static struct activation *output(struct model *m)
{
    return m->spec.post_norms ? m->added : m->x;
}

static enum linear_into into_output(const struct model *m)
{
    return m->spec.post_norms ? INTO_STORE : INTO_ADD;
}

static void end_output(struct model *m, const struct norm *post)
{
    if (m->spec.post_norms)
        m->backend->ops->norm_add(m->backend, m->x, m->added, post);
}

/* q, k, v = normed · Wᵀ + b: one fused operation for each class of weights. */
static void project_qkv(struct model *m, const struct layer *y)
{
    for (int c = 0; c < N_CLASSES; c++) {
        const struct weight *w[3], *bias[3];
        struct activation *out[3];
        int n = 0;
        for (int k = 0; k < 3; k++) {
            if ((int)y->qkv[k].class != c)
                continue;
            w[n] = y->qkv[k].w;
            bias[n] = y->qkv_bias[k];
            out[n++] = m->qkv[k];
        }
        if (n > 0)
            m->backend->ops->linear(m->backend, INTO_STORE, m->spec.act, m->normed.of[c], n, w,
                                    m->spec.qkv_bias ? bias : NULL, out);
    }
}

static const struct rope *rope_of(const struct model *m, int layer)
{
    if (model_spec_layer_has(&m->spec, layer, LAYER_NO_ROPE))
        return NULL;
    return model_spec_layer_has(&m->spec, layer, LAYER_ROPE_LOCAL) ? m->rope_local : m->rope;
}

static void attend(struct model *m, const struct layer *y, int i)
{
    struct backend *b = m->backend;
    const bool windowed = model_spec_layer_has(&m->spec, i, LAYER_WINDOWED);
    read_stream(m, &y->attn_norm, &y->attn_reads);
    project_qkv(m, y);
    b->ops->rope_write_kv(b, i, m->spec.qk_norm ? &y->qk_norm : NULL, rope_of(m, i),
                          m->spec.n_heads, m->qkv[0], m->qkv[1], m->qkv[2]);
    b->ops->attention(b, i, &m->attention[windowed], y->sinks, m->attended.of[y->o.class],
                      m->qkv[0]);
    linear(m, into_output(m), &m->attended, &y->o, y->o_bias, output(m));
    end_output(m, &y->post_attn);
}

/* middle = act(normed · Gᵀ) * (normed · Uᵀ), or without gate act(normed · Uᵀ) */
static void mlp_middle(struct model *m, const struct mlp *p, struct feed *middle)
{
    struct activation *out = middle->of[p->down.class];
    if (!m->spec.gated) {
        linear(m, INTO_ACT, &m->normed, &p->up, p->up_bias, out);
        return;
    }
    const struct weight *const w[2] = {p->gate.w, p->up.w};
    const struct weight *const bias[2] = {p->gate_bias, p->up_bias};
    m->backend->ops->linear(m->backend, INTO_ACT_MUL, m->spec.act, m->normed.of[p->gate.class], 2,
                            w, p->gate_bias ? bias : NULL, &out);
}

/* The MLP that all tokens go through, beside the experts */
static void add_shared(struct model *m, const struct layer *y)
{
    const struct weight *gate = y->experts.shared_gate;
    mlp_middle(m, &y->mlp, &m->shared_middle);
    linear(m, gate ? INTO_STORE : INTO_ADD, &m->shared_middle, &y->mlp.down, NULL,
           gate ? m->shared : output(m));
    if (gate)
        m->backend->ops->gated_add(m->backend, output(m), m->shared, m->normed.of[CLASS_FLOAT],
                                   gate);
}

static void feed_forward(struct model *m, const struct layer *y)
{
    const struct experts *x = &y->experts;
    if (!m->spec.parallel)
        read_stream(m, &y->ffn_norm, &y->ffn_reads);
    if (!x->of) {
        mlp_middle(m, &y->mlp, &m->middle);
        linear(m, into_output(m), &m->middle, &y->mlp.down, y->mlp.down_bias, output(m));
    } else {
        linear(m, INTO_STORE, &m->normed, &x->router, x->router_bias, m->router);
        m->backend->ops->moe(m->backend, x->scratch, &x->layer, into_output(m), m->normed.of[x->in],
                             m->router, output(m));
        if (m->spec.n_ff_shared > 0)
            add_shared(m, y);
    }
    end_output(m, &y->post_ffn);
}

/* The stream is kept over residual_scale: then every block adds to it as it is, and only the
 * embeddings and the norms' epsilons know of the factor. */
void model_forward(struct model *m)
{
    m->backend->ops->embed(m->backend, m->x, m->embd.w,
                           m->spec.embedding_scale / m->spec.residual_scale);
    for (int i = 0; i < m->spec.n_layers; i++) {
        attend(m, &m->layers[i], i);
        feed_forward(m, &m->layers[i]);
    }
    model_forward_logits(m);
}

void model_forward_logits(struct model *m)
{
    struct backend *b = m->backend;
    b->ops->norm_logit_rows(b, m->logit_normed, m->x, &m->out_norm);
    b->ops->linear(b, INTO_STORE, m->spec.act, m->logit_normed, 1,
                   (const struct weight *const[]){m->out.w},
                   m->out_bias ? (const struct weight *const[]){m->out_bias} : NULL, &m->logits);
    if (m->spec.logit_soft_cap > 0)
        b->ops->soft_cap(b, m->logits, m->spec.logit_soft_cap);
}

void model_sample(struct model *m, const struct draw *draws, int n)
{
    m->backend->ops->sample(m->backend, m->logits, draws, n);
}

const float *model_logits(const struct model *m, int i)
{
    return m->backend->ops->read(m->backend, m->logits, i);
}

struct kv_config model_kv_config(const struct model_spec *s, int block_size, enum dtype kv_dtype)
{
    return (struct kv_config){
        .n_layers = s->n_layers,
        .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim,
        .block_size = block_size,
        .dtype = kv_dtype,
        .n_heads = s->n_heads,
    };
}

void model_free(struct model *m)
{
    if (!m)
        return;
    for (int i = 0; m->layers && i < m->spec.n_layers; i++)
        free(m->layers[i].experts.of);
    free(m->layers);
    free(m);
}
