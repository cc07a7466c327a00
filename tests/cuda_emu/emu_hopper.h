/* emu_hopper.h: the emulated bodies of hopper.cuh. What they do is in hopper.cpp. */
#ifndef TOKEND_EMU_HOPPER_H
#define TOKEND_EMU_HOPPER_H

#include <cuda.h>

/* A part of a tile as a descriptor of wgmma says it */
struct tile_view {
    const void *at;
    int leading, stride;
};
/* What one lane gives to a wgmma */
struct emu_wgmma_lane {
    float *d;          /* [n / 8][4] */
    const uint32_t *a; /* [4], NULL: a is in shared memory */
    struct tile_view at_a, b;
    int n;
    bool add, bf16;
};

void emu_mbarrier_init(uint64_t *, int n, emu_place);
void emu_mbarrier_arrive(uint64_t *, int bytes, emu_place);
void emu_mbarrier_wait(uint64_t *, int parity, emu_place);
void emu_tma_load(void *to, const CUtensorMap *, int row, int column, uint64_t *, emu_place);
void emu_wgmma(emu_wgmma_lane *, emu_place);
void emu_wgmma_fence(emu_place);
void emu_wgmma_commit(emu_place);
void emu_wgmma_wait(emu_place);

static inline void barrier_init(uint64_t *b, int n, EMU_HERE)
{
    emu_mbarrier_init(b, n, EMU_THERE);
}

static inline void barriers_made()
{
}

static inline void barrier_arrive(uint64_t *b, EMU_HERE)
{
    emu_mbarrier_arrive(b, 0, EMU_THERE);
}

static inline void barrier_arrive_expecting(uint64_t *b, int bytes, EMU_HERE)
{
    emu_mbarrier_arrive(b, bytes, EMU_THERE);
}

static inline void barrier_wait(uint64_t *b, int parity, EMU_HERE)
{
    emu_mbarrier_wait(b, parity, EMU_THERE);
}

static inline void tma_load(void *tile, const CUtensorMap *map, int row, int column, uint64_t *b,
                            EMU_HERE)
{
    emu_tma_load(tile, map, row, column, b, EMU_THERE);
}

static inline void tile_written()
{
}

template <int N, class T> static inline void settle(T (*)[4])
{
}

static inline void products_begin(EMU_HERE)
{
    emu_wgmma_fence(EMU_THERE);
}

static inline void products_commit(EMU_HERE)
{
    emu_wgmma_commit(EMU_THERE);
}

static inline void products_wait(EMU_HERE)
{
    emu_wgmma_wait(EMU_THERE);
}

static inline tile_view tile_view_of(const void *at, int leading, int stride)
{
    return {at, leading, stride};
}

template <class T>
static inline void wgmma_tiles(T, float d[16][4], tile_view a, tile_view b, bool add, EMU_HERE)
{
    emu_wgmma_lane lane = {d[0], nullptr, a, b, 128, add, std::is_same_v<T, __nv_bfloat16>};
    emu_wgmma(&lane, EMU_THERE);
}

template <int N, class T>
static inline void wgmma_registers(T, float (*d)[4], const uint32_t a[4], tile_view b, EMU_HERE)
{
    emu_wgmma_lane lane = {d[0], a, {}, b, N, true, std::is_same_v<T, __nv_bfloat16>};
    emu_wgmma(&lane, EMU_THERE);
}

template <int N> static inline void registers_give()
{
}

template <int N> static inline void registers_take()
{
}

#endif
