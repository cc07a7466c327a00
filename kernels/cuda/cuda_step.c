/* cuda_step.c: runs a step: the upload of what it reads, the plan's kernels in order, the logits
 * back. */
#include "cuda_backend.h"

#include <assert.h>
#include <stdio.h>

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
        return cuda_embed(b->stream, r->out->f, &r->embed.table->matrix, b->step.ids,
                          cuda_drawn_ids(b), n, r->embed.scale);
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
bool cuda_note(struct cuda_backend *b, cudaError_t code, const char *what)
{
    if (code == cudaSuccess || b->failed)
        return !b->failed;
    b->failed = true;
    if (code != cudaErrorUnknown || !b->library_fault.code)
        return cuda_check(code, what, &b->fault);
    b->fault = b->library_fault;
    return err_prefix(&b->fault, "%s", what);
}

static bool check_op(struct cuda_backend *b, cudaError_t code, int i)
{
    char what[96];
    if (code == cudaSuccess)
        return true;
    snprintf(what, sizeof what, "operation %d of %d of a step, %s, or one before it", i + 1,
             b->n_plan, op_names[b->plan[i].op]);
    return cuda_note(b, code, what);
}

cudaError_t cuda_run_plan(struct cuda_backend *b, int *at)
{
    cudaError_t code = cudaSuccess;
    for (*at = 0; *at < b->n_plan; ++*at)
        if ((code = run(b, &b->plan[*at])) != cudaSuccess)
            break;
    return code;
}

/* By a graph if there is one; else there may be one the next time. */
static bool run_plan(struct cuda_backend *b)
{
    int at;
    cudaError_t code;
    if (cuda_graph_launch(b, &code))
        return cuda_note(b, code, "a step's graph");
    code = cuda_run_plan(b, &at);
    if (!check_op(b, code, at))
        return false;
    cuda_graph_keep(b);
    return true;
}

static cudaError_t copy_results(struct cuda_backend *b)
{
    const size_t n = (size_t)b->inputs.n_logits;
    cudaError_t code = cudaSuccess;
    for (struct activation *a = b->host_rows; n && a && code == cudaSuccess; a = a->next_host)
        if (a->written)
            code = cudaMemcpyAsync(a->host, a->f, n * (size_t)a->width * sizeof *a->f,
                                   cudaMemcpyDeviceToHost, b->stream);
    return code;
}

bool cuda_launch_step(struct cuda_backend *b)
{
    const struct step_inputs *in = &b->inputs;
    assert(in->n_rows >= 0 && in->n_rows <= b->config.max_rows);
    assert(in->n_seqs >= 0 && in->n_seqs <= b->config.max_seqs);
    assert(in->n_logits >= 0 && in->n_logits <= b->config.max_logits);
    (void)in;
    cuda_swap_wait_step(b);
    return cuda_note(b, cuda_inputs_upload(b), "copying a step's inputs, or a kernel before it") &&
           run_plan(b);
}

bool cuda_submit(struct backend *base, struct err *e)
{
    struct cuda_backend *b = cuda_of(base);
    assert(cuda_nothing_started(b));
    if (!b->failed && cuda_launch_step(b) && cuda_note(b, copy_results(b), "copying the logits") &&
        cuda_note(b, cudaStreamSynchronize(b->stream), "a step"))
        return true;
    if (e)
        *e = b->fault;
    return false;
}
