/* Sampling: passes over the sections of all rows, each a block: their best, their masses, what must
 * be looked at one by one. Bound by bytes: the first pass reads the logits from memory, the others,
 * for rows that are not greedy, from the second-level cache as long as they fit. */
#include "sampling.cuh"

INLINE bool finite(float x)
{
    return (sampling_bits(x) & 0x7F800000u) != 0x7F800000u;
}

/* The id of the thread's k-th token; lanes are neighbours. */
INLINE int section_id(int k)
{
    return blockIdx.x * SECTION + k * SECTION_THREADS + threadIdx.x;
}

/* --- the best, after biases and penalties --- */

INLINE int first_bias(const struct cuda_draw *d, int id)
{
    int from = 0, to = d->n_bias;
    while (from < to) {
        int middle = (from + to) / 2;
        if (d->bias[middle].id < id)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* z [SECTION] is shared. */
INLINE void bias_section(const struct cuda_draw *d, int first, float *z)
{
    for (int i = first_bias(d, first) + threadIdx.x; i < d->n_bias; i += SECTION_THREADS) {
        const struct logit_bias b = d->bias[i];
        if (b.id >= first + SECTION)
            break;
        z[b.id - first] = sampling_biased(z[b.id - first], b.bias);
    }
    __syncthreads();
    for (int i = 0; i < d->n_banned; i++) { /* an id may stand there twice */
        const int at = d->banned[i] - first;
        if (at >= 0 && at < SECTION && at % SECTION_THREADS == (int)threadIdx.x)
            z[at] = -INFINITY;
    }
}

INLINE float penalised(const struct cuda_draw *d, float z, int id)
{
    if (d->counts)
        z = sampling_penalised(z, d->counts[id], d->repetition_penalty, d->frequency_penalty,
                               d->presence_penalty);
    return !d->allowed || d->allowed[id / 32] >> id % 32 & 1 ? z : -INFINITY;
}

/* x [OF_THREAD]: the thread's logits, afterwards with biases and penalties, and so in a.z */
INLINE void adjust_section(const struct sampler &a, const struct cuda_draw *d, float *x, float *z)
{
    float *to = a.z + (size_t)blockIdx.y * a.in.n_vocab;
#pragma unroll
    for (int k = 0; k < OF_THREAD; k++)
        z[k * SECTION_THREADS + threadIdx.x] = x[k];
    __syncthreads();
    bias_section(d, blockIdx.x * SECTION, z);
#pragma unroll
    for (int k = 0; k < OF_THREAD; k++) {
        int id = section_id(k);
        if (id < a.in.n_vocab)
            to[id] = x[k] = penalised(d, z[k * SECTION_THREADS + threadIdx.x], id);
    }
}

INLINE void clear_bins(const struct sampler &a)
{
    whole *bins = a.bins + (size_t)blockIdx.y * N_JOBS * BINS;
    for (int i = blockIdx.x * SECTION_THREADS + threadIdx.x; i < N_JOBS * BINS;
         i += gridDim.x * SECTION_THREADS)
        bins[i] = 0;
}

static __global__ void __launch_bounds__(SECTION_THREADS, 4) examine_kernel(struct sampler a)
{
    SHARED(float, z, [SECTION]);
    SHARED(whole, sums, [SECTION_WARPS]);
    const struct cuda_draw *d = a.in.draws + blockIdx.y;
    if (d->row < 0)
        return;
    clear_bins(a);
    const float *row = a.in.logits + (size_t)d->row * a.in.n_vocab;
    float x[OF_THREAD];
    struct found f = {0, 0};
#pragma unroll
    for (int k = 0; k < OF_THREAD; k++) {
        const bool is = section_id(k) < a.in.n_vocab;
        x[k] = is ? row[section_id(k)] : 0;
        if (is)
            f.raw = max(f.raw, finite(x[k]) ? (whole)sampling_key(x[k]) : BAD);
    }
    if (adjusts(d))
        adjust_section(a, d, x, z);
#pragma unroll
    for (int k = 0; k < OF_THREAD; k++)
        if (section_id(k) < a.in.n_vocab)
            f.best = max(f.best, rank_of(x[k], section_id(k)));
    f.best = block_max<SECTION_WARPS>(f.best, sums);
    f.raw = block_max<SECTION_WARPS>(f.raw, sums);
    if (threadIdx.x == 0)
        a.found[(size_t)blockIdx.y * a.n_sections + blockIdx.x] = f;
}

/* --- masses and bins --- */

static __global__ void __launch_bounds__(SECTION_THREADS) weigh_kernel(struct sampler a)
{
    SHARED(whole, masses, [BINS]);
    SHARED(unsigned, counts, [BINS]);
    SHARED(whole, sums, [SECTION_WARPS]);
    const struct cuda_draw *d = a.in.draws + blockIdx.y;
    if (!job_wanted(d, blockIdx.z))
        return;
    const struct found f = row_found<SECTION_WARPS>(a, blockIdx.y, sums);
    if (row_result(d, f) != SAMPLING_OK)
        return;
    const struct job j = job_of(a, blockIdx.y, blockIdx.z, f);
    for (int i = threadIdx.x; i < BINS; i += SECTION_THREADS) {
        masses[i] = 0;
        counts[i] = 0;
    }
    __syncthreads();
    whole sum = 0;
#pragma unroll
    for (int k = 0; k < OF_THREAD; k++) {
        if (section_id(k) >= a.in.n_vocab)
            continue;
        const float z = j.z[section_id(k)], w = job_weight(j, z);
        if (!(w >= j.least))
            continue;
        sum += sampling_mass(w);
        if (j.by == BY_MASS)
            atomicAdd(&masses[job_bin(j, z)], sampling_mass(w));
        else if (j.by == BY_COUNT)
            atomicAdd(&counts[job_bin(j, z)], 1u);
    }
    sum = block_total<SECTION_WARPS>(sum, sums);
    if (threadIdx.x == 0)
        a.masses[(size_t)j.at * a.n_sections + blockIdx.x] = sum;
    for (int i = threadIdx.x; i < BINS && j.by != BY_NONE; i += SECTION_THREADS) {
        whole m = j.by == BY_MASS ? masses[i] : counts[i];
        if (m > 0)
            atomicAdd(&a.bins[(size_t)j.at * BINS + i], m);
    }
}

/* --- what is looked at one by one --- */

/* The measure that the chosen must reach */
INLINE whole job_goal(const struct sampler &a, const struct cuda_draw *d, const struct job &j,
                      int kind, whole *sums)
{
    if (j.by == BY_COUNT)
        return kind == JOB_TOPS ? d->n_logprobs : d->top_k;
    return sampling_share(job_mass<SECTION_WARPS>(a, j, sums), d->top_p);
}

/* Where the goal is reached; `at` is shared. */
INLINE struct cut find_cut(const struct sampler &a, const struct job &j, int kind, whole *sums,
                           struct cut *at)
{
    enum { OF = BINS / SECTION_THREADS };
    const struct cuda_draw *d = a.in.draws + blockIdx.y;
    if (j.by == BY_NONE)
        return {0, 0, BINS, BINS};
    const whole goal = job_goal(a, d, j, kind, sums);
    const whole *bins = a.bins + (size_t)j.at * BINS + threadIdx.x * OF;
    whole own = 0, all;
    for (int i = 0; i < OF; i++)
        own += bins[i];
    whole have = block_scan<SECTION_WARPS>(own, &all, sums);
    /* All of them are listed: the best tokens, and what top-p shall choose from. */
    const bool lists_all = kind == JOB_TOPS || (j.by == BY_COUNT && d->top_p < 1);
    if (all <= goal)
        return lists_all ? cut{0, all, 0, BINS} : cut{0, all, BINS, BINS};
    for (int i = 0; i < OF; i++) {
        const int bin = (int)threadIdx.x * OF + i;
        if (have < goal && have + bins[i] >= goal)
            *at = {have, all, bin, bin};
        have += bins[i];
    }
    __syncthreads();
    return lists_all ? cut{0, all, 0, at->to} : *at;
}

/* Positions of the marked tokens in a list of them in id order; returns how many. `n` is shared. */
INLINE int list_places(const bool *marked, int *places, int *n, whole *sums)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int k = 0; k < OF_THREAD; k++) {
        unsigned votes = __ballot_sync((unsigned)ALL_LANES, marked[k]);
        places[k] = __popc(votes & ((1u << lane) - 1));
        if (lane == 0)
            n[k * SECTION_WARPS + warp] = __popc(votes);
    }
    __syncthreads();
    whole total, before = block_scan<SECTION_WARPS>(
                     threadIdx.x < OF_THREAD * SECTION_WARPS ? n[threadIdx.x] : 0, &total, sums);
    if (threadIdx.x < OF_THREAD * SECTION_WARPS)
        n[threadIdx.x] = (int)before;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < OF_THREAD; k++)
        places[k] += n[k * SECTION_WARPS + warp];
    return (int)total;
}

