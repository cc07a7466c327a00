/* cublas_linear.h: linears of float weights by NVIDIA's cuBLASLt, for more rows than our own kernel
 * (linear_float.cu) is best at.
 *
 * How a weight's products are computed is asked of the library when the weight's shape is first
 * seen, for all numbers of rows, and kept in a table of bounded size: after a first step nothing is
 * allocated. All calls may be captured into a graph.
 *
 * Numbers: operands as stored, sums in float32 (no TF32). The order along k is the library's choice
 * for a shape, and the number of rows is part of that: the same call gives the same bits, but a row
 * has others among other rows. --batch-invariant does without. */
#ifndef TOKEND_CUBLAS_LINEAR_H
#define TOKEND_CUBLAS_LINEAR_H

#include "err.h"
#include "kernels.h"

/* From how many rows on the library is taken. Below, a product takes as long as reading its weights
 * does, and our kernel reads them once for all of a launch's matrices (q, k and v; gate and up),
 * bias, residual and activation included, where the library takes a launch for each. Our kernel
 * reads x from L2 for every 16 rows of weights: 8 rows of x are half of the weights' bytes, 16 as
 * many, which L2 has to spare; 32, twice as many, are about where it has not. F32: our kernel reads
 * the weights once for 8 rows of x. A guess until a GPU has confirmed it. */
enum { CUBLAS_LEAST_ROWS = 17, CUBLAS_LEAST_ROWS_F32 = 9 };

struct cublas;

/* NULL and *e: no library, or one that does not work with this device. */
struct cublas *cublas_open(int max_rows, struct err *e);
void cublas_close(struct cublas *);                /* after all that was launched; NULL is fine */
const char *cublas_version(const struct cublas *); /* "13.1.0" */
/* Memory of the device, aligned to 256 bytes, for products that are cut along k; not freed by
 * cublas_close. cublas_workspace_wanted: how many bytes. Without, fewer products have some. */
size_t cublas_workspace_wanted(int device_major);
void cublas_set_workspace(struct cublas *, void *at, size_t bytes);

/* Whether the library has a way for each product of l; `into` of activations counts as INTO_STORE.
 */
bool cublas_can(struct cublas *, const struct cuda_linear *l, int n_rows);
/* Whether they are to be made by it: it can, and there are enough rows. NULL: false. */
bool cublas_takes(struct cublas *, const struct cuda_linear *l, int n_rows);
/* As cuda_linear_float, INTO_STORE or INTO_ADD; it can. False and *e: the call failed. */
bool cublas_linear(struct cublas *, cudaStream_t, const struct cuda_linear *l, const void *x,
                   int n_rows, struct err *e);

#endif
