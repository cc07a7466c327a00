/* emu_intrinsics.h: barriers, warp operations and arithmetic that CUDA C has built in. */
#ifndef TOKEND_EMU_INTRINSICS_H
#define TOKEND_EMU_INTRINSICS_H

static inline void __syncthreads(EMU_HERE)
{
    emu_barrier(0, 0, EMU_THERE);
}

static inline void named_barrier(int id, int n_threads, EMU_HERE)
{
    emu_barrier(id, n_threads, EMU_THERE);
}

static inline void __syncwarp(unsigned mask = 0xffffffffu, EMU_HERE)
{
    emu_meet(mask, "__syncwarp", nullptr, nullptr, true, EMU_THERE);
}

static inline void __threadfence()
{
}

/* --- shuffles: they carry values and order no memory --- */

template <class T> struct emu_shuffled {
    T value, got;
    int from; /* lane; -1: its own */
};

template <class T> void emu_shuffle_meet(void **operands, unsigned mask)
{
    for (int i = 0; i < 32; i++) {
        if (!(mask >> i & 1))
            continue;
        auto *p = (emu_shuffled<T> *)operands[i];
        if (p->from < 0)
            p->got = p->value;
        else if (mask >> p->from & 1)
            p->got = ((emu_shuffled<T> *)operands[p->from])->value;
        else
            memset((void *)&p->got, 0xff, sizeof p->got); /* undefined on a GPU */
    }
}

template <class T> T emu_shuffle(unsigned mask, T value, int from, const char *kind, emu_place at)
{
    emu_shuffled<T> op = {value, value, from};
    emu_meet(mask, kind, emu_shuffle_meet<T>, &op, false, at);
    return op.got;
}

template <class T>
static inline T __shfl_sync(unsigned mask, T v, int from, int width = 32, EMU_HERE)
{
    int first = (int)emu_lane() & ~(width - 1);
    return emu_shuffle(mask, v, first | (from & (width - 1)), "__shfl_sync", EMU_THERE);
}

template <class T>
static inline T __shfl_xor_sync(unsigned mask, T v, int by, int width = 32, EMU_HERE)
{
    int lane = (int)emu_lane(), from = lane ^ by;
    if ((from & ~(width - 1)) > (lane & ~(width - 1)))
        from = -1;
    return emu_shuffle(mask, v, from, "__shfl_xor_sync", EMU_THERE);
}

template <class T>
static inline T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32, EMU_HERE)
{
    int lane = (int)emu_lane(), from = lane + (int)by;
    if ((from & ~(width - 1)) != (lane & ~(width - 1)))
        from = -1;
    return emu_shuffle(mask, v, from, "__shfl_down_sync", EMU_THERE);
}

template <class T>
static inline T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32, EMU_HERE)
{
    int lane = (int)emu_lane(), from = lane - (int)by;
    if (from < (lane & ~(width - 1)))
        from = -1;
    return emu_shuffle(mask, v, from, "__shfl_up_sync", EMU_THERE);
}

/* --- votes --- */

struct emu_vote {
    bool yes;
    unsigned all;
};

static inline void emu_vote_meet(void **operands, unsigned mask)
{
    unsigned all = 0;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1)
            all |= (unsigned)((emu_vote *)operands[i])->yes << i;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1)
            ((emu_vote *)operands[i])->all = all;
}

static inline unsigned __ballot_sync(unsigned mask, int yes, EMU_HERE)
{
    emu_vote op = {yes != 0, 0};
    emu_meet(mask, "__ballot_sync", emu_vote_meet, &op, false, EMU_THERE);
    return op.all;
}

static inline int __any_sync(unsigned mask, int yes, EMU_HERE)
{
    return __ballot_sync(mask, yes, emu_file, emu_line) != 0;
}

static inline int __all_sync(unsigned mask, int yes, EMU_HERE)
{
    return __ballot_sync(mask, !yes, emu_file, emu_line) == 0;
}

/* --- atomics: one OS thread, so plain, but told to the race detector --- */

template <class T>
__attribute__((no_sanitize("thread"))) static inline T atomicAdd(T *p, std::common_type_t<T> v)
{
    emu_atomic(p, sizeof *p);
    T old = *p;
    *p = old + v;
    return old;
}

template <class T>
__attribute__((no_sanitize("thread"))) static inline T atomicMax(T *p, std::common_type_t<T> v)
{
    emu_atomic(p, sizeof *p);
    T old = *p;
    *p = old > v ? old : v;
    return old;
}

/* --- arithmetic --- */

template <class T> static inline T __ldg(const T *p)
{
    return *p;
}

/* CUDA's take mixed types. */
template <class A, class B> static inline std::common_type_t<A, B> min(A a, B b)
{
    using C = std::common_type_t<A, B>;
    return (C)a < (C)b ? (C)a : (C)b;
}

template <class A, class B> static inline std::common_type_t<A, B> max(A a, B b)
{
    using C = std::common_type_t<A, B>;
    return (C)a > (C)b ? (C)a : (C)b;
}

static inline float __uint_as_float(unsigned x)
{
    float f;
    memcpy(&f, &x, sizeof f);
    return f;
}

static inline float __int_as_float(int x)
{
    float f;
    memcpy(&f, &x, sizeof f);
    return f;
}

static inline int __float_as_int(float f)
{
    int x;
    memcpy(&x, &f, sizeof x);
    return x;
}

/* Bits 4 i to 4 i + 2 of `which` name byte i of the result among the eight of b and a. */
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned which)
{
    uint64_t bytes = (uint64_t)b << 32 | a;
    unsigned out = 0;
    for (int i = 0; i < 4; i++)
        out |= (unsigned)(bytes >> 8 * (which >> 4 * i & 7) & 0xff) << 8 * i;
    return out;
}

static inline float __frcp_rn(float x)
{
    return 1 / x;
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}

static inline int __dp4a(int a, int b, int c)
{
    unsigned sum = (unsigned)c;
    for (int i = 0; i < 32; i += 8)
        sum += (unsigned)((int8_t)(a >> i) * (int8_t)(b >> i));
    return (int)sum;
}

#endif
