/* cuda_rows.c: what the model takes besides weights: buffers of rows, rotary tables. */
#include "backend_common.h"
#include "cuda_backend.h"

#include <limits.h>
#include <math.h>

static void *take(struct cuda_backend *b, size_t n, size_t size, struct err *e)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) {
        err_set(e, ERR_MEMORY, "activations: too large");
        return NULL;
    }
    return cuda_arena_take(&b->activations, bytes, "activations", e);
}

/* Kernels of linears read whole tiles of rows. */
static size_t padded_rows(const struct activation *a)
{
    return (size_t)cuda_qrows_stride(a->max_rows, 1);
}

static size_t type_bytes(enum dtype t)
{
    return t == DTYPE_F32 ? 4 : 2;
}

static size_t rows_bytes(const struct activation *a)
{
    return (size_t)a->max_rows * (size_t)a->width * sizeof(float);
}

static bool take_float(struct cuda_backend *b, struct activation *a, struct err *e)
{
    const size_t stride = (size_t)cuda_float_stride(a->width);
    a->f = take(b, padded_rows(a), (size_t)a->width * sizeof *a->f, e);
    a->rows.values = a->f;
    if (a->f && (a->rows.type != DTYPE_F32 || stride != (size_t)a->width))
        a->rows.values = take(b, padded_rows(a), stride * type_bytes(a->rows.type), e);
    return a->rows.values &&
           cuda_scratch_reserve(b, &b->converted, padded_rows(a) * stride * sizeof(float), e);
}

static bool take_quantised(struct cuda_backend *b, struct activation *a, struct err *e)
{
    const int planes = b->config.fine_activations ? 2 : 1;
    const size_t n_blocks = (size_t)a->width / BLOCK_VALUES;
    const size_t stride = (size_t)cuda_qrows_stride(a->max_rows, planes);
    struct cuda_qrows *q = &a->rows.q;
    q->planes = planes;
    q->q = take(b, n_blocks * stride, BLOCK_VALUES, e);
    q->s = q->q ? take(b, n_blocks * stride, sizeof *q->s, e) : NULL;
    return q->s && cuda_scratch_reserve(b, &b->staging, rows_bytes(a), e);
}

/* Plain logit rows are what the host reads. */
static bool take_host(struct cuda_backend *b, struct activation *a, struct err *e)
{
    const size_t bytes = (size_t)a->max_rows * (size_t)a->width * sizeof *a->host;
    a->host = cuda_pinned_take(b, bytes, "logits", e);
    a->next_host = b->host_rows;
    b->host_rows = a;
    return a->host;
}

static bool take_rows(struct cuda_backend *b, struct activation *a, const struct weight *reader,
                      struct err *e)
{
    if (reader && !cuda_scratch_reserve(b, &b->staging_up, rows_bytes(a), e))
        return false;
    if (!reader) {
        a->f = take(b, padded_rows(a), (size_t)a->width * sizeof *a->f, e);
        return a->f && (!a->logit_rows || take_host(b, a, e));
    }
    if (cuda_is_quantised(reader->type)) {
        a->form = ROWS_QUANTISED;
        return take_quantised(b, a, e);
    }
    a->form = ROWS_FLOAT;
    a->rows.type = reader->type;
    return take_float(b, a, e);
}

struct activation *cuda_activation_new(struct backend *base, int width, const struct weight *reader,
                                       bool logit_rows, struct err *e)
{
    struct cuda_backend *b = cuda_of(base);
    if (!activation_check(width, reader ? reader->cols : 0, e))
        return NULL;
    struct activation *a = blocks_take(&b->blocks, 1, sizeof *a, "activations", NULL, e);
    if (!a)
        return NULL;
    *a = (struct activation){.width = width, .logit_rows = logit_rows};
    a->max_rows = logit_rows ? b->config.max_logits : b->config.max_rows;
    return take_rows(b, a, reader, e) ? a : NULL;
}

/* --- rotary embedding --- */

static void fill_turns(const struct rope_config *c, float *table)
{
    const int half = c->n_dims / 2;
    for (int p = 0; p < c->max_positions; p++)
        for (int i = 0; i < half; i++, table += 2) {
            double angle = (float)p * c->inv_freq[i]; /* float32, as the models were trained */
            table[0] = (float)cos(angle) * c->mscale;
            table[1] = (float)sin(angle) * c->mscale;
        }
}

struct rope *cuda_rope_new(struct backend *base, const struct rope_config *c, struct err *e)
{
    struct cuda_backend *b = cuda_of(base);
    if (!rope_config_check(c, e))
        return NULL;
    const size_t bytes = (size_t)c->max_positions * (size_t)c->n_dims * sizeof(float);
    struct rope *r = blocks_take(&b->blocks, 1, sizeof *r, "rotary table", NULL, e);
    float *turns = r ? blocks_take(&b->blocks, 1, bytes + 1, "rotary table", NULL, e) : NULL;
    float *table = turns ? cuda_arena_take(&b->activations, bytes + 1, "rotary table", e) : NULL;
    if (!table)
        return NULL;
    fill_turns(c, turns);
    *r = (struct rope){{c->style, c->n_dims, table}, c->max_positions};
    const bool ok = cuda_put(table, turns, bytes, "copying a rotary table", e);
    blocks_give(&b->blocks, turns, NULL);
    return ok ? r : NULL;
}
