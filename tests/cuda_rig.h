/* cuda_rig.h: for tests of CUDA kernels: memory of the device, and all orders of threads. */
#ifndef TOKEND_CUDA_RIG_H
#define TOKEND_CUDA_RIG_H

#include <cuda_runtime_api.h>

#include "emu_control.h"
#include "kernels.h"
#include "reference.h"

/* Calls test() under every order of threads and landing of copies, seeds printed; the test must not
 * cause a report. */
void rig_in_all_orders(void (*test)(void));
/* Fails the test unless the call succeeded. */
#define cuda_ok(call) rig_cuda_ok(call, #call, __FILE__, __LINE__)
void rig_cuda_ok(cudaError_t, const char *call, const char *file, int line);

/* Device memory, of exact size, NaN-filled or with a copy of the host's; freed by rig_free_all. */
void *rig_device(size_t size);
void *rig_upload(const void *from, size_t size);
void rig_download(void *to, const void *from, size_t size);
void rig_free_all(void);

/* A matrix as linears and embeddings want it */
struct cuda_matrix rig_matrix(const struct ref_matrix *);
/* n rows of `cols` values of a float type, in memory for n_taken: zeros up to the next multiple of
 * 32, NaN in what no row has */
void *rig_float_rows(enum dtype, const void *rows, int n, int n_taken, int cols);
/* NaN-filled memory for rows as matrices of type `reader` read them */
struct cuda_rows rig_rows(enum dtype reader, int width, int n, int planes);

float *rig_randoms(int64_t n, double scale,
                   uint64_t *seed); /* of the host; freed by rig_free_all */
/* Values of a float type as float32 */
void rig_widen(enum dtype, const void *from, float *to, int64_t n);
/* Fails the test unless |a - b| <= atol + rtol |b|, or both are NaN. */
void rig_near(const char *what, const float *a, const double *b, int64_t n, double atol,
              double rtol);

#endif
