#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Weights that read one activation buffer must be of one class (backend.h). A file may mix
 * classes, so every buffer that feeds linears exists once for each class that reads it. */
enum weight_class { CLASS_FLOAT, CLASS_QUANTISED, N_CLASSES };

struct matrix {
    struct weight *w;
    enum weight_class class;
};

struct feed {
    struct activation *of[N_CLASSES]; /* NULL where no weight of that class reads it */
};

struct layer {
    struct weight *attn_norm, *ffn_norm; /* [1][n_embd] */
    struct weight *q_norm, *k_norm;      /* [1][head_dim], NULL: none */
    struct weight *post_attn, *post_ffn; /* [1][n_embd], NULL: none */
    struct matrix qkv[3];                /* [heads * head_dim][n_embd] */
    struct matrix o;                     /* [n_embd][n_heads * head_dim] */
    struct matrix gate_up[2];            /* [n_ff][n_embd], of one class */
    struct matrix down;                  /* [n_embd][n_ff] */
    struct weight *qkv_bias[3], *o_bias, *gate_up_bias[2], *down_bias; /* NULL: none */
};

struct model {
    struct backend *backend;
    struct model_spec spec;
    struct attention_config attention[2]; /* [windowed] */
    struct rope *rope[2];                 /* [windowed] */

    struct matrix embd, out; /* [n_vocab][n_embd] */
    struct weight *out_norm; /* [1][n_embd] */
    struct layer *layers;    /* [n_layers] */

    struct activation *x;            /* [n_embd] the residual stream */
    struct activation *added;        /* [n_embd] before its post norm; NULL: none */
    struct feed normed;              /* [n_embd] */
    struct activation *qkv[3];       /* [n_heads * head_dim], twice [n_kv_heads * head_dim] */
    struct feed attended;            /* [n_heads * head_dim] */
    struct feed gated;               /* [n_ff] */
    struct activation *logit_normed; /* [n_embd], of logit_rows only, as the next */
    struct activation *logits;       /* [n_vocab] */
};

static enum weight_class class_of(enum dtype t)
{
    return dtype_info(t)->block_elems > 1 ? CLASS_QUANTISED : CLASS_FLOAT;
}

/* --- loading --- */

struct loader {
    struct model *m;
    const struct weights *weights;
    struct err *e;
    bool ok; /* the first failure turns it off, and every later call does nothing */
};

static bool find(struct loader *l, const char *name, int64_t rows, int64_t cols,
                 struct weight_view *out)
{
    *out = (struct weight_view){0};
    l->ok = l->ok && weights_get(l->weights, name, -1, rows, cols, out, l->e);
    return l->ok;
}

/* Ends the view. */
static struct weight *give(struct loader *l, struct weight_view *v)
{
    struct backend *b = l->m->backend;
    struct weight *w = NULL;
    if (l->ok) {
        w = b->ops->weight_load(b, v->dtype, v->rows, v->cols, v->data, l->e);
        l->ok = w || err_prefix(l->e, "tensor %s", v->what);
    }
    weight_view_free(v);
    return w;
}

static struct weight *load_vector(struct loader *l, const char *name, int64_t width)
{
    struct weight_view v;
    if (find(l, name, 1, width, &v) && class_of(v.dtype) == CLASS_QUANTISED)
        l->ok = err_set(l->e, ERR_UNSUPPORTED,
                        "tensor %s is of type %s, expected F32, F16 or BF16: norms and biases "
                        "are not quantised",
                        v.what, dtype_info(v.dtype)->name);
    return give(l, &v);
}

/* A weight of one row is a vector to the backend, which multiplies nothing with it. */
static bool find_matrix(struct loader *l, const char *name, int64_t rows, int64_t cols,
                        struct weight_view *v)
{
    if (find(l, name, rows, cols, v) && rows < 2)
        l->ok =
            err_set(l->e, ERR_UNSUPPORTED, "tensor %s has one row, expected two or more", v->what);
    return l->ok;
}

static struct matrix load_matrix(struct loader *l, const char *name, int64_t rows, int64_t cols)
{
    struct weight_view v;
    find_matrix(l, name, rows, cols, &v);
    const enum weight_class class = class_of(v.dtype);
    return (struct matrix){give(l, &v), class};
}

