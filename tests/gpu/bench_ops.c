/* Each operation of a forward pass on its own: linears of every type at several batch sizes,
 * attention, norms and rotary embedding. */
#include "bench.h"

#include <math.h>
#include <string.h>

enum { LAYERS = 4, MAX_COPIES = 8 };

/* Weights and buffers of one type */
struct linears {
    int copies;
    const struct weight *gate[MAX_COPIES], *up[MAX_COPIES], *down[MAX_COPIES];
    struct activation *x, *normed, *middle;
    struct weight *norm;
};

static bool is_quantised(enum dtype t)
{
    return dtype_info(t)->block_elems > 1;
}

static const struct weight *new_weight(struct bench_lab *l, enum dtype t, int rows, int cols)
{
    struct err e = {0};
    const struct weight *w =
        l->ops->weight_load(l->b, t, rows, cols, bench_random(t, rows, cols), &e);
    if (!w)
        fprintf(stderr, "%s\n", e.msg);
    return w;
}

static struct activation *new_buffer(struct bench_lab *l, int width, const struct weight *reader)
{
    struct err e = {0};
    struct activation *a = l->ops->activation_new(l->b, width, reader, false, &e);
    if (!a)
        fprintf(stderr, "%s\n", e.msg);
    return a;
}

static bool load_linears(struct bench_lab *l, const struct bench_sizes *s, enum dtype t,
                         struct linears *w)
{
    w->copies = s->copies < MAX_COPIES ? s->copies : MAX_COPIES;
    for (int i = 0; i < w->copies; i++)
        if (!(w->gate[i] = new_weight(l, t, s->n_ff, s->n_embd)) ||
            !(w->up[i] = new_weight(l, t, s->n_ff, s->n_embd)) ||
            !(w->down[i] = new_weight(l, t, s->n_embd, s->n_ff)))
            return false;
    w->norm = (struct weight *)new_weight(l, DTYPE_F32, 1, s->n_embd);
    return w->norm && (w->x = new_buffer(l, s->n_embd, NULL)) &&
           (w->normed = new_buffer(l, s->n_embd, w->gate[0])) &&
           (w->middle = new_buffer(l, s->n_ff, w->down[0]));
}

static void normed_rows(struct bench_lab *l, struct linears *w)
{
    const struct norm n = {.kind = NORM_RMS, .w = w->norm, .eps = 1e-5f};
    l->ops->norm(l->b, w->normed, w->x, &n);
}

static void gate_and_up(struct bench_lab *l, struct linears *w, int i)
{
    const struct weight *both[] = {w->gate[i % w->copies], w->up[i % w->copies]};
    l->ops->linear(l->b, INTO_ACT_MUL, ACT_SILU, w->normed, 2, both, NULL, &w->middle);
}

static void record_gate_up(struct bench_lab *l, void *arg, int n)
{
    struct linears *w = arg;
    normed_rows(l, w);
    for (int i = 0; i < n; i++)
        gate_and_up(l, w, i);
}

static void record_down(struct bench_lab *l, void *arg, int n)
{
    struct linears *w = arg;
    normed_rows(l, w);
    gate_and_up(l, w, 0);
    for (int i = 0; i < n; i++)
        l->ops->linear(l->b, INTO_STORE, ACT_SILU, w->middle, 1, &w->down[i % w->copies], NULL,
                       &w->x);
}

/* Adds a row: what record() takes n times, less what it takes without */
static bool measure(struct bench_report *r, struct bench_lab *l, const struct bench_sizes *s,
                    const struct bench_step *step,
                    void (*record)(struct bench_lab *, void *arg, int n), void *arg,
                    struct bench_row *row)
{
    const double none = bench_time(l, step, record, arg, 0);
    const double all = bench_time(l, step, record, arg, s->times);
    if (none < 0 || all < 0)
        return false;
    row->seconds = (all - none) / s->times;
    bench_add(r, row);
    return true;
}

