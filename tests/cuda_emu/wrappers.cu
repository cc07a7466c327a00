#include "wrappers.h"

#include "device.cuh"

/* --- a product in two stages --- */

enum { TILE_M = 32, TILE_N = 16, TILE_K = 16, STRIDE = 24 /* rows at multiples of 16 bytes */ };
enum { PRODUCT_THREADS = 64, CHUNK = 8 /* values of a copy */ };

/* Starts copying n_tile rows of 16 values from column k on; zeros where there are none. */
template <class T>
INLINE void fetch_tile(T (*tile)[STRIDE], const T *from, int row, int n_tile, int n_rows, int k,
                       int n_k)
{
    int i = threadIdx.x / 2, col = k + threadIdx.x % 2 * CHUNK;
    if (i >= n_tile)
        return;
    bool there = row + i < n_rows && col < n_k;
    cp_async16(&tile[i][threadIdx.x % 2 * CHUNK],
               there ? from + (size_t)(row + i) * n_k + col : from, there ? 16 : 0);
}

template <class T>
INLINE void multiply_tile(float sums[2][4], const T (*a_tile)[STRIDE], const T (*b_tile)[STRIDE])
{
    int lane = threadIdx.x % 32, first = threadIdx.x / 32 * 16;
    uint32_t a[4], b[4];
    ldmatrix_x4(a, &a_tile[first + lane % 16][lane / 16 * 8]);
    ldmatrix_x4(b, &b_tile[lane % 8 + lane / 16 * 8][lane / 8 % 2 * 8]);
    mma(T(), sums[0], a, b);
    mma(T(), sums[1], a, b + 2);
}

INLINE void store_tile(float *c, const float sums[2][4], int m, int n)
{
    int lane = threadIdx.x % 32, row = blockIdx.x * TILE_M + threadIdx.x / 32 * 16 + lane / 4;
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < 4; i++) {
            int r = row + i / 2 * 8, col = blockIdx.y * TILE_N + half * 8 + lane % 4 * 2 + i % 2;
            if (r < m && col < n)
                c[(size_t)r * n + col] = sums[half][i];
        }
}

template <class T>
static __global__ void __launch_bounds__(PRODUCT_THREADS)
    product_kernel(float *c, const T *a, const T *b, int m, int n, int k)
{
    SHARED(T, a_tiles, [2][TILE_M][STRIDE]);
    SHARED(T, b_tiles, [2][TILE_N][STRIDE]);
    float sums[2][4] = {};
    int n_steps = (k + TILE_K - 1) / TILE_K, row = blockIdx.x * TILE_M, col = blockIdx.y * TILE_N;
    for (int step = 0; step <= n_steps; step++) {
        if (step < n_steps) {
            fetch_tile(a_tiles[step % 2], a, row, TILE_M, m, step * TILE_K, k);
            fetch_tile(b_tiles[step % 2], b, col, TILE_N, n, step * TILE_K, k);
        }
        cp_async_commit();
        if (step == 0)
            continue;
        cp_async_wait<1>();
        __syncthreads(); /* all have the tile */
        multiply_tile<T>(sums, a_tiles[(step - 1) % 2], b_tiles[(step - 1) % 2]);
        __syncthreads(); /* all are done with it */
    }
    store_tile(c, sums, m, n);
}

cudaError_t wrap_product(cudaStream_t s, enum dtype type, float *c, const void *a, const void *b,
                         int m, int n, int k)
{
    dim3 grid((m + TILE_M - 1) / TILE_M, (n + TILE_N - 1) / TILE_N);
    if (type == DTYPE_F16)
        LAUNCH(product_kernel<__half>, grid, PRODUCT_THREADS, 0, s)
    (c, (const __half *)a, (const __half *)b, m, n, k);
    else LAUNCH(product_kernel<__nv_bfloat16>, grid, PRODUCT_THREADS, 0,
                s)(c, (const __nv_bfloat16 *)a, (const __nv_bfloat16 *)b, m, n, k);
    return cudaGetLastError();
}

/* --- one instruction each --- */