/* A quantised tensor as float32 weights: for the partner of a float tensor. */
static struct matrix load_widened(struct loader *l, const char *name, int64_t rows, int64_t cols)
{
    struct weight_view v;
    if (find_matrix(l, name, rows, cols, &v)) {
        float *f = malloc((size_t)rows * (size_t)cols * sizeof *f);
        if (f)
            dtype_to_f32(v.dtype, v.data, f, rows * cols);
        else
            l->ok = err_set(l->e, ERR_MEMORY, "tensor %s: no memory to widen it to float32", name);
        free(v.owned);
        v.data = v.owned = f;
        v.dtype = DTYPE_F32;
    }
    return (struct matrix){give(l, &v), CLASS_FLOAT};
}

struct tensor_name {
    char text[64];
};
static struct tensor_name layer_name(int layer, const char *part)
{
    struct tensor_name n;
    snprintf(n.text, sizeof n.text, "blk.%d.%s", layer, part);
    return n;
}

static void load_attention(struct loader *l, struct layer *y, int i)
{
    static const char *const part[3] = {"attn_q", "attn_k", "attn_v"};
    const struct model_spec *s = &l->m->spec;
    const int64_t q = (int64_t)s->n_heads * s->head_dim, kv = (int64_t)s->n_kv_heads * s->head_dim;
    const int64_t rows[3] = {q, kv, kv};
    char name[32];
    y->attn_norm = load_vector(l, layer_name(i, "attn_norm.weight").text, s->n_embd);
    for (int k = 0; k < 3; k++) {
        snprintf(name, sizeof name, "%s.weight", part[k]);
        y->qkv[k] = load_matrix(l, layer_name(i, name).text, rows[k], s->n_embd);
        snprintf(name, sizeof name, "%s.bias", part[k]);
        if (s->qkv_bias)
            y->qkv_bias[k] = load_vector(l, layer_name(i, name).text, rows[k]);
    }
    y->o = load_matrix(l, layer_name(i, "attn_output.weight").text, s->n_embd, q);
    if (s->o_bias)
        y->o_bias = load_vector(l, layer_name(i, "attn_output.bias").text, s->n_embd);
    if (s->qk_norm) {
        y->q_norm = load_vector(l, layer_name(i, "attn_q_norm.weight").text, s->head_dim);
        y->k_norm = load_vector(l, layer_name(i, "attn_k_norm.weight").text, s->head_dim);
    }
    if (s->post_norms)
        y->post_attn = load_vector(l, layer_name(i, "post_attention_norm.weight").text, s->n_embd);
}

static bool is_quantised(const struct loader *l, const char *name)
{
    enum dtype t;
    return weights_dtype(l->weights, name, &t) && class_of(t) == CLASS_QUANTISED;
}

/* Gate and up are multiplied element by element as they are made, in one operation, so they
 * read the same buffer. No known file mixes their classes; if one does, the quantised is widened.
 */
static void load_mlp(struct loader *l, struct layer *y, int i)
{
    const struct model_spec *s = &l->m->spec;
    const struct tensor_name name[2] = {layer_name(i, "ffn_gate.weight"),
                                        layer_name(i, "ffn_up.weight")};
    const bool quantised[2] = {is_quantised(l, name[0].text), is_quantised(l, name[1].text)};
    y->ffn_norm = load_vector(l, layer_name(i, "ffn_norm.weight").text, s->n_embd);
    for (int k = 0; k < 2; k++)
        y->gate_up[k] = (quantised[k] && !quantised[1 - k] ? load_widened : load_matrix)(
            l, name[k].text, s->n_ff, s->n_embd);
    y->down = load_matrix(l, layer_name(i, "ffn_down.weight").text, s->n_embd, s->n_ff);
    if (s->mlp_bias) {
        y->gate_up_bias[0] = load_vector(l, layer_name(i, "ffn_gate.bias").text, s->n_ff);
        y->gate_up_bias[1] = load_vector(l, layer_name(i, "ffn_up.bias").text, s->n_ff);
        y->down_bias = load_vector(l, layer_name(i, "ffn_down.bias").text, s->n_embd);
    }
    if (s->post_norms)
        y->post_ffn = load_vector(l, layer_name(i, "post_ffw_norm.weight").text, s->n_embd);
}

static void load_weights(struct loader *l)
{
    struct model *m = l->m;
    const struct model_spec *s = &m->spec;
    m->embd = load_matrix(l, "token_embd.weight", s->n_vocab, s->n_embd);
    for (int i = 0; i < s->n_layers && l->ok; i++) {
        load_attention(l, &m->layers[i], i);
        load_mlp(l, &m->layers[i], i);
    }
    m->out_norm = load_vector(l, "output_norm.weight", s->n_embd);
    m->out = s->tied_embeddings ? m->embd : load_matrix(l, "output.weight", s->n_vocab, s->n_embd);
}