/* Writes the section's list; returns the mass of those chosen without it. `n` is shared. */
INLINE whole list_section(const struct sampler &a, const struct job &j, const struct cut &c, int *n,
                          whole *sums)
{
    const size_t section = (size_t)j.at * a.n_sections + blockIdx.x;
    uint16_t *list = a.lists + (size_t)j.at * a.in.n_vocab + blockIdx.x * SECTION;
    bool marked[OF_THREAD];
    int places[OF_THREAD];
    whole chosen = 0;
#pragma unroll
    for (int k = 0; k < OF_THREAD; k++) {
        marked[k] = false;
        if (section_id(k) >= a.in.n_vocab)
            continue;
        const float z = j.z[section_id(k)], w = job_weight(j, z);
        if (!(w >= j.least))
            continue;
        const int bin = job_bin(j, z);
        chosen += bin < c.from ? sampling_mass(w) : 0;
        marked[k] = bin >= c.from && bin <= c.to;
    }
    const int total = list_places(marked, places, n, sums);
#pragma unroll
    for (int k = 0; k < OF_THREAD; k++)
        if (marked[k])
            list[places[k]] = (uint16_t)(k * SECTION_THREADS + threadIdx.x);
    if (threadIdx.x == 0)
        a.listed[section] = total;
    return block_total<SECTION_WARPS>(chosen, sums);
}

