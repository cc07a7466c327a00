/* logits.h: passes over one row of logits, for sampling.c.
 *
 * The loops vectorise; what they add are masses (sampling_math.h), whose sums have no order. */
#ifndef TOKEND_LOGITS_H
#define TOKEND_LOGITS_H

#include <stdbool.h>
#include <stdint.h>

/* No NaN, no infinity. */
bool logits_finite(const float *x, int n);
/* The largest; x holds no NaN. */
float logits_max(const float *x, int n);
/* The first of the largest, in one pass. False when logits_finite says no. */
bool logits_best(const float *x, int n, int32_t *best);
/* w[i] = sampling_weight((x[i] - max) / temperature). w may be NULL. Returns the sum of their
 * masses.
 */
uint64_t logits_weights(const float *x, int n, float max, float temperature, float *w);
/* The first index up to which the masses of w add up to more than the target, which is below the
 * sum of all. */
int logits_draw(const float *w, int n, uint64_t target);

#endif
