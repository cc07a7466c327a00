#include "weights_quantised.h"

#include <stdlib.h>
#include <string.h>

#include "ends_in.h"
#include "weights_impl.h"

#define PIECE 256 /* values at a time: a whole number of any type's blocks */

struct quantised {
    struct weights base;
    const struct weights *from;
    enum dtype type;
    struct backend *backend;
};

static const struct quantised *of(const struct weights *w)
{
    return (const struct quantised *)w;
}

/* "ffn_gate_inp" is the router. */
static bool is_matrix(const char *name)
{
    return ends_in(name, ".weight") && !strstr(name, "norm") && !strstr(name, "_inp");
}

static enum dtype wanted(const struct quantised *q, const char *name)
{
    const bool coarse = q->type != DTYPE_Q8_0 && q->type != DTYPE_Q6_K;
    const bool ends = strcmp(name, "token_embd.weight") == 0 || strcmp(name, "output.weight") == 0;
    return coarse && ends ? DTYPE_Q6_K : q->type;
}

/* What rows of a float type become; the type itself: they stay. */
static enum dtype fitting(enum dtype t, enum dtype is, int64_t cols)
{
    if (cols % dtype_info(t)->block_elems == 0)
        return t;
    return cols % dtype_info(DTYPE_Q8_0)->block_elems == 0 ? DTYPE_Q8_0 : is;
}

struct job {
    const struct weight_view *from;
    enum dtype type;
    uint8_t *to;
};

static void quantise_row(void *arg, int row)
{
    const struct job *job = arg;
    const struct weight_view *v = job->from;
    const uint8_t *from =
        (const uint8_t *)v->data + dtype_row_bytes(v->dtype, v->cols) * (size_t)row;
    uint8_t *to = job->to + dtype_row_bytes(job->type, v->cols) * (size_t)row;
    float values[PIECE];
    for (int64_t k = 0; k < v->cols; k += PIECE) {
        const int64_t n = v->cols - k < PIECE ? v->cols - k : PIECE;
        dtype_to_f32(v->dtype, from, values, n);
        dtype_from_f32(job->type, values, to, n);
        from += dtype_row_bytes(v->dtype, n);
        to += dtype_row_bytes(job->type, n);
    }
}

static bool quantise(const struct quantised *q, enum dtype t, struct weight_view *v, struct err *e)
{
    struct job job = {v, t, malloc(dtype_row_bytes(t, v->cols) * (size_t)v->rows)};
    if (!job.to)
        return err_set(e, ERR_MEMORY, "tensor %s: no memory to quantise it to %s", v->what,
                       dtype_info(t)->name);
    q->backend->ops->host_for(q->backend, quantise_row, &job, (int)v->rows);
    free(v->owned);
    v->data = v->owned = job.to;
    v->dtype = t;
    return true;
}

static bool get(const struct weights *w, const char *name, int expert, int64_t rows, int64_t cols,
                bool check, struct weight_view *out, struct err *e)
{
    const struct quantised *q = of(w);
    if (!(check ? weights_check : weights_get)(q->from, name, expert, rows, cols, out, e))
        return false;
    if (rows < 2 || !is_matrix(name) || dtype_info(out->dtype)->block_elems > 1)
        return true;
    const enum dtype t = fitting(wanted(q, name), out->dtype, cols);
    if (check)
        out->dtype = t;
    return t == out->dtype || quantise(q, t, out, e);
}

static bool has(const struct weights *w, const char *name)
{
    return weights_has(of(w)->from, name);
}

static bool all_f32(const struct weights *w)
{
    return false;
}

static void close_weights(struct weights *w)
{
    free(w);
}

static const struct weights_kind kind = {has, get, all_f32, close_weights};

struct weights *weights_open_quantised(const struct weights *from, enum dtype t,
                                       struct backend *backend, struct err *e)
{
    struct quantised *q = malloc(sizeof *q);
    if (!q) {
        err_set(e, ERR_MEMORY, "no memory to open the tensors");
        return NULL;
    }
    *q = (struct quantised){{&kind}, from, t, backend};
    return &q->base;
}