static __global__ void __launch_bounds__(SECTION_THREADS) list_kernel(struct sampler a)
{
    SHARED(int, n, [OF_THREAD * SECTION_WARPS]);
    SHARED(whole, sums, [SECTION_WARPS]);
    SHARED(struct cut, at, [1]);
    const struct cuda_draw *d = a.in.draws + blockIdx.y;
    if (!job_wanted(d, blockIdx.z))
        return;
    const struct found f = row_found<SECTION_WARPS>(a, blockIdx.y, sums);
    if (row_result(d, f) != SAMPLING_OK)
        return;
    const struct job j = job_of(a, blockIdx.y, blockIdx.z, f);
    const struct cut c = find_cut(a, j, blockIdx.z, sums, at);
    const size_t section = (size_t)j.at * a.n_sections + blockIdx.x;
    whole chosen = a.masses[section];
    if (c.from < BINS)
        chosen = list_section(a, j, c, n, sums);
    else if (threadIdx.x == 0)
        a.listed[section] = 0;
    if (threadIdx.x > 0)
        return;
    a.chosen[section] = chosen;
    if (blockIdx.x == 0)
        a.cuts[j.at] = c;
}

/* --- launches --- */

/* The next n bytes of scratch memory; counts only if there is none. */
static char *scratch_take(char *base, size_t *used, size_t n)
{
    char *at = base ? base + *used : NULL;
    *used += (n + 255) / 256 * 256;
    return at;
}

static size_t scratch_lay(struct sampler *a, char *base, int n_vocab, int n_draws)
{
    const size_t jobs = (size_t)n_draws * N_JOBS;
    size_t used = 0;
    a->n_sections = (n_vocab + SECTION - 1) / SECTION;
    const size_t sections = jobs * a->n_sections;
    a->found = (struct found *)scratch_take(base, &used,
                                            (size_t)n_draws * a->n_sections * sizeof *a->found);
    a->cuts = (struct cut *)scratch_take(base, &used, jobs * sizeof *a->cuts);
    a->bins = (whole *)scratch_take(base, &used, jobs * BINS * sizeof *a->bins);
    a->masses = (whole *)scratch_take(base, &used, sections * sizeof *a->masses);
    a->chosen = (whole *)scratch_take(base, &used, sections * sizeof *a->chosen);
    a->listed = (uint32_t *)scratch_take(base, &used, sections * sizeof *a->listed);
    a->lists = (uint16_t *)scratch_take(base, &used, jobs * n_vocab * sizeof *a->lists);
    a->z = (float *)scratch_take(base, &used, (size_t)n_draws * n_vocab * sizeof *a->z);
    return used;
}

size_t cuda_sampling_bytes(int n_vocab, int max_draws)
{
    struct sampler a;
    return scratch_lay(&a, NULL, n_vocab, max_draws);
}

cudaError_t cuda_sample(cudaStream_t s, const struct cuda_sampling *in)
{
    struct sampler a;
    if (in->n_vocab < 1 || in->n_vocab > CUDA_MAX_VOCAB)
        return cudaErrorInvalidValue;
    a.in = *in;
    scratch_lay(&a, (char *)in->scratch, in->n_vocab, in->n_draws);
    const dim3 rows(a.n_sections, in->n_draws), jobs(a.n_sections, in->n_draws, N_JOBS);
    LAUNCH(examine_kernel, rows, SECTION_THREADS, 0, s)(a);
    if (!in->best_only) {
        LAUNCH(weigh_kernel, jobs, SECTION_THREADS, 0, s)(a);
        LAUNCH(list_kernel, jobs, SECTION_THREADS, 0, s)(a);
    }
    sampling_choose(s, &a);
    return cudaGetLastError();
}
