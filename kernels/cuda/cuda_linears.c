/* cuda_linears.c: linears, a launch for neighbouring weights of one type. */
#include "cuda_backend.h"
#include "panel.h"

#include <string.h>

static cudaError_t launch(struct cuda_backend *b, const struct cuda_linear *l,
                          const struct activation *x, int n)
{
    struct cuda_rows rows;
    const cudaError_t code = cuda_rows_as(b, x, l->w[0].type, n, &rows);
    if (code != cudaSuccess)
        return code;
    return rows.values ? cuda_linear_float(b->stream, l, rows.values, n)
                       : cuda_linear_quantised(b->stream, l, &rows.q, n);
}

/* Weight i of the record goes to `out`, as the next of the launch. */
static void add_job(struct cuda_linear *l, const struct record *r, int i, float *out)
{
    l->w[l->n_w] = r->linear.w[i]->matrix;
    l->bias[l->n_w] = r->linear.bias[i] ? r->linear.bias[i]->vector : NULL;
    l->out[l->n_w++] = out;
}

/* act(gate) * up of two types: each by itself, then their product */
static cudaError_t run_gated_apart(struct cuda_backend *b, const struct record *r, int n)
{
    struct activation *out = r->linear.outs[0];
    float *const gate = cuda_rows_begin(b, out), *const up = b->staging_up.at;
    cudaError_t code = cudaSuccess;
    for (int i = 0; i < 2 && code == cudaSuccess; i++) {
        struct cuda_linear l = {.into = INTO_STORE};
        add_job(&l, r, i, i ? up : gate);
        code = launch(b, &l, r->x, n);
    }
    if (code == cudaSuccess)
        code =
            cuda_act(b->stream, r->linear.act, gate, DTYPE_F32, gate, up, (int64_t)n * out->width);
    return code == cudaSuccess ? cuda_rows_end(b, out, n) : code;
}

static cudaError_t run_gated(struct cuda_backend *b, const struct record *r, int n)
{
    struct activation *out = r->linear.outs[0];
    struct cuda_linear l = {.into = INTO_ACT_MUL, .act = r->linear.act};
    if (r->linear.w[0]->type != r->linear.w[1]->type)
        return run_gated_apart(b, r, n);
    add_job(&l, r, 0, cuda_rows_begin(b, out));
    add_job(&l, r, 1, NULL);
    const cudaError_t code = launch(b, &l, r->x, n);
    return code == cudaSuccess ? cuda_rows_end(b, out, n) : code;
}

/* Weights [first, end), of one type */
static cudaError_t run_alike(struct cuda_backend *b, const struct record *r, int first, int end,
                             int n)
{
    struct cuda_linear l = {.into = r->linear.into, .act = r->linear.act};
    for (int i = first; i < end; i++)
        add_job(&l, r, i, cuda_rows_begin(b, r->linear.outs[i]));
    cudaError_t code = launch(b, &l, r->x, n);
    for (int i = first; i < end && code == cudaSuccess; i++)
        code = cuda_rows_end(b, r->linear.outs[i], n);
    return code;
}

cudaError_t cuda_run_linear(struct cuda_backend *b, const struct record *r)
{
    const int n = cuda_rows(b, r->x);
    cudaError_t code = cudaSuccess;
    if (r->linear.into == INTO_ACT_MUL)
        return run_gated(b, r, n);
    for (int first = 0, end; first < r->linear.n_w && code == cudaSuccess; first = end) {
        for (end = first + 1; end < r->linear.n_w; end++)
            if (r->linear.w[end]->type != r->linear.w[first]->type)
                break;
        code = run_alike(b, r, first, end, n);
    }
    return code;
}
