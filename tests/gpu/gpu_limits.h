/* gpu_limits.h: what a GPU could do at most, nominally and measured. */
#ifndef TOKEND_GPU_LIMITS_H
#define TOKEND_GPU_LIMITS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpu_limits {
    char name[256];
    int major, minor, sms;
    double memory_bytes;
    /* by the device's own clocks; 0: not known */
    double nominal_bandwidth, nominal_f16; /* bytes, and operations of f16 to float32, a second */
    /* measured; of a copy: bytes read and written */
    double copy_bandwidth, read_bandwidth;
    double mma_f16,
        mma_s8; /* by mma of single warps, which newer devices can beat by other means */
};
/* False: what failed is on stderr. `tiny`: of an emulated device. */
int gpu_limits_measure(struct gpu_limits *, int tiny);

/* gpu_limits.cu: reads n * 16 bytes, many at a time; `n` mma a warp */
cudaError_t limits_read(cudaStream_t, const void *from, size_t n, float *sink, int blocks);
cudaError_t limits_mma(cudaStream_t, int int8, int n, float *sink, int blocks);
/* Operations of limits_mma */
double limits_mma_ops(int int8, int n, int blocks);

#ifdef __cplusplus
}
#endif

#endif
