/* fake_backend.h: a device that computes nothing but remembers everything.
 *
 * A KV slot holds the token id that was written there, and the logits of a row are a hash of
 * all ids that it sees through its page table. So one wrong page, slot, copy or order changes
 * the tokens that follow, and equal tokens mean that the engine's bookkeeping was right. A slot
 * that was filled by page_fill and then read makes NaN, as a stale page would. */
#ifndef TOKEND_FAKE_BACKEND_H
#define TOKEND_FAKE_BACKEND_H

#include "backend.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct activation {
    int width;
    float *rows; /* only of the logits */
};
struct weight {
    int64_t rows, cols;
};

/* What tests turn, and what they read. */
struct fake_controls {
    _Atomic bool hold;     /* submit waits while set */
    _Atomic int pass;      /* submits that go on all the same */
    _Atomic bool held;     /* it is waiting now */
    _Atomic int fail;      /* submit fails */
    _Atomic int nan_token; /* rows that see this id have NaN logits; -1: none */
    _Atomic int delay_us;  /* of each submit */
    _Atomic int submits;
    _Atomic int most_rows; /* of one step */
    _Atomic int most_logits;
    _Atomic int misuse; /* steps that broke backend.h's rules */
};
static struct fake_controls fake;
enum { FAKE_KV_EXTRA = 1000 }; /* bytes, as if taken with the pool */

struct fake_backend {
    struct backend base;
    struct backend_config config;
    struct kv_config kv;
    int32_t *slots; /* [n_pages * block_size] */
    struct step_inputs in;
    struct activation *logits;
    void *owned[4096];
    int n_owned;
};

static struct fake_backend *fake_of(struct backend *b)
{
    return (struct fake_backend *)b;
}

static void *fake_own(struct fake_backend *f, void *p)
{
    if (f->n_owned == 4096)
        abort();
    return f->owned[f->n_owned++] = p;
}

static void fake_close(struct backend *b)
{
    struct fake_backend *f = fake_of(b);
    for (int i = 0; i < f->n_owned; i++)
        free(f->owned[i]);
    free(f);
}

static void fake_memory(struct backend *b, struct backend_memory *out)
{
    *out = (struct backend_memory){.total = 1u << 30};
}

static const char *fake_describe(struct backend *b)
{
    return "remembers tokens";
}

static struct weight *fake_weight_load(struct backend *b, enum dtype t, int64_t rows, int64_t cols,
                                       const void *src, struct err *e)
{
    struct weight *w = fake_own(fake_of(b), malloc(sizeof *w));
    *w = (struct weight){rows, cols};
    return w;
}

static struct activation *fake_activation_new(struct backend *b, int width,
                                              const struct weight *reader, bool logit_rows,
                                              struct err *e)
{
    struct fake_backend *f = fake_of(b);
    struct activation *a = fake_own(f, calloc(1, sizeof *a));
    a->width = width;
    if (logit_rows && !reader) {
        size_t n = (size_t)width * (size_t)f->config.max_logits;
        a->rows = fake_own(f, malloc(n * sizeof *a->rows));
        f->logits = a;
    }
    return a;
}

static struct rope *fake_rope_new(struct backend *b, const struct rope_config *c, struct err *e)
{
    return fake_own(fake_of(b), malloc(1));
}

static struct moe *fake_moe_new(struct backend *b, const struct moe_config *c, struct err *e)
{
    return fake_own(fake_of(b), malloc(1));
}

static uint64_t fake_page_bytes(struct backend *b, const struct kv_config *c)
{
    return (uint64_t)c->block_size * sizeof(int32_t);
}

static uint64_t fake_kv_extra_bytes(struct backend *b, const struct kv_config *c)
{
    return FAKE_KV_EXTRA;
}

static bool fake_kv_open(struct backend *b, const struct kv_config *c, struct err *e)
{
    struct fake_backend *f = fake_of(b);
    size_t bytes = (size_t)c->n_pages * (size_t)c->block_size * sizeof *f->slots;
    f->kv = *c;
    f->slots = fake_own(f, malloc(bytes));
    memset(f->slots, 0xFF, bytes);
    return true;
}

static void fake_page_copy(struct backend *b, int src, int dst)
{
    struct fake_backend *f = fake_of(b);
    size_t n = (size_t)f->kv.block_size;
    memcpy(f->slots + (size_t)dst * n, f->slots + (size_t)src * n, n * sizeof *f->slots);
}

