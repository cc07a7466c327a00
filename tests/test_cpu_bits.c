/* Batch invariance of the CPU backend: a row's logits are the same to the bit however its
 * sequence is cut into steps, whatever else is in the step, with any number of threads, and
 * whatever lies in pages that nobody wrote. A small model goes through every operation. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_rig.h"
#include "test.h"

#define LAYERS 2
#define VOCAB 70
#define MAX_ROWS 160
#define MAX_SEQS 40
#define MAX_PAGES 24
#define POOL_PAGES 600
#define MAX_EXPERTS 8

struct shape {
    enum dtype weights, kv;
    int heads, kv_heads, dim, ff, block_size, window;
    float cap;
    enum act_fn act;
    enum rope_style style;
    bool norms; /* of q and k, and of what is added to the residual stream */
    enum norm_kind norm_kind;
    enum qk_norm_span span;
    bool extras;     /* biases of norms, sinks, soft cap of the logits, a gated addition */
    bool ungated;    /* MLP */
    int rotary_dims; /* 0: all */
    int experts;     /* of each MLP, half of them used; 0: a plain one */
    bool fine;       /* 16-bit activations */
};

struct layer {
    struct weight *norm1, *q, *k, *v, *o, *norm2, *gate, *up, *down, *bias;
    struct weight *post1, *post2, *norm_q, *norm_k, *sinks, *norm_bias, *side, *router;
    const struct weight *gates[MAX_EXPERTS], *ups[MAX_EXPERTS], *downs[MAX_EXPERTS];
};

struct mini {
    struct backend *b;
    struct shape s;
    struct rope *rope;
    struct weight *embed, *norm;
    struct layer layers[LAYERS];
    struct activation *x, *normed, *q, *k, *v, *att, *normed2, *hidden, *added, *plain, *last,
        *logits, *choice;
    struct moe *moe;
};

static struct weight *make(struct mini *m, enum dtype t, int rows, int cols, uint64_t *seed)
{
    struct ref_matrix r = ref_matrix_new(t, rows, cols, rows == 1 ? 1.5 : 2 / sqrt(cols), seed);
    struct weight *w = rig_weight(m->b, &r);
    ref_matrix_free(&r);
    return w;
}

static void make_layer(struct mini *m, struct layer *l, int width, uint64_t *seed)
{
    const struct shape *s = &m->s;
    enum dtype t = s->weights;
    int kv = s->kv_heads * s->dim;
    l->norm1 = make(m, DTYPE_F32, 1, width, seed);
    l->norm2 = make(m, DTYPE_F32, 1, width, seed);
    l->bias = make(m, DTYPE_F32, 1, kv, seed);
    l->q = make(m, t, width, width, seed);
    l->k = make(m, t, kv, width, seed);
    l->v = make(m, t, kv, width, seed);
    l->o = make(m, t, width, width, seed);
    l->gate = make(m, t, s->ff, width, seed);
    l->up = make(m, t, s->ff, width, seed);
    l->down = make(m, t, width, s->ff, seed);
    l->post1 = make(m, DTYPE_F32, 1, width, seed);
    l->post2 = make(m, DTYPE_F32, 1, width, seed);
    bool each = s->span != QK_NORM_HEAD;
    l->norm_q = make(m, DTYPE_F32, 1, s->dim * (each ? s->heads : 1), seed);
    l->norm_k = make(m, DTYPE_F32, 1, s->dim * (each ? s->kv_heads : 1), seed);
    l->norm_bias = make(m, DTYPE_F32, 1, width, seed);
    l->side = make(m, DTYPE_F32, 1, width, seed);
    for (int i = 0; i < s->experts; i++) {
        l->gates[i] = make(m, t, s->ff, width, seed);
        l->ups[i] = make(m, t, s->ff, width, seed);
        l->downs[i] = make(m, t, width, s->ff, seed);
    }
    if (s->experts)
        l->router = make(m, DTYPE_F32, s->experts, width, seed);
    l->sinks = make(m, DTYPE_F32, 1, s->heads, seed);
}

