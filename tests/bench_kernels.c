/* Speed of a whole step, by the clock on the wall and by the processors' time (what counts
 * on a machine that does other work, with one thread), in SmolLM2-135M's shapes with random
 * weights. Not run by the tests. usage: bench_kernels [threads] [type] [8|16] [KV type];
 * 16: activations of 16 bits;
 * a type whose blocks do not divide 576 has 12 heads and a width of 768. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend.h"

#define LAYERS 30
#define FF 1536
#define WIDTH (HEADS * DIM)
#define HEADS heads
#define KV_HEADS 3
#define DIM 64
#define VOCAB 49152
#define BLOCK 16
#define MAX_ROWS 512
#define MAX_SEQS 32
#define MAX_PAGES 160

#define RMS(weight) (&(struct norm){.w = (weight), .eps = 1e-5f})

static int heads = 9;

struct layer {
    struct weight *norm1, *q, *k, *v, *o, *norm2, *gate, *up, *down;
};

struct model {
    struct backend *b;
    struct rope *rope;
    struct weight *embed, *norm;
    struct layer layers[LAYERS];
    struct activation *x, *normed, *q, *k, *v, *att, *normed2, *hidden, *last, *logits;
};

static double clock_of(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double now(void)
{
    return clock_of(CLOCK_MONOTONIC);
}

/* Small finite numbers: where a block of random bytes has its scales */
static void tame(enum dtype t, uint8_t *block)
{
    static const uint8_t at_d[DTYPE_COUNT] = {[DTYPE_Q6_K] = 208,
                                              [DTYPE_Q2_K] = 80,
                                              [DTYPE_Q3_K] = 108,
                                              [DTYPE_TQ1_0] = 52,
                                              [DTYPE_TQ2_0] = 64};
    uint16_t d = 0x1800 | (uint16_t)(block[0] & 0xff), m = 0xA400;
    float f = (float)(int8_t)block[0] / 2000;
    int bytes = dtype_info(t)->block_bytes;
    if (bytes == 4)
        memcpy(block, &f, 4);
    else if (t == DTYPE_MXFP4)
        block[0] = 118;
    else if (t == DTYPE_NVFP4)
        memset(block, 24, 4);
    else if (t == DTYPE_IQ1_M)
        for (int i = 48; i < 56; i += 2)
            block[i + 1] = (uint8_t)((block[i + 1] & 15) | (d >> (i - 48) * 2 & 15) << 4);
    else if (bytes > 1)
        memcpy(block + at_d[t], &d, 2);
    if (t == DTYPE_Q4_1 || t == DTYPE_Q5_1 || t == DTYPE_Q4_K || t == DTYPE_Q5_K)
        memcpy(block + 2, &m, 2);
    if (t == DTYPE_Q2_K)
        memcpy(block + 82, &m, 2);
}

static struct weight *weight(struct backend *b, enum dtype t, int rows, int cols)
{
    struct err e;
    size_t bytes = (size_t)rows * dtype_row_bytes(t, cols);
    uint8_t *src = malloc(bytes);
    int block = dtype_info(t)->block_bytes;
    uint32_t seed = (uint32_t)rows * 31 + (uint32_t)cols;
    for (size_t i = 0; i < bytes; i++)
        src[i] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
    for (size_t i = 0; i < bytes; i += (size_t)block)
        tame(t, src + i);
    struct weight *w = b->ops->weight_load(b, t, rows, cols, src, &e);
    free(src);
    if (!w)
        exit(fprintf(stderr, "%s\n", e.msg));
    return w;
}

static struct activation *rows_of(struct backend *b, int width, const struct weight *reader,
                                  bool logits)
{
    struct err e;
    struct activation *a = b->ops->activation_new(b, width, reader, logits, &e);
    if (!a)
        exit(fprintf(stderr, "%s\n", e.msg));
    return a;
}

static void load(struct model *m, enum dtype t)
{
    struct backend *b = m->b;
    m->embed = weight(b, t == DTYPE_Q4_1 ? DTYPE_Q8_0 : t, VOCAB, WIDTH);
    m->norm = weight(b, DTYPE_F32, 1, WIDTH);
    for (int i = 0; i < LAYERS; i++)
        m->layers[i] = (struct layer){
            weight(b, DTYPE_F32, 1, WIDTH),
            weight(b, t, WIDTH, WIDTH),
            weight(b, t, KV_HEADS * DIM, WIDTH),
            weight(b, t, KV_HEADS * DIM, WIDTH),
            weight(b, t, WIDTH, WIDTH),
            weight(b, DTYPE_F32, 1, WIDTH),
            weight(b, t, FF, WIDTH),
            weight(b, t, FF, WIDTH),
            weight(b, t, WIDTH, FF),
        };
    m->x = rows_of(b, WIDTH, NULL, false);
    m->normed = rows_of(b, WIDTH, m->layers[0].q, false);
    m->q = rows_of(b, WIDTH, NULL, false);
    m->k = rows_of(b, KV_HEADS * DIM, NULL, false);
    m->v = rows_of(b, KV_HEADS * DIM, NULL, false);
    m->att = rows_of(b, WIDTH, m->layers[0].o, false);
    m->normed2 = rows_of(b, WIDTH, m->layers[0].gate, false);
    m->hidden = rows_of(b, FF, m->layers[0].down, false);
    m->last = rows_of(b, WIDTH, m->embed, true);
    m->logits = rows_of(b, VOCAB, NULL, true);
}

