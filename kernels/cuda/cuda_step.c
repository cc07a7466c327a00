/* cuda_step.c: one upload of what the step reads, the plan's kernels in order, the logits back. */
#include "cuda_backend.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { ALIGNMENT = 256 };

/* --- what a step reads --- */

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

size_t cuda_step_bytes(const struct cuda_backend *b, const struct cuda_attention *a)
{
    const struct backend_config *c = &b->config;
    const size_t rows = (size_t)c->max_rows, seqs = (size_t)c->max_seqs;
    return 3 * aligned(rows * sizeof(int32_t)) + aligned((size_t)c->max_logits * sizeof(int32_t)) +
           CUDA_MAX_WINDOWS * aligned(cuda_attention_plan_bytes(a, c->max_rows, c->max_seqs)) +
           aligned(seqs * (size_t)c->max_pages * sizeof(int32_t));
}

/* Room for the next part, in the pinned memory */
static void *part(struct cuda_backend *b, size_t *used, size_t bytes)
{
    void *at = b->step.host + *used;
    *used += aligned(bytes);
    assert(*used <= b->step.bytes);
    return at;
}

static const void *on_device(const struct cuda_backend *b, const void *at)
{
    return b->step.device + ((const uint8_t *)at - b->step.host);
}

static const int32_t *put_ints(struct cuda_backend *b, size_t *used, const int32_t *from, int n)
{
    const size_t bytes = (size_t)n * sizeof *from;
    return on_device(b, memcpy(part(b, used, bytes), from, bytes));
}

static int pages_used(const struct cuda_backend *b)
{
    const struct step_inputs *in = &b->inputs;
    int most = 1;
    for (int i = 0; i < in->n_seqs; i++) {
        const int end = in->seqs[i].start + in->seqs[i].n_rows;
        const int n = (end + b->kv.block_size - 1) / b->kv.block_size;
        most = n > most ? n : most;
    }
    assert(most <= b->config.max_pages);
    return most;
}

/* The page tables, as wide as the longest one in use */
static const int32_t *put_tables(struct cuda_backend *b, size_t *used, int width)
{
    const struct step_inputs *in = &b->inputs;
    int32_t *to = part(b, used, (size_t)in->n_seqs * (size_t)width * sizeof *to);
    for (int i = 0; i < in->n_seqs; i++)
        memcpy(to + (size_t)i * (size_t)width,
               in->page_tables + (size_t)i * (size_t)b->config.max_pages,
               (size_t)width * sizeof *to);
    return on_device(b, to);
}

static void put_plan(struct cuda_backend *b, size_t *used, int i)
{
    const struct step_inputs *in = &b->inputs;
    struct cuda_attention_plan *plan =
        part(b, used, cuda_attention_plan_bytes(&b->attention, in->n_rows, in->n_seqs));
    cuda_attention_plan_make(&b->attention, plan, in->n_rows, in->n_seqs, in->seqs, in->n_seqs,
                             b->windows[i], b->partials_bytes);
    b->step.attention[i].grid = cuda_attention_grid_of(&b->attention, plan);
    b->step.attention[i].plan = on_device(b, plan);
}

static cudaError_t upload_inputs(struct cuda_backend *b)
{
    const struct step_inputs *in = &b->inputs;
    size_t used = 0;
    b->step.ids = put_ints(b, &used, in->ids, in->n_rows);
    b->step.positions = put_ints(b, &used, in->positions, in->n_rows);
    b->step.slots = put_ints(b, &used, in->kv_slots, in->n_rows);
    b->step.logit_rows = put_ints(b, &used, in->logit_rows, in->n_logits);
    for (int i = 0; i < b->n_windows; i++)
        put_plan(b, &used, i);
    const int width = pages_used(b);
    const int32_t *tables = put_tables(b, &used, width);
    for (int i = 0; i < b->n_windows; i++) {
        b->step.attention[i].page_tables = tables;
        b->step.attention[i].max_pages = width;
        b->step.attention[i].partials = b->partials;
    }
    return used == 0 ? cudaSuccess
                     : cudaMemcpyAsync(b->step.device, b->step.host, used, cudaMemcpyHostToDevice,
                                       b->stream);
}

