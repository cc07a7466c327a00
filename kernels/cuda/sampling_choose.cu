/* The last step of a draw: a block a row joins what the sections' blocks found,
 * selects among the few that are listed, and draws. Bound by latency: some dozen barriers. */
#include "sampling.cuh"

enum { CHOOSE_THREADS = MAX_SECTIONS, CHOOSE_WARPS = CHOOSE_THREADS / 32 }; /* a thread a section */
enum { HELD = 2048, DIGITS = 256, OF_CHOOSER = SECTION / CHOOSE_THREADS };

/* Shared memory */
struct chooser {
    whole sums[CHOOSE_WARPS];
    int before[MAX_SECTIONS + 1]; /* a section's first place in the list */
    whole held[HELD];             /* ranks of the listed, if they fit */
    whole masses[DIGITS];         /* of digits in a selection */
    unsigned counts[DIGITS];
    whole of_section[MAX_SECTIONS];
    int digit;
    whole have; /* better than the digit's */
    int at;
    whole rest;
    unsigned n_tops;
    whole tops[SAMPLING_MAX_TOP_LOGPROBS];
};

/* --- the list --- */

/* The rank of entry i of a section's list */
INLINE whole listed_rank(const struct sampler &a, const struct job &j, int section, int i)
{
    const int first = section * SECTION;
    const int id = first + a.lists[(size_t)j.at * a.in.n_vocab + first + i];
    return rank_of(j.z[id], id);
}

/* Entry i of the list of n */
INLINE whole list_rank(const struct sampler &a, const struct job &j, const struct chooser *s, int n,
                       int i)
{
    if (n <= HELD)
        return s->held[i];
    int from = 0, to = a.n_sections; /* the last section that begins at i or before */
    while (to - from > 1) {
        int middle = (from + to) / 2;
        if (s->before[middle] <= i)
            from = middle;
        else
            to = middle;
    }
    return listed_rank(a, j, from, i - s->before[from]);
}

/* Returns how many are listed. */
INLINE int list_open(const struct sampler &a, const struct job &j, struct chooser *s)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, at = threadIdx.x;
    whole total;
    whole own = at < a.n_sections ? a.listed[(size_t)j.at * a.n_sections + at] : 0;
    s->before[at] = (int)block_scan<CHOOSE_WARPS>(own, &total, s->sums);
    if (at == 0)
        s->before[MAX_SECTIONS] = (int)total;
    __syncthreads();
    for (int i = warp; i < a.n_sections && total <= HELD; i += CHOOSE_WARPS)
        for (int e = lane; e < s->before[i + 1] - s->before[i]; e += 32)
            s->held[s->before[i] + e] = listed_rank(a, j, i, e);
    __syncthreads();
    return (int)total;
}

INLINE whole rank_mass(const struct job &j, whole rank)
{
    return sampling_mass(job_weight(j, rank_value(rank)));
}

/* --- selection --- */

/* Measures of the listed ranks in [low, high] by digits, (rank - low) >> shift */
INLINE void add_digits(const struct sampler &a, const struct job &j, struct chooser *s, int n,
                       bool by_mass, whole low, whole high, int shift)
{
    if (threadIdx.x < DIGITS) {
        s->masses[threadIdx.x] = 0;
        s->counts[threadIdx.x] = 0;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += CHOOSE_THREADS) {
        const whole rank = list_rank(a, j, s, n, i);
        if (rank < low || rank > high)
            continue;
        const int digit = (int)((rank - low) >> shift);
        atomicAdd(&s->counts[digit], 1u);
        if (by_mass)
            atomicAdd(&s->masses[digit], rank_mass(j, rank));
    }
    __syncthreads();
}

/* The least rank such that those listed from it on, and `have`, reach the goal, with the best
 * first; of ranks below `least` none. Or a lower rank that none has. The goal is above `have`, and
 * all together reach it. Digit by digit, from the first in which the listed differ. */
