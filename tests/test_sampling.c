/* The sampler against a plain reference in double that sorts everything. */
#include "sampling.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

static uint64_t rng_state;
static uint32_t rng(void)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33);
}
static double uniform(void)
{
    return rng() / 2147483648.0;
}

static const struct sampling_params plain = {.temperature = 1,
                                             .top_p = 1,
                                             .repetition_penalty = 1,
                                             .n_logprobs = -1,
                                             .n_prompt_logprobs = -1,
                                             .max_tokens = 1};

static void fill_logits(float *x, int n, int shape)
{
    for (int i = 0; i < n; i++) {
        double g = 0;
        for (int k = 0; k < 6; k++)
            g += uniform() - 0.5;
        x[i] = (float)(g * (shape % 4 == 0 ? 0.01 : shape % 4 == 1 ? 4 : 12));
        if (shape % 3 == 2)
            x[i] = roundf(x[i]); /* many ties */
    }
}

/* --- the reference --- */

struct ranked {
    double z, w;
    int id;
};

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->z != y->z ? (x->z < y->z) - (x->z > y->z) : (x->id > y->id) - (x->id < y->id);
}
static int by_id(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static void ref_adjust(const struct sampling_input *in, double *z)
{
    const struct sampling_params *p = in->params;
    for (int i = 0; i < in->n_vocab; i++)
        z[i] = (double)in->logits[i];
    for (int i = 0; i < p->n_bias; i++)
        z[p->bias[i].id] += (double)p->bias[i].bias;
    if (in->n_generated < p->min_tokens) {
        for (int i = 0; i < p->n_stop_ids; i++)
            z[p->stop_ids[i]] = -INFINITY;
        for (int i = 0; i < in->n_eos && !p->ignore_eos; i++)
            z[in->eos[i]] = -INFINITY;
    }
    for (int i = 0; in->counts && i < in->n_vocab; i++) {
        int n = in->counts[i] & SAMPLING_COUNT_MASK;
        if (in->counts[i])
            z[i] = z[i] > 0 ? z[i] / (double)p->repetition_penalty
                            : z[i] * (double)p->repetition_penalty;
        z[i] -= (double)p->frequency_penalty * n + (n ? (double)p->presence_penalty : 0);
    }
}

static double uniform_of(uint64_t seed, int choice, int position)
{
    return (double)sampling_random(seed, choice, position, RANDOM_TOKEN) * 0x1p-53;
}

/* The token, and how far the nearest border is that rounding could push it over. */
static int reference(const struct sampling_input *in, double *margin)
{
    const struct sampling_params *p = in->params;
    int n = in->n_vocab;
    double *z = malloc((size_t)n * sizeof *z);
    struct ranked *r = malloc((size_t)n * sizeof *r);
    ref_adjust(in, z);
    for (int i = 0; i < n; i++)
        r[i] = (struct ranked){(double)(float)z[i], 0, i};
    qsort(r, (size_t)n, sizeof *r, by_rank);
    *margin = 1;
    int token = r[0].id;
    if (p->temperature == 0) {
        *margin = n > 1 && r[0].z != r[1].z ? (r[0].z - r[1].z) : 1;
        goto out;
    }
    for (int i = 0; i < n; i++)
        r[i].w = exp((r[i].z - r[0].z) / (double)p->temperature);
    int kept = 0;
    while (kept < n && r[kept].w >= (double)p->min_p)
        kept++;
    for (int i = 0; i < n && p->min_p > 0; i++)
        *margin = fmin(*margin, fabs(r[i].w - (double)p->min_p) + (r[i].w == 1));
    if (p->top_k > 0 && p->top_k < kept)
        kept = p->top_k;
    double total = 0, sum = 0;
    for (int i = 0; i < kept; i++)
        total += r[i].w;
    if (p->top_p < 1) {
        int m = 0;
        while (m < kept && (m == 0 || sum < (double)p->top_p * total)) {
            sum += r[m++].w;
            *margin = fmin(*margin, fabs(sum / total - (double)p->top_p));
        }
        kept = m;
        total = sum;
    }
    qsort(r, (size_t)kept, sizeof *r, by_id);
    double target = uniform_of(p->seed, in->choice, in->position) * total;
    sum = 0;
    token = -1;
    for (int i = 0; i < kept; i++) {
        sum += r[i].w;
        *margin = fmin(*margin, fabs(sum - target) / total);
        if (token < 0 && sum > target)
            token = r[i].id;
    }
    if (token < 0)
        token = r[kept - 1].id;
out:
    free(z);
    free(r);
    return token;
}

/* --- tests --- */

static void random_params(struct sampling_params *p, struct logit_bias *bias, int n)
{
    static const float temps[] = {0, 0.2f, 0.7f, 1, 2, 100, 1e-6f};
    static const float ps[] = {1, 0.95f, 0.5f, 0.1f, 1e-9f};
    static const int ks[] = {0, 1, 5, 40, 1000000};
    static const float minps[] = {0, 0, 0.05f, 0.5f};
    *p = plain;
    p->temperature = temps[rng() % 7];
    p->top_p = ps[rng() % 5];
    p->top_k = ks[rng() % 5];
    p->min_p = minps[rng() % 4];
    p->seed = rng();
    if (rng() % 2) {
        p->repetition_penalty = 1.3f;
        p->frequency_penalty = 0.4f;
        p->presence_penalty = -0.3f;
    }
    if (rng() % 2) {
        p->bias = bias;
        p->n_bias = 3;
        for (int i = 0; i < 3; i++)
            bias[i] = (struct logit_bias){i * (n / 3), (float)(uniform() * 8 - 4)};
    }
    p->min_tokens = (int)(rng() % 3);
    p->stop_ids[0] = (int32_t)(rng() % (uint32_t)n);
    p->n_stop_ids = 1;
    p->ignore_eos = rng() % 2;
}

static void draws_equal_the_sorting_reference(void **state)
{
    int skipped = 0, runs = 6000;
    rng_state = 7;
    for (int run = 0; run < runs; run++) {
        int n = run % 10 == 0 ? 5000 : 3 + (int)(rng() % 300);
        float *x = malloc((size_t)n * sizeof *x);
        uint16_t *counts = calloc((size_t)n, sizeof *counts);
        struct logit_bias bias[3];
        struct sampling_params p;
        fill_logits(x, n, run);
        random_params(&p, bias, n);
        for (int i = 0; i < 20; i++) {
            int32_t id = (int32_t)(rng() % (uint32_t)n);
            if (i % 2)
                sampling_count(counts, id);
            else
                sampling_count_prompt(counts, &id, 1);
        }
        int32_t eos = (int32_t)(rng() % (uint32_t)n), token = -1;
        struct sampling_input in = {.logits = x,
                                    .n_vocab = n,
                                    .params = &p,
                                    .eos = &eos,
                                    .n_eos = 1,
                                    .n_generated = 1,
                                    .choice = run % 5,
                                    .position = run};
        in.counts = sampling_wants_counts(&p) ? counts : NULL;
        struct sampling_scratch *s = sampling_scratch_new(n);
        assert_true(sampling_check(&p, n, NULL));
        double margin;
        int want = reference(&in, &margin);
        assert_int_equal(sampling_draw(&in, s, &token), SAMPLING_OK);
        if (margin < 1e-5)
            skipped++;
        else if (token != want)
            fail_msg("run %d: token %d, reference %d (margin %g)", run, token, want, margin);
        sampling_scratch_free(s);
        free(counts);
        free(x);
    }
    assert_true(skipped < runs / 10);
}

static void draws_follow_the_distribution(void **state)
{
    enum { N = 12, DRAWS = 60000 };
    float x[N];
    double p[N], total = 0, chi2 = 0;
    int seen[N] = {0};
    for (int i = 0; i < N; i++)
        x[i] = (float)(i % 5) * 0.6f - 0.1f * (float)i;
    struct sampling_params params = plain;
    params.temperature = 0.8f;
    struct sampling_scratch *s = sampling_scratch_new(N);
    for (int d = 0; d < DRAWS; d++) {
        params.seed = (uint64_t)(d / 100);
        struct sampling_input in = {
            .logits = x, .n_vocab = N, .params = &params, .choice = d % 4, .position = d % 100};
        int32_t id;
        assert_int_equal(sampling_draw(&in, s, &id), SAMPLING_OK);
        seen[id]++;
    }
    for (int i = 0; i < N; i++)
        total += p[i] = exp((double)x[i] / 0.8);
    for (int i = 0; i < N; i++) {
        double want = DRAWS * p[i] / total;
        chi2 += (seen[i] - want) * (seen[i] - want) / want;
    }
    assert_true(chi2 < 31.3); /* 11 degrees of freedom: 1 in 1,000 */
    sampling_scratch_free(s);
}

static void seed_choice_and_position_all_matter(void **state)
{
    double u = uniform_of(1, 0, 0);
    assert_true(u == uniform_of(1, 0, 0));
    assert_true(u != uniform_of(2, 0, 0));
    assert_true(u != uniform_of((uint64_t)1 << 32 | 1, 0, 0));
    assert_true(u != uniform_of(1, 1, 0));
    assert_true(u != uniform_of(1, 0, 1));
}

static void philox_gives_the_published_vectors(void **state)
{
    static const struct {
        uint64_t key;
        uint32_t counter[4], out[4];
    } known[] = {/* of Random123's kat_vectors */
                 {0, {0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
                 {UINT64_MAX,
                  {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
                  {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
                 {0x299f31d0a4093822,
                  {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                  {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t out[4];
        philox4x32(known[i].key, known[i].counter, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

static int32_t draw(const float *x, int n, const struct sampling_params *p)
{
    struct sampling_input in = {.logits = x, .n_vocab = n, .params = p};
    struct sampling_scratch *s = sampling_scratch_new(n);
    int32_t id = -1;
    assert_int_equal(sampling_draw(&in, s, &id), SAMPLING_OK);
    sampling_scratch_free(s);
    return id;
}

static void extreme_values_give_a_sensible_token(void **state)
{
    float x[] = {-FLT_MAX, 2, FLT_MAX, -3, FLT_MAX};
    struct sampling_params p = plain;
    p.temperature = FLT_TRUE_MIN;
    p.top_p = 1e-9f;
    assert_int_equal(draw(x, 5, &p), 2);
    p.top_p = 0;
    assert_int_equal(draw(x, 5, &p), 2);
    p.min_p = 1;
    p.top_p = 1;
    p.top_k = 1;
    assert_int_equal(draw(x, 5, &p), 2);
    struct logit_bias ban[] = {
        {0, -INFINITY}, {1, FLT_MAX}, {2, -INFINITY}, {3, -FLT_MAX}, {4, -INFINITY}};
    p = plain;
    p.bias = ban;
    p.n_bias = 5;
    p.repetition_penalty = FLT_MAX;
    assert_int_equal(draw(x, 5, &p), 1);
    p.temperature = 0;
    assert_int_equal(draw(x, 5, &p), 1);
}

static void a_bias_of_100_decides(void **state)
{
    float x[] = {5, -40, 7, 7};
    struct sampling_params p = plain;
    struct logit_bias up[] = {{1, 100}};
    p.bias = up;
    p.n_bias = 1;
    for (p.seed = 0; p.seed < 50; p.seed++)
        assert_int_equal(draw(x, 4, &p), 1);
    struct logit_bias down[] = {{2, -100}, {3, -100}};
    p.bias = down;
    p.n_bias = 2;
    for (p.seed = 0; p.seed < 50; p.seed++)
        assert_int_equal(draw(x, 4, &p), 0);
}

static void bad_numbers_and_masked_rows_are_reported(void **state)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    struct sampling_params p = plain;
    struct sampling_scratch *s = sampling_scratch_new(20);
    for (int i = 0; i < 3; i++)
        for (int at = 0; at < 20; at++) {
            float x[20] = {0}, own;
            int32_t id;
            x[at] = bad[i];
            struct sampling_input in = {.logits = x, .n_vocab = 20, .params = &p};
            assert_int_equal(sampling_draw(&in, s, &id), SAMPLING_BAD_NUMBERS);
            assert_false(sampling_logprobs(x, 20, 0, 0, &own, NULL));
        }
    float x[2] = {1, 2};
    struct logit_bias ban[] = {{0, -INFINITY}, {1, -INFINITY}};
    p.bias = ban;
    p.n_bias = 2;
    struct sampling_input in = {.logits = x, .n_vocab = 2, .params = &p};
    int32_t id;
    assert_int_equal(sampling_draw(&in, s, &id), SAMPLING_ALL_MASKED);
    sampling_scratch_free(s);
}

static void greedy_takes_the_first_of_the_largest_wherever_they_are(void **state)
{
    enum { N = 3000 };
    static float x[N];
    struct sampling_params p = plain;
    p.temperature = 0;
    for (int at = 0; at < N; at += 37) {
        const int again = at + 1200 < N ? at + 1200 : N - 1;
        int32_t id = -1;
        for (int i = 0; i < N; i++)
            x[i] = -3 - (float)(i % 5);
        x[at] = x[again] = -2;
        const struct sampling_input in = {.logits = x, .n_vocab = N, .params = &p};
        assert_int_equal(sampling_draw(&in, NULL, &id), SAMPLING_OK);
        assert_int_equal(id, at);
        x[again] = NAN;
        assert_int_equal(sampling_draw(&in, NULL, &id), SAMPLING_BAD_NUMBERS);
    }
}

static void logprobs_equal_a_log_softmax_in_double(void **state)
{
    rng_state = 99;
    for (int run = 0; run < 300; run++) {
        int n = 1 + (int)(rng() % 700);
        float *x = malloc((size_t)n * sizeof *x), own;
        fill_logits(x, n, run);
        struct ranked *r = malloc((size_t)n * sizeof *r);
        double sum = 0;
        for (int i = 0; i < n; i++)
            r[i] = (struct ranked){(double)x[i], 0, i};
        qsort(r, (size_t)n, sizeof *r, by_rank);
        for (int i = 0; i < n; i++)
            sum += exp(r[i].z - r[0].z);
        double lse = r[0].z + log(sum);
        struct top_logprob tops[20];
        int id = (int)(rng() % (uint32_t)n);
        assert_true(sampling_logprobs(x, n, id, 20, &own, tops));
        assert_true(fabs((double)own - ((double)x[id] - lse)) < 4e-6);
        for (int i = 0; i < 20 && i < n; i++) {
            assert_int_equal(tops[i].id, r[i].id);
            assert_true(fabs((double)tops[i].logprob - (r[i].z - lse)) < 4e-6);
        }
        for (int i = n; i < 20; i++)
            assert_int_equal(tops[i].id, -1);
        free(r);
        free(x);
    }
}

static void wrong_parameters_are_refused_by_name(void **state)
{
    struct err e;
    struct sampling_params p = plain;
    p.temperature = NAN;
    assert_false(sampling_check(&p, 10, &e));
    assert_contains(e.msg, "temperature");
    p = plain;
    p.stop_ids[0] = 10;
    p.n_stop_ids = 1;
    assert_false(sampling_check(&p, 10, &e));
    assert_contains(e.msg, "token 10");
    struct logit_bias b = {3, INFINITY};
    p = plain;
    p.bias = &b;
    p.n_bias = 1;
    assert_false(sampling_check(&p, 10, &e));
    b = (struct logit_bias){-1, 0};
    assert_false(sampling_check(&p, 10, &e));
    p = plain;
    p.n_logprobs = 21;
    assert_false(sampling_check(&p, 10, &e));
    assert_contains(e.msg, "logprobs is 21");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_equal_the_sorting_reference),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(seed_choice_and_position_all_matter),
        cmocka_unit_test(philox_gives_the_published_vectors),
        cmocka_unit_test(extreme_values_give_a_sensible_token),
        cmocka_unit_test(a_bias_of_100_decides),
        cmocka_unit_test(bad_numbers_and_masked_rows_are_reported),
        cmocka_unit_test(greedy_takes_the_first_of_the_largest_wherever_they_are),
        cmocka_unit_test(logprobs_equal_a_log_softmax_in_double),
        cmocka_unit_test(wrong_parameters_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