/* --- rows in their readers' form --- */

float *cuda_rows_begin(struct cuda_backend *b, struct activation *a)
{
    return a->form == ROWS_QUANTISED ? b->staging.at : a->f;
}

static struct cuda_rows rows_of(const struct activation *a, int n)
{
    struct cuda_rows rows = a->rows;
    if (!rows.values)
        rows.q.stride = cuda_qrows_stride(n, rows.q.planes);
    return rows;
}

cudaError_t cuda_rows_end(struct cuda_backend *b, struct activation *a, int n)
{
    const struct cuda_rows rows = rows_of(a, n);
    if (cuda_is_float(a))
        return cudaSuccess;
    return cuda_norm_rows(b->stream, &rows, cuda_rows_begin(b, a), a->width, NULL, NULL, n);
}

cudaError_t cuda_rows_as(struct cuda_backend *b, const struct activation *x, enum dtype type, int n,
                         struct cuda_rows *rows)
{
    *rows = rows_of(x, n);
    if (x->form == ROWS_QUANTISED || (x->form == ROWS_FLOAT && type == x->rows.type))
        return cudaSuccess;
    rows->type = type;
    rows->values = x->f;
    if (type == DTYPE_F32 && x->width % CUDA_FLOAT_STEP == 0)
        return cudaSuccess;
    rows->values = b->converted.at;
    return cuda_norm_rows(b->stream, rows, x->f, x->width, NULL, NULL, n);
}

/* --- operations --- */

static cudaError_t run_norm(struct cuda_backend *b, const struct record *r, int n)
{
    struct activation *out = r->out;
    const struct cuda_norm *norm = r->norm.w ? &r->norm : NULL;
    const int32_t *from = out->logit_rows && !r->x->logit_rows ? b->step.logit_rows : NULL;
    if (!cuda_is_float(out) && !out->wants_f) {
        const struct cuda_rows rows = rows_of(out, n);
        return cuda_norm_rows(b->stream, &rows, r->x->f, out->width, norm, from, n);
    }
    cudaError_t code = cuda_norm(b->stream, out->f, DTYPE_F32, r->x->f, out->width, norm, from, n);
    return code == cudaSuccess ? cuda_rows_end(b, out, n) : code;
}

static cudaError_t run_rope(struct cuda_backend *b, const struct record *r, int n)
{
    return cuda_rope_write_kv(
        b->stream, &b->kv, r->rope.layer, r->rope.norm.q ? &r->rope.norm : NULL,
        r->rope.rope ? &r->rope.rope->rope : NULL, r->rope.n_heads, r->rope.q->f, r->rope.k->f,
        r->rope.v->f, b->step.positions, b->step.slots, n);
}

/* Writes the values of its reader where these are not padded, nor wanted in float32. */
static cudaError_t run_attention(struct cuda_backend *b, const struct record *r, int n)
{
    struct activation *out = r->out;
    const bool typed =
        out->form == ROWS_FLOAT && !out->wants_f && out->width % CUDA_FLOAT_STEP == 0;
    cudaError_t code = cuda_attend(
        b->stream, &b->attention, &b->kv, r->attention.layer, &r->attention.config,
        r->attention.sinks, typed ? out->rows.values : cuda_rows_begin(b, out),
        typed ? out->rows.type : DTYPE_F32, r->x->f, &b->step.attention[r->attention.window]);
    return typed || code != cudaSuccess ? code : cuda_rows_end(b, out, n);
}

static cudaError_t run_moe(struct cuda_backend *b, const struct record *r, int n)
{
    const struct cuda_moe *m = &r->moe.moe->moe;
    struct cuda_rows x;
    const cudaError_t code = cuda_rows_as(b, r->x, m->x_reader, n, &x);
    return code != cudaSuccess ? code
                               : cuda_moe(b->stream, m, r->moe.layer, r->moe.into, r->out->f, &x,
                                          r->moe.logits->f, b->step.slots, n);
}

