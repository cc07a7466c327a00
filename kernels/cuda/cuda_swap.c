/* cuda_swap.c: copies of pages to pinned memory of the host and back, on a stream of their own, so
 * that steps run meanwhile.
 *
 * A batch of copies waits for all that the steps' stream was given before it. What that stream is
 * given later waits for the batches that copied one of its pages, and no others: each page knows
 * its last batch. Batches wait for each other, being on one stream. */
#include "cuda_backend.h"

#include <assert.h>

/* The stream of the steps waits for this batch, unless it has done so. There is an event for each
 * of the last batches; one that is older than those shares its event with a later one. */
static void wait_for(struct cuda_backend *b, uint64_t batch)
{
    struct cuda_swap *s = &b->swap;
    if (batch <= s->n_waited)
        return;
    cuda_note(b, cudaStreamWaitEvent(b->stream, s->done[batch % CUDA_SWAP_EVENTS], 0),
              "waiting for copies of pages");
    s->n_waited = batch;
}

void cuda_swap_wait_page(struct cuda_backend *b, int page)
{
    if (b->swap.last)
        wait_for(b, b->swap.last[page]);
}

void cuda_swap_wait_step(struct cuda_backend *b)
{
    const struct step_inputs *in = &b->inputs;
    const struct cuda_swap *s = &b->swap;
    uint64_t last = 0;
    if (s->n_waited == s->n_batches)
        return;
    for (int i = 0; i < in->n_seqs; i++) {
        const int32_t *pages = in->page_tables + (size_t)i * (size_t)b->config.max_pages;
        const int end = in->seqs[i].start + in->seqs[i].n_rows;
        for (int j = 0; j * b->kv.block_size < end; j++)
            if ((uint32_t)pages[j] < (uint32_t)b->n_pages && s->last[pages[j]] > last)
                last = s->last[pages[j]];
    }
    wait_for(b, last);
}

/* --- batches --- */

static bool begin_batch(struct cuda_backend *b)
{
    struct cuda_swap *s = &b->swap;
    return cuda_note(b, cudaEventRecord(s->given, b->stream), "copying pages") &&
           cuda_note(b, cudaStreamWaitEvent(s->stream, s->given, 0), "copying pages");
}

static void end_batch(struct cuda_backend *b, const int32_t *pages, int n)
{
    struct cuda_swap *s = &b->swap;
    s->n_batches++;
    for (int i = 0; i < n; i++)
        s->last[pages[i]] = s->n_batches;
    cuda_note(b, cudaEventRecord(s->done[s->n_batches % CUDA_SWAP_EVENTS], s->stream),
              "copying pages");
}

/* How many of the first pages lie side by side, here and there */
static int run_of(const int32_t *pages, const int32_t *host_pages, int n)
{
    int run = 1;
    while (run < n && pages[run] == pages[0] + run && host_pages[run] == host_pages[0] + run)
        run++;
    return run;
}

static void copy_pages(struct cuda_backend *b, const int32_t *pages, const int32_t *host_pages,
                       int n, bool out)
{
    const size_t bytes = cuda_kv_page_bytes(&b->kv);
    if (n == 0 || !begin_batch(b))
        return;
    for (int i = 0, run; i < n; i += run) {
        run = run_of(pages + i, host_pages + i, n - i);
        assert(host_pages[i] >= 0 && host_pages[i] + run <= b->swap.n_pages);
        assert(pages[i] >= 0 && pages[i] + run <= b->n_pages);
        uint8_t *device = (uint8_t *)b->kv.pool + (size_t)pages[i] * bytes;
        uint8_t *host = b->swap.host + (size_t)host_pages[i] * bytes;
        if (!cuda_note(b,
                       cudaMemcpyAsync(
                           out ? host : device, out ? device : host, (size_t)run * bytes,
                           out ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, b->swap.stream),
                       "copying pages"))
            return;
    }
    end_batch(b, pages, n);
}

void cuda_swap_out(struct backend *base, const int32_t *pages, const int32_t *host_pages, int n)
{
    copy_pages(cuda_of(base), pages, host_pages, n, true);
}

void cuda_swap_in(struct backend *base, const int32_t *pages, const int32_t *host_pages, int n)
{
    copy_pages(cuda_of(base), pages, host_pages, n, false);
}

/* --- opening and closing --- */

static bool take_events(struct cuda_swap *s, struct err *e)
{
    bool ok =
        cuda_check(cudaEventCreateWithFlags(&s->given, cudaEventDisableTiming), "an event", e);
    for (int i = 0; ok && i < CUDA_SWAP_EVENTS; i++)
        ok = cuda_check(cudaEventCreateWithFlags(&s->done[i], cudaEventDisableTiming), "an event",
                        e);
    return ok;
}

bool cuda_swap_open(struct backend *base, int n_host_pages, struct err *e)
{
    struct cuda_backend *b = cuda_of(base);
    struct cuda_swap *s = &b->swap;
    assert(b->kv.pool && !s->host && n_host_pages > 0);
    const size_t bytes = cuda_kv_page_bytes(&b->kv);
    if ((size_t)n_host_pages > SIZE_MAX / bytes)
        return err_set(e, ERR_MEMORY, "swap space of %d pages of %zu bytes", n_host_pages, bytes);
    s->host = cuda_pinned_take(b, (size_t)n_host_pages * bytes, "swap space", e);
    s->n_pages = n_host_pages;
    return s->host && take_events(s, e) &&
           (s->last = blocks_take(&b->blocks, (size_t)b->n_pages, sizeof *s->last, "swap space",
                                  NULL, e)) &&
           cuda_check(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking), "a stream", e);
}

void cuda_swap_close(struct cuda_backend *b)
{
    struct cuda_swap *s = &b->swap;
    if (s->stream) {
        cudaStreamSynchronize(s->stream); /* of a failed device: an error that was told */
        cudaStreamDestroy(s->stream);
    }
    for (int i = 0; i < CUDA_SWAP_EVENTS; i++)
        if (s->done[i])
            cudaEventDestroy(s->done[i]);
    if (s->given)
        cudaEventDestroy(s->given);
}
