/* weights_quantised.h: a view of a model's weights in which float matrices are quantised as they
 * are asked for (--quantization). */
#ifndef TOKEND_WEIGHTS_QUANTISED_H
#define TOKEND_WEIGHTS_QUANTISED_H

#include "backend.h"
#include "weights.h"

/* Matrices of float types come as `t`, which dtype_from_f32 knows; where t has fewer than six bits
 * the embeddings and the output head, which a model bears least, as Q6_K. Rows that the type's
 * blocks of 256 do not divide come in blocks of 32 with no more error (Q4_K as Q5_0, Q5_K as Q5_1,
 * Q6_K as Q8_0); rows that 32 does not divide, norms, biases, routers and what is quantised already
 * as they are. The backend's helpers do the work. It and the weights must outlive the view, which
 * one thread reads. NULL and *e: out of memory. */
struct weights *weights_open_quantised(const struct weights *, enum dtype t, struct backend *,
                                       struct err *e);

/* Of the matrices that were got through the view (each expert is one). */
struct quantised_counts {
    int n_matrices;
    int n_of[DTYPE_COUNT]; /* quantised, by the type that they got */
    int n_already;         /* quantised in the file */
    int64_t unfit_cols;    /* the length of some rows that did not fit the type; 0: none */
};
const struct quantised_counts *weights_quantised_counts(const struct weights *);
/* "quantised 210 of 211 matrices: 120 Q4_K, 90 Q5_0 (rows of 576 ...)". How many were quantised. */
int quantised_counts_describe(const struct quantised_counts *, char *out, size_t cap);

#endif
