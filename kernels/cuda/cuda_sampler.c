/* cuda_sampler.c: draws behind a step's other kernels, and steps that are started before the last
 * one has finished.
 *
 * What draws read is packed into pinned memory and copied by one call; the device writes results
 * into pinned memory. Both exist twice: the step that is prepared has one half, the step that runs,
 * or whose results are being read, the other. Tokens stay on the device, where the next step's
 * embedding finds them. All is done in the stream's order, so the device has one of everything. */
#include "cuda_backend.h"

#include <assert.h>
#include <string.h>

enum { DRAWS_AT_ONCE = 64 }; /* more would take more scratch memory */

struct half {
    uint8_t *input;              /* struct cuda_draw[], then what they point to */
    size_t bytes;                /* of it in use */
    struct cuda_sample *results; /* [max_draws] */
    cudaEvent_t done;            /* the step has run */
    int n_draws;
};
struct cuda_sampler {
    struct sampler_config config;
    struct half halves[CUDA_STEPS_AHEAD];
    int next;      /* half of the step that is recorded */
    int n_started; /* and unfinished */
    const float *logits;
    struct drawn *drawn; /* [max_draws] */
    /* of the device */
    uint8_t *input;
    int32_t *ids;     /* [max_draws] of the last step that drew */
    uint16_t *counts; /* [n_count_slots][n_vocab] */
    void *scratch;
};

/* --- opening --- */

static size_t input_bytes(const struct sampler_config *c)
{
    return (size_t)c->max_draws *
           (sizeof(struct cuda_draw) + DRAW_MAX_BIAS * sizeof(struct logit_bias) +
            DRAW_MAX_BANNED * sizeof(int32_t));
}

static bool open_half(struct cuda_backend *b, struct half *h, const struct sampler_config *c,
                      struct err *e)
{
    static const char what[] = "draws";
    const size_t n = (size_t)c->max_draws;
    return (h->input = cuda_pinned_take(b, input_bytes(c), what, e)) &&
           (h->results = cuda_pinned_take(b, n * sizeof *h->results, what, e)) &&
           cuda_check(cudaEventCreateWithFlags(&h->done, cudaEventDisableTiming), what, e);
}

static bool take_device_memory(struct cuda_backend *b, struct cuda_sampler *s, struct err *e)
{
    const struct sampler_config *c = &s->config;
    struct cuda_arena *a = &b->activations;
    const size_t n = (size_t)c->max_draws;
    const int at_once = c->max_draws < DRAWS_AT_ONCE ? c->max_draws : DRAWS_AT_ONCE;
    const size_t counts = (size_t)c->n_count_slots * (size_t)c->n_vocab * sizeof *s->counts;
    return (s->input = cuda_arena_take(a, input_bytes(c), "draws", e)) &&
           (s->ids = cuda_arena_take(a, n * sizeof *s->ids, "drawn tokens", e)) &&
           (s->counts = cuda_arena_take(a, counts ? counts : 1, "counts for penalties", e)) &&
           (s->scratch =
                cuda_arena_take(a, cuda_sampling_bytes(c->n_vocab, at_once), "the sampler", e)) &&
           cuda_check(cudaMemsetAsync(s->ids, 0, n * sizeof *s->ids, b->stream), "drawn tokens", e);
}

bool cuda_sampler_open(struct backend *base, const struct sampler_config *c, struct err *e)
{
    struct cuda_backend *b = cuda_of(base);
    if (c->n_vocab > CUDA_MAX_VOCAB)
        return err_set(e, ERR_UNSUPPORTED,
                       "a vocabulary of %d tokens: draws on the GPU are from at most %d; "
                       "--no-async-scheduling draws on the CPU",
                       c->n_vocab, CUDA_MAX_VOCAB);
    struct cuda_sampler *s = blocks_take(&b->blocks, 1, sizeof *s, "sampler", NULL, e);
    if (!s)
        return false;
    cuda_graphs_forget(b); /* embeddings read tokens that it draws */
    b->sampler = s;
    s->config = *c;
    for (int i = 0; i < CUDA_STEPS_AHEAD; i++)
        if (!open_half(b, &s->halves[i], c, e))
            return false;
    return (s->drawn = blocks_take(&b->blocks, (size_t)c->max_draws, sizeof *s->drawn, "draws",
                                   NULL, e)) &&
           take_device_memory(b, s, e);
}

void cuda_sampler_close(struct cuda_backend *b)
{
    for (int i = 0; b->sampler && i < CUDA_STEPS_AHEAD; i++)
        if (b->sampler->halves[i].done)
            cudaEventDestroy(b->sampler->halves[i].done);
}

/* --- recording --- */

void cuda_sampler_begin(struct cuda_backend *b)
{
    if (b->sampler)
        b->sampler->halves[b->sampler->next].n_draws = 0;
}

const int32_t *cuda_drawn_ids(const struct cuda_backend *b)
{
    return b->sampler ? b->sampler->ids : NULL;
}

/* Appends to the half's input; its address on the device */
static const void *put(const struct cuda_sampler *s, struct half *h, const void *from, size_t bytes)
{
    const size_t at = h->bytes;
    assert(at + bytes <= input_bytes(&s->config));
    if (bytes > 0)
        memcpy(h->input + at, from, bytes);
    h->bytes += bytes;
    return s->input + at;
}