/* inv_freq[i] = theta^(-2i / n_dims), divided by the linear scale and by the file's factors
 * (Llama 3's scaling, precomputed by the converter). */
static struct rope *load_rope(struct loader *l, float theta, float scale, bool with_factors,
                              int max_positions)
{
    const struct model_spec *s = &l->m->spec;
    struct rope *rope = NULL;
    if (!l->ok)
        return NULL;
    const int n = s->rope_dims / 2;
    float *inv_freq = malloc((size_t)n * sizeof *inv_freq);
    float *factors = malloc((size_t)n * sizeof *factors);
    if (!inv_freq || !factors)
        l->ok = err_set(l->e, ERR_MEMORY, "no memory for %d rotary frequencies", n);
    struct weight_view t = {0};
    if (with_factors && find(l, "rope_freqs.weight", 1, n, &t))
        dtype_to_f32(t.dtype, t.data, factors, n);
    for (int i = 0; l->ok && i < n; i++) {
        double f = pow((double)theta, -2.0 * i / s->rope_dims) / (double)scale;
        if (t.data && !(isfinite(factors[i]) && factors[i] > 0))
            l->ok = err_set(l->e, ERR_INVALID,
                            "tensor rope_freqs.weight: factor %d is %g, "
                            "should be positive",
                            i, (double)factors[i]);
        inv_freq[i] = (float)(t.data ? f / (double)factors[i] : f);
    }
    struct rope_config c = {s->rope_style, s->rope_dims, inv_freq, 1.0f, max_positions};
    if (l->ok)
        l->ok = (rope = l->m->backend->ops->rope_new(l->m->backend, &c, l->e));
    weight_view_free(&t);
    free(inv_freq);
    free(factors);
    return rope;
}

static void load_ropes(struct loader *l, int max_positions)
{
    const struct model_spec *s = &l->m->spec;
    if (s->rope_style == ROPE_NONE)
        return;
    l->m->rope[0] =
        load_rope(l, s->rope_theta, s->rope_linear_scale, s->rope_freq_factors, max_positions);
    if (s->window > 0)
        l->m->rope[1] = load_rope(l, s->rope_theta_windowed, 1, false, max_positions);
}

static struct activation *take_buffer(struct loader *l, int width, const struct weight *reader,
                                      bool logit_rows)
{
    if (!l->ok)
        return NULL;
    struct backend *b = l->m->backend;
    struct activation *a = b->ops->activation_new(b, width, reader, logit_rows, l->e);
    l->ok = a;
    return a;
}

static void take_feed(struct loader *l, struct feed *f, int width, const struct matrix *reader)
{
    if (!f->of[reader->class])
        f->of[reader->class] = take_buffer(l, width, reader->w, false);
}

static void take_buffers(struct loader *l)
{
    struct model *m = l->m;
    const struct model_spec *s = &m->spec;
    const int q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
    m->x = take_buffer(l, s->n_embd, NULL, false);
    if (s->post_norms)
        m->added = take_buffer(l, s->n_embd, NULL, false);
    m->qkv[0] = take_buffer(l, q, NULL, false);
    m->qkv[1] = take_buffer(l, kv, NULL, false);
    m->qkv[2] = take_buffer(l, kv, NULL, false);
    for (int i = 0; i < s->n_layers && l->ok; i++) {
        const struct layer *y = &m->layers[i];
        for (int k = 0; k < 3; k++)
            take_feed(l, &m->normed, s->n_embd, &y->qkv[k]);
        take_feed(l, &m->normed, s->n_embd, &y->gate_up[0]);
        take_feed(l, &m->attended, q, &y->o);
        take_feed(l, &m->gated, s->n_ff, &y->down);
    }
    m->logit_normed = take_buffer(l, s->n_embd, m->out.w, true);
    m->logits = take_buffer(l, s->n_vocab, NULL, true);
}

