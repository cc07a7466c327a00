/* cuda_inputs.c: what a step reads, packed into pinned memory and copied by one call.
 *
 * Where each part lies on the device depends on the step's shape alone (struct cuda_step), so that
 * a graph may be run again for every step of its shape. Page tables, which come last, lie as close
 * as they are long. */
#include "cuda_backend.h"

#include <assert.h>
#include <string.h>

enum { ALIGNMENT = 256 };

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* --- memory --- */

size_t cuda_inputs_bytes(const struct cuda_backend *b, const struct cuda_attention *a)
{
    const struct backend_config *c = &b->config;
    const size_t rows = (size_t)c->max_rows, seqs = (size_t)c->max_seqs;
    return 3 * aligned(rows * sizeof(int32_t)) + aligned((size_t)c->max_logits * sizeof(int32_t)) +
           CUDA_MAX_WINDOWS * aligned(cuda_attention_plan_bytes(a, c->max_rows, c->max_seqs)) +
           aligned(seqs * (size_t)c->max_pages * sizeof(int32_t));
}

bool cuda_inputs_open(struct cuda_backend *b, struct err *e)
{
    static const char what[] = "step inputs";
    struct cuda_inputs *u = &b->uploads;
    u->bytes = cuda_inputs_bytes(b, &b->attention);
    for (int i = 0; i < CUDA_STEPS_AHEAD; i++)
        if (!(u->host[i] = cuda_pinned_take(b, u->bytes, what, e)) ||
            !cuda_check(cudaEventCreateWithFlags(&u->copied[i], cudaEventDisableTiming), what, e))
            return false;
    return (u->device = cuda_arena_take(&b->activations, u->bytes, what, e)) &&
           (u->tables = blocks_take(&b->blocks, (size_t)b->config.max_seqs, sizeof *u->tables, what,
                                    NULL, e));
}

void cuda_inputs_close(struct cuda_backend *b)
{
    for (int i = 0; i < CUDA_STEPS_AHEAD; i++)
        if (b->uploads.copied[i])
            cudaEventDestroy(b->uploads.copied[i]);
}

/* --- shapes --- */

/* The size of a decode step that n rows are padded to: few, so that each has its graph soon */
static int padded(int n)
{
    return n <= 2 ? n : n <= 4 ? 4 : (n + 7) / 8 * 8;
}

/* Whether each sequence has one row, and all of them want logits, or none */
static bool is_decode(const struct step_inputs *in)
{
    if (in->n_rows < 1 || in->n_seqs != in->n_rows ||
        (in->n_logits != 0 && in->n_logits != in->n_rows))
        return false;
    for (int i = 0; i < in->n_seqs; i++)
        if (in->seqs[i].n_rows != 1)
            return false;
    return true;
}

static void choose_shape(struct cuda_backend *b)
{
    const struct step_inputs *in = &b->inputs;
    const struct backend_config *c = &b->config;
    struct cuda_step *s = &b->step;
    int most = c->max_seqs < CUDA_MOST_GRAPH_ROWS ? c->max_seqs : CUDA_MOST_GRAPH_ROWS;
    most = most < c->max_logits ? most : c->max_logits;
    memset(s, 0, sizeof *s);
    s->pool = b->kv.pool;
    s->n_rows = in->n_rows;
    s->n_seqs = in->n_seqs;
    s->n_logits = in->n_logits;
    s->fixed = cuda_graphs_wanted(b) && in->n_rows <= most && is_decode(in);
    if (!s->fixed)
        return;
    s->n_rows = padded(in->n_rows) < most ? padded(in->n_rows) : most;
    s->n_seqs = s->n_rows;
    s->n_logits = in->n_logits ? s->n_rows : 0;
}

/* --- packing --- */

/* The upload in the making */
struct packing {
    struct cuda_backend *b;
    uint8_t *host;
    size_t used;
};

/* Room for the next part, in the pinned memory */
static void *part(struct packing *p, size_t bytes)
{
    void *at = p->host + p->used;
    p->used += aligned(bytes);
    assert(p->used <= p->b->uploads.bytes);
    return at;
}

static const void *on_device(const struct packing *p, const void *at)
{
    return p->b->uploads.device + ((const uint8_t *)at - p->host);
}

/* n values, and for padding up to `total` first, first + step … */
static const int32_t *put_ints(struct packing *p, const int32_t *from, int n, int total,
                               int32_t first, int32_t step)
{
    int32_t *to = part(p, (size_t)total * sizeof *to);
    memcpy(to, from, (size_t)n * sizeof *to);
    for (int i = n; i < total; i++)
        to[i] = first + (i - n) * step;
    return on_device(p, to);
}

/* Padding: token 0 at position 0 that is written nowhere; logits of rows that are padding, too */
static void put_rows(struct packing *p)
{
    const struct step_inputs *in = &p->b->inputs;
    struct cuda_step *s = &p->b->step;
    s->ids = put_ints(p, in->ids, in->n_rows, s->n_rows, 0, 0);
    s->positions = put_ints(p, in->positions, in->n_rows, s->n_rows, 0, 0);
    s->slots = put_ints(p, in->kv_slots, in->n_rows, s->n_rows, -1, 0);
    s->logit_rows = put_ints(p, in->logit_rows, in->n_logits, s->n_logits, in->n_logits, 1);
}

