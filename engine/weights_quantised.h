/* weights_quantised.h: a view of a model's weights in which float matrices are quantised as they
 * are asked for (--quantization). */
#ifndef TOKEND_WEIGHTS_QUANTISED_H
#define TOKEND_WEIGHTS_QUANTISED_H

#include "backend.h"
#include "weights.h"

/* Matrices of float types come as `t`, which dtype_from_f32 knows; where t has fewer than six bits
 * the embeddings and the output head, which a model bears least, as Q6_K. Rows that the type's
 * blocks do not divide come as Q8_0, rows that 32 does not divide, norms, biases, routers and what
 * is quantised already as they are. The backend's helpers do the work. It and the weights must
 * outlive the view. NULL and *e: out of memory. */
struct weights *weights_open_quantised(const struct weights *, enum dtype t, struct backend *,
                                       struct err *e);

#endif
