/* Embedding: a row of the table for each token. Bound by bytes: one read and one write a value. */
#include "kernels.h"

#include "device.cuh"

enum { EMBED_THREADS = 128 };

template <class T>
static __global__ void __launch_bounds__(EMBED_THREADS)
    embed_kernel(float *x, const T *table, int width, const int32_t *ids, float scale)
{
    const T *from = table + (size_t)ids[blockIdx.x] * width;
    float *to = x + (size_t)blockIdx.x * width;
    for (int i = threadIdx.x; i < width; i += EMBED_THREADS)
        to[i] = to_float(from[i]) * scale;
}

cudaError_t cuda_embed(cudaStream_t s, float *x, const void *table, enum dtype type, int width,
                       const int32_t *ids, int n_rows, float scale)
{
    WITH_FLOAT_TYPE(type, T,
                    LAUNCH(embed_kernel<T>, n_rows, EMBED_THREADS, 0,
                           s)(x, (const T *)table, width, ids, scale));
    return cudaGetLastError();
}