struct model *model_load(struct backend *b, const struct weights *weights,
                         const struct model_spec *s, int max_positions, struct err *e)
{
    struct model *m = calloc(1, sizeof *m);
    if (m)
        m->layers = calloc((size_t)s->n_layers, sizeof *m->layers);
    if (!m || !m->layers) {
        model_free(m);
        err_set(e, ERR_MEMORY, "no memory for %d layers", s->n_layers);
        return NULL;
    }
    m->backend = b;
    m->spec = *s;
    for (int windowed = 0; windowed < 2; windowed++)
        m->attention[windowed] = (struct attention_config){
            .n_heads = s->n_heads,
            .n_kv_heads = s->n_kv_heads,
            .head_dim = s->head_dim,
            .scale = s->attention_scale,
            .window = windowed ? s->window : 0,
        };
    struct loader l = {m, weights, e, true};
    load_weights(&l);
    load_ropes(&l, max_positions);
    take_buffers(&l);
    if (l.ok)
        return m;
    model_free(m);
    return NULL;
}

void model_free(struct model *m)
{
    if (!m)
        return;
    free(m->layers);
    free(m);
}

/* --- the forward pass --- */

/* normed = RMSNorm(x) in the form of each class that one of the readers has. */
static void norm(struct model *m, const struct weight *w, const struct matrix *readers, int n)
{
    const struct norm rms = {.w = w, .eps = m->spec.norm_eps};
    bool done[N_CLASSES] = {false};
    for (int i = 0; i < n; i++) {
        enum weight_class c = readers[i].class;
        if (!done[c])
            m->backend->ops->norm(m->backend, m->normed.of[c], m->x, &rms);
        done[c] = true;
    }
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

/* x += in · Wᵀ + b, or the RMSNorm of it with weight `post` */
static void add_linear(struct model *m, const struct feed *in, const struct matrix *w,
                       const struct weight *bias, const struct weight *post)
{
    struct backend *b = m->backend;
    b->ops->linear(b, post ? INTO_STORE : INTO_ADD, m->spec.act, in->of[w->class], 1,
                   (const struct weight *const[]){w->w},
                   bias ? (const struct weight *const[]){bias} : NULL, post ? &m->added : &m->x);
    const struct norm rms = {.w = post, .eps = m->spec.norm_eps};
    if (post)
        b->ops->norm_add(b, m->x, m->added, &rms);
}

static void attend(struct model *m, const struct layer *y, int i)
{
    struct backend *b = m->backend;
    const bool windowed = model_spec_is_windowed(&m->spec, i);
    const struct qk_norm heads = {.q = y->q_norm, .k = y->k_norm, .eps = m->spec.norm_eps};
    norm(m, y->attn_norm, y->qkv, 3);
    project_qkv(m, y);
    b->ops->rope_write_kv(b, i, m->spec.qk_norm ? &heads : NULL, m->rope[windowed], m->spec.n_heads,
                          m->qkv[0], m->qkv[1], m->qkv[2]);
    b->ops->attention(b, i, &m->attention[windowed], NULL, m->attended.of[y->o.class], m->qkv[0]);
    add_linear(m, &m->attended, &y->o, y->o_bias, y->post_attn);
}

/* x += (act(normed · Gᵀ) * (normed · Uᵀ)) · Dᵀ */
static void feed_forward(struct model *m, const struct layer *y)
{
    struct backend *b = m->backend;
    const struct weight *const w[2] = {y->gate_up[0].w, y->gate_up[1].w};
    const struct weight *const bias[2] = {y->gate_up_bias[0], y->gate_up_bias[1]};
    norm(m, y->ffn_norm, y->gate_up, 1);
    b->ops->linear(b, INTO_ACT_MUL, m->spec.act, m->normed.of[y->gate_up[0].class], 2, w,
                   m->spec.mlp_bias ? bias : NULL, &m->gated.of[y->down.class]);
    add_linear(m, &m->gated, &y->down, y->down_bias, y->post_ffn);
}

void model_forward(struct model *m)
{
    struct backend *b = m->backend;
    b->ops->embed(b, m->x, m->embd.w, m->spec.embedding_scale);
    for (int i = 0; i < m->spec.n_layers; i++) {
        attend(m, &m->layers[i], i);
        feed_forward(m, &m->layers[i]);
    }
    model_forward_logits(m);
}

void model_forward_logits(struct model *m)
{
    struct backend *b = m->backend;
    const struct norm rms = {.w = m->out_norm, .eps = m->spec.norm_eps};
    b->ops->norm_logit_rows(b, m->logit_normed, m->x, &rms);
    b->ops->linear(b, INTO_STORE, m->spec.act, m->logit_normed, 1,
                   (const struct weight *const[]){m->out.w}, NULL, &m->logits);
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
    };
}