static void forward(struct model *m)
{
    const struct backend_ops *o = m->b->ops;
    struct attention_config c = {HEADS, KV_HEADS, DIM, 0.125f, 0, 0};
    o->embed(m->b, m->x, m->embed, 1);
    for (int i = 0; i < LAYERS; i++) {
        struct layer *l = &m->layers[i];
        const struct weight *qkv[] = {l->q, l->k, l->v}, *gated[] = {l->gate, l->up};
        const struct weight *out[] = {l->o}, *down[] = {l->down};
        struct activation *outs[] = {m->q, m->k, m->v};
        o->norm(m->b, m->normed, m->x, RMS(l->norm1));
        o->linear(m->b, INTO_STORE, ACT_SILU, m->normed, 3, qkv, NULL, outs);
        o->rope_write_kv(m->b, i, NULL, m->rope, HEADS, m->q, m->k, m->v);
        o->attention(m->b, i, &c, NULL, m->att, m->q);
        o->linear(m->b, INTO_ADD, ACT_SILU, m->att, 1, out, NULL, &m->x);
        o->norm(m->b, m->normed2, m->x, RMS(l->norm2));
        o->linear(m->b, INTO_ACT_MUL, ACT_SILU, m->normed2, 2, gated, NULL, &m->hidden);
        o->linear(m->b, INTO_ADD, ACT_SILU, m->hidden, 1, down, NULL, &m->x);
    }
    const struct weight *head[] = {m->embed};
    o->norm_logit_rows(m->b, m->last, m->x, RMS(m->norm));
    o->linear(m->b, INTO_STORE, ACT_SILU, m->last, 1, head, NULL, &m->logits);
}

/* n_seqs sequences of n rows each at position start, sharing their first `shared` tokens */
static double step(struct model *m, int n_seqs, int n, int start, int shared)
{
    struct err e;
    struct step_inputs *in = m->b->ops->step_begin(m->b);
    in->n_seqs = in->n_logits = n_seqs;
    in->n_rows = n_seqs * n;
    for (int s = 0; s < n_seqs; s++) {
        int32_t *pages = in->page_tables + s * MAX_PAGES;
        for (int p = 0; p < MAX_PAGES; p++)
            pages[p] = (p * BLOCK < shared ? 0 : s) * MAX_PAGES + p;
        in->seqs[s] = (struct step_seq){s * n, n, start};
        in->logit_rows[s] = s * n + n - 1;
        for (int i = 0; i < n; i++) {
            int row = s * n + i, pos = start + i;
            in->ids[row] = (row * 7919 + start) % VOCAB;
            in->positions[row] = pos;
            in->kv_slots[row] = pages[pos / BLOCK] * BLOCK + pos % BLOCK;
        }
    }
    forward(m);
    double t = now();
    m->b->ops->submit(m->b, &e);
    return now() - t;
}

static void show(struct model *m, const char *what, int n_seqs, int n, int start, int shared)
{
    double best = 1e9, total = 0, end = now() + 0.7, best_cpu = 1e9;
    int runs = 0;
    for (; runs < 3 || now() < end; runs++) {
        double cpu = clock_of(CLOCK_PROCESS_CPUTIME_ID);
        double t = step(m, n_seqs, n, start, shared);
        cpu = clock_of(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        best_cpu = cpu < best_cpu ? cpu : best_cpu;
        best = t < best ? t : best;
        total += t;
    }
    printf("%-8s %2d x %3d at %4d: best %8.2f ms %6.0f tokens/s, mean %6.0f, processors %8.2f ms\n",
           what, n_seqs, n, start, best * 1e3, n_seqs * n / best, n_seqs * n / (total / runs),
           best_cpu * 1e3);
}

int main(int argc, char **argv)
{
    struct err e;
    enum dtype t = DTYPE_Q4_1;
    float inv_freq[DIM / 2];
    struct model m = {0};
    struct backend_config c = {argc > 1 ? atoi(argv[1]) : 2, MAX_ROWS, MAX_SEQS, MAX_PAGES,
                               MAX_SEQS};
    c.fine_activations = argc > 3 && atoi(argv[3]) == 16;
    struct kv_config kv = {LAYERS, KV_HEADS, DIM, BLOCK, MAX_SEQS * MAX_PAGES, DTYPE_F16};
    if ((argc > 2 && !dtype_from_name(argv[2], &t)) ||
        (argc > 4 && !dtype_from_name(argv[4], &kv.dtype)) || !(m.b = backend_cpu_open(&c, &e)))
        return fprintf(stderr, "usage: bench_kernels [threads] [type] [8|16] [KV type]\n");
    if (576 % dtype_info(t)->block_elems)
        heads = 12;
    for (int i = 0; i < DIM / 2; i++)
        inv_freq[i] = powf(1e5f, -(float)i / (DIM / 2));
    struct rope_config rope = {ROPE_NORMAL, DIM, inv_freq, 1, MAX_PAGES * BLOCK};
    m.rope = m.b->ops->rope_new(m.b, &rope, &e);
    load(&m, t);
    if (!m.b->ops->kv_open(m.b, &kv, &e))
        return fprintf(stderr, "%s\n", e.msg);
    printf("%s, %s, KV %s\n", m.b->ops->describe(m.b), dtype_info(t)->name,
           dtype_info(kv.dtype)->name);
    for (int at = 0; at < 2048; at += MAX_ROWS) /* fills the first sequence's pages */
        step(&m, 1, MAX_ROWS, at, 0);
    show(&m, "prefill", 1, 128, 0, 0);
    show(&m, "prefill", 1, 512, 0, 0);
    show(&m, "prefill", 1, 512, 1536, 0);
    for (int depth = 0; depth < 2048; depth += depth ? 1535 : 512)
        for (int n = 1; n <= MAX_SEQS; n *= n == 1 ? 4 : n == 4 ? 4 : 2)
            show(&m, "decode", n, 1, depth, 2048);
    m.b->ops->close(m.b);
    return 0;
}
