/* Draws on the device against the engine's sampler: the same in every bit, in every order of
 * threads. */
#include "cuda_rig.h"
#include "random.h"
#include "sampling.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

enum { MAX_DRAWS = 12 };
#ifdef __SANITIZE_ADDRESS__
enum { BATCHES = 4, LARGE = 9000 };
#else
enum { BATCHES = 10, LARGE = 151936 };
#endif

/* What one draw is given, on the host. */
struct wish {
    int row, given;
    struct sampling_params p;
    struct logit_bias *bias; /* room for n_vocab */
    int32_t banned[4];       /* end tokens, while they may not come */
    int n_banned;
    uint32_t *allowed; /* NULL: all */
    uint16_t *counts;  /* NULL: no penalties */
    bool counted;      /* the token is added to them */
    int choice, position;
};

struct batch {
    int n_vocab, n_rows, n;
    bool best_only;
    float *logits; /* [n_rows][n_vocab] */
    struct wish w[MAX_DRAWS];
};

/* The device's side of a batch */
struct device {
    struct cuda_sampling call;
    bool pinned; /* the result is the host's memory */
    uint16_t *counts[MAX_DRAWS];
};

static struct batch batch_new(int n_vocab, int n_rows, int n)
{
    struct batch b = {.n_vocab = n_vocab, .n_rows = n_rows, .n = n};
    b.logits = calloc((size_t)n_rows * (size_t)n_vocab, sizeof *b.logits);
    for (int i = 0; i < n; i++) {
        b.w[i].row = i % n_rows;
        b.w[i].given = -1;
        b.w[i].bias = calloc((size_t)n_vocab, sizeof *b.w[i].bias);
        b.w[i].p = (struct sampling_params){.temperature = 1,
                                            .top_p = 1,
                                            .repetition_penalty = 1,
                                            .n_logprobs = -1,
                                            .bias = b.w[i].bias};
    }
    return b;
}

static void batch_free(struct batch *b)
{
    for (int i = 0; i < b->n; i++) {
        free(b->w[i].bias);
        free(b->w[i].allowed);
        free(b->w[i].counts);
    }
    free(b->logits);
}

/* --- the device's draws --- */

static void *upload_some(const void *from, size_t size)
{
    return from && size ? rig_upload(from, size) : NULL;
}

static struct cuda_draw draw_of(const struct batch *b, int i, struct device *d)
{
    const struct wish *w = &b->w[i];
    const struct sampling_params *p = &w->p;
    const size_t n = (size_t)b->n_vocab;
    d->counts[i] = upload_some(w->counts, n * sizeof *w->counts);
    return (struct cuda_draw){
        .row = w->row,
        .given = w->given,
        .next = b->n - 1 - i,
        .n_logprobs = p->n_logprobs,
        .temperature = p->temperature,
        .top_k = p->top_k,
        .top_p = p->top_p,
        .min_p = p->min_p,
        .presence_penalty = p->presence_penalty,
        .frequency_penalty = p->frequency_penalty,
        .repetition_penalty = p->repetition_penalty,
        .choice = w->choice,
        .position = w->position,
        .n_bias = p->n_bias,
        .n_banned = w->n_banned,
        .seed = p->seed,
        .bias = upload_some(p->bias, (size_t)p->n_bias * sizeof *p->bias),
        .banned = upload_some(w->banned, (size_t)w->n_banned * sizeof *w->banned),
        .allowed = upload_some(w->allowed, (n + 31) / 32 * sizeof *w->allowed),
        .counts = d->counts[i],
        .counted = w->counted ? d->counts[i] : NULL,
    };
}

static struct device device_of(const struct batch *b)
{
    struct device d = {.call = {.n_vocab = b->n_vocab, .n_draws = b->n, .best_only = b->best_only}};
    struct cuda_draw draws[MAX_DRAWS];
    for (int i = 0; i < b->n; i++)
        draws[i] = draw_of(b, i, &d);
    d.call.logits = rig_upload(b->logits, sizeof(float) * (size_t)b->n_rows * (size_t)b->n_vocab);
    d.call.draws = rig_upload(draws, sizeof *draws * (size_t)b->n);
    d.call.scratch = rig_device(cuda_sampling_bytes(b->n_vocab, b->n));
    d.call.ids = rig_device(sizeof(int32_t) * (size_t)b->n);
    d.call.out = rig_device(sizeof(struct cuda_sample) * (size_t)b->n);
    return d;
}

