/* fake_backend.h: a device that computes nothing but remembers everything.
 *
 * A KV slot holds the token id that was written there, and the logits of a row are a hash of
 * all ids that it sees through its page table. So one wrong page, slot, copy or order changes
 * the tokens that follow, and equal tokens mean that the engine's bookkeeping was right. A slot
 * that was filled by page_fill and then read makes NaN, as a stale page would.
 *
 * A step that was started does nothing until it is finished, nor does what was asked for behind it:
 * whatever the engine reads too early, or relies on too early, is not there. */
#ifndef TOKEND_FAKE_BACKEND_H
#define TOKEND_FAKE_BACKEND_H

#include "backend.h"
#include "sampling.h"

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
    _Atomic int submits;   /* started steps that have finished, too */
    _Atomic int ahead;     /* steps that were started while another was unfinished */
    _Atomic int most_rows; /* of one step */
    _Atomic int most_logits;
    _Atomic int misuse; /* steps that broke backend.h's rules */
};
static struct fake_controls fake;
enum { FAKE_KV_EXTRA = 1000 }; /* bytes, as if taken with the pool */

/* What a step's inputs and draws were when it was started; all that they point to is a copy. */
struct fake_draw {
    struct draw draw;
    struct logit_bias bias[DRAW_MAX_BIAS];
    int32_t banned[DRAW_MAX_BANNED];
    uint16_t *before; /* [n_vocab] */
};
struct fake_step {
    struct step_inputs in;
    struct fake_draw *draws; /* [max_draws] */
    int n_draws;
};

/* The stream: what waits behind a started step, in order */
enum { FAKE_QUEUE = 8192, FAKE_STEPS = 2 };
struct fake_op {
    enum { FAKE_COPY, FAKE_FILL, FAKE_STEP } what;
    int a, b;
};

struct fake_backend {
    struct backend base;
    struct backend_config config;
    struct kv_config kv;
    int32_t *slots; /* [n_pages * block_size] */
    struct step_inputs in;
    struct activation *logits;