/* Where the page table of each sequence will begin, of those that lie one after the other; how
 * many pages there are */
static size_t place_tables(struct cuda_backend *b)
{
    const struct step_inputs *in = &b->inputs;
    size_t n = 0;
    for (int i = 0; i < in->n_seqs; i++) {
        const int end = in->seqs[i].start + in->seqs[i].n_rows;
        const int pages = (end + b->kv.block_size - 1) / b->kv.block_size;
        assert(pages <= b->config.max_pages);
        b->uploads.tables[i] = (int32_t)n;
        n += (size_t)pages;
    }
    assert(n <= INT32_MAX);
    return n;
}

static void put_tables(struct packing *p, size_t n)
{
    const struct cuda_backend *b = p->b;
    const int32_t *at = b->uploads.tables;
    int32_t *to = part(p, n * sizeof *to);
    const int n_seqs = b->inputs.n_seqs;
    for (int i = 0; i < n_seqs; i++) {
        const size_t end = i + 1 < n_seqs ? (size_t)at[i + 1] : n;
        memcpy(to + at[i], b->inputs.page_tables + (size_t)i * (size_t)b->config.max_pages,
               (end - (size_t)at[i]) * sizeof *to);
    }
    for (int i = 0; i < b->n_windows; i++)
        p->b->step.attention[i].page_tables = on_device(p, to);
}

/* Tiles name the place of a page table instead of its sequence, and tables are 1 apart. */
static void name_tables(struct cuda_attention_plan *plan, const int32_t *tables)
{
    for (int k = 0; k < CUDA_ATTENTION_KINDS; k++) {
        struct cuda_attention_tile *tiles =
            (struct cuda_attention_tile *)((uint8_t *)plan + plan->tiles_at[k]);
        for (int i = 0; i < plan->n_tiles[k]; i++)
            tiles[i].seq = tables[tiles[i].seq];
    }
}

/* Blocks that do for any step of the shape. What is not launched stays so: attention has graphs for
 * steps with results to join and for those without. */
static struct cuda_attention_grid fixed_grid(const struct cuda_backend *b,
                                             struct cuda_attention_grid now)
{
    const int n = b->step.n_rows;
    struct cuda_attention_grid any = cuda_attention_grid_any(&b->attention, n);
    for (int k = 0; k < CUDA_ATTENTION_KINDS; k++)
        if (now.blocks[k] == 0)
            any.blocks[k] = 0;
    if (now.n_rows > 0)
        return any;
    any.n_rows = 0;
    if (any.blocks[CUDA_NARROW] > n * b->kv.n_kv_heads) /* tiles that are whole */
        any.blocks[CUDA_NARROW] = n * b->kv.n_kv_heads;
    return any;
}

static void put_plan(struct packing *p, int i)
{
    struct cuda_backend *b = p->b;
    const struct step_inputs *in = &b->inputs;
    struct cuda_step *s = &b->step;
    struct cuda_attention_plan *plan =
        part(p, cuda_attention_plan_bytes(&b->attention, s->n_rows, s->n_seqs));
    const struct cuda_attention_pages pages = {in->page_tables, b->config.max_pages,
                                               b->kv.block_size};
    cuda_attention_plan_make(&b->attention, plan, s->n_rows, s->n_seqs, in->seqs, in->n_seqs,
                             &pages, b->windows[i], b->partials_bytes);
    name_tables(plan, b->uploads.tables);
    const struct cuda_attention_grid grid = cuda_attention_grid_of(&b->attention, plan);
    s->attention[i].grid = s->fixed ? fixed_grid(b, grid) : grid;
    s->attention[i].plan = on_device(p, plan);
    s->attention[i].max_pages = 1;
    s->attention[i].partials = b->partials;
}

static void pack(struct packing *p)
{
    const int n_windows = p->b->n_windows; /* none: no attention, no page tables */
    const size_t n_pages = n_windows > 0 ? place_tables(p->b) : 0;
    put_rows(p);
    for (int i = 0; i < n_windows; i++)
        put_plan(p, i);
    if (n_windows > 0)
        put_tables(p, n_pages);
}

cudaError_t cuda_inputs_upload(struct cuda_backend *b)
{
    struct cuda_inputs *u = &b->uploads;
    const int i = u->next;
    struct packing p = {.b = b, .host = u->host[i]};
    choose_shape(b);
    if (b->inputs.n_rows == 0)
        return cudaSuccess;
    u->next = (i + 1) % CUDA_STEPS_AHEAD;
    cudaError_t code = cudaEventSynchronize(u->copied[i]);
    if (code != cudaSuccess)
        return code;
    pack(&p);
    code = cudaMemcpyAsync(u->device, p.host, p.used, cudaMemcpyHostToDevice, b->stream);
    return code == cudaSuccess ? cudaEventRecord(u->copied[i], b->stream) : code;
}
