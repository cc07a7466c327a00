/* A whole model of random weights through the engine's own forward pass. */
#include "bench.h"

#include <math.h>
#include <string.h>

#include "model.h"
#include "rope_freqs.h"
#include "weights_impl.h"

/* --- weights of no file: matrices of one type, vectors of F32 --- */

static bool random_has(const struct weights *w, const char *name)
{
    (void)w;
    return strstr(name, "bias") == NULL;
}

static bool random_get(const struct weights *w, const char *name, int expert, int64_t rows,
                       int64_t cols, bool check, struct weight_view *out, struct err *e)
{
    (void)w, (void)expert, (void)e;
    out->dtype = rows > 1 ? DTYPE_F16 : DTYPE_F32;
    out->rows = rows;
    out->cols = cols;
    snprintf(out->what, sizeof out->what, "%s", name);
    if (!check)
        out->data = bench_random(out->dtype, rows, cols);
    return true;
}

static bool random_all_f32(const struct weights *w)
{
    (void)w;
    return false;
}

static void random_close(struct weights *w)
{
    (void)w;
}

static const struct weights_kind random_kind = {random_has, random_get, random_all_f32,
                                                random_close};

static struct model_spec spec_of(const struct bench_sizes *s)
{
    struct model_spec m = {.architecture = "llama",
                           .name = "random",
                           .n_layers = s->n_layers,
                           .n_embd = s->n_embd,
                           .n_heads = s->n_heads,
                           .n_kv_heads = s->n_kv_heads,
                           .head_dim = s->head_dim,
                           .n_ff = s->n_ff,
                           .n_vocab = s->n_vocab,
                           .n_ctx_train = s->context,
                           .norm = NORM_RMS,
                           .norm_eps = 1e-5f,
                           .pre_norms = true,
                           .act = ACT_SILU,
                           .gated = true,
                           .rope_style = ROPE_NEOX,
                           .embedding_scale = 1,
                           .residual_scale = 1,
                           .logit_scale = 1,
                           .attention_scale = 1 / sqrtf((float)s->head_dim)};
    rope_default(&m.rope, 10000, s->head_dim);
    return m;
}

/* --- steps --- */

struct whole {
    struct bench_lab lab;
    struct model *model;
};

static void record_forward(struct bench_lab *l, void *arg, int n)
{
    (void)l;
    if (n > 0)
        model_forward(((struct whole *)arg)->model);
}

static double layer_values(const struct bench_sizes *s)
{
    const double q = (double)s->n_heads * s->head_dim, kv = (double)s->n_kv_heads * s->head_dim;
    return s->n_embd * (2 * q + 2 * kv + 3.0 * s->n_ff);
}

/* Bytes that a decoded token must read: all matrices but the embedding's, and K and V */
static double decode_bytes(const struct bench_sizes *s, int n_seqs)
{
    const double kv = 2.0 * 2 * s->context * s->n_kv_heads * s->head_dim * s->n_layers;
    return 2 * (s->n_layers * layer_values(s) + (double)s->n_vocab * s->n_embd) + n_seqs * kv;
}

static double prompt_ops(const struct bench_sizes *s)
{
    const double n = s->prompt;
    return s->n_layers *
               (2 * n * layer_values(s) + 4 * n * (n + 1) / 2 * s->n_heads * s->head_dim) +
           2.0 * s->n_vocab * s->n_embd;
}

static bool open_whole(struct whole *w, const struct bench_sizes *s)
{
    static struct weights weights = {&random_kind};
    const struct model_spec spec = spec_of(s);
    struct err e = {0};
    if (!bench_open(&w->lab, s, s->prompt, s->max_batch))
        return false;
    w->model =
        model_load(w->lab.b, &weights, &spec, s->context > s->prompt ? s->context : s->prompt, &e);
    if (!w->model)
        fprintf(stderr, "%s\n", e.msg);
    return w->model && bench_open_kv(&w->lab, s, s->n_layers, s->n_kv_heads, s->max_batch);
}

