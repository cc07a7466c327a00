/* The claim about attention's memory: one layer's attention of a whole prompt, by the backend,
 * whose kernels never hold more scores than those of a tile, and with all scores in memory at once.
 */
#include "claims.h"

#include "backend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 16 };

struct shape {
    int n, n_heads, n_kv_heads, head_dim;
};

/* --- all scores in memory --- */

static float noise(uint32_t i)
{
    i = (i ^ 61) * 2654435761u;
    return (float)(i >> 8) / (1 << 24) - 0.5f;
}

static void scores_of_head(const struct shape *s, const float *q, const float *k, float *scores)
{
    const float scale = 1 / sqrtf((float)s->head_dim);
    for (int i = 0; i < s->n; i++)
        for (int j = 0; j < s->n; j++) {
            float sum = 0;
            for (int d = 0; d < s->head_dim; d++)
                sum += q[i * s->head_dim + d] * k[j * s->head_dim + d];
            scores[(size_t)i * (size_t)s->n + (size_t)j] = j <= i ? sum * scale : -INFINITY;
        }
}

static void softmax_rows(const struct shape *s, float *scores)
{
    for (int i = 0; i < s->n; i++) {
        float *row = scores + (size_t)i * (size_t)s->n, max = -INFINITY, sum = 0;
        for (int j = 0; j < s->n; j++)
            max = fmaxf(max, row[j]);
        for (int j = 0; j < s->n; j++)
            sum += row[j] = expf(row[j] - max);
        for (int j = 0; j < s->n; j++)
            row[j] /= sum;
    }
}

static void weigh_values(const struct shape *s, const float *scores, const float *v, float *out)
{
    memset(out, 0, (size_t)s->n * (size_t)s->head_dim * sizeof *out);
    for (int i = 0; i < s->n; i++)
        for (int j = 0; j <= i; j++) {
            const float p = scores[(size_t)i * (size_t)s->n + (size_t)j];
            for (int d = 0; d < s->head_dim; d++)
                out[i * s->head_dim + d] += p * v[j * s->head_dim + d];
        }
}

/* The bytes of scores that it held; 0: out of memory. */
static uint64_t materialised(const struct shape *s)
{
    const size_t square = (size_t)s->n * (size_t)s->n;
    const size_t rows = (size_t)s->n * (size_t)s->head_dim;
    float *scores = malloc(square * (size_t)s->n_heads * sizeof *scores);
    float *qkv = malloc(4 * rows * sizeof *qkv);
    const bool ok = scores && qkv;
    for (uint32_t i = 0; ok && i < 3 * rows; i++)
        qkv[i] = noise(i);
    for (int h = 0; ok && h < s->n_heads; h++) {
        scores_of_head(s, qkv, qkv + rows, scores + (size_t)h * square);
        softmax_rows(s, scores + (size_t)h * square);
        weigh_values(s, scores + (size_t)h * square, qkv + 2 * rows, qkv + 3 * rows);
    }
    free(scores);
    free(qkv);
    return ok ? square * (uint64_t)s->n_heads * sizeof *scores : 0;
}

/* --- the backend's --- */

static struct weight *random_table(struct backend *b, int rows, int cols, struct err *e)
{
    float *values = malloc((size_t)rows * (size_t)cols * sizeof *values);
    struct weight *w = NULL;
    for (size_t i = 0; values && i < (size_t)rows * (size_t)cols; i++)
        values[i] = noise((uint32_t)i);
    if (values)
        w = b->ops->weight_load(b, DTYPE_F32, rows, cols, values, e);
    else
        err_set(e, ERR_MEMORY, "no memory for %d rows", rows);
    free(values);
    return w;
}

static void fill_inputs(struct step_inputs *in, int n)
{
    for (int i = 0; i < n; i++) {
        in->ids[i] = in->positions[i] = in->kv_slots[i] = i;
        in->adapters[i] = -1;
        if (i % BLOCK == 0)
            in->page_tables[i / BLOCK] = i / BLOCK;
    }
    in->seqs[0] = (struct step_seq){0, n, 0};
    in->n_rows = n;
    in->n_seqs = 1;
    in->n_logits = 0;
}