INLINE whole select_rank(const struct sampler &a, const struct job &j, struct chooser *s, int n,
                         bool by_mass, whole goal, whole have, whole least)
{
    whole low = ~(whole)0, high = 0;
    for (int i = threadIdx.x; i < n; i += CHOOSE_THREADS) {
        const whole rank = list_rank(a, j, s, n, i);
        if (rank >= least) {
            low = min(low, rank);
            high = max(high, rank);
        }
    }
    low = ~block_max<CHOOSE_WARPS>(~low, s->sums);
    high = block_max<CHOOSE_WARPS>(high, s->sums);
    int shift = max(64 - __clzll((long long)(high - low)) - 8, 0);
    for (;;) {
        add_digits(a, j, s, n, by_mass, low, high, shift);
        const int digit = DIGITS - 1 - (int)threadIdx.x; /* descending */
        whole own = 0, all;
        if (digit >= 0)
            own = by_mass ? s->masses[digit] : s->counts[digit];
        const whole better = have + block_scan<CHOOSE_WARPS>(own, &all, s->sums);
        if (digit >= 0 && better < goal && better + own >= goal) {
            s->digit = digit;
            s->have = better;
        }
        __syncthreads();
        have = s->have;
        low += (whole)s->digit << shift;
        high = min(high, low + (((whole)1 << shift) - 1));
        const unsigned count = s->counts[s->digit];
        if (count == 1 || shift == 0 || (!by_mass && have + count == goal))
            return low;
        shift = max(shift - 8, 0);
        __syncthreads(); /* all have read the digit */
    }
}

/* --- the draw --- */

/* The least rank that top-k and top-p leave; n are listed. */
INLINE whole least_rank(const struct sampler &a, const struct job &j, const struct cuda_draw *d,
                        struct chooser *s, int n)
{
    const struct cut c = a.cuts[j.at];
    whole least = 0;
    if (j.by == BY_COUNT && c.all > (whole)d->top_k)
        least = select_rank(a, j, s, n, false, d->top_k, c.have, 0);
    if (!(d->top_p < 1))
        return least;
    whole all = 0;
    if (j.by == BY_COUNT) { /* all are listed */
        for (int i = threadIdx.x; i < n; i += CHOOSE_THREADS) {
            const whole rank = list_rank(a, j, s, n, i);
            all += rank >= least ? rank_mass(j, rank) : 0;
        }
        all = block_total<CHOOSE_WARPS>(all, s->sums);
    } else {
        all = job_mass<CHOOSE_WARPS>(a, j, s->sums);
    }
    return select_rank(a, j, s, n, true, sampling_share(all, d->top_p), c.have, least);
}

/* of_section = masses of ranks from `least` on; n are listed. */
INLINE void weigh_sections(const struct sampler &a, const struct job &j, struct chooser *s, int n,
                           whole least)
{
    const int lane = threadIdx.x % 32;
    for (int i = threadIdx.x / 32; i < a.n_sections; i += CHOOSE_WARPS) {
        whole sum = 0;
        const int first = s->before[i];
        for (int e = lane; e < s->before[i + 1] - first; e += 32) {
            const whole rank = n <= HELD ? s->held[first + e] : listed_rank(a, j, i, e);
            sum += rank >= least ? rank_mass(j, rank) : 0;
        }
        sum = warp_scan<32>(sum);
        if (lane == 31)
            s->of_section[i] = a.chosen[(size_t)j.at * a.n_sections + i] + sum;
    }
    __syncthreads();
}

/* The token of a section, in id order, at which the sum of masses exceeds `rest` */
INLINE int draw_in_section(const struct sampler &a, const struct job &j, struct chooser *s,
                           int section, whole rest, whole least)
{
    const int first = section * SECTION + (int)threadIdx.x * OF_CHOOSER;
    whole mass[OF_CHOOSER], sum = 0, all;
#pragma unroll
    for (int i = 0; i < OF_CHOOSER; i++) {
        mass[i] = 0;
        if (first + i < a.in.n_vocab) {
            const float z = j.z[first + i], w = job_weight(j, z);
            mass[i] = w >= j.least && rank_of(z, first + i) >= least ? sampling_mass(w) : 0;
        }
        sum += mass[i];
    }
    whole before = block_scan<CHOOSE_WARPS>(sum, &all, s->sums);
#pragma unroll
    for (int i = 0; i < OF_CHOOSER; i++) {
        if (before <= rest && rest < before + mass[i])
            s->at = first + i;
        before += mass[i];
    }
    __syncthreads();
    return s->at;
}