static struct mini mini_of(struct backend *b, const struct shape *s)
{
    uint64_t seed = 7;
    struct err e;
    float inv_freq[64];
    struct mini m = {.b = b, .s = *s};
    int width = s->heads * s->dim, kv = s->kv_heads * s->dim;
    struct kv_config pool = {LAYERS, s->kv_heads, s->dim, s->block_size, POOL_PAGES, s->kv};
    int dims = s->rotary_dims ? s->rotary_dims : s->dim;
    for (int i = 0; i < dims / 2; i++)
        inv_freq[i] = powf(10000, -2.0f * i / dims);
    struct rope_config rope = {s->style, dims, inv_freq, 1, MAX_PAGES * s->block_size};
    m.rope = m.b->ops->rope_new(m.b, &rope, &e);
    m.embed = make(&m, s->weights, VOCAB, width, &seed);
    m.norm = make(&m, DTYPE_F32, 1, width, &seed);
    for (int i = 0; i < LAYERS; i++)
        make_layer(&m, &m.layers[i], width, &seed);
    m.x = rig_activation(m.b, width, NULL, false);
    m.normed = rig_activation(m.b, width, m.layers[0].q, false);
    m.q = rig_activation(m.b, width, NULL, false);
    m.k = rig_activation(m.b, kv, NULL, false);
    m.v = rig_activation(m.b, kv, NULL, false);
    m.att = rig_activation(m.b, width, m.layers[0].o, false);
    m.normed2 = rig_activation(m.b, width, m.layers[0].gate, false);
    m.hidden = rig_activation(m.b, s->ff, m.layers[0].down, false);
    m.added = rig_activation(m.b, width, NULL, false);
    m.plain = rig_activation(m.b, width, NULL, false);
    if (s->experts) {
        struct moe_config c = {s->experts, s->experts / 2,   width,           s->ff, s->extras,
                               s->act,     m.layers[0].gate, m.layers[0].down};
        m.choice = rig_activation(m.b, s->experts, NULL, false);
        m.moe = m.b->ops->moe_new(m.b, &c, &e);
    }
    m.last = rig_activation(m.b, width, m.embed, true);
    m.logits = rig_activation(m.b, VOCAB, NULL, true);
    assert_true(m.b->ops->kv_open(m.b, &pool, &e));
    for (int i = 0; i < POOL_PAGES; i++)
        m.b->ops->page_fill(m.b, i, 0xFF);
    return m;
}

static struct mini mini_open(const char *isa, const struct shape *s, int threads)
{
    struct backend *b =
        (s->fine ? rig_open_fine : rig_open)(isa, threads, MAX_ROWS, MAX_SEQS, MAX_PAGES);
    return mini_of(b, s);
}

/* Where lone rows go in waves of few */
static struct mini mini_open_tight(const char *isa, const struct shape *s, int threads)
{
    return mini_of(rig_open_tight(isa, threads, MAX_ROWS, MAX_SEQS, MAX_PAGES), s);
}

/* x += in * w, or its norm */
static void add(struct mini *m, const struct activation *in, const struct weight *w,
                const struct weight *post)
{
    const struct backend_ops *o = m->b->ops;
    struct activation *out = m->s.norms ? m->added : m->x;
    struct norm norm = {.kind = m->s.norm_kind, .w = post, .eps = 1e-5f};
    o->linear(m->b, m->s.norms ? INTO_STORE : INTO_ADD, m->s.act, in, 1, &w, NULL, &out);
    if (m->s.norms)
        o->norm_add(m->b, m->x, m->added, &norm);
}

/* x += experts(norm of x) */
static void experts(struct mini *m, const struct layer *l, const struct norm *norm)
{
    const struct backend_ops *o = m->b->ops;
    const struct weight *router[] = {l->router};
    const struct moe_layer layer = {l->gates, l->ups, l->downs, NULL, NULL, NULL};
    o->norm(m->b, m->plain, m->x, norm);
    o->linear(m->b, INTO_STORE, m->s.act, m->plain, 1, router, NULL, &m->choice);
    o->moe(m->b, m->moe, &layer, INTO_ADD, m->normed2, m->choice, m->x);
}

static struct norm norm_of(const struct shape *s, const struct weight *w, const struct weight *bias)
{
    return (struct norm){s->norm_kind, w, s->extras ? bias : NULL, 1e-5f};
}

