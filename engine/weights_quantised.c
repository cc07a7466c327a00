#include "weights_quantised.h"

#include <stdio.h>
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
    struct quantised_counts *counts; /* of what was asked for */
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

/* The type of blocks of 32 nearest in error to one of blocks of 256. */
static enum dtype in_small_blocks(enum dtype t)
{
    switch (t) {
    case DTYPE_Q4_K:
        return DTYPE_Q5_0;
    case DTYPE_Q5_K:
        return DTYPE_Q5_1;
    default:
        return DTYPE_Q8_0;
    }
}

/* What rows of a float type become; the type itself: they stay. */
static enum dtype fitting(enum dtype t, enum dtype is, int64_t cols)
{
    if (cols % dtype_info(t)->block_elems == 0)
        return t;
    t = in_small_blocks(t);
    return cols % dtype_info(t)->block_elems == 0 ? t : is;
}

/* Of a matrix of type `is` that is wanted as t, and comes as `given`. */
static void count(struct quantised_counts *n, enum dtype is, enum dtype t, enum dtype given,
                  int64_t cols)
{
    n->n_matrices++;
    if (dtype_info(is)->block_elems > 1)
        n->n_already++;
    else if (given != is)
        n->n_of[given]++;
    if (dtype_info(is)->block_elems == 1 && given != t)
        n->unfit_cols = cols;
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
    if (rows < 2 || !is_matrix(name))
        return true;
    const bool quantised = dtype_info(out->dtype)->block_elems > 1;
    const enum dtype ideal = wanted(q, name);
    const enum dtype t = quantised ? out->dtype : fitting(ideal, out->dtype, cols);
    if (!check)
        count(q->counts, out->dtype, ideal, t, cols);
    else
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
    free(of(w)->counts);
    free(w);
}

static const struct weights_kind kind = {has, get, all_f32, close_weights};

struct weights *weights_open_quantised(const struct weights *from, enum dtype t,
                                       struct backend *backend, struct err *e)
{
    struct quantised *q = malloc(sizeof *q);
    struct quantised_counts *counts = calloc(1, sizeof *counts);
    if (!q || !counts) {
        free(q);
        free(counts);
        err_set(e, ERR_MEMORY, "no memory to open the tensors");
        return NULL;
    }
    *q = (struct quantised){{&kind}, from, t, backend, counts};
    return &q->base;
}

const struct quantised_counts *weights_quantised_counts(const struct weights *w)
{
    return of(w)->counts;
}

int quantised_counts_describe(const struct quantised_counts *n, char *out, size_t cap)
{
    int sum = 0, len = 0;
    char list[400] = "";
    for (int t = 0; t < DTYPE_COUNT; t++) {
        sum += n->n_of[t];
        if (n->n_of[t] && (size_t)len < sizeof list)
            len += snprintf(list + len, sizeof list - (size_t)len, "%s%d %s", len ? ", " : ": ",
                            n->n_of[t], dtype_info(t)->name);
    }
    len = snprintf(out, cap, "quantised %d of %d matrices%s", sum, n->n_matrices, list);
    if (n->n_already && (size_t)len < cap)
        len += snprintf(out + len, cap - (size_t)len, "; %d are quantised already and stay",
                        n->n_already);
    if (n->unfit_cols && (size_t)len < cap)
        snprintf(out + len, cap - (size_t)len, " (rows of %lld do not divide into its blocks)",
                 (long long)n->unfit_cols);
    return sum;
}