static bool linears_of(struct bench_report *r, const struct bench_sizes *s, enum dtype t)
{
    static const int batches[] = {1, 8, 64, 512};
    struct bench_lab l = {0};
    struct linears w = {0};
    bool ok = bench_open(&l, s, s->prompt, s->max_batch) && load_linears(&l, s, t, &w) &&
              bench_open_kv(&l, s, LAYERS, s->n_kv_heads, 1);
    for (int i = 0; i < 4 && ok && batches[i] <= s->prompt; i++) {
        const struct bench_step step = {1, batches[i], 0, false};
        const double in = (double)batches[i] * s->n_embd, middle = (double)batches[i] * s->n_ff;
        const double values = (double)s->n_ff * s->n_embd, width = is_quantised(t) ? 1 : 2;
        const double weights = (double)s->n_ff * (double)dtype_row_bytes(t, s->n_embd);
        struct bench_row row = {.int8 = is_quantised(t)};
        snprintf(row.what, sizeof row.what, "%s gate*up", dtype_info(t)->name);
        snprintf(row.shape, sizeof row.shape, "%d x %d -> 2 x %d", batches[i], s->n_embd, s->n_ff);
        row.bytes = 2 * weights + width * (in + middle);
        row.ops = 4 * values * batches[i];
        ok = measure(r, &l, s, &step, record_gate_up, &w, &row);
        snprintf(row.what, sizeof row.what, "%s down", dtype_info(t)->name);
        snprintf(row.shape, sizeof row.shape, "%d x %d -> %d", batches[i], s->n_ff, s->n_embd);
        row.bytes = weights + width * middle + 4 * in;
        row.ops = 2 * values * batches[i];
        ok = ok && measure(r, &l, s, &step, record_down, &w, &row);
    }
    bench_close(&l);
    return ok;
}

/* --- attention and the rest --- */

struct attention {
    struct attention_config c;
    struct activation *x, *q, *k, *v, *out;
    struct weight *norm;
    struct rope *rope;
};

static void record_attention(struct bench_lab *l, void *arg, int n)
{
    struct attention *a = arg;
    for (int i = 0; i < n; i++)
        l->ops->attention(l->b, i % LAYERS, &a->c, NULL, a->out, a->q);
}

static void record_rope(struct bench_lab *l, void *arg, int n)
{
    struct attention *a = arg;
    for (int i = 0; i < n; i++)
        l->ops->rope_write_kv(l->b, i % LAYERS, NULL, a->rope, a->c.n_heads, a->q, a->k, a->v);
}

static void record_norm(struct bench_lab *l, void *arg, int n)
{
    struct attention *a = arg;
    const struct norm norm = {.kind = NORM_RMS, .w = a->norm, .eps = 1e-5f};
    for (int i = 0; i < n; i++)
        l->ops->norm(l->b, a->out, a->x, &norm);
}

static bool open_attention(struct bench_lab *l, const struct bench_sizes *s, int n_kv_heads,
                           struct attention *a)
{
    struct err e = {0};
    float inv_freq[128];
    const int width = s->n_heads * s->head_dim, kv_width = n_kv_heads * s->head_dim;
    for (int i = 0; i < s->head_dim / 2; i++)
        inv_freq[i] = powf(10000, -2.f * (float)i / (float)s->head_dim);
    const struct rope_config rope = {ROPE_NEOX, s->head_dim, inv_freq, 1,
                                     s->context > s->prompt ? s->context : s->prompt};
    a->c = (struct attention_config){
        s->n_heads, n_kv_heads, s->head_dim, 1 / sqrtf((float)s->head_dim), 0, 0};
    if (!bench_open(l, s, s->prompt, s->max_batch))
        return false;
    a->norm = (struct weight *)new_weight(l, DTYPE_F32, 1, width);
    a->x = new_buffer(l, width, NULL);
    a->q = new_buffer(l, width, NULL);
    a->out = new_buffer(l, width, NULL);
    a->k = new_buffer(l, kv_width, NULL);
    a->v = new_buffer(l, kv_width, NULL);
    a->rope = l->ops->rope_new(l->b, &rope, &e);
    return a->norm && a->x && a->q && a->out && a->k && a->v && a->rope &&
           bench_open_kv(l, s, LAYERS, n_kv_heads, s->max_batch);
}

