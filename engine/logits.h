/* logits.h: passes over one row of logits, for sampling.c.
 *
 * Sums run over eight interleaved accumulators in double, added up in one order, so that a
 * result is a function of the row alone and the loops vectorise. */
#ifndef TOKEND_LOGITS_H
#define TOKEND_LOGITS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* No NaN, no infinity. */
bool logits_finite(const float *x, int n);
/* The largest; x holds no NaN. */
float logits_max(const float *x, int n);
/* The first of the largest, in one pass. False when logits_finite says no. */
bool logits_best(const float *x, int n, int32_t *best);
/* w[i] = exp((x[i] - max) / temperature), within 2e-7 of it, and 0 below e^-87. w may be NULL.
 * Returns the sum. */
double logits_weights(const float *x, int n, float max, float temperature, float *w);

/* Unsigned keys that order as the floats do, -0 and +0 alike. */
static inline uint32_t logits_key(float x)
{
    x += 0.0f;
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

#endif
