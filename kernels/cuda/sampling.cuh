/* sampling.cuh: what the kernels of a draw share.
 *
 * A row is cut into sections of SECTION tokens, a block each. What blocks find together is whole
 * numbers, maxima and sums of masses (sampling_math.h), so no order of theirs changes a bit.
 * Nothing is sorted: sections count their tokens into bins of the distance from the row's best; the
 * bin in which top-k or top-p ends is found, and only its tokens are looked at one by one.
 *
 * A row has two jobs: the draw, from logits with biases and penalties, and the list of the best
 * tokens, from the model's own logits. */
#ifndef TOKEND_SAMPLING_CUH
#define TOKEND_SAMPLING_CUH

#include "kernels.h"

#include "device.cuh"

enum { SECTION = 2048, SECTION_THREADS = 256, SECTION_WARPS = SECTION_THREADS / 32 };
enum { OF_THREAD = SECTION / SECTION_THREADS, MAX_SECTIONS = CUDA_MAX_VOCAB / SECTION };
enum { BINS = 512 }; /* from the row's best to e^-87 of it */
enum job_kind { JOB_DRAW, JOB_TOPS, N_JOBS };

typedef unsigned long long whole; /* a mass, a count, or a rank */

/* What a section, or a row, holds */
struct found {
    whole best; /* rank of the best, after biases and penalties */
    whole raw;  /* key of the largest of the model's logits; BAD: one of them is not finite */
};
static constexpr whole BAD = ~(whole)0;

/* A job's candidates in bins [from, to] are listed, those before are all chosen. */
struct cut {
    whole have; /* measure of those before */
    whole all;  /* of all candidates */
    int32_t from, to;
};

struct sampler {
    struct cuda_sampling in;
    int n_sections;
    struct found *found; /* [n_draws][n_sections] */
    float *z;            /* [n_draws][n_vocab] logits of rows that have biases or penalties */
    /* Of jobs, [n_draws][N_JOBS]… */
    struct cut *cuts;
    whole *bins;      /* [][BINS] measures */
    whole *masses;    /* [][n_sections] of candidates */
    whole *chosen;    /* [][n_sections] masses of candidates before the cut */
    uint32_t *listed; /* [][n_sections] how many */
    uint16_t *lists;  /* [][n_vocab] offsets in the section, from the section's place on */
};

/* The last kernel, of sampling_choose.cu */
void sampling_choose(cudaStream_t, const struct sampler *);

/* --- ranks: the better, the larger; of equal logits the lower id is better --- */

INLINE whole rank_of(float z, int id)
{
    return (whole)sampling_key(z) << 32 | (uint32_t)~id;
}

INLINE int rank_id(whole rank)
{
    return (int)~(uint32_t)rank;
}

INLINE float rank_value(whole rank)
{
    return sampling_of_key((uint32_t)(rank >> 32));
}

/* --- sums and maxima of a block of WARPS warps; sums [WARPS] may be used again at once --- */

/* The sum of lanes up to this, of N lanes */
template <int N> INLINE whole warp_scan(whole x)
{
    for (int by = 1; by < N; by *= 2) {
        whole y = __shfl_up_sync((unsigned)ALL_LANES, x, by);
        x += (int)(threadIdx.x % 32) >= by ? y : 0;
    }
    return x;
}

/* The sum of x over earlier threads, and over all */
template <int WARPS> INLINE whole block_scan(whole x, whole *total, whole *sums)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    whole upto = warp_scan<32>(x);
    if (lane == 31)
        sums[warp] = upto;
    __syncthreads();
    whole warps = warp_scan<WARPS>(lane < WARPS ? sums[lane] : 0);
    upto += __shfl_sync((unsigned)ALL_LANES, warps, warp) - sums[warp];
    *total = __shfl_sync((unsigned)ALL_LANES, warps, WARPS - 1);
    __syncthreads();
    return upto - x;
}