static void forward(struct mini *m)
{
    const struct backend_ops *o = m->b->ops;
    const struct shape *s = &m->s;
    const struct attention_config c = {s->heads,  s->kv_heads, s->dim, 1 / sqrtf((float)s->dim),
                                       s->window, s->cap};
    o->embed(m->b, m->x, m->embed, 1);
    for (int i = 0; i < LAYERS; i++) {
        struct layer *l = &m->layers[i];
        const struct weight *qkv[] = {l->q, l->k, l->v}, *biases[] = {NULL, l->bias, NULL};
        const struct weight *gated[] = {l->gate, l->up};
        const struct norm norm1 = norm_of(s, l->norm1, l->norm_bias);
        const struct norm norm2 = norm_of(s, l->norm2, l->norm_bias);
        const struct qk_norm heads = {
            .kind = s->norm_kind, .span = s->span, .q = l->norm_q, .k = l->norm_k, .eps = 1e-5f};
        struct activation *outs[] = {m->q, m->k, m->v};
        o->norm(m->b, m->normed, m->x, &norm1);
        o->linear(m->b, INTO_STORE, s->act, m->normed, 3, qkv, biases, outs);
        o->rope_write_kv(m->b, i, s->norms ? &heads : NULL, m->rope, s->heads, m->q, m->k, m->v);
        o->attention(m->b, i, &c, s->extras ? l->sinks : NULL, m->att, m->q);
        add(m, m->att, l->o, l->post1);
        o->norm(m->b, m->normed2, m->x, &norm2);
        o->linear(m->b, s->ungated ? INTO_ACT : INTO_ACT_MUL, s->act, m->normed2,
                  s->ungated ? 1 : 2, gated, NULL, &m->hidden);
        if (s->extras) {
            o->norm(m->b, m->plain, m->x, &norm2);
            o->gated_add(m->b, m->x, m->plain, m->plain, l->side);
        }
        if (s->experts)
            experts(m, l, &norm2);
        add(m, m->hidden, l->down, l->post2);
    }
    const struct weight *head[] = {m->embed};
    const struct norm last = norm_of(s, m->norm, NULL);
    o->norm_logit_rows(m->b, m->last, m->x, &last);
    o->linear(m->b, INTO_STORE, s->act, m->last, 1, head, NULL, &m->logits);
    if (s->extras)
        o->soft_cap(m->b, m->logits, 7);
}

/* A sequence: its tokens follow from `id`, its pages from `first_page` in steps of 7. */
struct seq {
    int id, done, n;
    int32_t pages[MAX_PAGES];
    float (*logits)[VOCAB]; /* [n] */
};

static struct seq seq_new(int id, int n, int first_page)
{
    struct seq s = {.id = id, .n = n, .logits = malloc((size_t)n * sizeof *s.logits)};
    for (int i = 0; i < MAX_PAGES; i++)
        s.pages[i] = (first_page + i * 7) % POOL_PAGES;
    return s;
}

static int32_t token(const struct seq *s, int pos)
{
    return (int32_t)((pos * 31 + s->id * 17 + pos * pos % 13) % VOCAB);
}

/* One step: the next counts[i] tokens of every sequence */
static void step(struct mini *m, struct seq *seqs, const int *counts, int n_seqs)
{
    struct step_inputs *in = m->b->ops->step_begin(m->b);
    int bs = m->s.block_size;
    for (int i = 0; i < n_seqs; i++) {
        if (!counts[i])
            continue;
        memcpy(in->page_tables + in->n_seqs * MAX_PAGES, seqs[i].pages, sizeof seqs[i].pages);
        in->seqs[in->n_seqs++] = (struct step_seq){in->n_rows, counts[i], seqs[i].done};
        for (int t = 0; t < counts[i]; t++, in->n_rows++) {
            int pos = seqs[i].done + t;
            in->ids[in->n_rows] = token(&seqs[i], pos);
            in->positions[in->n_rows] = pos;
            in->kv_slots[in->n_rows] = seqs[i].pages[pos / bs] * bs + pos % bs;
            in->logit_rows[in->n_logits++] = in->n_rows;
        }
    }
    forward(m);
    rig_submit(m->b);
    for (int i = 0, row = 0; i < n_seqs; i++)
        for (int t = 0; t < counts[i]; t++)
            memcpy(seqs[i].logits[seqs[i].done++], m->b->ops->read(m->b, m->logits, row++),
                   sizeof *seqs->logits);
}

