/* cuda_emu.h: what kernels need of CUDA C, for the host's compiler. device.cuh includes it where
 * nvcc is not the compiler.
 *
 * Types, conversions and the runtime's prototypes are those of NVIDIA's headers; here are the names
 * that only device code has, and launching. A kernel's threads are fibers of one OS thread. */
#ifndef TOKEND_CUDA_EMU_H
#define TOKEND_CUDA_EMU_H

#include <cuda_runtime.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>

#undef __shared__ /* SHARED instead: exact size, filled with NaN, and watched */
#undef __global__
#undef __launch_bounds__
#define __global__
#define __launch_bounds__(...)

/* Plain globals, for NVIDIA's structs have members of these names; not const, for a switch to
 * another fiber changes them. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
enum { warpSize = 32 };

#define SHARED(type, name, dims)                                                                   \
    static const char name##_key = 0;                                                              \
    typedef type name##_type dims;                                                                 \
    name##_type &name = *(name##_type *)emu_shared(&name##_key, sizeof(name##_type))
#define DYN_SHARED(type, name) type *name = (type *)emu_dynamic_shared()
#define LAUNCH(kernel, grid, block, smem, stream)                                                  \
    emu_launcher_of(kernel, emu_launch{#kernel, (const void *)kernel, dim3(grid), dim3(block),     \
                                       (size_t)(smem), stream})

/* Where a collective operation was called; default arguments see the caller's line. */
#define EMU_HERE const char *emu_file = __builtin_FILE(), int emu_line = __builtin_LINE()
#define EMU_THERE                                                                                  \
    emu_place                                                                                      \
    {                                                                                              \
        emu_file, emu_line                                                                         \
    }
struct emu_place {
    const char *file;
    int line;
};

struct emu_launch {
    const char *name;
    const void *kernel;
    dim3 grid, block;
    size_t dynamic;
    cudaStream_t stream;
};

/* --- what block.cpp, shared_memory.cpp and async_copy.cpp do for a kernel's threads --- */

void *emu_shared(const void *key, size_t size);
void *emu_dynamic_shared();
/* Reports what the kernel did wrong and ends it. */
[[noreturn]] void emu_fault(emu_place, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
unsigned emu_lane();
/* n_threads 0: all of the block that have not ended */
void emu_barrier(int id, int n_threads, emu_place);
/* All lanes of `mask` meet; the last one runs meet(operands by lane, mask). `ordering`: what a lane
 * wrote before, the others may read after. */
void emu_meet(unsigned mask, const char *kind, void (*meet)(void **operands, unsigned mask),
              void *operand, bool ordering, emu_place);
void emu_copy_async(void *shared, const void *global, int size, int n_source, emu_place);
void emu_copy_commit();
void emu_copy_wait(int n_pending);
/* The calling thread's next access to [p, p + size) is atomic. */
void emu_atomic(const void *p, size_t size);
void emu_enqueue_launch(const emu_launch &, size_t argument_bytes, std::function<void()>);

/* --- launching --- */

template <class... P> struct emu_launcher {
    void (*kernel)(P...);
    emu_launch launch;
    void operator()(std::common_type_t<P>... args) const
    {
        std::tuple<std::decay_t<P>...> kept(args...); /* as <<<>>>: copied now */
        auto k = kernel;
        emu_enqueue_launch(launch, (sizeof(P) + ... + 0), [k, kept] { std::apply(k, kept); });
    }
};

template <class... P> emu_launcher<P...> emu_launcher_of(void (*k)(P...), const emu_launch &l)
{
    return {k, l};
}

#include "emu_intrinsics.h"
#include "emu_matrix.h"

#endif
