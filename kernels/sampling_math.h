/* sampling_math.h: the arithmetic of a draw, one definition for the engine's sampler and for
 * devices, in C and CUDA C.
 *
 * A token's weight is a float32 by a fixed sequence of operations; weights are added in whole
 * multiples of 2^-39 (of the heaviest token's), so a sum has no rounding and no order: however a
 * device splits a row, it draws the same token. What that drops, 2^-40 of a token at most, is less
 * than the weights' own rounding. Random numbers are a function of (seed, choice, position, use).
 */
#ifndef TOKEND_SAMPLING_MATH_H
#define TOKEND_SAMPLING_MATH_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define SAMPLING_FN static __host__ __device__ __forceinline__
#else
#define SAMPLING_FN static inline
#endif

enum { SAMPLING_MAX_TOP_LOGPROBS = 20 };

struct logit_bias {
    int32_t id;
    float bias; /* finite, or -INFINITY: never that token */
};

struct top_logprob {
    int32_t id;
    float logprob;
};

enum sampling_result {
    SAMPLING_OK,
    SAMPLING_BAD_NUMBERS, /* a NaN or infinity among the logits */
    SAMPLING_ALL_MASKED,  /* biases and masks left no token */
};

SAMPLING_FN uint32_t sampling_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

SAMPLING_FN float sampling_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Unsigned keys that order as the floats do, -0 and +0 alike. */
SAMPLING_FN uint32_t sampling_key(float x)
{
    uint32_t u = sampling_bits(x + 0.0f);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* The float of a key (+0 of both zeros) */
SAMPLING_FN float sampling_of_key(uint32_t key)
{
    return sampling_float(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}

/* --- logits --- */

SAMPLING_FN float sampling_biased(float z, float bias)
{
    z += bias;
    return z < FLT_MAX ? z : FLT_MAX;
}

/* What penalties know of a token: how often it was generated (it sticks at the largest), plus
 * SAMPLING_IN_PROMPT. */
enum { SAMPLING_IN_PROMPT = 0x8000, SAMPLING_COUNT_MASK = 0x7FFF };

SAMPLING_FN uint16_t sampling_count_one(uint16_t count)
{
    return (uint16_t)((count & SAMPLING_COUNT_MASK) < SAMPLING_COUNT_MASK ? count + 1 : count);
}

SAMPLING_FN float sampling_penalised(float z, uint16_t count, float repetition, float frequency,
                                     float presence)
{
    if (count == 0)
        return z;
    int generated = count & SAMPLING_COUNT_MASK;
    z = z > 0 ? z / repetition : z * repetition;
    z -= frequency * (float)generated;
    z -= generated ? presence : 0.0f;
    /* An extreme penalty may have overflowed: nothing may exceed the finite. */
    return z < FLT_MAX ? z : FLT_MAX;
}

/* --- weights --- */

/* e^x for x <= 0, within 2e-7 of it, and 0 below e^-87: 2^k · e^r with |r| <= ln2 / 2, e^r by its
 * Taylor polynomial of degree 7 (its remainder, 5e-9, is below float's rounding). No branch and no
 * float comparison, so that the compiler turns a loop over it into vectors. */
SAMPLING_FN float sampling_weight(float x)
{
    const uint32_t least = 0x42AE0000; /* 87, whose e^-87 is still a normal number */
    const uint32_t u = sampling_bits(x) & 0x7FFFFFFF;
    const uint32_t keep = u > least ? 0 : UINT32_MAX;
    const float y = -sampling_float(u & keep);
    const int k = (int)(y * 1.44269504f - 0.5f);
    const float kf = (float)k;
    const float r = (y - kf * 0.693359375f) - kf * -2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    p *= sampling_float((uint32_t)(k + 127) << 23);
    return sampling_float(sampling_bits(p) & keep);
}

/* w (from 0 to 1) in units of 2^-39, to nearest, ties to even; 2^24 of them add up without overflow
 */
SAMPLING_FN uint64_t sampling_mass(float w)
{
#ifdef __CUDA_ARCH__
    return __float2ull_rn(w * 0x1p39f);
#else
    const double shifted = 8192.0 + (double)w; /* whose unit of the last place is 2^-39 */
    const double none = 8192.0;
    uint64_t a, b;
    memcpy(&a, &shifted, sizeof a);
    memcpy(&b, &none, sizeof b);
    return a - b;
#endif
}

/* The upper half of the product */
SAMPLING_FN uint64_t sampling_mul_high(uint64_t a, uint64_t b)
{
    const uint64_t al = (uint32_t)a, ah = a >> 32, bl = (uint32_t)b, bh = b >> 32;
    const uint64_t low = al * bl, left = ah * bl, right = al * bh;
    const uint64_t middle = (low >> 32) + (uint32_t)left + (uint32_t)right;
    return ah * bh + (left >> 32) + (right >> 32) + (middle >> 32);
}

/* The least mass that is p (below 1) of the total, and not nothing */
SAMPLING_FN uint64_t sampling_share(uint64_t total, float p)
{
    const uint64_t of_64 = (uint64_t)((double)p * 0x1p64);
    const uint64_t share = sampling_mul_high(total, of_64) + (total * of_64 != 0);
    return share > 0 ? share : 1;
}

/* --- random numbers --- */

enum random_use { RANDOM_TOKEN };

/* Philox4x32-10 of a 128-bit counter under a 64-bit key, "Parallel Random Numbers: As Easy as 1, 2,
 * 3" (Salmon, Moraes, Dror, Shaw, SC 2011): ten rounds of two 32 x 32 bit products, and a Weyl
 * sequence for the key. */
SAMPLING_FN void philox4x32(uint64_t key, const uint32_t counter[4], uint32_t out[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53 * c0;
        const uint64_t p1 = (uint64_t)0xCD9E8D57 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* 53 random bits */
SAMPLING_FN uint64_t sampling_random(uint64_t seed, int choice, int position, enum random_use use)
{
    const uint32_t counter[4] = {(uint32_t)position, (uint32_t)choice, (uint32_t)use, 0};
    uint32_t r[4];
    philox4x32(seed, counter, r);
    return ((uint64_t)r[0] << 32 | r[1]) >> 11;
}

/* Of the candidates in id order that one is drawn with which the sum of masses exceeds this. */
SAMPLING_FN uint64_t sampling_target(uint64_t total, uint64_t random)
{
    return sampling_mul_high(total, random << 11);
}

/* --- log probabilities --- */

/* ln of a sum of masses, at least that of a weight of 1: by 2 atanh((m - 1) / (m + 1)), whose
 * series is below 1e-18 after eleven terms. Not the library's, so that all devices agree. */
SAMPLING_FN double sampling_log(uint64_t total)
{
    double m = (double)total * 0x1p-39;
    uint64_t u;
    memcpy(&u, &m, sizeof u);
    int e = (int)(u >> 52) - 1023;
    u = (u & 0xFFFFFFFFFFFFF) | (uint64_t)1023 << 52;
    memcpy(&m, &u, sizeof m);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        e++;
    }
    const double t = (m - 1) / (m + 1), t2 = t * t;
    double p = 1.0 / 21;
    for (int k = 19; k > 0; k -= 2)
        p = p * t2 + 1.0 / k;
    return (double)e * 0.6931471805599453 + 2 * t * p;
}

SAMPLING_FN float sampling_logprob(float x, float max, double log_sum)
{
    return (float)((double)x - (double)max - log_sum) + 0.0f; /* no -0 */
}

#endif
