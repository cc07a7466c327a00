/* device.cuh: the one header that kernels include. It gives launching, shared memory and the
 * instructions that CUDA C has no name for, each under nvcc (in PTX) and, for the tests, under the
 * host's compiler, where tests/cuda_emu has the bodies. Kernels have no assembly of their own.
 *
 * Rules for kernels: shared memory by SHARED or DYN_SHARED; launches by LAUNCH; blocks of whole
 * warps; every row is computed by one block in an order that depends on its width alone, so that
 * a batch cannot change a bit of it. */
#ifndef TOKEND_DEVICE_CUH
#define TOKEND_DEVICE_CUH

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <stdint.h>
#include <type_traits>

/* LAUNCH(kernel, grid, block, dynamic shared bytes, stream)(arguments…) */
#define LAUNCH(kernel, grid, block, smem, stream) kernel<<<grid, block, smem, stream>>>
/* SHARED(float, sums, [4][8]): an array of the block */
#define SHARED(type, name, dims) __shared__ type name dims
/* The launch's dynamic shared memory, aligned to 16 bytes */
#define DYN_SHARED(type, name)                                                                     \
    extern __shared__ __align__(16) unsigned char dynamic_shared_bytes[];                          \
    type *name = (type *)dynamic_shared_bytes

#define INLINE static __device__ __forceinline__

INLINE unsigned shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

/* A barrier of n_threads of the block (whole warps); id 1 to 15, 0 being __syncthreads' */
INLINE void named_barrier(int id, int n_threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

/* Four 8 x 8 matrices of 16-bit values: lane i gives row i % 8 of matrix i / 8, at a multiple of
 * 16; r[m] is columns 2 (lane % 4) and the next, of row lane / 4 of matrix m. */
INLINE void ldmatrix_x4(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* The same of the transposed matrices */
INLINE void ldmatrix_x4_trans(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* 2^x within 2 units of the last place; 0 below 2^-126 */
INLINE float exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* d[16][8] += a[16][8] * b[8][8], fragments as the PTX ISA has them */
INLINE void mma_f16_k8(float d[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(b));
}

/* d[8][8] += a[8][16] * b[16][8] of int8 */
INLINE void mma_s8_m8(int d[2], uint32_t a, uint32_t b)
{
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+r"(d[0]), "+r"(d[1])
                 : "r"(a), "r"(b));
}

#include "turing.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800

INLINE void cp_async16(void *shared, const void *global, int n_source)
{
    copy16(shared, global, n_source);
}

INLINE void cp_async_commit()
{
}

template <int N> INLINE void cp_async_wait()
{
}

INLINE void mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    mma_f16_by_halves(d, a, b);
}

INLINE void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    mma_bf16_by_fma(d, a, b);
}

INLINE void mma_s8(int d[4], const uint32_t a[4], const uint32_t b[2])
{
    mma_s8_by_rows(d, a, b);
}

INLINE void mma_s8_half(int d[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    mma_s8_half_by_rows(d, a0, a1, b);
}

#else

/* Copies n_source (0 to 16) bytes and zeros up to 16; both addresses multiples of 16. What a
 * thread copied it may read after cp_async_wait, others after a barrier, too. */
INLINE void cp_async16(void *shared, const void *global, int n_source)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
                 "l"(global), "r"(n_source)
                 : "memory");
}

INLINE void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until all but the last N groups have arrived. */
template <int N> INLINE void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* d[16][8] += a[16][16] * b[16][8], fragments as the PTX ISA has them */
INLINE void mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

INLINE void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* d[16][8] += a[16][32] * b[32][8] of int8 */
INLINE void mma_s8(int d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* d[16][8] += a[16][16] * b[16][8] of int8: of mma_s8's registers a[0], a[1], b[0], or a[2], a[3],
 * b[1] */
INLINE void mma_s8_half(int d[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a0), "r"(a1), "r"(b));
}

#endif

#else

#include "cuda_emu.h"
#define INLINE static inline
#include "turing.cuh"

#endif

/* --- sums of a block, in one order --- */

enum { ALL_LANES = -1 }; /* mask of a whole warp */

INLINE float warp_sum(float x)
{
    for (int by = 16; by > 0; by /= 2)
        x += __shfl_xor_sync((unsigned)ALL_LANES, x, by);
    return x;
}

/* Whether the tensor cores of what is compiled for take the type */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
template <class T>
static constexpr bool has_mma = sizeof(T) == 2 && !std::is_same_v<T, __nv_bfloat16>;
#else
template <class T> static constexpr bool has_mma = sizeof(T) == 2;
#endif

/* mma of a type of 16 bits */
INLINE void mma(__half, float d[4], const uint32_t a[4], const uint32_t b[2])
{
    mma_f16(d, a, b);
}

INLINE void mma(__nv_bfloat16, float d[4], const uint32_t a[4], const uint32_t b[2])
{
    mma_bf16(d, a, b);
}

/* --- float types --- */

INLINE float to_float(float x)
{
    return x;
}

INLINE float to_float(__half x)
{
    return __half2float(x);
}

INLINE float to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

/* x, but no further from 0 than that; NaN stays NaN */
INLINE float within(float x, float most)
{
    x = x < -most ? -most : x;
    return x > most ? most : x;
}

INLINE void store_float(float *at, float x)
{
    *at = x;
}

/* What float32 still holds stays finite. */
INLINE void store_float(__half *at, float x)
{
    *at = __float2half_rn(within(x, 65504));
}

INLINE void store_float(__nv_bfloat16 *at, float x)
{
    *at = __float2bfloat16_rn(x);
}

/* Runs the statement with T as the C type of a float dtype; of another the calling function returns
 * cudaErrorInvalidValue. */
#define WITH_FLOAT_TYPE(dtype, T, ...)                                                             \
    do {                                                                                           \
        if ((dtype) == DTYPE_F32) {                                                                \
            typedef float T;                                                                       \
            __VA_ARGS__;                                                                           \
        } else if ((dtype) == DTYPE_F16) {                                                         \
            typedef __half T;                                                                      \
            __VA_ARGS__;                                                                           \
        } else if ((dtype) == DTYPE_BF16) {                                                        \
            typedef __nv_bfloat16 T;                                                               \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            return cudaErrorInvalidValue;                                                          \
        }                                                                                          \
    } while (0)

#endif
