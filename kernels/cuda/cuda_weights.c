/* cuda_weights.c: weights from a file's layout into the device's. The helpers pack a part into one
 * half of a pinned buffer while the other half is on its way. */
#include "cuda_backend.h"

#include <limits.h>
#include <string.h>

/* The type on the device */
static enum dtype device_type(enum dtype t)
{
    return t == DTYPE_F8_E4M3 || t == DTYPE_F8_E5M2 ? DTYPE_F16 : t;
}

static bool check_matrix(enum dtype t, int64_t rows, int64_t cols, struct err *e)
{
    if ((unsigned)t >= DTYPE_COUNT)
        return err_set(e, ERR_UNSUPPORTED, "type %d: the CUDA backend has no such type", (int)t);
    if (rows < 1 || cols < 1 || rows > INT_MAX / 64 || cols > INT_MAX / 64)
        return err_set(e, ERR_INVALID, "a matrix of %lld x %lld: expected 1 to %d rows and columns",
                       (long long)rows, (long long)cols, INT_MAX / 64);
    if (cols % dtype_info(t)->block_elems != 0)
        return err_set(e, ERR_UNSUPPORTED, "%lld columns of type %s: expected a multiple of %d",
                       (long long)cols, dtype_info(t)->name, dtype_info(t)->block_elems);
    return true;
}

/* --- packing --- */

/* Units are panels of a quantised matrix, rows of a float one. */
struct pack_job {
    enum dtype type;
    int64_t rows, cols;
    const uint8_t *src;
    size_t unit_bytes;
    int64_t first; /* unit that goes to `to` */
    uint8_t *to;
};

static void pack_float_row(const struct pack_job *job, int64_t row, uint8_t *to)
{
    const size_t row_bytes = dtype_row_bytes(job->type, job->cols);
    const uint8_t *from = job->src + (size_t)row * row_bytes;
    memset(to, 0, job->unit_bytes);
    if (device_type(job->type) == job->type) {
        memcpy(to, from, row_bytes);
        return;
    }
    for (int64_t i = 0; i < job->cols; i++) {
        const uint16_t h = f8_to_f16(job->type, from[i]);
        memcpy(to + 2 * i, &h, sizeof h);
    }
}

static void pack_unit(void *arg, int i)
{
    const struct pack_job *job = arg;
    uint8_t *to = job->to + (size_t)i * job->unit_bytes;
    if (cuda_is_quantised(job->type))
        panel_pack(job->type, job->rows, job->cols, job->src, (job->first + i) * PANEL_ROWS, to);
    else
        pack_float_row(job, job->first + i, to);
}

/* --- copies to the device --- */

static bool open_uploads(struct cuda_backend *b, struct err *e)
{
    for (int i = 0; i < 2; i++) {
        if (!b->upload[i] && !cuda_check(cudaHostAlloc((void **)&b->upload[i], CUDA_UPLOAD_BYTES,
                                                       cudaHostAllocDefault),
                                         "pinned memory for loading", e))
            return false;
        if (!b->uploaded[i] &&
            !cuda_check(cudaEventCreateWithFlags(&b->uploaded[i], cudaEventDisableTiming),
                        "an event", e))
            return false;
    }
    return true;
}

void cuda_uploads_close(struct cuda_backend *b)
{
    for (int i = 0; i < 2; i++) {
        if (b->uploaded[i])
            cudaEventDestroy(b->uploaded[i]);
        cudaFreeHost(b->upload[i]);
        b->upload[i] = NULL;
        b->uploaded[i] = NULL;
    }
}

void cuda_weights_loaded(struct backend *base)
{
    struct cuda_backend *b = cuda_of(base);
    cudaStreamSynchronize(b->stream); /* its error is the next call's */
    cuda_linears_describe(b);
    cuda_uploads_close(b);
}

/* Packs n_units and copies them to `to`. */
static bool upload_units(struct cuda_backend *b, struct pack_job *job, int64_t n_units, uint8_t *to,
                         struct err *e)
{
    const int64_t most = (int64_t)(CUDA_UPLOAD_BYTES / job->unit_bytes);
    for (job->first = 0; job->first < n_units;) {
        const int64_t left = n_units - job->first, n = left < most ? left : most;
        const int half = b->next_upload;
        b->next_upload = 1 - half;
        if (!cuda_check(cudaEventSynchronize(b->uploaded[half]), "copying a weight", e))
            return false;
        job->to = b->upload[half];
        team_for(b->team, pack_unit, job, (int)n);
        const size_t bytes = (size_t)n * job->unit_bytes;
        if (!cuda_check(cudaMemcpyAsync(to + (size_t)job->first * job->unit_bytes, job->to, bytes,
                                        cudaMemcpyHostToDevice, b->stream),
                        "copying a weight", e) ||
            !cuda_check(cudaEventRecord(b->uploaded[half], b->stream), "copying a weight", e))
            return false;
        job->first += n;
    }
    return true;
}

static bool load_matrix(struct cuda_backend *b, struct weight *w, enum dtype type, const void *src,
                        struct err *e)
{
    const struct panel_form form = panel_form(type);
    struct pack_job job = {.type = type, .rows = w->rows, .cols = w->cols, .src = src};
    int64_t n_units = w->rows;
    if (!form.bits) {
        cuda_linears_open(b);
        job.unit_bytes = dtype_row_bytes(w->type, cuda_float_stride(w->cols));
    } else {
        n_units = (w->rows + PANEL_ROWS - 1) / PANEL_ROWS;
        job.unit_bytes = (size_t)panel_sizes(&form, w->cols).bytes;
    }
    if (job.unit_bytes > CUDA_UPLOAD_BYTES)
        return err_set(e, ERR_LIMIT, "a matrix of %lld columns: too many for the CUDA backend",
                       (long long)w->cols);
    if (!open_uploads(b, e))
        return false;
    /* at most 2^25 units of 2^22 bytes */
    uint8_t *data = cuda_arena_take(&b->weights, (size_t)n_units * job.unit_bytes, "weights", e);
    w->matrix = (struct cuda_matrix){w->type, (int)w->rows, (int)w->cols, data};
    return data && upload_units(b, &job, n_units, data, e);
}

static bool load_vector(struct cuda_backend *b, struct weight *w, enum dtype type, const void *src,
                        struct err *e)
{
    const size_t bytes = (size_t)w->cols * sizeof(float);
    float *values = blocks_take(&b->blocks, 1, bytes, "weights", NULL, e);
    if (!values)
        return false;
    dtype_to_f32(type, src, values, w->cols);
    w->vector = cuda_arena_take(&b->weights, bytes, "weights", e);
    const bool ok = w->vector && cuda_put(w->vector, values, bytes, "copying a weight", e);
    blocks_give(&b->blocks, values, NULL);
    return ok;
}

struct weight *cuda_weight_load(struct backend *base, enum dtype type, int64_t rows, int64_t cols,
                                const void *src, struct err *e)
{
    struct cuda_backend *b = cuda_of(base);
    if (!check_matrix(type, rows, cols, e))
        return NULL;
    struct weight *w = blocks_take(&b->blocks, 1, sizeof *w, "weights", NULL, e);
    if (!w)
        return NULL;
    *w = (struct weight){.type = device_type(type), .rows = rows, .cols = cols};
    const bool vector = rows == 1 && !cuda_is_quantised(type);
    return (vector ? load_vector : load_matrix)(b, w, type, src, e) ? w : NULL;
}
