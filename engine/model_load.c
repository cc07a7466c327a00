#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_impl.h"

static enum weight_class class_of(enum dtype t)
{
    return dtype_info(t)->block_elems > 1 ? CLASS_QUANTISED : CLASS_FLOAT;
}

struct loader {
    struct model *m;
    const struct weights *weights;
    struct err *e;
    bool ok;    /* the first failure turns it off, and every later call does nothing */
    bool check; /* only look at names, shapes and types: without a backend, every weight is NULL */
    uint64_t bytes; /* of what was given */
};

struct tensor_name {
    char text[64];
};
/* layer < 0: a tensor outside layers */
static struct tensor_name name_of(int layer, const char *part, const char *kind)
{
    struct tensor_name n;
    if (layer < 0)
        snprintf(n.text, sizeof n.text, "%s.%s", part, kind);
    else
        snprintf(n.text, sizeof n.text, "blk.%d.%s.%s", layer, part, kind);
    return n;
}

/* --- single tensors --- */

static bool find(struct loader *l, const char *name, int expert, int64_t rows, int64_t cols,
                 struct weight_view *out)
{
    *out = (struct weight_view){0};
    l->ok = l->ok && (l->check ? weights_check : weights_get)(l->weights, name, expert, rows, cols,
                                                              out, l->e);
    return l->ok;
}

/* Ends the view. */
static struct weight *give(struct loader *l, struct weight_view *v)
{
    struct backend *b = l->m->backend;
    struct weight *w = NULL;
    const uint64_t bytes = l->ok ? (uint64_t)v->rows * dtype_row_bytes(v->dtype, v->cols) : 0;
    l->bytes += bytes;
    l->m->bytes_of[v->dtype] += bytes;
    if (l->ok && !l->check) {
        w = b->ops->weight_load(b, v->dtype, v->rows, v->cols, v->data, l->e);
        l->ok = w || err_prefix(l->e, "tensor %s", v->what);
    }
    weight_view_free(v);
    return w;
}

/* Turns the view into float32 values, `scale` times its own. */
static bool widen(struct loader *l, struct weight_view *v, float scale)
{
    const int64_t n = v->rows * v->cols;
    float *f = l->check ? NULL : malloc((size_t)n * sizeof *f);
    if (l->check) {
        v->dtype = DTYPE_F32;
        return true;
    }
    if (!f)
        return l->ok = err_set(l->e, ERR_MEMORY, "tensor %s: no memory to widen it to float32",
                               v->what);
    dtype_to_f32(v->dtype, v->data, f, n);
    for (int64_t i = 0; scale != 1 && i < n; i++)
        f[i] *= scale;
    free(v->owned);
    v->data = v->owned = f;
    v->dtype = DTYPE_F32;
    return true;
}

static bool find_plain(struct loader *l, const char *name, int64_t rows, int64_t cols,
                       struct weight_view *v)
{
    if (find(l, name, -1, rows, cols, v) && class_of(v->dtype) == CLASS_QUANTISED)
        l->ok = err_set(l->e, ERR_UNSUPPORTED,
                        "tensor %s is of type %s, expected F32, F16 or BF16: norms and biases "
                        "are not quantised",
                        v->what, dtype_info(v->dtype)->name);
    return l->ok;
}

/* A vector, whatever rows the file has it in. */
static struct weight *load_vector(struct loader *l, const char *name, int64_t rows, int64_t cols,
                                  float scale)
{
    struct weight_view v;
    if (find_plain(l, name, rows, cols, &v) && (scale == 1 || widen(l, &v, scale))) {
        v.cols *= v.rows;
        v.rows = 1;
    }
    return give(l, &v);
}

/* A weight of one row is a vector to the backend, which multiplies nothing with it. */
static bool find_matrix(struct loader *l, const char *name, int expert, int64_t rows, int64_t cols,
                        struct weight_view *v)
{
    if (find(l, name, expert, rows, cols, v) && rows < 2)
        l->ok =
            err_set(l->e, ERR_UNSUPPORTED, "tensor %s has one row, expected two or more", v->what);
    return l->ok;
}

static struct matrix load_matrix(struct loader *l, const char *name, int64_t rows, int64_t cols)
{
    struct weight_view v;
    find_matrix(l, name, -1, rows, cols, &v);
    const enum weight_class class = class_of(v.dtype);
    return (struct matrix){give(l, &v), class};
}

