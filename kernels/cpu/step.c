#include "step.h"

#include <assert.h>
#include <string.h>

#include "repack.h"

bool step_row_share(const struct cpu_backend *b, int n, int u, int *first, int *end)
{
    int units = team_size(b->team) * (n >= 128 ? 4 : 1);
    int share = (n + units - 1) / units;
    *first = u * share;
    *end = *first + share < n ? *first + share : n;
    return *first < n;
}

static void run_embed(struct cpu_backend *b, const struct record *r)
{
    const struct activation *x = r->embed.x;
    int n = step_rows(b, x), first, end;
    while (step_row_share(b, n, team_claim(b->team), &first, &end)) {
        for (int row = first; row < end; row++) {
            int32_t id = b->inputs.ids[row];
            assert(id >= 0 && id < r->embed.table->rows);
            repack_row(r->embed.table, id, r->embed.scale, x->f + (size_t)row * x->stride);
        }
    }
}

static struct norm_row norm_row_of(const struct norm *n)
{
    return (struct norm_row){n->kind, n->w->vector, n->bias ? n->bias->vector : NULL, n->eps};
}

static void run_norm(struct cpu_backend *b, const struct record *r, int member)
{
    const struct kernels *k = b->kernels;
    const struct activation *out = r->norm.out, *x = r->norm.x;
    const bool normed = r->norm.norm.w;
    const struct norm_row norm = normed ? norm_row_of(&r->norm.norm) : (struct norm_row){0};
    int n = step_rows(b, out), first, end, width = out->width;
    while (step_row_share(b, n, team_claim(b->team), &first, &end)) {
        for (int row = first; row < end; row++) {
            int from = out->logit_rows && !x->logit_rows ? b->inputs.logit_rows[row] : row;
            const float *x_row = x->f + (size_t)from * x->stride;
            float *to =
                out->quantised ? b->workers[member].row : out->f + (size_t)row * out->stride;
            if (normed)
                k->norm(to, x_row, width, &norm);
            else
                memcpy(to, x_row, (size_t)width * sizeof *to);
            if (out->quantised)
                k->quantise(out, activation_qstride(out, n), row, 0, to, width / QBLOCK);
        }
    }
}

static void run_norm_add(struct cpu_backend *b, const struct record *r)
{
    const struct activation *x = r->norm.out, *y = r->norm.x;
    const struct norm_row norm = norm_row_of(&r->norm.norm);
    int n = step_rows(b, x), first, end;
    while (step_row_share(b, n, team_claim(b->team), &first, &end))
        for (int row = first; row < end; row++)
            b->kernels->norm_add(x->f + (size_t)row * x->stride, y->f + (size_t)row * y->stride,
                                 x->width, &norm);
}

/* The norm of a row of q or k, of n_heads heads */
static void norm_heads(const struct cpu_backend *b, const struct qk_norm *n, const struct weight *w,
                       float *x, int n_heads)
{
    int dim = n->span == QK_NORM_ALL ? n_heads * b->kv.head_dim : b->kv.head_dim;
    struct norm_row norm = {n->kind, w->vector, NULL, n->eps};
    for (float *end = x + n_heads * b->kv.head_dim; x < end; x += dim) {
        b->kernels->norm(x, x, dim, &norm);
        norm.w += n->span == QK_NORM_HEADS ? dim : 0;
    }
}

/* Head `h` of the row's q, or (h >= n_heads) of its k, which is then written with v. */
static void rope_head(struct cpu_backend *b, const struct record *r, int row, int h)
{
    const struct kv_pool *kv = &b->kv;
    const struct rope *rope = r->rope.rope;
    const struct activation *q = r->rope.q, *k = r->rope.k, *v = r->rope.v;
    int dim = kv->head_dim, kv_head = h - r->rope.n_heads;
    float *x = kv_head < 0 ? q->f + (size_t)row * q->stride + h * dim
                           : k->f + (size_t)row * k->stride + kv_head * dim;
    if (rope && rope->style != ROPE_NONE) {
        int pos = b->inputs.positions[row], half = rope->n_dims / 2;
        assert(pos >= 0 && pos < rope->max_positions);
        const float *cos = rope->table + (size_t)pos * rope->n_dims;
        b->kernels->rotate(rope->style, x, cos, cos + half, rope->n_dims);
    }
    if (kv_head < 0)
        return;
    int slot = b->inputs.kv_slots[row], page = slot / kv->block_size, at = slot % kv->block_size;
    assert(slot >= 0 && page < kv->n_pages);
    b->kernels->kv_write(kv, kv_sub_page(kv, r->rope.layer, page, at / PANEL), at % PANEL, kv_head,
                         x, v->f + (size_t)row * v->stride + kv_head * dim);
}

static void run_rope(struct cpu_backend *b, const struct record *r)
{
    const struct qk_norm *norm = &r->rope.norm;
    const struct activation *q = r->rope.q, *k = r->rope.k;
    int n = b->inputs.n_rows, heads = r->rope.n_heads + b->kv.n_kv_heads, first, end;
    while (step_row_share(b, n, team_claim(b->team), &first, &end))
        for (int row = first; row < end; row++) {
            if (norm->q) {
                norm_heads(b, norm, norm->q, q->f + (size_t)row * q->stride, r->rope.n_heads);
                norm_heads(b, norm, norm->k, k->f + (size_t)row * k->stride, b->kv.n_kv_heads);
            }
            for (int h = 0; h < heads; h++)
                rope_head(b, r, row, h);
        }
}

static void run_soft_cap(struct cpu_backend *b, const struct record *r)
{
    const struct activation *x = r->soft_cap.x;
    int n = step_rows(b, x), first, end;
    while (step_row_share(b, n, team_claim(b->team), &first, &end))
        for (int row = first; row < end; row++)
            b->kernels->soft_cap(x->f + (size_t)row * x->stride, x->width, r->soft_cap.cap);
}

static void run_gated_add(struct cpu_backend *b, const struct record *r)
{
    const struct activation *x = r->gated_add.x, *y = r->gated_add.y, *in = r->gated_add.in;
    int n = step_rows(b, x), first, end;
    while (step_row_share(b, n, team_claim(b->team), &first, &end))
        for (int row = first; row < end; row++)
            b->kernels->gated_add(x->f + (size_t)row * x->stride, y->f + (size_t)row * y->stride,
                                  x->width, in->f + (size_t)row * in->stride,
                                  r->gated_add.w->vector, in->width);
}

static void run_record(struct cpu_backend *b, const struct record *r, int member)
{
    switch (r->op) {
    case OP_EMBED:
        run_embed(b, r);
        break;
    case OP_NORM:
        run_norm(b, r, member);
        break;
    case OP_NORM_ADD:
        run_norm_add(b, r);
        break;
    case OP_LINEAR:
        step_linear(b, r, member);
        break;
    case OP_ROPE_WRITE_KV:
        run_rope(b, r);
        break;
    case OP_ATTENTION:
        step_attention(b, r, member);
        break;
    case OP_SOFT_CAP:
        run_soft_cap(b, r);
        break;
    case OP_GATED_ADD:
        run_gated_add(b, r);
        break;
    case OP_MOE:
        step_moe(b, r, member);
        break;
    }
}

static void walk(void *arg, int member)
{
    struct cpu_backend *b = arg;
    for (int i = 0; i < b->n_plan; i++) {
        run_record(b, &b->plan[i], member);
        team_barrier(b->team, member);
    }
}

void step_run(struct cpu_backend *b)
{
    step_attention_plan(b);
    team_run(b->team, walk, b);
}
