/* golden_rig.h: golden models (format: the corpus' README) through the real engine, with token ids:
 * the best 20 logits as log probabilities, greedy answers up to the first near tie, log
 * probabilities of prompts and of given continuations. Include after test.h. */
#ifndef TOKEND_GOLDEN_RIG_H
#define TOKEND_GOLDEN_RIG_H

#include <jansson.h>

#include "engine_rig.h"

enum { MAX_PROMPTS = 8, N_TOPS = 20 };

/* What a file is held to. Two float32 engines differ by 2e-5, and 8-bit activations move the
 * logits of quantised models by up to 0.5 (README of the corpus). */
struct limits {
    double logprob;
    const char *kv;           /* NULL: auto */
    const char *quantization; /* NULL: as the file is */
    int bits;                 /* of activations; 0: auto */
};

/* Models whose logits move by more than others' when keys and values are rounded to f16 (NumPy says
 * the same), NAME or NAME.TYPE. */
static inline bool golden_touchy(const char *name)
{
    const size_t n = strcspn(name, ".");
    return (n == 7 && memcmp(name, "gpt_oss", n) == 0) ||
           (n == 10 && memcmp(name, "granitemoe", n) == 0);
}

struct golden_run {
    const char *file;
    struct limits lim;
    double worst; /* largest difference of a log probability */
    int greedy_compared;
};

static inline int32_t *json_ids(const json_t *ids, const json_t *more, int *n)
{
    const size_t a = json_array_size(ids), b = json_array_size(more);
    int32_t *out = malloc((a + b) * sizeof *out);
    for (size_t i = 0; i < a + b; i++)
        out[i] = (int32_t)json_integer_value(i < a ? json_array_get(ids, i)
                                                   : json_array_get(more, i - a));
    *n = (int)(a + b);
    return out;
}

static inline void compare(struct golden_run *g, const char *what, double got, double want)
{
    double d = fabs(got - want);
    if (!(d <= g->lim.logprob))
        fail_msg("%s: %s: log probability %.5f, golden %.5f (limit %g)", g->file, what, got, want,
                 g->lim.logprob);
    g->worst = fmax(g->worst, d);
}

static inline void compare_tops(struct golden_run *g, const json_t *p, const struct request *q)
{
    const json_t *top = json_object_get(p, "top");
    const double lse = json_number_value(json_object_get(p, "logsumexp"));
    const struct top_logprob *tops = q->choices[0].tops;
    int found = 0;
    for (size_t i = 0; i < json_array_size(top); i++) {
        const json_t *pair = json_array_get(top, i);
        const int id = (int)json_integer_value(json_array_get(pair, 0));
        for (int k = 0; k < N_TOPS; k++) {
            if (tops[k].id != id)
                continue;
            found++;
            compare(g, "top", (double)tops[k].logprob,
                    json_number_value(json_array_get(pair, 1)) - lse);
        }
    }
    /* The last of the 20 may swap with those behind. */
    if (found < 14)
        fail_msg("%s: only %d of the best 20 are the golden ones", g->file, found);
}

/* Ids up to the first step whose margin is within what this type may differ by. */
static inline void compare_greedy(struct golden_run *g, const json_t *p, const struct request *q)
{
    const json_t *greedy = json_object_get(p, "greedy");
    const json_t *ids = json_object_get(greedy, "ids"),
                 *margins = json_object_get(greedy, "margins");
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const double margin = json_number_value(json_array_get(margins, i));
        if (margin < 0.02 || margin < g->lim.logprob)
            return;
        if (q->choices[0].tokens[i] != json_integer_value(json_array_get(ids, i)))
            fail_msg("%s: greedy token %zu is %d, golden %d", g->file, i,
                     (int)q->choices[0].tokens[i], (int)json_integer_value(json_array_get(ids, i)));
        g->greedy_compared++;
    }
}

static inline void compare_prompt(struct golden_run *g, const char *what, const json_t *want,
                                  const struct request *q)
{
    const int n = (int)json_array_size(want);
    for (int i = 0; i < n; i++)
        compare(g, what, (double)q->prompt_logprobs[q->n_prompt - n + i],
                json_number_value(json_array_get(want, (size_t)i)));
}

static inline struct request *answer_request(const json_t *p)
{
    struct sampling_params s = rig_plain;
    int n;
    int32_t *ids = json_ids(json_object_get(p, "ids"), NULL, &n);
    s.max_tokens = (int)json_array_size(json_object_get(json_object_get(p, "greedy"), "ids"));
    s.n_logprobs = N_TOPS;
    return request_new(ids, n, 1, &s);
}

/* Scores the prompt and its continuation, generating nothing. */
static inline struct request *score_request(const json_t *p)
{
    struct sampling_params s = rig_plain;
    const json_t *more = json_object_get(json_object_get(p, "continuation"), "ids");
    int n;
    int32_t *ids = json_ids(json_object_get(p, "ids"), more, &n);
    s.max_tokens = 0;
    s.n_prompt_logprobs = 0;
    return request_new(ids, n, 1, &s);
}

static inline void check_prompts(struct golden_run *g, struct rig *r, const json_t *prompts)
{
    const int n = (int)json_array_size(prompts);
    struct request *q[2 * MAX_PROMPTS];
    assert_true(n > 0 && n <= MAX_PROMPTS);
    for (int i = 0; i < n; i++) {
        q[2 * i] = answer_request(json_array_get(prompts, (size_t)i));
        q[2 * i + 1] = score_request(json_array_get(prompts, (size_t)i));
        rig_submit(r, q[2 * i]);
        rig_submit(r, q[2 * i + 1]);
    }
    rig_wait_ended(r, q, 2 * n);
    for (int i = 0; i < n; i++) {
        const json_t *p = json_array_get(prompts, (size_t)i);
        const struct request *score = q[2 * i + 1];
        compare_tops(g, p, q[2 * i]);
        compare_greedy(g, p, q[2 * i]);
        const json_t *more = json_object_get(p, "continuation");
        compare_prompt(g, "continuation", json_object_get(more, "logprobs"), score);
        const json_t *own = json_object_get(p, "prompt_logprobs");
        for (size_t k = 0; k < json_array_size(own); k++)
            compare(g, "prompt", (double)score->prompt_logprobs[k + 1],
                    json_number_value(json_array_get(own, k)));
    }
    for (int i = 0; i < 2 * n; i++)
        request_free(q[i]);
}

static inline void check_golden(const char *name, struct rig *r, const json_t *prompts,
                                struct limits lim)
{
    struct golden_run g = {.file = name, .lim = lim};
    check_prompts(&g, r, prompts);
    printf("    %s%s%s%s, KV %s: worst log probability %.5f (limit %g), %d greedy tokens\n", name,
           lim.quantization ? " as " : "", lim.quantization ? lim.quantization : "",
           lim.bits == 16 ? ", 16 bits" : "", dtype_info(engine_get_info(r->e)->kv_dtype)->name,
           g.worst, lim.logprob, g.greedy_compared);
}

static inline struct engine_config golden_config(struct limits lim)
{
    struct engine_config c = rig_defaults;
    c.kv_cache_memory = 64 << 20;
    c.max_num_seqs = 12;
    c.max_num_batched_tokens = 128;
    if (lim.kv) {
        c.kv_dtype_auto = false;
        assert_true(dtype_from_name(lim.kv, &c.kv_dtype));
    }
    c.activation_bits = lim.bits;
    if (lim.quantization) {
        c.quantise = true;
        assert_true(dtype_from_name(lim.quantization, &c.quantise_to));
    }
    return c;
}

#endif
