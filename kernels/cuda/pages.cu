/* Copies of whole pages: 16 bytes a thread. Bound by bytes. */
#include "kernels.h"

#include "device.cuh"

enum { COPY_THREADS = 256 };

static __global__ void __launch_bounds__(COPY_THREADS)
    page_copy_kernel(uint4 *pool, size_t page_values, const int32_t *src, const int32_t *dst)
{
    const uint4 *from = pool + (size_t)src[blockIdx.y] * page_values;
    uint4 *to = pool + (size_t)dst[blockIdx.y] * page_values;
    size_t step = (size_t)gridDim.x * COPY_THREADS;
    for (size_t i = (size_t)blockIdx.x * COPY_THREADS + threadIdx.x; i < page_values; i += step)
        to[i] = from[i];
}

size_t cuda_kv_page_bytes(const struct cuda_kv *kv)
{
    size_t heads = (size_t)kv->n_layers * kv->block_size * 2 * kv->n_kv_heads;
    if (kv->dtype == DTYPE_INT8 || kv->dtype == DTYPE_F8_E4M3)
        return heads * (kv->head_dim + sizeof(uint16_t));
    return heads * kv->head_dim * (kv->dtype == DTYPE_F32 ? 4 : 2);
}

cudaError_t cuda_page_copy(cudaStream_t s, const struct cuda_kv *kv, const int32_t *src,
                           const int32_t *dst, int n)
{
    size_t values = cuda_kv_page_bytes(kv) / sizeof(uint4);
    size_t blocks = (values + COPY_THREADS - 1) / COPY_THREADS, most = 32;
    dim3 grid((unsigned)(blocks < most ? blocks : most), (unsigned)n);
    LAUNCH(page_copy_kernel, grid, COPY_THREADS, 0, s)((uint4 *)kv->pool, values, src, dst);
    return cudaGetLastError();
}