static void fake_page_fill(struct backend *b, int page, uint8_t byte)
{
    struct fake_backend *f = fake_of(b);
    size_t n = (size_t)f->kv.block_size;
    memset(f->slots + (size_t)page * n, byte, n * sizeof *f->slots);
}

static struct step_inputs *fake_step_begin(struct backend *b)
{
    return &fake_of(b)->in;
}

static void fake_embed(struct backend *b, struct activation *x, const struct weight *w, float s)
{
}
static void fake_norm(struct backend *b, struct activation *out, const struct activation *x,
                      const struct norm *n)
{
}
static void fake_norm_add(struct backend *b, struct activation *x, const struct activation *y,
                          const struct norm *n)
{
}
static void fake_linear(struct backend *b, enum linear_into into, enum act_fn act,
                        const struct activation *x, int n, const struct weight *const *w,
                        const struct weight *const *bias, struct activation *const *outs)
{
}
static void fake_rope_write_kv(struct backend *b, int layer, const struct qk_norm *n,
                               const struct rope *r, int n_heads, struct activation *q,
                               struct activation *k, struct activation *v)
{
}
static void fake_attention(struct backend *b, int layer, const struct attention_config *c,
                           const struct weight *sinks, struct activation *out,
                           const struct activation *q)
{
}
static void fake_soft_cap(struct backend *b, struct activation *x, float cap)
{
}
static void fake_gated_add(struct backend *b, struct activation *x, const struct activation *y,
                           const struct activation *in, const struct weight *w)
{
}
static void fake_moe(struct backend *b, struct moe *moe, const struct moe_layer *layer,
                     enum linear_into into, const struct activation *x,
                     const struct activation *router_logits, struct activation *out)
{
}

static uint64_t fake_mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15;
    return h ^ h >> 29;
}

/* The hash of what a row sees, or 0 when it must give NaN. */
static uint64_t fake_seen(const struct fake_backend *f, const int32_t *pages, int position)
{
    uint64_t h = 1;
    const int block = f->kv.block_size, bad = atomic_load(&fake.nan_token);
    for (int p = 0; p <= position; p++) {
        int32_t id = f->slots[(size_t)pages[p / block] * (size_t)block + (size_t)(p % block)];
        if (id < 0 || id == bad)
            return 0;
        h = fake_mix(h, (uint64_t)id + 1);
    }
    return h | 1;
}

static void fake_fill_logits(float *out, int n, uint64_t seen)
{
    for (int v = 0; v < n; v++)
        out[v] = seen ? (float)(fake_mix(seen, (uint64_t)v) >> 40) * 0x1p-21f - 4.0f : NAN;
}

static void fake_note_most(_Atomic int *most, int n)
{
    if (n > atomic_load(most))
        atomic_store(most, n);
}

static bool fake_seq_is_sound(const struct fake_backend *f, int i, int row)
{
    const struct step_inputs *in = &f->in;
    const struct step_seq *s = &in->seqs[i];
    const int block = f->kv.block_size;
    const int32_t *pages = in->page_tables + (size_t)i * (size_t)f->config.max_pages;
    bool ok = s->row == row && s->n_rows > 0;
    for (int j = 0; ok && j < s->n_rows; j++) {
        int pos = s->start + j;
        ok = in->positions[row + j] == pos && pos / block < f->config.max_pages &&
             in->kv_slots[row + j] == pages[pos / block] * block + pos % block &&
             in->adapters[row + j] == -1;
    }
    return ok;
}

static void fake_run(struct fake_backend *f)
{
    const struct step_inputs *in = &f->in;
    int row = 0, logit = 0;
    for (int i = 0; i < in->n_seqs; row += in->seqs[i++].n_rows)
        if (!fake_seq_is_sound(f, i, row))
            atomic_fetch_add(&fake.misuse, 1);
    if (row != in->n_rows || row > f->config.max_rows || in->n_logits > f->config.max_logits)
        atomic_fetch_add(&fake.misuse, 1);
    for (int r = 0; r < in->n_rows; r++)
        f->slots[in->kv_slots[r]] = in->ids[r];
    for (int i = 0; i < in->n_seqs; i++) {
        const struct step_seq *s = &in->seqs[i];
        const int32_t *pages = in->page_tables + (size_t)i * (size_t)f->config.max_pages;
        for (; logit < in->n_logits && in->logit_rows[logit] < s->row + s->n_rows; logit++)
            fake_fill_logits(f->logits->rows + (size_t)logit * (size_t)f->logits->width,
                             f->logits->width,
                             fake_seen(f, pages, in->positions[in->logit_rows[logit]]));
    }
    if (logit != in->n_logits)
        atomic_fetch_add(&fake.misuse, 1);
}