INLINE int draw_token(const struct sampler &a, const struct job &j, const struct cuda_draw *d,
                      struct chooser *s)
{
    const int n = list_open(a, j, s);
    const whole least = n > 0 ? least_rank(a, j, d, s, n) : 0;
    weigh_sections(a, j, s, n, least);
    whole own = (int)threadIdx.x < a.n_sections ? s->of_section[threadIdx.x] : 0, total;
    const whole before = block_scan<CHOOSE_WARPS>(own, &total, s->sums);
    const whole target =
        sampling_target(total, sampling_random(d->seed, d->choice, d->position, RANDOM_TOKEN));
    if (before <= target && target < before + own) {
        s->digit = threadIdx.x;
        s->rest = target - before;
    }
    __syncthreads();
    return draw_in_section(a, j, s, s->digit, s->rest, least);
}

/* --- log probabilities --- */

INLINE void write_tops(const struct sampler &a, const struct job &j, const struct cuda_draw *d,
                       struct chooser *s, double log_sum, struct top_logprob *out)
{
    const int n = list_open(a, j, s), at = threadIdx.x;
    const int wanted = min(d->n_logprobs, a.in.n_vocab);
    const whole least = n > wanted ? select_rank(a, j, s, n, false, wanted, 0, 0) : 0;
    if (at == 0)
        s->n_tops = 0;
    __syncthreads();
    for (int i = at; i < n; i += CHOOSE_THREADS) {
        const whole rank = list_rank(a, j, s, n, i);
        if (rank >= least)
            s->tops[atomicAdd(&s->n_tops, 1u)] = rank;
    }
    __syncthreads();
    if (at >= wanted) {
        if (at < d->n_logprobs)
            out[at] = {-1, -INFINITY};
        return;
    }
    int place = 0;
    for (int i = 0; i < wanted; i++)
        place += s->tops[i] > s->tops[at];
    out[place] = {rank_id(s->tops[at]), sampling_logprob(rank_value(s->tops[at]), j.max, log_sum)};
}

INLINE void write_logprobs(const struct sampler &a, const struct job &j, const struct cuda_draw *d,
                           struct chooser *s, int id, struct cuda_sample *out)
{
    const double log_sum = sampling_log(job_mass<CHOOSE_WARPS>(a, j, s->sums));
    if (threadIdx.x == 0)
        out->logprob = sampling_logprob(j.z[id], j.max, log_sum);
    if (d->n_logprobs > 0)
        write_tops(a, j, d, s, log_sum, out->tops);
}

static __global__ void __launch_bounds__(CHOOSE_THREADS, 2) choose_kernel(struct sampler a)
{
    SHARED(struct chooser, s, [1]);
    const int draw = blockIdx.x;
    const struct cuda_draw *d = a.in.draws + draw;
    if (d->row < 0)
        return;
    const struct found f = row_found<CHOOSE_WARPS>(a, draw, s->sums);
    const enum sampling_result result = row_result(d, f);
    const bool ok = result == SAMPLING_OK, drawn = ok && !a.in.best_only;
    int id = d->given >= 0 ? d->given : rank_id(f.best);
    if (drawn && job_wanted(d, JOB_DRAW))
        id = draw_token(a, job_of(a, draw, JOB_DRAW, f), d, s);
    if (threadIdx.x == 0) {
        a.in.out[draw].id = ok ? id : -1;
        a.in.out[draw].result = result;
        if (d->next >= 0)
            a.in.ids[d->next] = ok ? id : 0;
        if (d->counted && ok)
            d->counted[id] = sampling_count_one(d->counted[id]);
    }
    if (drawn && job_wanted(d, JOB_TOPS))
        write_logprobs(a, job_of(a, draw, JOB_TOPS, f), d, s, id, a.in.out + draw);
}

void sampling_choose(cudaStream_t s, const struct sampler *a)
{
    LAUNCH(choose_kernel, a->in.n_draws, CHOOSE_THREADS, 0, s)(*a);
}