/* As float32 weights, if it is quantised: for the partner of a float tensor. */
static struct matrix load_float(struct loader *l, const char *name, int64_t rows, int64_t cols)
{
    struct weight_view v;
    if (find_matrix(l, name, -1, rows, cols, &v) && class_of(v.dtype) == CLASS_QUANTISED)
        widen(l, &v, 1);
    return (struct matrix){give(l, &v), CLASS_FLOAT};
}

static struct weight *load_bias(struct loader *l, bool has, int layer, const char *part,
                                int64_t width)
{
    return has ? load_vector(l, name_of(layer, part, "bias").text, 1, width, 1) : NULL;
}

/* A norm of the stream, which is kept over residual_scale r: of x/r with eps/r² as of x with eps.
 */
static struct norm load_norm(struct loader *l, int layer, const char *part, float scale)
{
    const struct model_spec *s = &l->m->spec;
    struct norm n = {.kind = s->norm, .eps = s->norm_eps / (s->residual_scale * s->residual_scale)};
    n.w = load_vector(l, name_of(layer, part, "weight").text, 1, s->n_embd, scale);
    if (s->norm_bias)
        n.bias = load_vector(l, name_of(layer, part, "bias").text, 1, s->n_embd, scale);
    return n;
}

/* A norm of what is added to the stream. */
static struct norm load_post_norm(struct loader *l, int layer, const char *part)
{
    const struct model_spec *s = &l->m->spec;
    return (struct norm){
        .kind = s->norm,
        .w = load_vector(l, name_of(layer, part, "weight").text, 1, s->n_embd, 1),
        .eps = s->norm_eps,
    };
}

/* --- attention --- */

static struct weight *load_head_norm(struct loader *l, int layer, const char *part, int n_heads)
{
    const struct model_spec *s = &l->m->spec;
    const struct tensor_name name = name_of(layer, part, "weight");
    switch (s->qk_norm_span) {
    case QK_NORM_HEAD:
        return load_vector(l, name.text, 1, s->head_dim, 1);
    case QK_NORM_HEADS:
        return load_vector(l, name.text, n_heads, s->head_dim, 1);
    case QK_NORM_ALL:
        return load_vector(l, name.text, 1, (int64_t)n_heads * s->head_dim, 1);
    }
    return NULL;
}

/* Where one tensor has queries, keys and values, these are all that it has: slices of a longer one
 * would be other rows than the file means. */
static void check_fused(struct loader *l, int i, const char *kind, int64_t outputs)
{
    const struct tensor_name name = name_of(i, "attn_qkv", kind);
    const bool bias = strcmp(kind, "bias") == 0;
    struct weight_view v;
    l->ok = l->ok && (!weights_has(l->weights, name.text) ||
                      weights_check(l->weights, name.text, -1, bias ? 1 : outputs,
                                    bias ? outputs : l->m->spec.n_embd, &v, l->e));
}

static void load_attention(struct loader *l, struct layer *y, int i)
{
    static const char *const part[3] = {"attn_q", "attn_k", "attn_v"};
    const struct model_spec *s = &l->m->spec;
    const int64_t q = (int64_t)s->n_heads * s->head_dim, kv = (int64_t)s->n_kv_heads * s->head_dim;
    if (s->pre_norms)
        y->attn_norm = load_norm(l, i, "attn_norm", 1);
    check_fused(l, i, "weight", q + 2 * kv);
    if (s->qkv_bias)
        check_fused(l, i, "bias", q + 2 * kv);
    for (int k = 0; k < 3; k++) {
        const int64_t rows = k == 0 ? q : kv;
        y->qkv[k] = load_matrix(l, name_of(i, part[k], "weight").text, rows, s->n_embd);
        y->qkv_bias[k] = load_bias(l, s->qkv_bias, i, part[k], rows);
    }
    y->o = load_matrix(l, name_of(i, "attn_output", "weight").text, s->n_embd, q);
    y->o_bias = load_bias(l, s->o_bias, i, "attn_output", s->n_embd);
    y->qk_norm = (struct qk_norm){s->qk_norm_kind, s->qk_norm_span, NULL, NULL, s->norm_eps};
    if (s->qk_norm) {
        y->qk_norm.q = load_head_norm(l, i, "attn_q_norm", s->n_heads);
        y->qk_norm.k = load_head_norm(l, i, "attn_k_norm", s->n_kv_heads);
    }
    if (s->attention_sinks)
        y->sinks = load_vector(l, name_of(i, "attn_sinks", "weight").text, 1, s->n_heads, 1);
    if (s->post_norms)
        y->post_attn = load_post_norm(l, i, "post_attention_norm");
}