static bool run_layer(struct backend *b, const struct shape *s, struct err *e)
{
    const struct backend_ops *ops = b->ops;
    const int q_width = s->n_heads * s->head_dim, kv_width = s->n_kv_heads * s->head_dim;
    const struct attention_config config = {
        s->n_heads, s->n_kv_heads, s->head_dim, 1 / sqrtf((float)s->head_dim), 0, 0};
    struct activation *a[4];
    struct weight *q_table = random_table(b, s->n, q_width, e);
    struct weight *kv_table = q_table ? random_table(b, s->n, kv_width, e) : NULL;
    if (!kv_table)
        return false;
    for (int i = 0; i < 4; i++)
        if (!(a[i] = ops->activation_new(b, i % 3 ? kv_width : q_width, NULL, false, e)))
            return false;
    const struct kv_config kv = {.n_layers = 1,
                                 .n_kv_heads = s->n_kv_heads,
                                 .head_dim = s->head_dim,
                                 .block_size = BLOCK,
                                 .n_pages = (s->n + BLOCK - 1) / BLOCK,
                                 .dtype = DTYPE_F16,
                                 .n_heads = s->n_heads};
    if (!ops->kv_open(b, &kv, e))
        return false;
    fill_inputs(ops->step_begin(b), s->n);
    ops->embed(b, a[0], q_table, 1);
    ops->embed(b, a[1], kv_table, 1);
    ops->embed(b, a[2], kv_table, 1);
    ops->rope_write_kv(b, 0, NULL, NULL, s->n_heads, a[0], a[1], a[2]);
    ops->attention(b, 0, &config, NULL, a[3], a[0]);
    return ops->submit(b, e);
}

/* The bytes that attention has besides its inputs and outputs; 0 and *e. */
static uint64_t tiled(const struct claims *c, const struct shape *s, struct err *e)
{
    const struct backend_config config = {.threads = c->base.threads,
                                          .max_rows = s->n,
                                          .max_seqs = 1,
                                          .max_pages = (s->n + BLOCK - 1) / BLOCK,
                                          .max_logits = 1};
    const struct kv_config kv = {1, s->n_kv_heads, s->head_dim, BLOCK, 1, DTYPE_F16, s->n_heads};
    struct backend *b =
        (c->base.open_backend ? c->base.open_backend : backend_cpu_open)(&config, e);
    if (!b)
        return 0;
    const uint64_t bytes = b->ops->kv_extra_bytes(b, &kv);
    const bool ok = run_layer(b, s, e);
    b->ops->close(b);
    return ok ? bytes : 0;
}

bool claim_tiled_attention(struct claims *c, struct err *e)
{
    const struct model_spec *spec = model_file_spec(c->model, e);
    struct claim_plot *plot = claims_plot(c, "Attention's scratch memory", "tokens of a prompt",
                                          "MiB", "all scores", "tiles");
    uint64_t off = 0, on = 0;
    int n = 0;
    if (!spec)
        return false;
    for (int parts = 1; parts <= 4; parts++) {
        n = c->context * parts / 4;
        const struct shape s = {n, spec->n_heads, spec->n_kv_heads, spec->head_dim};
        if (!(on = tiled(c, &s, e)))
            return false;
        if (!(off = materialised(&s)))
            return err_set(e, ERR_MEMORY, "no memory for the scores of %d tokens", n);
        plot->off[plot->n_off++] = (struct plot_point){n, (double)off / (1 << 20)};
        plot->on[plot->n_on++] = (struct plot_point){n, (double)on / (1 << 20)};
    }
    claims_row(c, "tiled attention", "MiB", (double)off / (1 << 20), (double)on / (1 << 20), false,
               "scratch memory of a layer's attention over %d tokens", n);
    return true;
}
