/* hopper.cuh: what capability 9.0 alone has: TMA copies that report to barriers in shared memory,
 * and wgmma, products of a warp group (4 warps) that read shared memory and go on by themselves.
 * Files that include it are compiled for sm_90a only. Kernels name tiles; swizzled addresses,
 * descriptors and tensor maps are made here.
 *
 * A tile is rows of 16-bit values in shared memory: panels of 64 columns, in each of which a row is
 * 128 bytes; its first byte is at a multiple of 1,024. Pieces of 16 bytes of a row lie at their
 * place xor the row (the 128-byte swizzle of TMA and wgmma). */
#ifndef TOKEND_HOPPER_CUH
#define TOKEND_HOPPER_CUH

#include "device.cuh"

#include <cuda.h> /* CUtensorMap; nothing of the driver is linked */

enum { TILE_COLUMNS = 64, TILE_ALIGNMENT = 1024, GROUP_THREADS = 128 };

/* The value at a row and column of a tile of so many rows; from a column that is a multiple of 8, 8
 * values lie together. */
template <class T> INLINE T *tile_at(T *tile, int rows, int row, int column)
{
    int in = column % TILE_COLUMNS;
    return tile + ((column / TILE_COLUMNS) * rows + row) * TILE_COLUMNS +
           ((in / 8) ^ (row % 8)) * 8 + in % 8;
}

/* Where tiles may begin in dynamic shared memory; TILE_ALIGNMENT more bytes are enough. Generic
 * addresses of shared memory end as its own do. */
INLINE void *tile_room(void *shared)
{
    uintptr_t past = (uintptr_t)shared % TILE_ALIGNMENT;
    return (char *)shared + (past ? TILE_ALIGNMENT - past : 0);
}

#ifdef __CUDACC__

/* --- barriers in shared memory --- */

/* A phase ends when n have arrived and the bytes that they expect have come. */
INLINE void barrier_init(uint64_t *b, int n)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(n)
                 : "memory");
}

/* After all barrier_inits of a thread, before the block's first barrier */
INLINE void barriers_made()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

INLINE void barrier_arrive(uint64_t *b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}

/* Arrives, and lets the phase wait for so many bytes. */
INLINE void barrier_arrive_expecting(uint64_t *b, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)),
                 "r"(bytes)
                 : "memory");
}

/* Waits until the phase of this parity has ended; the one before the first has parity 1. */
INLINE void barrier_wait(uint64_t *b, int parity)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@!p bra again;\n"
                 "}" ::"r"(shared_address(b)),
                 "r"(parity)
                 : "memory");
}

/* --- copies --- */

/* Starts to copy the map's box at this row and column to a tile (or its rows from a multiple of 8
 * on); its bytes, zeros where the matrix has ended, are counted by the barrier. */
INLINE void tma_load(void *tile, const CUtensorMap *map, int row, int column, uint64_t *b)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(tile)),
                 "l"(map), "r"(column), "r"(row), "r"(shared_address(b))
                 : "memory");
}

/* What this thread wrote to a tile wgmma may read, after a barrier of those who did. */
INLINE void tile_written()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* --- products --- */

/* Keeps the compiler from moving what makes or takes these values over this place: it does not know
 * that products go on until products_wait, nor what products_begin is for. */
template <int N> INLINE void settle(float d[N][4])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])::"memory");
}

template <int N> INLINE void settle(uint32_t a[N][4])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
}

/* Before the first product of a group, and after its registers changed otherwise */
INLINE void products_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

INLINE void products_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until what was committed is done; only then are its registers anyone's. */
INLINE void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

/* The descriptor of a part of a tile: bits 0-13 the address, 16-29 the leading offset, 32-45 the
 * stride, all in units of 16 bytes, and 62-63 the swizzle: 1 is 128 bytes */
typedef uint64_t tile_view;
INLINE tile_view tile_view_of(const void *at, int leading, int stride)
{
    return (uint64_t)(shared_address(at) >> 4 & 0x3fff) | (uint64_t)(leading >> 4) << 16 |
           (uint64_t)(stride >> 4) << 32 | (uint64_t)1 << 62;
}

