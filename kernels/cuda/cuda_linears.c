/* cuda_linears.c: linears, a launch for neighbouring weights of one type; or, of float weights and
 * many rows, a product of cuBLASLt's for each. */
#include "cuda_backend.h"
#include "panel.h"

#include <stdio.h>
#include <string.h>

/* --- cuBLASLt --- */

static bool take_workspace(struct cuda_backend *b, struct err *e)
{
    struct cudaDeviceProp p;
    if (!cuda_check(cudaGetDeviceProperties(&p, 0), "looking at the GPU", e))
        return false;
    const size_t bytes = cublas_workspace_wanted(p.major);
    void *at = cuda_arena_take(&b->activations, bytes, "cuBLASLt's workspace", e);
    if (at)
        cublas_set_workspace(b->cublas, at, bytes);
    return at;
}

void cuda_linears_open(struct cuda_backend *b)
{
    struct err why;
    if (b->asked_cublas || b->config.batch_invariant)
        return;
    b->asked_cublas = true;
    b->cublas = cublas_open(b->config.max_rows, &why);
    if (b->cublas && take_workspace(b, &why)) {
        b->base.batch_dependent = true;
        return;
    }
    cublas_close(b->cublas);
    b->cublas = NULL;
    snprintf(
        b->warning, sizeof b->warning,
        "no cuBLASLt for the weights of F32, F16 and BF16 (%s): our own kernels multiply them, "
        "which takes several times as long for prompts",
        why.msg);
    b->base.warning = b->warning;
}

void cuda_linears_close(struct cuda_backend *b)
{
    cublas_close(b->cublas);
    b->cublas = NULL;
}

void cuda_linears_describe(struct cuda_backend *b)
{
    const size_t used = strlen(b->description);
    if (b->cublas)
        snprintf(b->description + used, sizeof b->description - used, ", cuBLASLt %s",
                 cublas_version(b->cublas));
}

/* --- launches --- */

static bool by_cublas(const struct cuda_backend *b, const struct cuda_linear *l, int n)
{
    return !cuda_is_quantised(l->w[0].type) && cublas_takes(b->cublas, l, n);
}

static bool is_plain(const struct cuda_linear *l)
{
    return l->into == INTO_STORE || l->into == INTO_ADD;
}

static cudaError_t launch(struct cuda_backend *b, const struct cuda_linear *l,
                          const struct activation *x, int n)
{
    struct cuda_rows rows;
    const cudaError_t code = cuda_rows_as(b, x, l->w[0].type, n, &rows);
    if (code != cudaSuccess)
        return code;
    if (!rows.values)
        return cuda_linear_quantised(b->stream, l, &rows.q, n);
    if (!is_plain(l) || !by_cublas(b, l, n))
        return cuda_linear_float(b->stream, l, rows.values, n);
    b->library_fault.code = ERR_NONE;
    return cublas_linear(b->cublas, b->stream, l, rows.values, n, &b->library_fault)
               ? cudaSuccess
               : cudaErrorUnknown;
}

/* Weight i of the record goes to `out`, as the next of the launch. */
static void add_job(struct cuda_linear *l, const struct record *r, int i, float *out)
{
    l->w[l->n_w] = r->linear.w[i]->matrix;
    l->bias[l->n_w] = r->linear.bias[i] ? r->linear.bias[i]->vector : NULL;
    l->out[l->n_w++] = out;
}

/* out = act(out) * up (NULL: 1), of float32 rows, in the form of out's readers */
static cudaError_t activate(struct cuda_backend *b, enum act_fn act, struct activation *out,
                            const float *up, int n)
{
    float *const gate = cuda_rows_begin(b, out);
    struct cuda_rows rows;
    cudaError_t code;
    if (!cuda_is_float(out) && !out->wants_f) {
        code = cuda_rows_as(b, out, out->rows.type, n, &rows);
        return code == cudaSuccess ? cuda_act_rows(b->stream, act, &rows, gate, up, out->width, n)
                                   : code;
    }
    code = cuda_act(b->stream, act, gate, DTYPE_F32, gate, up, (int64_t)n * out->width);
    return code == cudaSuccess ? cuda_rows_end(b, out, n) : code;
}

/* act(gate) * up, each by itself: of two types, or by cuBLASLt */
static cudaError_t run_gated_apart(struct cuda_backend *b, const struct record *r, int n)
{
    struct activation *out = r->linear.outs[0];
    float *const up = b->staging_up.at;
    cudaError_t code = cudaSuccess;
    for (int i = 0; i < 2 && code == cudaSuccess; i++) {
        struct cuda_linear l = {.into = INTO_STORE};
        add_job(&l, r, i, i ? up : cuda_rows_begin(b, out));
        code = launch(b, &l, r->x, n);
    }
    return code == cudaSuccess ? activate(b, r->linear.act, out, up, n) : code;
}

static cudaError_t run_gated(struct cuda_backend *b, const struct record *r, int n)
{
    struct activation *out = r->linear.outs[0];
    struct cuda_linear l = {.into = INTO_ACT_MUL, .act = r->linear.act};
    add_job(&l, r, 0, cuda_rows_begin(b, out));
    add_job(&l, r, 1, NULL);
    if (l.w[0].type != l.w[1].type || by_cublas(b, &l, n))
        return run_gated_apart(b, r, n);
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
    const bool act_apart = l.into == INTO_ACT && by_cublas(b, &l, n);
    if (act_apart)
        l.into = INTO_STORE;
    cudaError_t code = launch(b, &l, r->x, n);
    if (act_apart && code == cudaSuccess)
        return activate(b, r->linear.act, r->linear.outs[first], NULL, n);
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