/* --- MLP and experts --- */

static bool is_quantised(const struct loader *l, const char *name, int expert, int64_t rows)
{
    struct weight_view v;
    struct err none;
    return weights_check(l->weights, name, expert, rows, l->m->spec.n_embd, &v, &none) &&
           class_of(v.dtype) == CLASS_QUANTISED;
}

/* The names of an MLP's matrices: ffn_gate, ffn_gate_shexp, ffn_gate_exps, ... */
struct mlp_names {
    const char *gate, *up, *down;
};

/* Gate and up are multiplied element by element as they are made, in one operation, so they
 * read the same buffer. No known file mixes their classes; if one does, the quantised is widened.
 */
static bool mixes_classes(const struct loader *l, int i, const struct mlp_names *n, int expert,
                          int64_t n_ff)
{
    return is_quantised(l, name_of(i, n->gate, "weight").text, expert, n_ff) !=
           is_quantised(l, name_of(i, n->up, "weight").text, expert, n_ff);
}

static void load_mlp(struct loader *l, struct mlp *p, int i, const struct mlp_names *n, int n_ff,
                     bool biases)
{
    const struct model_spec *s = &l->m->spec;
    const bool widened = s->gated && mixes_classes(l, i, n, -1, n_ff);
    struct matrix (*load)(struct loader *, const char *, int64_t, int64_t) =
        widened ? load_float : load_matrix;
    if (s->gated) {
        p->gate = load(l, name_of(i, n->gate, "weight").text, n_ff, s->n_embd);
        p->gate_bias = load_bias(l, biases, i, n->gate, n_ff);
    }
    p->up = load(l, name_of(i, n->up, "weight").text, n_ff, s->n_embd);
    p->up_bias = load_bias(l, biases, i, n->up, n_ff);
    p->down = load_matrix(l, name_of(i, n->down, "weight").text, s->n_embd, n_ff);
    p->down_bias = load_bias(l, biases, i, n->down, s->n_embd);
}

/* The matrices of one kind of all experts: to[n_experts]. They read one buffer, so they must be of
 * one class, *class, which the first decides where it is N_CLASSES. */
static void load_expert_matrices(struct loader *l, int i, const char *part, int64_t rows,
                                 int64_t cols, bool widened, enum weight_class *class,
                                 struct weight **to)
{
    const struct tensor_name name = name_of(i, part, "weight");
    for (int x = 0; x < l->m->spec.n_experts && l->ok; x++) {
        struct weight_view v;
        if (find_matrix(l, name.text, x, rows, cols, &v) && widened)
            widen(l, &v, 1);
        if (*class == N_CLASSES)
            *class = class_of(v.dtype);
        if (l->ok && class_of(v.dtype) != *class)
            l->ok = err_set(l->e, ERR_UNSUPPORTED,
                            "tensor %s is of type %s, expected a type that is %squantised, as the "
                            "experts of its layer before it are",
                            v.what, dtype_info(v.dtype)->name, *class == CLASS_FLOAT ? "not " : "");
        to[x] = give(l, &v);
    }
}

/* [n_experts][width] as a matrix, which the backend reads by row. */
static struct weight *load_expert_bias(struct loader *l, int i, const char *part, int64_t width)
{
    struct weight_view v;
    if (!l->m->spec.expert_bias)
        return NULL;
    find_plain(l, name_of(i, part, "bias").text, l->m->spec.n_experts, width, &v);
    return give(l, &v);
}

static struct moe *scratch_of(struct loader *l, const struct experts *x, enum weight_class down)
{
    struct model *m = l->m;
    const struct model_spec *s = &m->spec;
    if (!l->ok || l->check)
        return NULL;
    struct moe **scratch = &m->moe[x->in][down];
    const struct moe_config c = {
        .n_experts = s->n_experts,
        .n_used = s->n_experts_used,
        .n_embd = s->n_embd,
        .n_ff = s->n_ff_expert,
        .renormalise = s->router_renormalise,
        .act = s->act,
        .gate = x->layer.gate[0],
        .down = x->layer.down[0],
    };
    if (!*scratch)
        l->ok = (*scratch = m->backend->ops->moe_new(m->backend, &c, l->e));
    return *scratch;
}