    struct sampler_config sampler;
    struct sampling_scratch *scratch;
    uint16_t *counts;      /* [n_count_slots][n_vocab] */
    struct fake_step step; /* recorded: its draws only */
    struct fake_step started[FAKE_STEPS];
    int n_started, next_started;
    struct fake_op queue[FAKE_QUEUE];
    int n_queue;
    int32_t *ids; /* [max_draws] of the last step that ran */
    struct drawn *out;
    struct top_logprob *tops;

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

static void *fake_array(struct fake_backend *f, size_t n, size_t size)
{
    return fake_own(f, calloc(n, size));
}

static void fake_close(struct backend *b)
{
    struct fake_backend *f = fake_of(b);
    sampling_scratch_free(f->scratch);
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

/* True: it waits behind what was started. */
static bool fake_waits(struct fake_backend *f, int what, int a, int b)
{
    if (f->n_started == 0)
        return false;
    if (f->n_queue == FAKE_QUEUE)
        abort();
    f->queue[f->n_queue++] = (struct fake_op){what, a, b};
    return true;
}

static void fake_page_copy(struct backend *b, int src, int dst)
{
    struct fake_backend *f = fake_of(b);
    if (fake_waits(f, FAKE_COPY, src, dst))
        return;
    size_t n = (size_t)f->kv.block_size;
    memcpy(f->slots + (size_t)dst * n, f->slots + (size_t)src * n, n * sizeof *f->slots);
}

static void fake_page_fill(struct backend *b, int page, uint8_t byte)
{
    struct fake_backend *f = fake_of(b);
    if (fake_waits(f, FAKE_FILL, page, byte))
        return;
    size_t n = (size_t)f->kv.block_size;
    memset(f->slots + (size_t)page * n, byte, n * sizeof *f->slots);
}

static struct step_inputs *fake_step_begin(struct backend *b)
{
    fake_of(b)->step.n_draws = 0;
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

static bool fake_seq_is_sound(const struct fake_backend *f, const struct step_inputs *in, int i,
                              int row)
{
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

static void fake_run(struct fake_backend *f, const struct step_inputs *in)
{
    int row = 0, logit = 0;
    for (int i = 0; i < in->n_seqs; row += in->seqs[i++].n_rows)
        if (!fake_seq_is_sound(f, in, i, row))
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

/* Waits as the test wishes; false: the device failed. */
static bool fake_pass_gate(const struct step_inputs *in, struct err *e)
{
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
    fake_note_most(&fake.most_rows, in->n_rows);
    fake_note_most(&fake.most_logits, in->n_logits);
    return true;
}

static bool fake_submit(struct backend *b, struct err *e)
{
    struct fake_backend *f = fake_of(b);
    if (f->n_started > 0 || f->step.n_draws > 0)
        atomic_fetch_add(&fake.misuse, 1);
    if (!fake_pass_gate(&f->in, e))
        return false;
    fake_run(f, &f->in);
    return true;
}

/* --- draws, and steps that are started --- */

static void fake_take_inputs(struct fake_backend *f, struct step_inputs *in)
{
    const struct backend_config *c = &f->config;
    const size_t rows = (size_t)c->max_rows, seqs = (size_t)c->max_seqs;
    in->ids = fake_array(f, rows, sizeof(int32_t));
    in->positions = fake_array(f, rows, sizeof(int32_t));
    in->kv_slots = fake_array(f, rows, sizeof(int32_t));
    in->adapters = fake_array(f, rows, sizeof(int32_t));
    in->seqs = fake_array(f, seqs, sizeof(struct step_seq));
    in->page_tables = fake_array(f, seqs * (size_t)c->max_pages, sizeof(int32_t));
    in->logit_rows = fake_array(f, (size_t)c->max_logits, sizeof(int32_t));
}

static void fake_take_step(struct fake_backend *f, struct fake_step *s)
{
    const size_t n = (size_t)f->sampler.max_draws;
    fake_take_inputs(f, &s->in);
    s->draws = fake_array(f, n, sizeof *s->draws);
    for (size_t i = 0; i < n; i++)
        s->draws[i].before = fake_array(f, (size_t)f->sampler.n_vocab, sizeof(uint16_t));
}

static bool fake_sampler_open(struct backend *b, const struct sampler_config *c, struct err *e)
{
    struct fake_backend *f = fake_of(b);
    const size_t n = (size_t)c->max_draws;
    f->sampler = *c;
    f->scratch = sampling_scratch_new(c->n_vocab);
    f->counts = fake_array(f, (size_t)c->n_count_slots * (size_t)c->n_vocab, sizeof *f->counts);
    f->ids = fake_array(f, n, sizeof *f->ids);
    f->out = fake_array(f, n, sizeof *f->out);
    f->tops = fake_array(f, n * SAMPLING_MAX_TOP_LOGPROBS, sizeof *f->tops);
    fake_take_step(f, &f->step);
    for (int i = 0; i < FAKE_STEPS; i++)
        fake_take_step(f, &f->started[i]);
    return true;
}

static void fake_copy_draw(const struct fake_backend *f, struct fake_draw *to,
                           const struct draw *from)
{
    int n = 0;
    to->draw = *from;
    if (from->n_bias > 0)
        memcpy(to->bias, from->bias, (size_t)from->n_bias * sizeof *to->bias);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < from->banned[i].n; j++)
            to->banned[n++] = from->banned[i].ids[j];
    if (from->counts_before)
        memcpy(to->before, from->counts_before, (size_t)f->sampler.n_vocab * sizeof *to->before);
    to->draw.n_bias = from->n_bias;
    to->draw.banned[0].n = n;
}

static void fake_sample(struct backend *b, const struct activation *logits, const struct draw *d,
                        int n)
{
    struct fake_backend *f = fake_of(b);
    if (logits != f->logits || n > f->sampler.max_draws)
        abort();
    for (int i = 0; i < n; i++) {
        if (d[i].logit < 0 || d[i].logit >= f->in.n_logits ||
            d[i].counts >= f->sampler.n_count_slots)
            atomic_fetch_add(&fake.misuse, 1);
        fake_copy_draw(f, &f->step.draws[i], &d[i]);
    }
    f->step.n_draws = n;
}

static void fake_copy_inputs(const struct fake_backend *f, struct step_inputs *to)
{
    const struct step_inputs *in = &f->in;
    const size_t rows = (size_t)in->n_rows * sizeof(int32_t), seqs = (size_t)in->n_seqs;
    to->n_rows = in->n_rows;
    to->n_seqs = in->n_seqs;
    to->n_logits = in->n_logits;
    memcpy(to->ids, in->ids, rows);
    memcpy(to->positions, in->positions, rows);
    memcpy(to->kv_slots, in->kv_slots, rows);
    memcpy(to->adapters, in->adapters, rows);
    memcpy(to->seqs, in->seqs, seqs * sizeof *in->seqs);
    memcpy(to->page_tables, in->page_tables,
           seqs * (size_t)f->config.max_pages * sizeof *in->page_tables);
    memcpy(to->logit_rows, in->logit_rows, (size_t)in->n_logits * sizeof *in->logit_rows);
}

static bool fake_start(struct backend *b, struct err *e)
{
    struct fake_backend *f = fake_of(b);
    struct fake_step *s = &f->started[f->next_started];
    if (f->n_started == FAKE_STEPS)
        abort();
    fake_copy_inputs(f, &s->in);
    struct fake_draw *draws = s->draws; /* the copies change places */
    s->draws = f->step.draws;
    f->step.draws = draws;
    s->n_draws = f->step.n_draws;
    if (f->n_started++ > 0)
        atomic_fetch_add(&fake.ahead, 1);
    fake_waits(f, FAKE_STEP, f->next_started, 0);
    f->next_started = (f->next_started + 1) % FAKE_STEPS;
    return true;
}

static void fake_draw_one(struct fake_backend *f, struct fake_draw *t, struct drawn *out)
{
    const struct draw *d = &t->draw;
    const int n_vocab = f->sampler.n_vocab;
    const float *logits = f->logits->rows + (size_t)d->logit * (size_t)n_vocab;
    uint16_t *counts = d->counts < 0 ? NULL : f->counts + (size_t)d->counts * (size_t)n_vocab;
    const struct sampling_params p = {
        .temperature = d->temperature,
        .top_k = d->top_k,
        .top_p = d->top_p,
        .min_p = d->min_p,
        .presence_penalty = d->presence_penalty,
        .frequency_penalty = d->frequency_penalty,
        .repetition_penalty = d->repetition_penalty,
        .seed = d->seed,
        .min_tokens = 1,
        .bias = t->bias,
        .n_bias = d->n_bias,
    };
    if (d->counts_before)
        memcpy(counts, t->before, (size_t)n_vocab * sizeof *counts);
    const struct sampling_input in = {
        .logits = logits,
        .n_vocab = n_vocab,
        .params = &p,
        .counts = counts,
        .eos = t->banned,
        .n_eos = d->banned[0].n,
        .n_generated = d->banned[0].n == 0,
        .choice = d->choice,
        .position = d->position,
    };
    *out =
        (struct drawn){.id = -12345, .tops = f->tops + (out - f->out) * SAMPLING_MAX_TOP_LOGPROBS};
    out->result = sampling_draw(&in, f->scratch, &out->id);
    if (out->result != SAMPLING_OK)
        return;
    if (counts)
        sampling_count(counts, out->id);
    if (d->n_logprobs >= 0)
        sampling_logprobs(logits, n_vocab, out->id, d->n_logprobs, &out->logprob,
                          f->tops + (out - f->out) * SAMPLING_MAX_TOP_LOGPROBS);
}

static void fake_run_started(struct fake_backend *f, struct fake_step *s)
{
    for (int i = 0; i < s->in.n_rows; i++) {
        int32_t *id = &s->in.ids[i];
        if (*id < 0 && -1 - *id >= f->sampler.max_draws)
            atomic_fetch_add(&fake.misuse, 1);
        else if (*id < 0)
            *id = f->ids[-1 - *id];
    }
    fake_run(f, &s->in);
    for (int i = 0; i < s->n_draws; i++)
        fake_draw_one(f, &s->draws[i], &f->out[i]);
    for (int i = 0; i < f->sampler.max_draws; i++) /* what nobody drew is not a token */
        f->ids[i] = i >= s->n_draws ? 1 << 20 : f->out[i].result == SAMPLING_OK ? f->out[i].id : 0;
}

/* Runs what waits up to the oldest step, and what is behind it up to the next. */
static bool fake_finish(struct backend *b, const struct drawn **out, struct err *e)
{
    struct fake_backend *f = fake_of(b);
    const int n = f->n_queue;
    int i = 0;
    if (f->n_started == 0 || f->queue[0].what != FAKE_STEP)
        abort();
    struct fake_step *s = &f->started[f->queue[0].a];
    if (!fake_pass_gate(&s->in, e))
        return false;
    fake_run_started(f, s);
    f->n_started = 0; /* what follows does not wait */
    for (i = 1; i < n && f->queue[i].what != FAKE_STEP; i++) {
        if (f->queue[i].what == FAKE_COPY)
            fake_page_copy(b, f->queue[i].a, f->queue[i].b);
        else
            fake_page_fill(b, f->queue[i].a, (uint8_t)f->queue[i].b);
    }
    f->n_queue = n - i;
    memmove(f->queue, f->queue + i, (size_t)f->n_queue * sizeof *f->queue);
    f->n_started = f->n_queue > 0;
    *out = f->out;
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
    .sampler_open = fake_sampler_open,
    .sample = fake_sample,
    .submit = fake_submit,
    .start = fake_start,
    .finish = fake_finish,
    .read = fake_read,
    .host_for = fake_host_for,
};

static struct backend *fake_open(const struct backend_config *c, struct err *e)
{
    struct fake_backend *f = calloc(1, sizeof *f);
    f->base.ops = &fake_ops;
    f->base.n_helpers = c->threads ? c->threads : 1;
    f->config = *c;
    fake_take_inputs(f, &f->in);
    return &f->base;
}

static void fake_reset(void)
{
    memset(&fake, 0, sizeof fake);
    atomic_store(&fake.nan_token, -1);
}

#endif