static void assert_same(const char *how, const struct seq *a, const struct seq *b)
{
    for (int t = 0; t < a->n && t < b->n; t++)
        for (int i = 0; i < VOCAB; i++) {
            if (memcmp(&a->logits[t][i], &b->logits[t][i], sizeof(float)) != 0)
                fail_msg("%s: sequence %d, token %d, logit %d: %a, alone %a", how, a->id, t, i,
                         a->logits[t][i], b->logits[t][i]);
            assert_true(isfinite(a->logits[t][i]));
        }
}

static void in_chunks(struct mini *m, struct seq *s, int chunk)
{
    while (s->done < s->n) {
        int n = s->n - s->done < chunk ? s->n - s->done : chunk;
        step(m, s, &n, 1);
    }
}

static void chunks_agree(struct mini *m, const struct seq *want, const char *how)
{
    static const int chunks[] = {1, 2, 3, 5, 16, 33, 131};
    for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c += rig_emulated() ? 2 : 1) {
        char text[160];
        struct seq s = seq_new(want->id, want->n, 300 + (int)c * 30);
        snprintf(text, sizeof text, "%s, chunks of %d", how, chunks[c]);
        in_chunks(m, &s, chunks[c]);
        assert_same(text, &s, want);
        free(s.logits);
    }
}

/* n_seqs sequences at once, each taking random counts of tokens a step */
static void batch_agrees(struct mini *m, const struct seq *want, int n_seqs, const char *how)
{
    struct seq seqs[MAX_SEQS];
    int counts[MAX_SEQS], left = 1;
    uint64_t seed = (uint64_t)n_seqs;
    char text[160];
    snprintf(text, sizeof text, "%s, batch of %d", how, n_seqs);
    for (int i = 0; i < POOL_PAGES; i++)
        m->b->ops->page_fill(m->b, i, 0xFF);
    for (int i = 0; i < n_seqs; i++) {
        seqs[i] = seq_new(i % 2 ? want->id + i : want->id, 20 + 37 * i % 60, 0);
        for (int p = 0; p < MAX_PAGES; p++)
            seqs[i].pages[p] = (p * n_seqs + i) % POOL_PAGES;
    }
    while (left > 0) {
        int room = MAX_ROWS;
        left = 0;
        for (int i = 0; i < n_seqs; i++) {
            int most = seqs[i].n - seqs[i].done, n = (int)((ref_random(&seed) + 1) * 5);
            n = i == 3 ? n * 8 : n;
            counts[i] = n > most ? most : n > room ? room : n;
            room -= counts[i];
            left += most;
        }
        step(m, seqs, counts, n_seqs);
    }
    for (int i = 0; i < n_seqs; i++) {
        if (i % 2 == 0)
            assert_same(text, &seqs[i], want);
        free(seqs[i].logits);
    }
}

static void shape_agrees(const char *isa, const struct shape *s, int n)
{
    enum { N_BATCHES = 5 };
    static const int batches[N_BATCHES] = {2, 3, 5, 16, 33};
    struct seq want = seq_new(1, n, 5);
    const int most = rig_emulated() ? 1 : 3;
    const int from = rig_emulated() ? 2 : n > 30 ? 0 : 3, to = rig_emulated() ? 3 : N_BATCHES;
    const int first = n > 30 ? 1 : most; /* few rows: the kernels, and not the threads */
    for (int threads = first; threads <= most; threads += n < 300 ? 2 : 1) {
        struct mini m = threads == 3 && !s->fine ? mini_open_tight(isa, s, threads)
                                                 : mini_open(isa, s, threads);
        char how[100];
        snprintf(how, sizeof how, "%s, %s, %s, %d threads", isa, dtype_info(s->weights)->name,
                 dtype_info(s->kv)->name, threads);
        if (threads == first)
            in_chunks(&m, &want, MAX_ROWS);
        chunks_agree(&m, &want, how);
        for (int i = from; i < to; i++)
            batch_agrees(&m, &want, batches[i], how);
        m.b->ops->close(m.b);
    }
    free(want.logits);
}

