#include "sampling.h"

#include "logits.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>

/* The radix selection below splits a 32-bit key into 12 + 10 + 10 bits. */
enum { N_LEVELS = 3, MAX_BUCKETS = 1 << 12 };
static const int level_shift[N_LEVELS] = {20, 10, 0};
static const int level_bits[N_LEVELS] = {12, 10, 10};

struct sampling_scratch {
    float *z;     /* [n_vocab] logits with biases and penalties */
    float *w;     /* [n_vocab] exp((z - max) / temperature) */
    int32_t *ids; /* [n_vocab] candidates, ascending */
    uint64_t mass[MAX_BUCKETS];
};

struct sampling_scratch *sampling_scratch_new(int n_vocab)
{
    struct sampling_scratch *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->z = malloc((size_t)n_vocab * sizeof *s->z);
    s->w = malloc((size_t)n_vocab * sizeof *s->w);
    s->ids = malloc((size_t)n_vocab * sizeof *s->ids);
    if (s->z && s->w && s->ids)
        return s;
    sampling_scratch_free(s);
    return NULL;
}

uint64_t sampling_scratch_bytes(int n_vocab)
{
    const struct sampling_scratch *s = NULL;
    return sizeof *s + (uint64_t)n_vocab * (sizeof *s->z + sizeof *s->w + sizeof *s->ids);
}

void sampling_scratch_free(struct sampling_scratch *s)
{
    if (!s)
        return;
    free(s->z);
    free(s->w);
    free(s->ids);
    free(s);
}

static bool check_range(const char *name, double v, double lo, double hi, struct err *e)
{
    if (v >= lo && v <= hi)
        return true;
    return err_set(e, ERR_INVALID, "%s is %g, should be from %g to %g", name, v, lo, hi);
}

static bool check_ids(const struct sampling_params *p, int n_vocab, struct err *e)
{
    for (int i = 0; i < p->n_bias; i++) {
        if (p->bias[i].id < 0 || p->bias[i].id >= n_vocab)
            return err_set(e, ERR_INVALID, "logit_bias names token %d, the vocabulary has %d",
                           (int)p->bias[i].id, n_vocab);
        if (isnan(p->bias[i].bias) || p->bias[i].bias == INFINITY)
            return err_set(e, ERR_INVALID, "logit_bias of token %d is not a number",
                           (int)p->bias[i].id);
    }
    for (int i = 0; i < p->n_stop_ids; i++)
        if (p->stop_ids[i] < 0 || p->stop_ids[i] >= n_vocab)
            return err_set(e, ERR_INVALID, "stop_token_ids names token %d, the vocabulary has %d",
                           (int)p->stop_ids[i], n_vocab);
    return true;
}

bool sampling_check(const struct sampling_params *p, int n_vocab, struct err *e)
{
    const double tops = SAMPLING_MAX_TOP_LOGPROBS;
    return check_range("temperature", p->temperature, 0, FLT_MAX, e) &&
           check_range("top_k", p->top_k, 0, INT_MAX, e) &&
           check_range("top_p", p->top_p, 0, 1, e) && check_range("min_p", p->min_p, 0, 1, e) &&
           check_range("presence_penalty", p->presence_penalty, -1e6, 1e6, e) &&
           check_range("frequency_penalty", p->frequency_penalty, -1e6, 1e6, e) &&
           check_range("repetition_penalty", p->repetition_penalty, FLT_MIN, FLT_MAX, e) &&
           check_range("max_tokens", p->max_tokens, 0, INT_MAX, e) &&
           check_range("min_tokens", p->min_tokens, 0, INT_MAX, e) &&
           check_range("logprobs", p->n_logprobs, -1, tops, e) &&
           check_range("prompt_logprobs", p->n_prompt_logprobs, -1, tops, e) &&
           check_range("number of stop_token_ids", p->n_stop_ids, 0, SAMPLING_MAX_STOP_IDS, e) &&
           check_range("number of logit biases", p->n_bias, 0, n_vocab, e) &&
           check_ids(p, n_vocab, e);
}

bool sampling_wants_counts(const struct sampling_params *p)
{
    return p->presence_penalty != 0 || p->frequency_penalty != 0 || p->repetition_penalty != 1;
}

void sampling_count_prompt(uint16_t *counts, const int32_t *prompt, int n)
{
    for (int i = 0; i < n; i++)
        counts[prompt[i]] |= SAMPLING_IN_PROMPT;
}

void sampling_count(uint16_t *counts, int32_t id)
{
    counts[id] = sampling_count_one(counts[id]);
}