static uint16_t *counts_of(struct cuda_backend *b, const struct draw *d)
{
    const struct cuda_sampler *s = b->sampler;
    const size_t n = (size_t)s->config.n_vocab;
    if (d->counts < 0)
        return NULL;
    assert(d->counts < s->config.n_count_slots);
    uint16_t *slot = s->counts + (size_t)d->counts * n;
    if (d->counts_before) /* pageable memory, which is read before the call returns */
        cuda_note(b,
                  cudaMemcpyAsync(slot, d->counts_before, n * sizeof *slot, cudaMemcpyHostToDevice,
                                  b->stream),
                  "copying counts for penalties");
    return slot;
}

static void put_draw(struct cuda_backend *b, struct half *h, int k, const struct draw *d)
{
    const struct cuda_sampler *s = b->sampler;
    assert(d->logit >= 0 && d->logit < b->inputs.n_logits);
    assert(d->n_bias <= DRAW_MAX_BIAS && d->banned[0].n + d->banned[1].n <= DRAW_MAX_BANNED);
    uint16_t *counts = counts_of(b, d);
    const void *bias = put(s, h, d->bias, (size_t)d->n_bias * sizeof *d->bias);
    const void *banned =
        put(s, h, d->banned[0].ids, (size_t)d->banned[0].n * sizeof *d->banned[0].ids);
    put(s, h, d->banned[1].ids, (size_t)d->banned[1].n * sizeof *d->banned[1].ids); /* behind */
    ((struct cuda_draw *)h->input)[k] = (struct cuda_draw){
        .row = d->logit,
        .given = -1,
        .next = k,
        .n_logprobs = d->n_logprobs,
        .temperature = d->temperature,
        .top_k = d->top_k,
        .top_p = d->top_p,
        .min_p = d->min_p,
        .presence_penalty = d->presence_penalty,
        .frequency_penalty = d->frequency_penalty,
        .repetition_penalty = d->repetition_penalty,
        .choice = d->choice,
        .position = d->position,
        .n_bias = d->n_bias,
        .n_banned = d->banned[0].n + d->banned[1].n,
        .seed = d->seed,
        .bias = bias,
        .banned = banned,
        .counts = counts,
        .counted = counts,
    };
}

void cuda_record_sample(struct backend *base, const struct activation *logits,
                        const struct draw *draws, int n)
{
    struct cuda_backend *b = cuda_of(base);
    struct cuda_sampler *s = b->sampler;
    struct half *h = &s->halves[s->next];
    assert(logits->form == ROWS_PLAIN && logits->logit_rows && logits->width == s->config.n_vocab);
    assert(n >= 0 && n <= s->config.max_draws && h->n_draws == 0);
    s->logits = logits->f;
    h->n_draws = n;
    h->bytes = (size_t)n * sizeof(struct cuda_draw);
    for (int k = 0; k < n; k++)
        put_draw(b, h, k, &draws[k]);
}

/* --- running --- */

static bool best_only(const struct cuda_draw *d, int n)
{
    for (int i = 0; i < n; i++)
        if (d[i].temperature != 0 || d[i].n_logprobs >= 0)
            return false;
    return true;
}

static cudaError_t draw(struct cuda_backend *b, struct half *h)
{
    struct cuda_sampler *s = b->sampler;
    if (h->n_draws == 0)
        return cudaSuccess;
    cudaError_t code =
        cudaMemcpyAsync(s->input, h->input, h->bytes, cudaMemcpyHostToDevice, b->stream);
    for (int i = 0; i < h->n_draws && code == cudaSuccess; i += DRAWS_AT_ONCE) {
        const int n = h->n_draws - i < DRAWS_AT_ONCE ? h->n_draws - i : DRAWS_AT_ONCE;
        const struct cuda_sampling in = {
            .logits = s->logits,
            .n_vocab = s->config.n_vocab,
            .draws = (const struct cuda_draw *)s->input + i,
            .n_draws = n,
            .best_only = best_only((const struct cuda_draw *)h->input + i, n),
            .scratch = s->scratch,
            .ids = s->ids,
            .out = h->results + i,
        };
        code = cuda_sample(b->stream, &in);
    }
    return code;
}

static bool tell(const struct cuda_backend *b, struct err *e)
{
    if (b->failed && e)
        *e = b->fault;
    return !b->failed;
}

bool cuda_start(struct backend *base, struct err *e)
{
    struct cuda_backend *b = cuda_of(base);
    struct cuda_sampler *s = b->sampler;
    struct half *h = &s->halves[s->next];
    assert(s->n_started < CUDA_STEPS_AHEAD);
    if (b->failed || !cuda_launch_step(b) ||
        !cuda_note(b, draw(b, h), "drawing tokens, or a kernel before it") ||
        !cuda_note(b, cudaEventRecord(h->done, b->stream), "a step"))
        return tell(b, e);
    s->n_started++;
    s->next = (s->next + 1) % CUDA_STEPS_AHEAD;
    return true;
}

bool cuda_finish(struct backend *base, const struct drawn **out, struct err *e)
{
    struct cuda_backend *b = cuda_of(base);
    struct cuda_sampler *s = b->sampler;
    assert(s->n_started > 0);
    const struct half *h =
        &s->halves[(s->next + CUDA_STEPS_AHEAD - s->n_started) % CUDA_STEPS_AHEAD];
    if (b->failed || !cuda_note(b, cudaEventSynchronize(h->done), "a step"))
        return tell(b, e);
    s->n_started--;
    for (int k = 0; k < h->n_draws; k++)
        s->drawn[k] = (struct drawn){
            .id = h->results[k].id,
            .result = (enum sampling_result)h->results[k].result,
            .logprob = h->results[k].logprob,
            .tops = h->results[k].tops,
        };
    *out = s->drawn;
    return true;
}

bool cuda_nothing_started(const struct cuda_backend *b)
{
    return !b->sampler || b->sampler->n_started == 0;
}