/* --- the engine's --- */

/* Biases as the engine's sampler takes them: masks and bans forbid by one, too. */
static void merge_bias(const struct batch *b, const struct wish *w, struct sampling_params *p,
                       struct logit_bias *into)
{
    int n = 0;
    for (int id = 0, at = 0; id < b->n_vocab; id++) {
        bool forbidden = w->allowed && !(w->allowed[id / 32] >> id % 32 & 1);
        for (int i = 0; i < w->n_banned; i++)
            forbidden |= w->banned[i] == id;
        bool biased = at < w->p.n_bias && w->p.bias[at].id == id;
        if (biased)
            into[n] = w->p.bias[at++];
        if (forbidden)
            into[n] = (struct logit_bias){id, -INFINITY};
        n += biased || forbidden;
    }
    p->bias = into;
    p->n_bias = n;
}

static struct cuda_sample expected(const struct batch *b, const struct wish *w)
{
    struct cuda_sample out = {.id = w->given};
    const float *x = b->logits + (size_t)w->row * (size_t)b->n_vocab;
    struct sampling_params p = w->p;
    struct logit_bias *bias = calloc((size_t)b->n_vocab, sizeof *bias);
    struct sampling_scratch *s = sampling_scratch_new(b->n_vocab);
    merge_bias(b, w, &p, bias);
    const struct sampling_input in = {.logits = x,
                                      .n_vocab = b->n_vocab,
                                      .params = &p,
                                      .counts = w->counts,
                                      .choice = w->choice,
                                      .position = w->position};
    if (w->given < 0)
        out.result = (int)sampling_draw(&in, s, &out.id);
    int n = p.n_logprobs > 0 ? p.n_logprobs : 0;
    if (out.result == SAMPLING_OK && (n || p.n_logprobs == 0) &&
        !sampling_logprobs(x, b->n_vocab, out.id, n, &out.logprob, out.tops))
        out.result = SAMPLING_BAD_NUMBERS;
    if (out.result != SAMPLING_OK)
        out.id = -1;
    sampling_scratch_free(s);
    free(bias);
    return out;
}

