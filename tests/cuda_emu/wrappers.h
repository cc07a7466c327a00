/* wrappers.h: small kernels that use each instruction of device.cuh as real ones do, for tests: on
 * the CPU of the emulator, on a GPU of the PTX. All pointers are the device's. */
#ifndef TOKEND_WRAPPERS_H
#define TOKEND_WRAPPERS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* c[m][n] = a[m][k] * b[n][k]^T of F16 or BF16 values: cp.async in two stages, ldmatrix, mma. k is
 * a multiple of 8; every row is at a multiple of 16 bytes. */
cudaError_t wrap_product(cudaStream_t, enum dtype, float *c, const void *a, const void *b, int m,
                         int n, int k);
/* c[16][8] = a[16][16] * b[16][8], b read transposed */
cudaError_t wrap_product_trans(cudaStream_t, float *c, const void *a_f16, const void *b_f16);
/* c[16][8] = a[16][32] * b[8][32]^T, by one mma, by two of 16, or as on capability 7.5 */
enum wrap_s8 { WRAP_S8, WRAP_S8_HALVES, WRAP_S8_ROWS };
cudaError_t wrap_product_s8(cudaStream_t, int32_t *c, const int8_t *a, const int8_t *b,
                            enum wrap_s8);
/* c[16][8] = a[16][16] * b[8][16]^T of F16 or BF16 as on capability 7.5, copies too */
cudaError_t wrap_product_turing(cudaStream_t, enum dtype, float *c, const void *a, const void *b);
/* to[i] = from[i] or, from n on, 0, i < 16: as cp.async and as on capability 7.5 */
cudaError_t wrap_copy16(cudaStream_t, uint8_t *to, const uint8_t *from, int n, bool turing);

enum { WARP_RESULTS = 11 };
/* out[WARP_RESULTS][32]: what shuffles, votes and dp4a of x[32] give (wrappers.cu says which) */
cudaError_t wrap_warp(cudaStream_t, int32_t *out, const int32_t *x);
/* out[i] = x[i ^ 32], i < 128, by way of shared memory, two halves with a named barrier each */
cudaError_t wrap_halves(cudaStream_t, int32_t *out, const int32_t *x);
/* out[i] = i < n_floats ? i : 0 by way of n_floats * 4 bytes of dynamic shared memory */
cudaError_t wrap_dynamic(cudaStream_t, float *out, int n_floats);
cudaError_t wrap_allow_dynamic(int bytes);
/* x[i] += by */
cudaError_t wrap_add(cudaStream_t, int32_t *x, int n, int by);
/* x[i] = 2^x[i], i < 32 */
cudaError_t wrap_exp2(cudaStream_t, float *x);
/* *sum += 1 + … + n, by atomics of many blocks */
cudaError_t wrap_atomic_sum(cudaStream_t, int32_t *sum, int n);
/* Faulty: half of the block waits where the other half does not. */
cudaError_t wrap_diverge(cudaStream_t);
/* Faulty: blocks write one value without atomics. */
cudaError_t wrap_collide(cudaStream_t, int32_t *x);
/* Launches with this block and grid, and does nothing. */
cudaError_t wrap_shape(cudaStream_t, dim3 grid, dim3 block);

#ifdef __cplusplus
}
#endif

#endif