/* --- log probabilities --- */

/* tops[n_tops]: the largest, lower id first among equals, by insertion. */
static void find_tops(const float *x, int n, int n_tops, struct top_logprob *tops)
{
    int have = 0;
    for (int i = 0; i < n; i++) {
        if (have == n_tops && !(x[i] > tops[have - 1].logprob))
            continue;
        int at = have < n_tops ? have++ : have - 1;
        for (; at > 0 && x[i] > tops[at - 1].logprob; at--)
            tops[at] = tops[at - 1];
        tops[at] = (struct top_logprob){i, x[i]};
    }
}

bool sampling_logprobs(const float *x, int n, int32_t id, int n_tops, float *own,
                       struct top_logprob *tops)
{
    if (!logits_finite(x, n))
        return false;
    float max = logits_max(x, n);
    double log_sum = sampling_log(logits_weights(x, n, max, 1.0f, NULL));
    *own = sampling_logprob(x[id], max, log_sum);
    if (n_tops <= 0)
        return true;
    int found = n_tops < n ? n_tops : n;
    find_tops(x, n, found, tops);
    for (int i = 0; i < found; i++)
        tops[i].logprob = sampling_logprob(tops[i].logprob, max, log_sum);
    for (int i = found; i < n_tops; i++)
        tops[i] = (struct top_logprob){-1, -INFINITY};
    return true;
}

/* --- biases, masks and penalties --- */

static bool masks_stops(const struct sampling_input *in)
{
    return in->n_generated < in->params->min_tokens;
}

static bool adjusts(const struct sampling_input *in)
{
    return in->params->n_bias > 0 || in->counts || masks_stops(in);
}

static void mask_stops(float *z, const struct sampling_input *in)
{
    const struct sampling_params *p = in->params;
    if (!masks_stops(in))
        return;
    for (int i = 0; i < p->n_stop_ids; i++)
        z[p->stop_ids[i]] = -INFINITY;
    for (int i = 0; i < in->n_eos && !p->ignore_eos; i++)
        z[in->eos[i]] = -INFINITY;
}

static void penalize(float *z, const struct sampling_input *in)
{
    const struct sampling_params *p = in->params;
    for (int i = 0; i < in->n_vocab; i++)
        z[i] = sampling_penalised(z[i], in->counts[i], p->repetition_penalty, p->frequency_penalty,
                                  p->presence_penalty);
}

static void adjust(float *z, const struct sampling_input *in)
{
    const struct sampling_params *p = in->params;
    memcpy(z, in->logits, (size_t)in->n_vocab * sizeof *z);
    for (int i = 0; i < p->n_bias; i++)
        z[p->bias[i].id] = sampling_biased(z[p->bias[i].id], p->bias[i].bias);
    mask_stops(z, in);
    if (in->counts)
        penalize(z, in);
}

static int32_t first_equal(const float *z, int n, float max)
{
    int i = 0;
    while (i < n - 1 && z[i] != max)
        i++;
    return i;
}

/* --- candidates --- */

/* What a candidate adds to the measure by which a selection goes: its mass, or 1. */
static inline uint64_t measure(const struct sampling_scratch *s, int32_t id, bool by_mass)
{
    return by_mass ? sampling_mass(s->w[id]) : 1;
}

/* One level of the radix selection over candidates whose key starts with `prefix` (the bits
 * above this level): the best bucket first, their measures are added to *have until `goal`, which
 * all together reach, is reached. Returns the bucket where that happens. */
static uint32_t select_bucket(struct sampling_scratch *s, int n, int level, uint32_t prefix,
                              bool by_mass, uint64_t goal, uint64_t *have)
{
    const uint32_t n_buckets = 1u << level_bits[level];
    const int above = level_shift[level] + level_bits[level];
    memset(s->mass, 0, n_buckets * sizeof *s->mass);
    for (int i = 0; i < n; i++) {
        uint32_t key = sampling_key(s->z[s->ids[i]]);
        if (level > 0 && key >> above != prefix)
            continue;
        s->mass[key >> level_shift[level] & (n_buckets - 1)] += measure(s, s->ids[i], by_mass);
    }
    uint32_t b = n_buckets - 1;
    for (; b > 0 && *have + s->mass[b] < goal; b--)
        *have += s->mass[b];
    return b;
}

/* Keeps the shortest run of the best candidates, in order of (logit, lower id), whose measure
 * reaches the goal, from 1 to that of all. Linear in n whatever the logits are. */
