/* Tensor maps. Only the driver makes them; the runtime tells where it is. */
#include "hopper.cuh"

typedef decltype(&cuTensorMapEncodeTiled) encode_fn;

static encode_fn find_encoder()
{
    void *at = NULL;
    enum cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &at, 12000,
                                                     cudaEnableDefault, &found);
#else
    cudaError_t e =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &at, cudaEnableDefault, &found);
#endif
    return e == cudaSuccess && found == cudaDriverEntryPointSuccess ? (encode_fn)at : NULL;
}

cudaError_t tensor_map_make(CUtensorMap *map, const void *matrix, bool bf16, uint64_t rows,
                            int columns, int box_rows)
{
    const encode_fn encode = find_encoder();
    const cuuint64_t dims[2] = {(cuuint64_t)columns, rows}, stride = (cuuint64_t)columns * 2;
    const cuuint32_t box[2] = {TILE_COLUMNS, (cuuint32_t)box_rows}, steps[2] = {1, 1};
    if (!encode)
        return cudaErrorNotSupported;
    CUresult r =
        encode(map, bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2,
               (void *)matrix, dims, &stride, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return r == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}