static void shapes_agree(const char *isa)
{
    static const struct shape shapes[] = {
        {DTYPE_Q4_1, DTYPE_F16, 6, 2, 16, 160, 16, 0, 0, ACT_SILU, ROPE_NORMAL, false},
        {DTYPE_Q8_0, DTYPE_BF16, 4, 1, 40, 96, 32, 50, 0, ACT_GELU_TANH, ROPE_NEOX, true},
        {DTYPE_F16, DTYPE_F32, 3, 3, 20, 77, 16, 0, 3, ACT_SILU, ROPE_NONE, false},
        {DTYPE_BF16, DTYPE_F16, 8, 2, 16, 50, 48, 18, 0, ACT_SILU, ROPE_NEOX, false},
        {DTYPE_BF16, DTYPE_F16, 5, 1, 64, 603, 16, 0, 0, ACT_SILU, ROPE_NORMAL, false},
        {DTYPE_BF16, DTYPE_F16, 8, 2, 16, 50, 16, 0, 0, ACT_SILU, ROPE_NEOX, false, NORM_RMS,
         QK_NORM_HEAD, false, false, 0, 0, true},
        {DTYPE_F32, DTYPE_F32, 5, 1, 8, 40, 16, 0, 0, ACT_GELU_TANH, ROPE_NORMAL, true},
        {DTYPE_Q4_0, DTYPE_F16, 4, 2, 16, 96, 16, 0, 0, ACT_SILU, ROPE_NORMAL, false},
        {DTYPE_Q5_0, DTYPE_F16, 4, 2, 16, 96, 16, 0, 0, ACT_SILU, ROPE_NORMAL, false},
        {DTYPE_Q5_1, DTYPE_F16, 4, 2, 16, 96, 16, 0, 0, ACT_SILU, ROPE_NORMAL, false},
        {DTYPE_Q4_K, DTYPE_F16, 4, 1, 64, 256, 16, 0, 0, ACT_SILU, ROPE_NORMAL, false},
        {DTYPE_Q5_K, DTYPE_F16, 4, 1, 64, 256, 16, 0, 0, ACT_SILU, ROPE_NORMAL, false},
        {DTYPE_Q6_K, DTYPE_F16, 4, 1, 64, 256, 16, 0, 0, ACT_SILU, ROPE_NORMAL, false},
        {DTYPE_Q8_0, DTYPE_F16, 9, 3, 32, 96, 16, 50, 0, ACT_SWIGLU_CLAMPED, ROPE_NEOX, true,
         NORM_RMS, QK_NORM_ALL, true, false, 12},
        {DTYPE_BF16, DTYPE_F32, 7, 7, 10, 41, 16, 0, 0, ACT_GELU, ROPE_NORMAL, true, NORM_LAYER,
         QK_NORM_HEADS, true, true, 4},
        {DTYPE_F16, DTYPE_BF16, 5, 1, 18, 40, 16, 0, 4, ACT_GELU, ROPE_NEOX, false, NORM_LAYER,
         QK_NORM_HEAD, true, false, 6},
        {DTYPE_Q4_1, DTYPE_F16, 4, 2, 16, 96, 16, 0, 0, ACT_SILU, ROPE_NORMAL, false, NORM_RMS,
         QK_NORM_HEAD, false, false, 0, 8},
        {DTYPE_F16, DTYPE_F16, 3, 1, 10, 37, 16, 0, 0, ACT_SWIGLU_CLAMPED, ROPE_NEOX, false,
         NORM_RMS, QK_NORM_HEAD, true, false, 0, 5},
        {DTYPE_Q4_1, DTYPE_F16, 4, 2, 16, 96, 16, 0, 0, ACT_SILU, ROPE_NORMAL, false, NORM_RMS,
         QK_NORM_HEAD, false, false, 0, 8, true},
        {DTYPE_Q6_K, DTYPE_F16, 4, 1, 64, 256, 16, 0, 0, ACT_GELU, ROPE_NORMAL, false, NORM_RMS,
         QK_NORM_HEAD, false, true, 0, 0, true},
        {DTYPE_Q4_1, DTYPE_INT8, 9, 3, 32, 96, 16, 0, 0, ACT_SILU, ROPE_NEOX, false, NORM_RMS,
         QK_NORM_HEAD, true},
        {DTYPE_BF16, DTYPE_INT8, 5, 1, 18, 40, 32, 30, 4, ACT_SILU, ROPE_NORMAL, true},
        {DTYPE_F32, DTYPE_INT8, 8, 2, 80, 40, 16, 0, 0, ACT_SILU, ROPE_NEOX, false},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        shape_agrees(isa, &shapes[i], rig_emulated() ? 30 : i == 0 ? 300 : i < 5 ? 100 : 50);
    /* The other types: a kernel each, and for those of 256 a width that they divide */
    for (enum dtype t = DTYPE_Q2_K; t < DTYPE_COUNT; t++) {
        bool wide = dtype_info(t)->block_elems > 64;
        struct shape s = {t,  DTYPE_F16, 4, 1,        wide ? 64 : 16, wide ? 256 : 128,
                          16, 0,         0, ACT_SILU, ROPE_NORMAL,    false};
        shape_agrees(isa, &s, 30);
    }
}

static void a_row_has_the_same_bits_however_it_is_batched(void **state)
{
    for_each_isa(shapes_agree);
}

/* Four segments, read by a tile of a prompt's chunk and by a decoding row */
static void long_context_of(const char *isa, enum dtype kv)
{
    const struct shape s = {DTYPE_F32, kv, 3, 1, 16, 40, 48, 0, 0, ACT_SILU, ROPE_NORMAL};
    struct mini m[] = {mini_open(isa, &s, 2), mini_open_tight(isa, &s, 2)};
    struct seq want = seq_new(1, 840, 5);
    in_chunks(&m[0], &want, MAX_ROWS);
    for (int i = 0; i < 2; i++) {
        struct seq s2 = seq_new(1, 840, 300);
        for (int n = 100; s2.done < 800;)
            step(&m[i], &s2, &n, 1);
        in_chunks(&m[i], &s2, 1);
        assert_same("four segments", &s2, &want);
        free(s2.logits);
        m[i].b->ops->close(m[i].b);
    }
    free(want.logits);
}

static void long_context(const char *isa)
{
    long_context_of(isa, DTYPE_F16);
    long_context_of(isa, DTYPE_INT8);
}

static void many_segments_are_joined_in_one_order(void **state)
{
    for_each_isa(long_context);
}

/* The sets that fuse a product and a sum differ in the width of their vectors only. */
static void as_the_first(const char *isa)
{
    enum { N_TYPES = 15 };
    static struct seq first[N_TYPES];
    static const struct shape shapes[N_TYPES] = {
        {DTYPE_Q8_0, DTYPE_F16, 4, 1, 64, 256, 16, 0, 5, ACT_SILU, ROPE_NEOX, true},
        {DTYPE_Q6_K, DTYPE_BF16, 4, 1, 64, 256, 16, 0, 0, ACT_GELU_TANH, ROPE_NORMAL, false},
        {DTYPE_F16, DTYPE_F16, 6, 2, 80, 77, 16, 0, 0, ACT_SILU, ROPE_NEOX, false},
        {DTYPE_Q8_0, DTYPE_F16, 9, 3, 32, 96, 16, 20, 0, ACT_SWIGLU_CLAMPED, ROPE_NEOX, true,
         NORM_RMS, QK_NORM_ALL, true, false, 12},
        {DTYPE_BF16, DTYPE_F32, 7, 7, 10, 41, 16, 0, 3, ACT_GELU, ROPE_NORMAL, true, NORM_LAYER,
         QK_NORM_HEADS, true, true, 4},
        {DTYPE_Q2_K, DTYPE_F16, 4, 1, 64, 256, 16, 0, 0, ACT_SILU, ROPE_NEOX, false},
        {DTYPE_IQ4_XS, DTYPE_F16, 4, 1, 64, 256, 16, 0, 0, ACT_SILU, ROPE_NEOX, false},
        {DTYPE_IQ2_S, DTYPE_F16, 4, 1, 64, 256, 16, 0, 0, ACT_SILU, ROPE_NEOX, false},
        {DTYPE_MXFP4, DTYPE_F16, 4, 2, 16, 96, 16, 0, 0, ACT_SILU, ROPE_NEOX, false},
        {DTYPE_NVFP4, DTYPE_F16, 4, 2, 16, 128, 16, 0, 0, ACT_SILU, ROPE_NEOX, false},
        {DTYPE_Q4_Z, DTYPE_F16, 4, 2, 16, 96, 16, 0, 0, ACT_SILU, ROPE_NEOX, false},
        {DTYPE_Q4_1, DTYPE_F16, 4, 2, 16, 96, 16, 0, 0, ACT_SILU, ROPE_NORMAL, false, NORM_RMS,
         QK_NORM_HEAD, false, false, 0, 8},
        {DTYPE_MXFP4, DTYPE_F16, 4, 2, 16, 96, 16, 0, 0, ACT_SILU, ROPE_NORMAL, false, NORM_RMS,
         QK_NORM_HEAD, false, false, 0, 8, true},
        {DTYPE_Q4_1, DTYPE_INT8, 9, 3, 32, 96, 16, 20, 0, ACT_SILU, ROPE_NEOX, true},
        {DTYPE_BF16, DTYPE_INT8, 5, 1, 18, 40, 16, 0, 4, ACT_SILU, ROPE_NORMAL, false},
    };
    if (strcmp(isa, "generic") == 0)
        return;
    for (int i = 0; i < N_TYPES; i++) {
        if (shapes[i].weights == DTYPE_BF16 && strncmp(isa, "amx", 3) == 0)
            continue; /* tile registers add in an order of their own */
        struct mini m = mini_open(isa, &shapes[i], 1);
        struct seq s = seq_new(1, 40, 5);
        in_chunks(&m, &s, 12);
        if (first[i].logits) {
            assert_same(isa, &s, &first[i]);
            free(s.logits);
        } else {
            first[i] = s;
        }
        m.b->ops->close(m.b);
    }
}

static void sets_that_fuse_agree_to_the_bit(void **state)
{
    for_each_isa(as_the_first);
}

/* Two sequences whose tables share the pages of a prefix */
static void shared_of(const char *isa, enum dtype kv)
{
    const struct shape s = {DTYPE_Q4_1, kv, 6, 2, 16, 160, 16, 0, 0, ACT_SILU, ROPE_NORMAL};
    struct mini m = mini_open(isa, &s, 2);
    struct seq first = seq_new(1, 290, 5), second = seq_new(1, 290, 200), pair[2];
    in_chunks(&m, &first, MAX_ROWS);
    memcpy(second.pages, first.pages, 17 * sizeof *first.pages);
    second.done = 17 * 16;
    m.b->ops->page_copy(m.b, first.pages[17], second.pages[17]);
    memcpy(second.logits, first.logits, 17 * 16 * sizeof *first.logits);
    in_chunks(&m, &second, 3);
    assert_same("shared prefix", &second, &first);
    pair[0] = first;
    pair[1] = second;
    pair[0].done = pair[1].done = 280;
    for (int counts[] = {1, 1}; pair[0].done < 290;)
        step(&m, pair, counts, 2);
    assert_same("both again", &pair[0], &second);
    free(first.logits);
    free(second.logits);
    m.b->ops->close(m.b);
}

static void shared(const char *isa)
{
    shared_of(isa, DTYPE_F16);
    shared_of(isa, DTYPE_INT8);
}

static void sequences_that_share_pages_read_the_same_bits(void **state)
{
    for_each_isa(shared);
}

/* A value beyond the KV type's range is clamped, so that later rows stay finite; a NaN in V
 * (token 22; K and q stay finite) is for those who see it. */
static void huge_of(const char *isa, enum dtype type, float most)
{
    enum { N = 40 };
    struct err e;
    struct backend *b = rig_open(isa, 2, N, 1, 3);
    struct kv_config kv = {1, 1, 16, 16, 3, type};
    struct attention_config c = {1, 1, 16, 0.25f, 0, 0};
    float *values = calloc(2 * N * 16, sizeof *values);
    int32_t pages[3] = {2, 0, 1};
    for (int i = 0; i < 16; i++) {
        values[20 * 16 + i] = INFINITY;
        values[21 * 16 + i] = -INFINITY;
        values[22 * 16 + i] = NAN;
    }
    assert_true(b->ops->kv_open(b, &kv, &e));
    struct weight *w = b->ops->weight_load(b, DTYPE_F32, N, 16, values, &e);
    struct weight *zeros = b->ops->weight_load(b, DTYPE_F32, N, 16, values + N * 16, &e);
    struct activation *q = rig_activation(b, 16, NULL, false);
    struct activation *v = rig_activation(b, 16, NULL, false);
    struct activation *k = rig_activation(b, 16, NULL, false);
    struct activation *out = rig_activation(b, 16, NULL, false);
    rig_one_sequence(b, N, 0, pages, 3, 16);
    b->ops->embed(b, q, zeros, 1);
    b->ops->embed(b, k, zeros, 1);
    b->ops->embed(b, v, w, 1);
    b->ops->rope_write_kv(b, 0, NULL, NULL, 1, q, k, v);
    b->ops->attention(b, 0, &c, NULL, out, q);
    rig_submit(b);
    for (int r = 0; r < 20; r++)
        assert_true(b->ops->read(b, out, r)[3] == 0);
    assert_true(fabsf(b->ops->read(b, out, 20)[3] * (21 / most) - 1) < 0.005f);
    assert_true(b->ops->read(b, out, 21)[3] == 0); /* the two add up to that */
    for (int r = 22; r < N; r++)
        assert_true(isnan(b->ops->read(b, out, r)[3]));
    free(values);
    b->ops->close(b);
}

static void huge(const char *isa)
{
    huge_of(isa, DTYPE_F16, 65504);
    huge_of(isa, DTYPE_INT8, 3e38f);
}

/* The last row of 300, with the keys of tokens [from, to) NaN: in a tile, and alone. */
static void check_nan_keys(const char *isa, enum dtype type, int from, int to, float soft_cap)
{
    enum { N = 300, N_PAGES = 19 };
    struct err e;
    struct backend *b = rig_open(isa, 2, N, 1, N_PAGES);
    struct kv_config kv = {1, 1, 16, 16, N_PAGES, type};
    struct attention_config c = {1, 1, 16, 0.25f, 0, soft_cap};
    float *values = calloc(N * 16, sizeof *values);
    int32_t pages[N_PAGES];
    for (int i = 0; i < N_PAGES; i++)
        pages[i] = i;
    for (int i = from * 16; i < to * 16; i++)
        values[i] = NAN;
    assert_true(b->ops->kv_open(b, &kv, &e));
    struct weight *bad = b->ops->weight_load(b, DTYPE_F32, N, 16, values, &e);
    memset(values, 0, N * 16 * sizeof *values);
    struct weight *zeros = b->ops->weight_load(b, DTYPE_F32, N, 16, values, &e);
    struct activation *q = rig_activation(b, 16, NULL, false);
    struct activation *k = rig_activation(b, 16, NULL, false);
    struct activation *out = rig_activation(b, 16, NULL, false);
    for (int alone = 0; alone < 2; alone++) {
        int first = alone ? N - 1 : 0;
        rig_one_sequence(b, N - first, first, pages, N_PAGES, 16);
        b->ops->embed(b, q, zeros, 1);
        b->ops->embed(b, k, alone ? zeros : bad, 1);
        b->ops->rope_write_kv(b, 0, NULL, NULL, 1, q, k, q);
        b->ops->attention(b, 0, &c, NULL, out, q);
        rig_submit(b);
        for (int r = first; r < N; r++)
            if (isnan(b->ops->read(b, out, r - first)[3]) != (r >= from))
                fail_msg("%s: row %d, alone %d, keys [%d, %d) are NaN, cap %g", isa, r, alone, from,
                         to, (double)soft_cap);
    }
    free(values);
    b->ops->close(b);
}

static void nan_keys(const char *isa)
{
    for (int i = 0; i < 4; i++) {
        const enum dtype type = i / 2 ? DTYPE_INT8 : DTYPE_F16;
        const float cap = i % 2 ? 30 : 0;
        check_nan_keys(isa, type, 7, 8, cap);
        check_nan_keys(isa, type, 0, 256, cap); /* a whole segment */
        check_nan_keys(isa, type, 256, 299, cap);
    }
}

static void a_nan_reaches_every_row_that_sees_it(void **state)
{
    for_each_isa(nan_keys);
}

static void what_a_row_must_not_see_cannot_poison_it(void **state)
{
    for_each_isa(huge);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_has_the_same_bits_however_it_is_batched),
        cmocka_unit_test(many_segments_are_joined_in_one_order),
        cmocka_unit_test(sets_that_fuse_agree_to_the_bit),
        cmocka_unit_test(sequences_that_share_pages_read_the_same_bits),
        cmocka_unit_test(what_a_row_must_not_see_cannot_poison_it),
        cmocka_unit_test(a_nan_reaches_every_row_that_sees_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