static void load_experts(struct loader *l, struct layer *y, int i)
{
    static const struct mlp_names names = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
    static const struct mlp_names shared = {"ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"};
    const struct model_spec *s = &l->m->spec;
    struct experts *x = &y->experts;
    const int n = s->n_experts, n_ff = s->n_ff_expert;
    const bool widened = mixes_classes(l, i, &names, 0, n_ff);
    enum weight_class down = N_CLASSES;
    x->of = calloc(3 * (size_t)n, sizeof(struct weight *));
    if (!x->of) {
        l->ok = err_set(l->e, ERR_MEMORY, "no memory for %d experts", n);
        return;
    }
    x->router = load_float(l, name_of(i, "ffn_gate_inp", "weight").text, n, s->n_embd);
    x->router_bias = load_bias(l, s->router_bias, i, "ffn_gate_inp", n);
    x->in = N_CLASSES;
    load_expert_matrices(l, i, names.gate, n_ff, s->n_embd, widened, &x->in, x->of);
    load_expert_matrices(l, i, names.up, n_ff, s->n_embd, widened, &x->in, x->of + n);
    load_expert_matrices(l, i, names.down, s->n_embd, n_ff, false, &down, x->of + 2 * n);
    x->layer = (struct moe_layer){
        .gate = (const struct weight *const *)x->of,
        .up = (const struct weight *const *)x->of + n,
        .down = (const struct weight *const *)x->of + 2 * n,
        .gate_bias = load_expert_bias(l, i, names.gate, n_ff),
        .up_bias = load_expert_bias(l, i, names.up, n_ff),
        .down_bias = load_expert_bias(l, i, names.down, s->n_embd),
    };
    x->scratch = scratch_of(l, x, down);
    if (l->ok && !l->check && l->m->backend->ops->moe_layer_new)
        l->ok = l->m->backend->ops->moe_layer_new(l->m->backend, x->scratch, &x->layer, l->e);
    if (s->n_ff_shared == 0)
        return;
    load_mlp(l, &y->mlp, i, &shared, s->n_ff_shared, false);
    if (s->shared_gate)
        x->shared_gate =
            load_vector(l, name_of(i, "ffn_gate_inp_shexp", "weight").text, 1, s->n_embd, 1);
}

/* gpt-oss's files call the norm before the MLP by the place that it has behind attention. */
static const char *ffn_norm_name(const struct loader *l, int i)
{
    const bool usual = weights_has(l->weights, name_of(i, "ffn_norm", "weight").text) ||
                       !weights_has(l->weights, name_of(i, "post_attention_norm", "weight").text);
    return usual ? "ffn_norm" : "post_attention_norm";
}

static void load_feed_forward(struct loader *l, struct layer *y, int i)
{
    static const struct mlp_names names = {"ffn_gate", "ffn_up", "ffn_down"};
    const struct model_spec *s = &l->m->spec;
    if (s->pre_norms && !s->parallel)
        y->ffn_norm = load_norm(l, i, ffn_norm_name(l, i), 1);
    if (model_spec_has_experts(s, i))
        load_experts(l, y, i);
    else
        load_mlp(l, &y->mlp, i, &names, s->n_ff, s->mlp_bias);
    if (s->post_norms)
        y->post_ffn = load_post_norm(l, i, "post_ffw_norm");
}

/* --- the whole --- */

/* The scale of logits is one of the last norm's weights, and of the logits' bias. */
static void load_weights(struct loader *l)
{
    struct model *m = l->m;
    const struct model_spec *s = &m->spec;
    m->embd = load_matrix(l, "token_embd.weight", s->n_vocab, s->n_embd);
    for (int i = 0; i < s->n_layers && l->ok; i++) {
        load_attention(l, &m->layers[i], i);
        load_feed_forward(l, &m->layers[i], i);
    }
    m->out_norm = load_norm(l, -1, "output_norm", s->logit_scale);
    m->out = s->tied_embeddings ? m->embd : load_matrix(l, "output.weight", s->n_vocab, s->n_embd);
    if (s->out_bias)
        m->out_bias = load_vector(l, "output.bias", 1, s->n_vocab, s->logit_scale);
}

static struct rope *take_rope(struct loader *l, const struct rope_spec *r, int max_positions)
{
    struct backend *b = l->m->backend;
    struct rope_config c = {l->m->spec.rope_style, r->n_dims, r->inv_freq, r->mscale,
                            max_positions};
    struct rope *rope = NULL;
    if (l->ok && r->n_dims > 0 && c.style != ROPE_NONE)
        l->ok = (rope = b->ops->rope_new(b, &c, l->e));
    return rope;
}