static cudaError_t run(struct cuda_backend *b, const struct record *r)
{
    const int n = cuda_rows(b, r->out);
    if (n == 0)
        return cudaSuccess;
    switch (r->op) {
    case OP_EMBED:
        return cuda_embed(b->stream, r->out->f, &r->embed.table->matrix, b->step.ids, n,
                          r->embed.scale);
    case OP_NORM:
        return run_norm(b, r, n);
    case OP_NORM_ADD:
        return cuda_norm_add(b->stream, r->out->f, r->x->f, r->out->width, &r->norm, n);
    case OP_LINEAR:
        return cuda_run_linear(b, r);
    case OP_ROPE_WRITE_KV:
        return run_rope(b, r, n);
    case OP_ATTENTION:
        return run_attention(b, r, n);
    case OP_SOFT_CAP:
        return cuda_soft_cap(b->stream, r->out->f, (int64_t)n * r->out->width, r->cap);
    case OP_GATED_ADD:
        return cuda_gated_add(b->stream, r->out->f, r->x->f, r->out->width, r->gated_add.in->f,
                              r->gated_add.w, r->gated_add.in->width, n);
    case OP_MOE:
        return run_moe(b, r, n);
    }
    return cudaErrorUnknown;
}

/* --- the whole --- */

static const char *const op_names[] = {
    [OP_EMBED] = "the embedding",      [OP_NORM] = "a norm",
    [OP_NORM_ADD] = "a norm",          [OP_LINEAR] = "a linear",
    [OP_ROPE_WRITE_KV] = "rope",       [OP_ATTENTION] = "attention",
    [OP_SOFT_CAP] = "a soft cap",      [OP_GATED_ADD] = "a gated addition",
    [OP_MOE] = "a mixture of experts",
};

/* A failed device stays so: what failed first is what is told. */
static bool check(struct cuda_backend *b, cudaError_t code, const char *what)
{
    if (code == cudaSuccess)
        return true;
    b->failed = true;
    return cuda_check(code, what, &b->fault);
}

static bool check_op(struct cuda_backend *b, cudaError_t code, int i)
{
    char what[96];
    if (code == cudaSuccess)
        return true;
    snprintf(what, sizeof what, "operation %d of %d of a step, %s, or one before it", i + 1,
             b->n_plan, op_names[b->plan[i].op]);
    return check(b, code, what);
}

static cudaError_t copy_results(struct cuda_backend *b)
{
    cudaError_t code = cudaSuccess;
    for (struct activation *a = b->host_rows; a && code == cudaSuccess; a = a->next_host)
        if (a->written && cuda_rows(b, a) > 0)
            code = cudaMemcpyAsync(a->host, a->f,
                                   (size_t)cuda_rows(b, a) * (size_t)a->width * sizeof *a->f,
                                   cudaMemcpyDeviceToHost, b->stream);
    return code;
}

static bool run_step(struct cuda_backend *b)
{
    if (!check(b, upload_inputs(b), "copying a step's inputs"))
        return false;
    for (int i = 0; i < b->n_plan; i++)
        if (!check_op(b, run(b, &b->plan[i]), i))
            return false;
    return check(b, copy_results(b), "copying the logits") &&
           check(b, cudaStreamSynchronize(b->stream), "a step");
}

bool cuda_submit(struct backend *base, struct err *e)
{
    struct cuda_backend *b = cuda_of(base);
    const struct step_inputs *in = &b->inputs;
    assert(in->n_rows >= 0 && in->n_rows <= b->config.max_rows);
    assert(in->n_seqs >= 0 && in->n_seqs <= b->config.max_seqs);
    assert(in->n_logits >= 0 && in->n_logits <= b->config.max_logits);
    (void)in;
    if (!b->failed && run_step(b))
        return true;
    if (e)
        *e = b->fault;
    return false;
}