static __global__ void product_trans_kernel(float *c, const uint16_t *a, const uint16_t *b)
{
    SHARED(uint16_t, tile, [16][8]);
    int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    uint32_t fragment[4], columns[4];
    float d[4] = {};
    for (int i = lane; i < 16 * 8; i += 32)
        tile[i / 8][i % 8] = b[i];
    for (int i = 0; i < 4; i++)
        memcpy(&fragment[i], a + (g + i % 2 * 8) * 16 + t * 2 + i / 2 * 8, 4);
    __syncwarp();
    ldmatrix_x4_trans(columns, tile[lane % 16]); /* matrices 2 and 3 are 0 and 1 again */
    mma_f16(d, fragment, columns);
    for (int i = 0; i < 4; i++)
        c[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = d[i];
}

cudaError_t wrap_product_trans(cudaStream_t s, float *c, const void *a, const void *b)
{
    LAUNCH(product_trans_kernel, 1, 32, 0, s)(c, (const uint16_t *)a, (const uint16_t *)b);
    return cudaGetLastError();
}

static __global__ void product_s8_kernel(int32_t *c, const int8_t *a, const int8_t *b,
                                         enum wrap_s8 way)
{
    int g = threadIdx.x / 4, t = threadIdx.x % 4, d[4] = {};
    uint32_t rows[4], columns[2];
    for (int i = 0; i < 4; i++)
        memcpy(&rows[i], a + (g + i % 2 * 8) * 32 + t * 4 + i / 2 * 16, 4);
    for (int i = 0; i < 2; i++)
        memcpy(&columns[i], b + g * 32 + t * 4 + i * 16, 4);
    if (way == WRAP_S8_HALVES) {
        mma_s8_half(d, rows[0], rows[1], columns[0]);
        mma_s8_half(d, rows[2], rows[3], columns[1]);
    } else if (way == WRAP_S8_ROWS) {
        mma_s8_by_rows(d, rows, columns);
    } else {
        mma_s8(d, rows, columns);
    }
    for (int i = 0; i < 4; i++)
        c[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = d[i];
}

cudaError_t wrap_product_s8(cudaStream_t s, int32_t *c, const int8_t *a, const int8_t *b,
                            enum wrap_s8 way)
{
    LAUNCH(product_s8_kernel, 1, 32, 0, s)(c, a, b, way);
    return cudaGetLastError();
}

static __global__ void product_turing_kernel(float *c, const uint32_t *a, const uint32_t *b,
                                             bool bf16)
{
    SHARED(uint32_t, a_rows, [16][8]);
    SHARED(uint32_t, b_rows, [8][8]);
    int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    uint32_t rows[4], columns[2];
    float d[4] = {};
    copy16(&a_rows[lane / 2][lane % 2 * 4], a + lane * 4, 16);
    if (lane < 16)
        copy16(&b_rows[lane / 2][lane % 2 * 4], b + lane * 4, 16);
    __syncwarp();
    for (int i = 0; i < 4; i++)
        rows[i] = a_rows[g + i % 2 * 8][t + i / 2 * 4];
    for (int i = 0; i < 2; i++)
        columns[i] = b_rows[g][t + i * 4];
    if (bf16)
        mma_bf16_by_fma(d, rows, columns);
    else
        mma_f16_by_halves(d, rows, columns);
    for (int i = 0; i < 4; i++)
        c[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = d[i];
}

cudaError_t wrap_product_turing(cudaStream_t s, enum dtype type, float *c, const void *a,
                                const void *b)
{
    LAUNCH(product_turing_kernel, 1, 32, 0, s)
    (c, (const uint32_t *)a, (const uint32_t *)b, type == DTYPE_BF16);
    return cudaGetLastError();
}

static __global__ void copy16_kernel(uint8_t *to, const uint8_t *from, int n, bool turing)
{
    SHARED(uint4, kept, [1]);
    if (threadIdx.x == 0 && turing)
        copy16(kept, from, n);
    else if (threadIdx.x == 0)
        cp_async16(kept, from, n);
    cp_async_commit();
    cp_async_wait<0>();
    __syncwarp();
    if (threadIdx.x < 16)
        to[threadIdx.x] = ((const uint8_t *)kept)[threadIdx.x];
}

cudaError_t wrap_copy16(cudaStream_t s, uint8_t *to, const uint8_t *from, int n, bool turing)
{
    LAUNCH(copy16_kernel, 1, 32, 0, s)(to, from, n, turing);
    return cudaGetLastError();
}

static __global__ void warp_kernel(int32_t *out, const int32_t *x)
{
    const unsigned all = 0xffffffffu;
    int lane = threadIdx.x, v = x[lane], r[WARP_RESULTS];
    r[0] = __shfl_sync(all, v, 3);
    r[1] = __shfl_sync(all, v, lane + 5, 8);
    r[2] = __shfl_xor_sync(all, v, 17);
    r[3] = __shfl_down_sync(all, v, 3);
    r[4] = __shfl_up_sync(all, v, 2, 16);
    r[5] = (int)__ballot_sync(all, v & 1);
    r[6] = __any_sync(all, v == x[9]);
    r[7] = __all_sync(all, v != x[9]);
    r[8] = __dp4a(v, x[31 - lane], 7);
    r[10] = (int)__byte_perm((unsigned)v, (unsigned)x[31 - lane], 0x6140 + (lane & 7));
    r[9] = lane < 16 ? __shfl_sync(0xffffu, v, 15 - lane) : -1;
    for (int i = 0; i < WARP_RESULTS; i++)
        out[i * 32 + lane] = r[i];
}

cudaError_t wrap_warp(cudaStream_t s, int32_t *out, const int32_t *x)
{
    LAUNCH(warp_kernel, 1, 32, 0, s)(out, x);
    return cudaGetLastError();
}

static __global__ void halves_kernel(int32_t *out, const int32_t *x)
{
    SHARED(int32_t, kept, [128]);
    int i = threadIdx.x;
    kept[i] = x[i];
    if (i < 64)
        named_barrier(1, 64);
    else
        named_barrier(2, 64);
    out[i] = kept[i ^ 32];
}

cudaError_t wrap_halves(cudaStream_t s, int32_t *out, const int32_t *x)
{
    LAUNCH(halves_kernel, 1, 128, 0, s)(out, x);
    return cudaGetLastError();
}

static __global__ void dynamic_kernel(float *out, int n)
{
    DYN_SHARED(float, kept);
    for (int i = threadIdx.x; i < n; i += 64)
        kept[n - 1 - i] = (float)i;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += 64)
        out[i] = kept[n - 1 - i];
}

cudaError_t wrap_dynamic(cudaStream_t s, float *out, int n)
{
    LAUNCH(dynamic_kernel, 1, 64, n * sizeof(float), s)(out, n);
    return cudaGetLastError();
}

cudaError_t wrap_allow_dynamic(int bytes)
{
    return cudaFuncSetAttribute((const void *)dynamic_kernel,
                                cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

static __global__ void add_kernel(int32_t *x, int n, int by)
{
    int i = blockIdx.x * 32 + threadIdx.x;
    if (i < n)
        x[i] += by;
}

cudaError_t wrap_add(cudaStream_t s, int32_t *x, int n, int by)
{
    LAUNCH(add_kernel, (n + 31) / 32, 32, 0, s)(x, n, by);
    return cudaGetLastError();
}

static __global__ void exp2_kernel(float *x)
{
    x[threadIdx.x] = exp2_approx(x[threadIdx.x]);
}

cudaError_t wrap_exp2(cudaStream_t s, float *x)
{
    LAUNCH(exp2_kernel, 1, 32, 0, s)(x);
    return cudaGetLastError();
}

static __global__ void atomic_sum_kernel(int32_t *sum, int n)
{
    int i = blockIdx.x * 32 + threadIdx.x;
    if (i < n)
        atomicAdd(sum, i + 1);
}

cudaError_t wrap_atomic_sum(cudaStream_t s, int32_t *sum, int n)
{
    LAUNCH(atomic_sum_kernel, (n + 31) / 32, 32, 0, s)(sum, n);
    return cudaGetLastError();
}

/* --- faults --- */

static __global__ void diverge_kernel()
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        named_barrier(1, 64);
}

cudaError_t wrap_diverge(cudaStream_t s)
{
    LAUNCH(diverge_kernel, 1, 64, 0, s)();
    return cudaGetLastError();
}

static __global__ void collide_kernel(int32_t *x)
{
    if (threadIdx.x == 0)
        *x = (int32_t)blockIdx.x;
}

cudaError_t wrap_collide(cudaStream_t s, int32_t *x)
{
    LAUNCH(collide_kernel, 2, 32, 0, s)(x);
    return cudaGetLastError();
}

static __global__ void nothing_kernel()
{
}

cudaError_t wrap_shape(cudaStream_t s, dim3 grid, dim3 block)
{
    LAUNCH(nothing_kernel, grid, block, 0, s)();
    return cudaGetLastError();
}