template <int WARPS> INLINE whole block_total(whole x, whole *sums)
{
    whole total;
    block_scan<WARPS>(x, &total, sums);
    return total;
}

template <int N> INLINE whole warp_max(whole x) /* of groups of N lanes */
{
    for (int by = N / 2; by > 0; by /= 2)
        x = max(x, __shfl_xor_sync((unsigned)ALL_LANES, x, by));
    return x;
}

template <int WARPS> INLINE whole block_max(whole x, whole *sums)
{
    x = warp_max<32>(x);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = x;
    __syncthreads();
    x = warp_max<WARPS>(sums[threadIdx.x % WARPS]);
    __syncthreads();
    return x;
}

/* --- a row --- */

INLINE bool adjusts(const struct cuda_draw *d)
{
    return d->given < 0 && (d->n_bias > 0 || d->n_banned > 0 || d->counts || d->allowed);
}

/* What examine_kernel found, to all threads */
template <int WARPS> INLINE struct found row_found(const struct sampler &a, int draw, whole *sums)
{
    struct found f = {0, 0};
    for (int i = threadIdx.x; i < a.n_sections; i += WARPS * 32) {
        const struct found *s = &a.found[(size_t)draw * a.n_sections + i];
        f.best = max(f.best, s->best);
        f.raw = max(f.raw, s->raw);
    }
    f.best = block_max<WARPS>(f.best, sums);
    f.raw = block_max<WARPS>(f.raw, sums);
    return f;
}

INLINE enum sampling_result row_result(const struct cuda_draw *d, const struct found &f)
{
    if (f.raw == BAD)
        return SAMPLING_BAD_NUMBERS;
    return d->given < 0 && rank_value(f.best) == -INFINITY ? SAMPLING_ALL_MASKED : SAMPLING_OK;
}

/* --- a job --- */

enum measure { BY_NONE, BY_COUNT, BY_MASS }; /* what bins add up */
struct job {
    int at; /* among all jobs */
    const float *z;
    float max, temperature, least; /* candidates' least weight */
    enum measure by;
};

INLINE bool job_wanted(const struct cuda_draw *d, int kind)
{
    if (d->row < 0)
        return false;
    return kind == JOB_TOPS ? d->n_logprobs >= 0 : d->given < 0 && d->temperature > 0;
}

/* Of a row whose result is OK */
INLINE struct job job_of(const struct sampler &a, int draw, int kind, const struct found &f)
{
    const struct cuda_draw *d = a.in.draws + draw;
    const float *raw = a.in.logits + (size_t)d->row * a.in.n_vocab;
    struct job j = {draw * N_JOBS + kind, raw, sampling_of_key((uint32_t)f.raw), 1, 0, BY_NONE};
    if (kind == JOB_TOPS) {
        j.by = d->n_logprobs > 0 ? BY_COUNT : BY_NONE;
        return j;
    }
    if (adjusts(d))
        j.z = a.z + (size_t)draw * a.in.n_vocab;
    j.max = rank_value(f.best);
    j.temperature = d->temperature;
    j.least = max(d->min_p, FLT_MIN); /* a weight is 0 or above FLT_MIN */
    j.by = d->top_k > 0 ? BY_COUNT : d->top_p < 1 ? BY_MASS : BY_NONE;
    return j;
}

/* A job's mass: of all candidates */
template <int WARPS>
INLINE whole job_mass(const struct sampler &a, const struct job &j, whole *sums)
{
    whole sum = 0;
    for (int i = threadIdx.x; i < a.n_sections; i += WARPS * 32)
        sum += a.masses[(size_t)j.at * a.n_sections + i];
    return block_total<WARPS>(sum, sums);
}

INLINE float job_weight(const struct job &j, float z)
{
    return sampling_weight((z - j.max) / j.temperature);
}

/* The bin of a logit: never a later one for a larger logit */
INLINE int job_bin(const struct job &j, float z)
{
    return (int)min((j.max - z) / j.temperature * (BINS / 87.0f), (float)(BINS - 1));
}

#endif