#define D4(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define D32 D4(0), D4(1), D4(2), D4(3), D4(4), D4(5), D4(6), D4(7)
#define D64 D32, D4(8), D4(9), D4(10), D4(11), D4(12), D4(13), D4(14), D4(15)
#define NAMES32                                                                                    \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "   \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES64                                                                                    \
    NAMES32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "   \
            "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

#define WGMMA_TILES(type)                                                                          \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                      \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" NAMES64         \
                 "}, %64, %65, p, 1, 1, 0, 0;\n}"                                                  \
                 : D64                                                                             \
                 : "l"(a), "l"(b), "r"((int)add))

/* d[64][128] = a[64][16] * b[128][16]^T (+ d); warp w of the group has rows 16 w on, each as mma
 * has them */
INLINE void wgmma_tiles(__half, float d[16][4], tile_view a, tile_view b, bool add)
{
    WGMMA_TILES("f16");
}

INLINE void wgmma_tiles(__nv_bfloat16, float d[16][4], tile_view a, tile_view b, bool add)
{
    WGMMA_TILES("bf16");
}

#define WGMMA_REGISTERS(n, type, d_operands, d_names, a_names)                                     \
    asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                                        \
                 "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" d_names       \
                 "}, " a_names ", p, 1, 1, 1;\n}"                                                  \
                 : d_operands                                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define WGMMA_REGISTERS_OF(type)                                                                   \
    if constexpr (N == 64)                                                                         \
        WGMMA_REGISTERS("64", type, D32, NAMES32, "{%32, %33, %34, %35}, %36");                    \
    else                                                                                           \
        WGMMA_REGISTERS("128", type, D64, NAMES64, "{%64, %65, %66, %67}, %68")

/* d[64][N] += a[64][16] * b[16][N], N 64 or 128, a in registers as mma has it */
template <int N>
INLINE void wgmma_registers(__half, float d[N / 8][4], const uint32_t a[4], tile_view b)
{
    WGMMA_REGISTERS_OF("f16");
}

template <int N>
INLINE void wgmma_registers(__nv_bfloat16, float d[N / 8][4], const uint32_t a[4], tile_view b)
{
    WGMMA_REGISTERS_OF("bf16");
}

/* --- registers that warp groups give each other --- */

/* From now on the group's threads have at most N registers. */
template <int N> INLINE void registers_give()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* Waits until the group's threads can have N. */
template <int N> INLINE void registers_take()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

#else

#include "emu_hopper.h"

#endif

/* --- products of tiles --- */

/* 16 columns of a tile whose rows are what wgmma calls K-major: 8 rows are 1,024 bytes. */
template <class T> INLINE tile_view columns_of(const T *tile, int rows, int k)
{
    const T *at = tile + k / 4 * rows * TILE_COLUMNS + k % 4 * 16;
    return tile_view_of(at, 16 /* not read */, 1024);
}

/* 16 rows of a tile, N-major: from 64 columns to the next, and from 8 rows to the next */
template <class T> INLINE tile_view rows_of(const T *tile, int rows, int k)
{
    return tile_view_of(tile + k * 16 * TILE_COLUMNS, rows * TILE_COLUMNS * (int)sizeof(T), 1024);
}

/* d = a * b^T (+ d): 64 rows of a, 128 of b, of each columns [16 k, 16 k + 16) */
template <class T>
INLINE void product_of_tiles(float d[16][4], const T *a, const T *b, int k, bool add)
{
    wgmma_tiles(T(), d, columns_of(a, 64, k), columns_of(b, 128, k), add);
}

/* d += a * b: a in registers, 16 columns; N columns of rows [16 k, 16 k + 16) of b's 128 */
template <int N, class T>
INLINE void product_of_registers(float d[N / 8][4], const uint32_t a[4], const T *b, int k)
{
    wgmma_registers<N>(T(), d, a, rows_of(b, 128, k));
}

/* --- tensor maps: the host's --- */

/* A map of a matrix of 16-bit values, for boxes of so many rows (a multiple of 8) and 64 columns.
 */
cudaError_t tensor_map_make(CUtensorMap *, const void *matrix, bool bf16, uint64_t rows,
                            int columns, int box_rows);

#endif
