/* random.h: seeded random numbers for histories. The seed is printed and can be set, so that
 * a failure can be repeated: TOKEND_SEED=123 build/tests/test_NAME. */
#ifndef TOKEND_TEST_RANDOM_H
#define TOKEND_TEST_RANDOM_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* splitmix64 (Steele, Lea & Flood, 2014) */
static inline uint64_t random_next(uint64_t *rng)
{
    uint64_t z = *rng += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static inline int random_below(uint64_t *rng, int n)
{
    return (int)(random_next(rng) % (uint64_t)n);
}

static inline uint64_t random_seed(const char *what)
{
    const char *set = getenv("TOKEND_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = set ? strtoull(set, NULL, 0) : (uint64_t)now.tv_sec * 1000003 ^ now.tv_nsec;
    printf("%s: TOKEND_SEED=%llu\n", what, (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

#endif