static int keep_best(struct sampling_scratch *s, int n, bool by_mass, uint64_t goal)
{
    uint64_t have = 0;
    uint32_t key = 0;
    for (int level = 0; level < N_LEVELS; level++)
        key = key << level_bits[level] | select_bucket(s, n, level, key, by_mass, goal, &have);
    int kept = 0;
    for (int i = 0; i < n; i++) {
        int32_t id = s->ids[i];
        uint32_t k = sampling_key(s->z[id]);
        if (k < key || (k == key && have >= goal))
            continue;
        have += k == key ? measure(s, id, by_mass) : 0;
        s->ids[kept++] = id;
    }
    return kept;
}

/* Candidates of at least weight `least`, in id order. */
static int list_candidates(struct sampling_scratch *s, int n_vocab, float least)
{
    int n = 0;
    for (int i = 0; i < n_vocab; i++) {
        s->ids[n] = i;
        n += s->w[i] >= least && s->w[i] > 0;
    }
    return n;
}

/* Mass of candidates [from, to) */
static uint64_t sum_masses(const struct sampling_scratch *s, int from, int to)
{
    uint64_t sum = 0;
    for (int i = from; i < to; i++)
        sum += sampling_mass(s->w[s->ids[i]]);
    return sum;
}

static int keep_mass(struct sampling_scratch *s, int n, float top_p)
{
    const uint64_t total = sum_masses(s, 0, n), goal = sampling_share(total, top_p);
    /* Candidates this light weigh less together than what is cut away: none of them can be
     * needed. It leaves few to select from. */
    const uint64_t light = (total - goal) / (uint64_t)n;
    int left = 0;
    for (int i = 0; i < n; i++) {
        int32_t id = s->ids[i];
        s->ids[left] = id;
        left += sampling_mass(s->w[id]) >= light;
    }
    return keep_best(s, left, true, goal);
}

/* Inverse of the cumulative distribution, in id order; blocks of candidates are skipped by
 * their sums. */
static int32_t draw_candidate(struct sampling_scratch *s, int n, uint64_t random)
{
    const int block = 256 > n / MAX_BUCKETS ? 256 : n / MAX_BUCKETS + 1;
    uint64_t total = 0, sum = 0;
    for (int b = 0, at = 0; at < n; b++, at += block)
        total += s->mass[b] = sum_masses(s, at, n - at < block ? n : at + block);
    const uint64_t target = sampling_target(total, random);
    int i = 0;
    for (int b = 0; i + block < n && sum + s->mass[b] <= target; b++, i += block)
        sum += s->mass[b];
    for (; i < n - 1; i++) {
        sum += sampling_mass(s->w[s->ids[i]]);
        if (sum > target)
            break;
    }
    return s->ids[i];
}

/* A draw from what min_p, top-k and top-p leave */
static int32_t draw_best(const struct sampling_params *p, int n_vocab, struct sampling_scratch *s,
                         uint64_t random)
{
    int n = list_candidates(s, n_vocab, p->min_p);
    if (p->top_k > 0 && p->top_k < n)
        n = keep_best(s, n, false, (uint64_t)p->top_k);
    if (p->top_p < 1 && n > 1)
        n = keep_mass(s, n, p->top_p);
    return draw_candidate(s, n, random);
}

enum sampling_result sampling_draw(const struct sampling_input *in, struct sampling_scratch *s,
                                   int32_t *token)
{
    const struct sampling_params *p = in->params;
    if (p->temperature == 0 && !adjusts(in))
        return logits_best(in->logits, in->n_vocab, token) ? SAMPLING_OK : SAMPLING_BAD_NUMBERS;
    if (!logits_finite(in->logits, in->n_vocab))
        return SAMPLING_BAD_NUMBERS;
    adjust(s->z, in);
    float max = logits_max(s->z, in->n_vocab);
    if (max == -INFINITY)
        return SAMPLING_ALL_MASKED;
    if (p->temperature == 0) {
        *token = first_equal(s->z, in->n_vocab, max);
        return SAMPLING_OK;
    }
    const uint64_t total = logits_weights(s->z, in->n_vocab, max, p->temperature, s->w);
    const uint64_t random = sampling_random(p->seed, in->choice, in->position, RANDOM_TOKEN);
    if (p->min_p == 0 && p->top_k == 0 && p->top_p == 1)
        *token = logits_draw(s->w, in->n_vocab, sampling_target(total, random));
    else
        *token = draw_best(p, in->n_vocab, s, random);
    return SAMPLING_OK;
}