static void close_whole(struct whole *w)
{
    model_free(w->model);
    bench_close(&w->lab);
}

/* One sequence where several do not fit, and the layers that do, should not all of them */
static struct bench_sizes fitting(const struct bench_sizes *all, double memory)
{
    struct bench_sizes s = *all;
    const double embedding = 2.0 * s.n_vocab * s.n_embd;
    if (decode_bytes(&s, s.max_batch) + embedding > 0.75 * memory)
        s.max_batch = 1;
    while (s.n_layers > 1 && decode_bytes(&s, s.max_batch) + embedding > 0.75 * memory)
        s.n_layers--;
    return s;
}

static bool decode_speed(struct bench_report *r, struct whole *w, const struct bench_sizes *s,
                         int n_seqs)
{
    const struct bench_step step = {n_seqs, 1, s->context - 1, true};
    char name[80];
    double best = -1;
    for (int i = 0; i < 4; i++) {
        const double took = bench_time(&w->lab, &step, record_forward, w, 1);
        if (took < 0)
            return false;
        best = best < 0 || took < best ? took : best;
    }
    const double bytes = decode_bytes(s, n_seqs);
    snprintf(name, sizeof name, "decode, batch %d, context %d, %d layers", n_seqs, s->context,
             s->n_layers);
    bench_figure(r, name, n_seqs / best, "tokens/s", n_seqs * r->limits->read_bandwidth / bytes,
                 "measured bandwidth over weights and KV");
    bench_figure(r, name, n_seqs / best, "tokens/s", n_seqs * r->limits->nominal_bandwidth / bytes,
                 "nominal bandwidth");
    return true;
}

bool bench_model(struct bench_report *r, const struct bench_sizes *all)
{
    const struct bench_sizes s = fitting(all, r->limits->memory_bytes);
    struct whole w = {0};
    const double from = bench_now();
    bool ok = open_whole(&w, &s);
    if (ok) {
        bench_figure(r, "model loaded in", bench_now() - from, "s", 0, "");
        const struct bench_step prompt = {1, s.prompt, 0, true};
        const double took = bench_time(&w.lab, &prompt, record_forward, &w, 1);
        ok = took > 0;
        if (ok) {
            bench_figure(r, "prompt", s.prompt / took, "tokens/s", 0, "");
            bench_figure(r, "prompt", prompt_ops(&s) / took / 1e12, "TFLOP/s",
                         r->limits->nominal_f16 / 1e12, "nominal");
            bench_figure(r, "prompt", prompt_ops(&s) / took / 1e12, "TFLOP/s",
                         r->limits->mma_f16 / 1e12, "measured mma");
        }
        ok = ok && decode_speed(r, &w, &s, 1) &&
             (s.max_batch == 1 || decode_speed(r, &w, &s, s.max_batch));
    }
    close_whole(&w);
    return ok;
}

/* --- the host's share --- */

/* As many operations as the model has, on so few values that the GPU has next to nothing to do:
 * what is left is recording, packing, launching and waiting. */
bool bench_overhead(struct bench_report *r, const struct bench_sizes *s)
{
    struct bench_sizes narrow = bench_tiny;
    struct whole w = {0};
    narrow.n_layers = s->n_layers;
    bool ok = open_whole(&w, &narrow);
    if (ok) {
        const struct bench_step step = {1, 1, 4, true};
        double record = 1e9, took = bench_time(&w.lab, &step, record_forward, &w, 1);
        for (int i = 0; i < 20; i++) {
            const double from = bench_now();
            bench_fill(&w.lab, &step);
            model_forward(w.model);
            const double t = bench_now() - from;
            record = t < record ? t : record;
        }
        ok = took > 0;
        char name[80];
        snprintf(name, sizeof name, "step of %d layers with nothing to calculate", s->n_layers);
        if (ok) {
            bench_figure(r, "recording a step", record * 1e6, "us", 0, "");
            bench_figure(r, name, took * 1e6, "us", 0, "");
        }
    }
    close_whole(&w);
    return ok;
}
