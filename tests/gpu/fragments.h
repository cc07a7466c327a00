/* fragments.h: every wrapper of device.cuh on its own, registers in, registers out, so that a GPU's
 * PTX and the emulator's bodies can be compared (conformance.c). All pointers are the device's. */
#ifndef TOKEND_FRAGMENTS_H
#define TOKEND_FRAGMENTS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum fragment_op {
    FRAGMENT_MMA_F16,  /* in: a[4], b[2] of 16-bit values, d[4] of float32; out: d[4] */
    FRAGMENT_MMA_BF16, /* likewise */
    FRAGMENT_MMA_S8,   /* a[4], b[2] of int8, d[4] of int32 */
    FRAGMENT_MMA_S8_HALF,
    FRAGMENT_LDMATRIX, /* in[lane][0..3] is the row that the lane gives */
    FRAGMENT_LDMATRIX_TRANS,
    FRAGMENT_CP_ASYNC, /* copies in[lane][4] % 17 bytes of in[lane][0..3] */
    FRAGMENT_EXP2,     /* of in[0..3] as float32 */
    FRAGMENT_WARP_SUM, /* of in[0] as float32 */
    FRAGMENT_STORE,    /* in[0..1] as float32, to F16 and BF16 */
    FRAGMENT_OPS
};
enum { FRAGMENT_IN = 10, FRAGMENT_OUT = 4 };

/* One warp; in[32][FRAGMENT_IN], out[32][FRAGMENT_OUT] */
cudaError_t fragment_run(cudaStream_t, enum fragment_op, uint32_t *out, const uint32_t *in);

#ifdef __cplusplus
}
#endif

#endif
