/* cuda_inputs.c: what a step reads, packed into pinned memory and copied by one call. */
#include "cuda_backend.h"

#include <assert.h>
#include <string.h>

enum { ALIGNMENT = 256 };

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

cudaError_t cuda_inputs_upload(struct cuda_backend *b)
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
