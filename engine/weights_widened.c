#include "weights_widened.h"

#include <stdlib.h>

#include "weights_impl.h"

struct widened {
    struct weights base;
    const struct weights *from;
    struct backend *backend;
};

static const struct widened *of(const struct weights *w)
{
    return (const struct widened *)w;
}

static bool is_quantised(enum dtype t)
{
    return dtype_info(t)->block_elems > 1;
}

struct job {
    const struct weight_view *from;
    float *to;
};

static void widen_row(void *arg, int row)
{
    const struct job *job = arg;
    const struct weight_view *v = job->from;
    dtype_to_f32(v->dtype, (const char *)v->data + dtype_row_bytes(v->dtype, v->cols) * (size_t)row,
                 job->to + v->cols * row, v->cols);
}

static bool get(const struct weights *w, const char *name, int expert, int64_t rows, int64_t cols,
                bool check, struct weight_view *out, struct err *e)
{
    if (!(check ? weights_check : weights_get)(of(w)->from, name, expert, rows, cols, out, e))
        return false;
    if (!is_quantised(out->dtype))
        return true;
    if (check) {
        out->dtype = DTYPE_F32;
        return true;
    }
    struct job job = {out, malloc((size_t)rows * (size_t)cols * sizeof(float))};
    if (!job.to)
        return err_set(e, ERR_MEMORY, "tensor %s: no memory to make it float32", out->what);
    of(w)->backend->ops->host_for(of(w)->backend, widen_row, &job, (int)rows);
    free(out->owned);
    out->data = out->owned = job.to;
    out->dtype = DTYPE_F32;
    return true;
}

static bool has(const struct weights *w, const char *name)
{
    return weights_has(of(w)->from, name);
}

static bool all_f32(const struct weights *w)
{
    return true; /* computed as if they were: float16 values lose nothing */
}

static void close_weights(struct weights *w)
{
    free(w);
}

static const struct weights_kind kind = {has, get, all_f32, close_weights};

struct weights *weights_open_widened(const struct weights *from, struct backend *backend,
                                     struct err *e)
{
    struct widened *v = malloc(sizeof *v);
    if (!v) {
        err_set(e, ERR_MEMORY, "no memory to open the tensors");
        return NULL;
    }
    *v = (struct widened){{&kind}, from, backend};
    return &v->base;
}