static void fake_sleep_us(int us)
{
    nanosleep(&(struct timespec){us / 1000000, (long)(us % 1000000) * 1000}, NULL);
}

static bool fake_may_pass(void)
{
    if (atomic_load(&fake.pass) == 0)
        return false;
    atomic_fetch_sub(&fake.pass, 1);
    return true;
}

static bool fake_submit(struct backend *b, struct err *e)
{
    struct fake_backend *f = fake_of(b);
    while (atomic_load(&fake.hold) && !fake_may_pass()) {
        atomic_store(&fake.held, true);
        fake_sleep_us(200);
    }
    atomic_store(&fake.held, false);
    atomic_fetch_add(&fake.submits, 1);
    if (atomic_load(&fake.fail))
        return err_set(e, ERR_DEVICE, "the test pulled the plug");
    if (atomic_load(&fake.delay_us))
        fake_sleep_us(atomic_load(&fake.delay_us));
    fake_note_most(&fake.most_rows, f->in.n_rows);
    fake_note_most(&fake.most_logits, f->in.n_logits);
    fake_run(f);
    return true;
}

static const float *fake_read(struct backend *b, const struct activation *a, int row)
{
    return a->rows + (size_t)row * (size_t)a->width;
}

static void fake_host_for(struct backend *b, void (*fn)(void *arg, int i), void *arg, int n)
{
    for (int i = n; i-- > 0;)
        fn(arg, i);
}

static const struct backend_ops fake_ops = {
    .name = "fake",
    .close = fake_close,
    .memory = fake_memory,
    .describe = fake_describe,
    .weight_load = fake_weight_load,
    .activation_new = fake_activation_new,
    .moe_new = fake_moe_new,
    .rope_new = fake_rope_new,
    .kv_open = fake_kv_open,
    .kv_page_bytes = fake_page_bytes,
    .kv_extra_bytes = fake_kv_extra_bytes,
    .page_copy = fake_page_copy,
    .page_fill = fake_page_fill,
    .step_begin = fake_step_begin,
    .embed = fake_embed,
    .norm = fake_norm,
    .norm_add = fake_norm_add,
    .norm_logit_rows = fake_norm,
    .linear = fake_linear,
    .rope_write_kv = fake_rope_write_kv,
    .attention = fake_attention,
    .soft_cap = fake_soft_cap,
    .gated_add = fake_gated_add,
    .moe = fake_moe,
    .submit = fake_submit,
    .read = fake_read,
    .host_for = fake_host_for,
};

static struct backend *fake_open(const struct backend_config *c, struct err *e)
{
    struct fake_backend *f = calloc(1, sizeof *f);
    f->base.ops = &fake_ops;
    f->base.n_helpers = c->threads ? c->threads : 1;
    f->config = *c;
    size_t rows = (size_t)c->max_rows, seqs = (size_t)c->max_seqs;
    f->in.ids = fake_own(f, calloc(rows, sizeof(int32_t)));
    f->in.positions = fake_own(f, calloc(rows, sizeof(int32_t)));
    f->in.kv_slots = fake_own(f, calloc(rows, sizeof(int32_t)));
    f->in.adapters = fake_own(f, calloc(rows, sizeof(int32_t)));
    f->in.seqs = fake_own(f, calloc(seqs, sizeof(struct step_seq)));
    f->in.page_tables = fake_own(f, calloc(seqs * (size_t)c->max_pages, sizeof(int32_t)));
    f->in.logit_rows = fake_own(f, calloc((size_t)c->max_logits, sizeof(int32_t)));
    return &f->base;
}

static void fake_reset(void)
{
    memset(&fake, 0, sizeof fake);
    atomic_store(&fake.nan_token, -1);
}

#endif