/* n_seqs sequences decode a token each after `context` others */
static bool decode_attention(struct bench_report *r, struct bench_lab *l,
                             const struct bench_sizes *s, struct attention *a, int n_seqs)
{
    const struct bench_step step = {n_seqs, 1, s->context - 1, false};
    struct bench_row row = {.what = "attention, decode"};
    const double kv = (double)s->context * a->c.n_kv_heads * s->head_dim;
    const double q = (double)s->n_heads * s->head_dim;
    snprintf(row.shape, sizeof row.shape, "%d x %d tokens, heads %d/%d", n_seqs, s->context,
             s->n_heads, a->c.n_kv_heads);
    row.bytes = n_seqs * (2 * 2 * kv + 2 * 4 * q);
    row.ops = n_seqs * 4.0 * s->context * q;
    return measure(r, l, s, &step, record_attention, a, &row);
}

static bool prompt_attention(struct bench_report *r, struct bench_lab *l,
                             const struct bench_sizes *s, struct attention *a)
{
    const struct bench_step step = {1, s->prompt, 0, false};
    struct bench_row row = {.what = "attention, prompt"};
    const double n = s->prompt, width = (double)s->n_heads * s->head_dim;
    snprintf(row.shape, sizeof row.shape, "%d tokens, heads %d/%d", s->prompt, s->n_heads,
             a->c.n_kv_heads);
    row.bytes = 2 * 2 * n * a->c.n_kv_heads * s->head_dim + 2 * 4 * n * width;
    row.ops = 4 * n * (n + 1) / 2 * width;
    return measure(r, l, s, &step, record_attention, a, &row);
}

/* What goes over rows once */
static bool row_operations(struct bench_report *r, struct bench_lab *l, const struct bench_sizes *s,
                           struct attention *a)
{
    bool ok = true;
    for (int rows = 1; rows <= s->prompt && ok; rows = rows < s->prompt ? s->prompt : rows + 1) {
        const struct bench_step step = {1, rows, 0, false};
        const double width = (double)s->n_heads * s->head_dim,
                     kv = (double)a->c.n_kv_heads * s->head_dim;
        struct bench_row row = {.what = "norm", .bytes = rows * 2 * 4 * width};
        snprintf(row.shape, sizeof row.shape, "%d x %d", rows, (int)width);
        ok = measure(r, l, s, &step, record_norm, a, &row);
        struct bench_row rope = {.what = "rotary, KV write",
                                 .bytes = rows * (2 * 4 * (width + kv) + (4 + 2 * 2) * kv)};
        snprintf(rope.shape, sizeof rope.shape, "%d x %d, heads %d/%d", rows, (int)width,
                 s->n_heads, a->c.n_kv_heads);
        ok = ok && measure(r, l, s, &step, record_rope, a, &rope);
    }
    return ok;
}

static bool attention_of(struct bench_report *r, const struct bench_sizes *s, int n_kv_heads)
{
    struct bench_lab l = {0};
    struct attention a = {0};
    const bool ok = open_attention(&l, s, n_kv_heads, &a) && row_operations(r, &l, s, &a) &&
                    decode_attention(r, &l, s, &a, 1) &&
                    decode_attention(r, &l, s, &a, s->max_batch) && prompt_attention(r, &l, s, &a);
    bench_close(&l);
    return ok;
}

bool bench_operations(struct bench_report *r, const struct bench_sizes *s)
{
    static const enum dtype types[] = {DTYPE_F16,  DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0,
                                       DTYPE_Q4_K, DTYPE_Q6_K, DTYPE_MXFP4};
    bool ok = true;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        ok = linears_of(r, s, types[i]) && ok;
    ok = attention_of(r, s, s->n_kv_heads) && ok;
    return attention_of(r, s, s->n_heads / 4) && ok;
}
