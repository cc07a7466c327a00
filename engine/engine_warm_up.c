/* engine_warm_up.c: steps that nobody asked for, run before the KV pool takes what is left of a
 * device's memory. What the device takes when it first does something (kernels are loaded, and
 * libraries take their working memory) is taken then. */
#include "engine_impl.h"

/* A step of n_seqs sequences of `n` tokens each, from position `start` on. What is computed is of
 * no use, so the page tables go round the pool where it has fewer pages than sequences would: at
 * worst tokens write one slot.
 */
static void fill_inputs(struct engine *e, int n_seqs, int n, int start, int n_pages)
{
    struct step_inputs *in = e->backend->ops->step_begin(e->backend);
    const int block = e->config.block_size, pages = (start + n + block - 1) / block;
    int row = 0;
    for (int i = 0; i < n_seqs; i++) {
        int32_t *table = in->page_tables + (size_t)i * (size_t)e->max_pages;
        in->seqs[i] = (struct step_seq){row, n, start};
        for (int j = 0; j < pages; j++)
            table[j] = (int32_t)(((int64_t)i * pages + j) % n_pages);
        for (int j = 0; j < n; j++, row++) {
            in->ids[row] = 0;
            in->positions[row] = start + j;
            in->kv_slots[row] = table[(start + j) / block] * block + (start + j) % block;
            in->adapters[row] = -1;
        }
        in->logit_rows[i] = row - 1;
    }
    in->n_rows = row;
    in->n_seqs = n_seqs;
    in->n_logits = n_seqs < e->max_logits ? n_seqs : e->max_logits;
}

/* Such that every kernel of the sampler runs */
static void draw_of_each(struct engine *e, int n)
{
    for (int i = 0; i < n; i++)
        e->draws[i] = (struct draw){.logit = i,
                                    .n_logprobs = 1,
                                    .temperature = 1,
                                    .top_k = 50,
                                    .top_p = 0.9f,
                                    .repetition_penalty = 1,
                                    .counts = -1};
    model_sample(e->model, e->draws, n);
}

static bool run_step(struct engine *e, int n_seqs, int n, int start, int n_pages, struct err *err)
{
    const struct backend_ops *ops = e->backend->ops;
    const struct drawn *drawn;
    fill_inputs(e, n_seqs, n, start, n_pages);
    model_forward(e->model);
    if (e->max_draws == 0)
        return ops->submit(e->backend, err);
    draw_of_each(e, n_seqs < e->max_logits ? n_seqs : e->max_logits);
    return ops->start(e->backend, err) && ops->finish(e->backend, &drawn, err);
}

/* The most tokens that every sequence can have in one step */
static int most_tokens(const struct engine *e)
{
    const int most = e->config.max_num_batched_tokens / e->config.max_num_seqs;
    const int context = e->max_pages * e->config.block_size;
    return most < context ? most : context;
}

int engine_warm_up_pages(const struct engine *e)
{
    const int block = e->config.block_size;
    const int64_t pages = (int64_t)e->config.max_num_seqs * ((most_tokens(e) + block - 1) / block);
    return pages < INT32_MAX / block ? (int)pages : INT32_MAX / block;
}

/* Where attention is of parts that are joined by a kernel of its own */
enum { LONG_CONTEXT = 1024 };

/* The largest step, a decode of each size that may have kernels of its own, and one in a long
 * context */
bool engine_warm_up(struct engine *e, int n_pages, struct err *err)
{
    const int most = e->config.max_num_seqs, last = (e->max_pages - 1) * e->config.block_size;
    for (int n = 1; n < most; n *= 2)
        if (!run_step(e, n, 1, 0, n_pages, err))
            return false;
    return run_step(e, most, 1, 0, n_pages, err) &&
           run_step(e, 1, 1, last < LONG_CONTEXT ? last : LONG_CONTEXT, n_pages, err) &&
           run_step(e, most, most_tokens(e), 0, n_pages, err);
}
