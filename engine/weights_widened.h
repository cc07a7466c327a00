/* weights_widened.h: a view of a model's weights in which quantised matrices are float32 as they
 * are asked for (--dtype float32): activations then are, too, and the numbers those of the
 * reference over the same weights, for four to eight times the memory. */
#ifndef TOKEND_WEIGHTS_WIDENED_H
#define TOKEND_WEIGHTS_WIDENED_H

#include "backend.h"
#include "weights.h"

/* The backend's helpers do the work. It and the weights must outlive the view. NULL and *e: out of
 * memory. */
struct weights *weights_open_widened(const struct weights *, struct backend *, struct err *e);

#endif