static bool same_float(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static void compare(const struct batch *b, int i, const struct cuda_sample *got,
                    const struct cuda_sample *want)
{
    const struct wish *w = &b->w[i];
    if (got->id != want->id || got->result != want->result)
        fail_msg("draw %d of a vocabulary of %d (temperature %g, top_k %d, top_p %g, min_p %g): "
                 "token %d, result %d, not %d, %d",
                 i, b->n_vocab, w->p.temperature, w->p.top_k, w->p.top_p, w->p.min_p, got->id,
                 got->result, want->id, want->result);
    if (want->result != SAMPLING_OK || w->p.n_logprobs < 0)
        return;
    if (!same_float(got->logprob, want->logprob))
        fail_msg("draw %d: logprob %.9g, not %.9g", i, got->logprob, want->logprob);
    for (int k = 0; k < w->p.n_logprobs; k++)
        if (got->tops[k].id != want->tops[k].id ||
            !same_float(got->tops[k].logprob, want->tops[k].logprob))
            fail_msg("draw %d: best %d is token %d (%.9g), not %d (%.9g)", i, k, got->tops[k].id,
                     got->tops[k].logprob, want->tops[k].id, want->tops[k].logprob);
}

static void check_counts(const struct batch *b, int i, const struct device *d, int32_t id)
{
    const struct wish *w = &b->w[i];
    uint16_t *got = malloc((size_t)b->n_vocab * sizeof *got);
    rig_download(got, d->counts[i], (size_t)b->n_vocab * sizeof *got);
    for (int k = 0; k < b->n_vocab; k++) {
        uint16_t want = w->counts[k];
        sampling_count(&want, 0);
        if (got[k] != (w->counted && k == id ? want : w->counts[k]))
            fail_msg("draw %d: token %d is counted %d times", i, k, got[k]);
    }
    free(got);
}

static void check_device(const struct batch *b, const struct device *d)
{
    struct cuda_sample got[MAX_DRAWS];
    int32_t ids[MAX_DRAWS];
    if (d->pinned)
        memcpy(got, d->call.out, sizeof *got * (size_t)b->n);
    else
        rig_download(got, d->call.out, sizeof *got * (size_t)b->n);
    rig_download(ids, d->call.ids, sizeof *ids * (size_t)b->n);
    for (int i = 0; i < b->n; i++) {
        if (b->w[i].row < 0)
            continue;
        struct cuda_sample want = expected(b, &b->w[i]);
        compare(b, i, &got[i], &want);
        assert_int_equal(ids[b->n - 1 - i], want.id < 0 ? 0 : want.id);
        if (b->w[i].counts)
            check_counts(b, i, d, want.id);
    }
}

static void run(const struct batch *b)
{
    struct device d = device_of(b);
    cuda_ok(cuda_sample(NULL, &d.call));
    check_device(b, &d);
    rig_free_all();
}

/* --- random draws --- */

static double uniform(uint64_t *rng)
{
    return (double)(random_next(rng) >> 11) * 0x1p-53;
}

static void fill_row(float *x, int n, int shape, uint64_t *rng)
{
    for (int i = 0; i < n; i++) {
        double g = 0;
        for (int k = 0; k < 6; k++)
            g += uniform(rng) - 0.5;
        x[i] = (float)(g * (shape == 0 ? 0.01 : shape == 1 ? 4 : shape == 2 ? 12 : 300));
        if (shape == 3)
            x[i] = roundf(x[i] / 50); /* many ties */
        if (shape == 5)
            x[i] = -0.0f * (float)(i % 2);
        if (shape == 6)
            x[i] = i % 3 ? FLT_MAX : -FLT_MAX;
    }
    if (shape == 4)
        x[random_below(rng, n)] = 2000;
}

static void random_masks(struct wish *w, int n, uint64_t *rng)
{
    if (random_below(rng, 3) == 0) {
        w->counts = calloc((size_t)n, sizeof *w->counts);
        w->counted = random_below(rng, 2);
        for (int i = 0; i < 40; i++)
            w->counts[random_below(rng, n)] = (uint16_t)(random_next(rng) >> random_below(rng, 16));
        w->p.repetition_penalty = random_below(rng, 2) ? 1.3f : 0.5f;
        w->p.frequency_penalty = random_below(rng, 2) ? 0.4f : -1e6f;
        w->p.presence_penalty = (float)(uniform(rng) * 4 - 2);
    }
    for (int id = random_below(rng, n); id < n && random_below(rng, 8); id += 1 + n / 9)
        w->bias[w->p.n_bias++] = (struct logit_bias){
            id, random_below(rng, 4) ? (float)(uniform(rng) * 40 - 20) : -INFINITY};
    w->n_banned = random_below(rng, 5);
    for (int i = 0; i < w->n_banned; i++)
        w->banned[i] = random_below(rng, i > 1 ? n : 3 < n ? 3 : n); /* some of them twice */
    if (random_below(rng, 4) == 0) {
        w->allowed = calloc((size_t)(n + 31) / 32, sizeof *w->allowed);
        for (int i = 0; i < (n + 31) / 32; i++)
            w->allowed[i] = (uint32_t)(random_next(rng) & random_next(rng));
    }
}

static void random_wish(struct wish *w, int n, uint64_t *rng)
{
    static const float temps[] = {0, 0.2f, 0.7f, 1, 2, 100, 1e-6f, FLT_TRUE_MIN, FLT_MAX};
    static const float ps[] = {1, 1, 0.95f, 0.5f, 0.1f, 1e-9f, 0, 0.99999994f};
    static const int ks[] = {0, 0, 1, 5, 40, 1000, 1000000};
    static const float minps[] = {0, 0, 0.05f, 0.5f, 1};
    static const int tops[] = {-1, -1, 0, 1, 5, 20};
    w->p.temperature = temps[random_below(rng, 9)];
    w->p.top_p = ps[random_below(rng, 8)];
    w->p.top_k = ks[random_below(rng, 7)];
    w->p.min_p = minps[random_below(rng, 5)];
    w->p.n_logprobs = tops[random_below(rng, 6)];
    w->p.seed = random_next(rng);
    w->choice = random_below(rng, 4);
    w->position = random_below(rng, 100000);
    if (random_below(rng, 2))
        random_masks(w, n, rng);
    if (random_below(rng, 10) == 0)
        w->given = random_below(rng, n);
    if (random_below(rng, 20) == 0)
        w->row = -1; /* padding */
}

/* `shape` of the first row; the next ones follow. */
static void random_batch(int n_vocab, int n_draws, int shape, uint64_t *rng)
{
    struct batch b = batch_new(n_vocab, 3, n_draws);
    for (int r = 0; r < b.n_rows; r++)
        fill_row(b.logits + (size_t)r * (size_t)n_vocab, n_vocab, (shape + r) % 7, rng);
    for (int i = 0; i < n_draws; i++)
        random_wish(&b.w[i], n_vocab, rng);
    run(&b);
    batch_free(&b);
}

static uint64_t rng;

static void some_draws(void)
{
    random_batch(2100, 3, random_below(&rng, 7), &rng);
    random_batch(1 + random_below(&rng, 60), 2, random_below(&rng, 7), &rng);
}

static void draws_equal_the_engines(void **state)
{
    (void)state;
    rng = random_seed("draws");
    rig_in_all_orders(some_draws);
}

static void draws_equal_the_engines_with_every_parameter(void **state)
{
    static const int sizes[] = {1, 2, 31, 33, 256, 2047, 2048, 2049, 4100, 9000};
    (void)state;
    rng = random_seed("parameters");
    emu_forgive();
    emu_configure(&(struct emu_options){.order = EMU_FIFO});
    for (int i = 0; i < BATCHES; i++)
        random_batch(sizes[random_below(&rng, 10)], MAX_DRAWS, random_below(&rng, 7), &rng);
    assert_int_equal(emu_reports(), 0);
}

/* --- single properties --- */

/* Both ways of a cut: few listed, and more than fit into shared memory. */
static void cuts_of(int n_vocab, int shape)
{
    struct batch b = batch_new(n_vocab, 1, 4);
    fill_row(b.logits, n_vocab, shape, &rng);
    for (int i = 0; i < b.n; i++) {
        b.w[i].p.top_k = i % 4 < 2 ? 0 : i % 4 == 2 ? 50 : n_vocab / 2 + 7;
        b.w[i].p.top_p = i % 2 ? 0.9f : 1;
        b.w[i].p.temperature = i < 3 ? 1 : 3;
        b.w[i].p.n_logprobs = i == 1 ? 20 : -1;
        b.w[i].p.seed = random_next(&rng);
    }
    run(&b);
    batch_free(&b);
}

static void cuts(void)
{
    cuts_of(2300, random_below(&rng, 2) ? 0 : 5);
}

static void long_lists_are_cut_as_short_ones(void **state)
{
    (void)state;
    rng = 5;
    rig_in_all_orders(cuts);
}

static void large_vocabularies_are_drawn_from(void **state)
{
    (void)state;
    rng = 6;
    emu_forgive();
    emu_configure(&(struct emu_options){.order = EMU_FIFO});
    cuts_of(emu_finds_races() ? 9000 : LARGE, 1);
    assert_int_equal(emu_reports(), 0);
    struct cuda_sampling too_large = {.n_vocab = CUDA_MAX_VOCAB + 1};
    assert_int_equal(cuda_sample(NULL, &too_large), cudaErrorInvalidValue);
}

static void the_best(void)
{
    struct batch b = batch_new(4500, 4, 4);
    b.best_only = true;
    for (int i = 0; i < b.n_rows * b.n_vocab; i++)
        b.logits[i] =
            (float)(i * 7919 % 500); /* many of the largest, the first of a section late */
    for (int i = 0; i < b.n; i++)
        b.w[i].p.temperature = 0;
    b.logits[3 * b.n_vocab - 1] = NAN;
    b.w[1].bias[b.w[1].p.n_bias++] = (struct logit_bias){4400, 1000};
    run(&b);
    batch_free(&b);
}

static void greedy_draws_take_the_first_of_the_best(void **state)
{
    (void)state;
    rig_in_all_orders(the_best);
}

static void bad_rows(void)
{
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    static int next;
    const int i = next++ % 4;
    struct batch b = batch_new(2100, 2, 6);
    b.logits[(i % 2 ? 2100 : 0) + i * 690] = bad[i];
    for (int k = 0; k < b.n; k++) {
        b.w[k].p.temperature = k < 3 ? 0 : 1;
        b.w[k].p.top_k = k < 4 ? 0 : 4;
        b.w[k].p.n_logprobs = k % 4 < 2 ? -1 : 3;
        b.w[k].given = -1;
    }
    b.w[5].given = 5;
    b.w[5].p.n_logprobs = 0;
    b.w[2].allowed = calloc((2100 + 31) / 32, sizeof *b.w[2].allowed); /* none */
    b.w[3].allowed = calloc((2100 + 31) / 32, sizeof *b.w[3].allowed);
    run(&b);
    batch_free(&b);
}

static void bad_numbers_and_masked_rows_are_reported(void **state)
{
    (void)state;
    rig_in_all_orders(bad_rows);
}

/* A graph is captured once; its draws change. The result goes to the host's pinned memory. */
static void graph(void)
{
    struct batch b = batch_new(2100, 2, 2);
    struct device d;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    fill_row(b.logits, 2 * b.n_vocab, 2, &rng);
    for (int i = 0; i < b.n; i++)
        b.w[i].p.n_logprobs = 2;
    d = device_of(&b);
    d.pinned = true;
    cuda_ok(cudaHostAlloc((void **)&d.call.out, sizeof *d.call.out * (size_t)b.n, 0));
    cuda_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cuda_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    cuda_ok(cuda_sample(stream, &d.call));
    cuda_ok(cudaStreamEndCapture(stream, &graph));
    cuda_ok(cudaGraphInstantiate(&exec, graph, 0));
    for (int pass = 0; pass < 2; pass++) {
        struct cuda_draw draws[MAX_DRAWS];
        for (int i = 0; i < b.n; i++) {
            random_wish(&b.w[i], b.n_vocab, &rng);
            b.w[i].n_banned = 0;
            draws[i] = draw_of(&b, i, &d);
        }
        cuda_ok(cudaMemcpy((void *)d.call.draws, draws, sizeof *draws * (size_t)b.n,
                           cudaMemcpyHostToDevice));
        cuda_ok(cudaGraphLaunch(exec, stream));
        cuda_ok(cudaStreamSynchronize(stream));
        check_device(&b, &d);
        for (int i = 0; i < b.n; i++) {
            free(b.w[i].counts);
            free(b.w[i].allowed);
            b.w[i].counts = NULL;
            b.w[i].allowed = NULL;
            b.w[i].p.n_bias = 0;
            b.w[i].row = i % b.n_rows;
            b.w[i].given = -1;
        }
    }
    cuda_ok(cudaGraphExecDestroy(exec));
    cuda_ok(cudaGraphDestroy(graph));
    cuda_ok(cudaStreamDestroy(stream));
    cuda_ok(cudaFreeHost(d.call.out));
    batch_free(&b);
}

static void draws_may_be_captured_into_a_graph(void **state)
{
    (void)state;
    rng = random_seed("graph");
    rig_in_all_orders(graph);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_equal_the_engines),
        cmocka_unit_test(draws_equal_the_engines_with_every_parameter),
        cmocka_unit_test(long_lists_are_cut_as_short_ones),
        cmocka_unit_test(large_vocabularies_are_drawn_from),
        cmocka_unit_test(greedy_draws_take_the_first_of_the_best),
        cmocka_unit_test(bad_numbers_and_masked_rows_are_reported),
        cmocka_unit_test(draws_may_be_captured_into_a_graph),
    };
    if (argc > 1) /* a part of the names */
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