static void take_ropes(struct loader *l, int max_positions)
{
    const struct model_spec *s = &l->m->spec;
    const bool is_long = s->rope_long_above > 0 && max_positions > s->rope_long_above;
    l->m->rope = take_rope(l, is_long ? &s->rope_long : &s->rope, max_positions);
    for (int i = 0; i < s->n_layers && !l->m->rope_local && l->ok; i++)
        if (model_spec_layer_has(s, i, LAYER_ROPE_LOCAL))
            l->m->rope_local = take_rope(l, &s->rope_local, max_positions);
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

static void take_feed(struct loader *l, struct feed *f, int width, enum weight_class class,
                      const struct weight *reader)
{
    if (!f->of[class])
        f->of[class] = take_buffer(l, width, reader, false);
}

static void take_normed(struct loader *l, struct reads *r, enum weight_class class,
                        const struct weight *reader)
{
    take_feed(l, &l->m->normed, l->m->spec.n_embd, class, reader);
    r->by[class] = true;
}

static void take_feed_forward_buffers(struct loader *l, struct layer *y)
{
    struct model *m = l->m;
    const struct model_spec *s = &m->spec;
    const struct experts *x = &y->experts;
    const struct mlp *p = &y->mlp;
    if (p->up.w)
        take_normed(l, &y->ffn_reads, p->up.class, p->up.w);
    if (!x->of) {
        take_feed(l, &m->middle, s->n_ff, p->down.class, p->down.w);
        return;
    }
    take_normed(l, &y->ffn_reads, x->router.class, x->router.w);
    take_normed(l, &y->ffn_reads, x->in, x->layer.gate[0]);
    if (!m->router)
        m->router = take_buffer(l, s->n_experts, NULL, false);
    if (p->down.w)
        take_feed(l, &m->shared_middle, s->n_ff_shared, p->down.class, p->down.w);
    if (x->shared_gate && !m->shared)
        m->shared = take_buffer(l, s->n_embd, NULL, false);
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
        struct layer *y = &m->layers[i];
        for (int k = 0; k < 3; k++)
            take_normed(l, &y->attn_reads, y->qkv[k].class, y->qkv[k].w);
        take_feed(l, &m->attended, q, y->o.class, y->o.w);
        take_feed_forward_buffers(l, y);
        for (int c = 0; s->parallel && c < N_CLASSES; c++)
            y->attn_reads.by[c] |= y->ffn_reads.by[c];
    }
    m->logit_normed = take_buffer(l, s->n_embd, m->out.w, true);
    m->logits = take_buffer(l, s->n_vocab, NULL, true);
}

static struct attention_config attention_of(const struct model_spec *s, bool windowed)
{
    return (struct attention_config){
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim,
        .scale = s->attention_scale,
        .window = windowed ? s->window : 0,
        .soft_cap = s->attention_soft_cap,
    };
}

static struct model *new_model(struct backend *b, const struct model_spec *s, struct err *e)
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
    return m;
}

bool model_check(const struct weights *weights, const struct model_spec *s, uint64_t *bytes,
                 enum dtype *main_type, struct err *e)
{
    struct model *m = new_model(NULL, s, e);
    struct loader l = {m, weights, e, .ok = m, .check = true};
    if (m)
        load_weights(&l);
    if (m && main_type)
        *main_type = model_main_dtype(m);
    model_free(m);
    *bytes = l.bytes;
    return l.ok;
}

struct model *model_load(struct backend *b, const struct weights *weights,
                         const struct model_spec *s, int max_positions, struct err *e)
{
    struct model *m = new_model(b, s, e);
    if (!m)
        return NULL;
    for (int windowed = 0; windowed < 2; windowed++)
        m->attention[windowed] = attention_of(s, windowed);
    struct loader l = {m, weights, e, .ok = true};
    load_weights(&l);
    if (l.ok && b->ops->weights_loaded)
        b->ops->weights_loaded(b);
    take_ropes(&l, max_positions);
    take_buffers(&l);
    if (l.ok)
        return m;
    model_free(m);
    return NULL;
}

enum dtype model_main_dtype(const struct model *m)
{
    enum dtype most = DTYPE_F32;
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (m->bytes_of[t] > m->bytes_of[most])
            most = (enum dtype)t;
    return most;
}
