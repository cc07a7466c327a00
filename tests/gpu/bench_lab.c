#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_module.h"

enum { BLOCK = 16 };

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool said(const struct err *e)
{
    fprintf(stderr, "%s\n", e->msg);
    return false;
}

bool bench_open(struct bench_lab *l, const struct bench_sizes *s, int max_rows, int max_seqs)
{
    struct err e = {0};
    const int positions = s->context > s->prompt ? s->context : s->prompt;
    l->max_pages = (positions + BLOCK - 1) / BLOCK + 1;
    const struct backend_config c = {.threads = 4,
                                     .max_rows = max_rows,
                                     .max_seqs = max_seqs,
                                     .max_pages = l->max_pages,
                                     .max_logits = max_seqs};
    l->b = backend_cuda_open(&c, &e);
    if (!l->b)
        return said(&e);
    l->ops = l->b->ops;
    return true;
}

bool bench_open_kv(struct bench_lab *l, const struct bench_sizes *s, int n_layers, int n_kv_heads,
                   int max_seqs)
{
    struct err e = {0};
    l->kv = (struct kv_config){.n_layers = n_layers,
                               .n_kv_heads = n_kv_heads,
                               .head_dim = s->head_dim,
                               .block_size = BLOCK,
                               .n_pages = max_seqs * l->max_pages,
                               .dtype = DTYPE_F16,
                               .n_heads = s->n_heads};
    if (l->ops->weights_loaded)
        l->ops->weights_loaded(l->b);
    if (!l->ops->kv_open(l->b, &l->kv, &e))
        return said(&e);
    for (int i = 0; i < l->kv.n_pages; i++) /* 0x2c2c is a small F16 */
        l->ops->page_fill(l->b, i, 0x2c);
    return true;
}

void bench_close(struct bench_lab *l)
{
    if (l->b)
        l->ops->close(l->b);
    l->b = NULL;
}

void bench_fill(struct bench_lab *l, const struct bench_step *s)
{
    struct step_inputs *in = l->ops->step_begin(l->b);
    for (int q = 0; q < s->n_seqs; q++) {
        in->seqs[q] = (struct step_seq){q * s->n, s->n, s->start};
        for (int p = 0; p < l->max_pages; p++)
            in->page_tables[(size_t)q * (size_t)l->max_pages + (size_t)p] = q * l->max_pages + p;
        for (int i = 0; i < s->n; i++) {
            const int row = q * s->n + i, at = s->start + i;
            in->ids[row] = (q + at) % 97;
            in->positions[row] = at;
            in->kv_slots[row] = (q * l->max_pages + at / BLOCK) * BLOCK + at % BLOCK;
            in->adapters[row] = -1;
        }
        in->logit_rows[q] = (q + 1) * s->n - 1;
    }
    in->n_rows = s->n_seqs * s->n;
    in->n_seqs = s->n_seqs;
    in->n_logits = s->logits ? s->n_seqs : 0;
}

double bench_time(struct bench_lab *l, const struct bench_step *s,
                  void (*record)(struct bench_lab *, void *arg, int n), void *arg, int n)
{
    double best = -1;
    for (int run = 0; run < 5; run++) {
        struct err e = {0};
        bench_fill(l, s);
        record(l, arg, n);
        const double from = bench_now();
        if (!l->ops->submit(l->b, &e)) {
            said(&e);
            return -1;
        }
        const double took = bench_now() - from;
        if (run > 0 && (best < 0 || took < best)) /* the first warms up */
            best = took;
    }
    return best;
}

/* --- values --- */

static void fill(enum dtype type, uint16_t *to, size_t n_halves)
{
    uint64_t x = 0x9e3779b97f4a7c15u;
    float *floats = (float *)to;
    for (size_t i = 0; type == DTYPE_F32 && i < n_halves / 2; i++)
        floats[i] = 1; /* norms */
    for (size_t i = 0; type != DTYPE_F32 && i < n_halves; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        const uint16_t bits = (uint16_t)(x >> 20);
        to[i] = type == DTYPE_F16    ? (bits & 0x8000) | (0x1c00 + (bits & 0x0fff))
                : type == DTYPE_BF16 ? (bits & 0x8000) | (0x3b80 + (bits & 0x01ff))
                                     : bits;
    }
}

const void *bench_random(enum dtype type, int64_t rows, int64_t cols)
{
    static struct {
        void *at;
        size_t bytes;
    } kept[DTYPE_COUNT];
    const size_t bytes = ((size_t)rows * dtype_row_bytes(type, cols) + 63) / 64 * 64;
    if (kept[type].bytes < bytes) {
        free(kept[type].at);
        kept[type].at = aligned_alloc(64, bytes);
        kept[type].bytes = bytes;
        if (!kept[type].at)
            abort();
        fill(type, kept[type].at, bytes / 2);
    }
    return kept[type].at;
}
