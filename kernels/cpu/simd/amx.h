/* amx.h: AMX's tile registers, as the products of int8 and of bf16 use them.
 *
 * The eight registers, named by literals, have these shapes for k bytes of a row, 16, 32 or 64:
 *
 *   0…3   sums     [16 tokens][16] int32 or float32
 *   4, 5  rows     [16 tokens][k] int8, or [k / 2] bf16
 *   6, 7  weights  [k / 4][16][4] uint8, lines of a panel (layout.h), or [16][2] bf16
 *
 * and have them between amx_begin and amx_end only, which are the thread's own; isa.c has asked the
 * system for the registers. What vectors have stored reaches a register through the cache only.
 *
 * AMX_EMULATED: the same in plain C, for a set that only tests have. */
#ifndef TOKEND_SIMD_AMX_H
#define TOKEND_SIMD_AMX_H

#include "layout.h"
#include "simd.h"

#if defined(__AMX_INT8__) || defined(__AMXINT8__) || defined(AMX_EMULATED) /* gcc, clang */
#define AMX 1
#else
#define AMX 0
#endif
#define AMX_TOKENS 16

/* k of a multiplication for a quantised type: what one scale is for */
INL int amx_k(enum dtype t)
{
    return QBLOCK / panel_halves(t);
}

#if AMX && !defined(AMX_EMULATED)
struct amx {
    int k; /* the registers are the processor's */
};

struct amx_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

INL void amx_begin(int k)
{
    static const struct amx_shapes of_64 = {
        1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    static const struct amx_shapes of_32 = {
        1, 0, {0}, {64, 64, 64, 64, 32, 32, 64, 64}, {16, 16, 16, 16, 16, 16, 8, 8}};
    static const struct amx_shapes of_16 = {
        1, 0, {0}, {64, 64, 64, 64, 16, 16, 64, 64}, {16, 16, 16, 16, 16, 16, 4, 4}};
    _tile_loadconfig(k == 64 ? &of_64 : k == 32 ? &of_32 : &of_16);
}

INL void amx_end(void)
{
    _tile_release();
}

/* Macros, because gcc writes a register's number into the assembler's text as it is given. Nor does
 * it know that a load reads memory. */
#define amx_zero(a, sums)                                                                          \
    do {                                                                                           \
        (void)(a);                                                                                 \
        _tile_zero(sums);                                                                          \
    } while (0)
#define amx_load(a, to, from, stride)                                                              \
    do {                                                                                           \
        (void)(a);                                                                                 \
        __asm__ volatile("" : : : "memory");                                                       \
        _tile_loadd(to, from, stride);                                                             \
    } while (0)
#define amx_dot(a, sums, rows, weights) _tile_dpbsud(sums, rows, weights)
#define amx_dot_bf16(a, sums, rows, weights) _tile_dpbf16ps(sums, rows, weights)
#define amx_store(a, sums, to) _tile_stored(sums, to, 64)
#else
struct amx {
    int k;
    int8_t reg[8][1024] __attribute__((aligned(64)));
};

INL void amx_begin(int k)
{
}

INL void amx_end(void)
{
}

INL void amx_zero(struct amx *a, int sums)
{
    memset(a->reg[sums], 0, sizeof *a->reg);
}

INL void amx_load(struct amx *a, int to, const void *from, int stride)
{
    const int rows = to < 6 ? AMX_TOKENS : a->k / 4, bytes = to < 6 ? a->k : 64;
    for (int i = 0; i < rows; i++)
        memcpy(a->reg[to] + i * bytes, (const char *)from + i * stride, (size_t)bytes);
}

/* sums[token][row] += the products of k */
INL void amx_dot(struct amx *a, int sums, int rows, int weights)
{
    int32_t sum[AMX_TOKENS][16], w[QBLOCK][16];
    memcpy(sum, a->reg[sums], sizeof sum);
    for (int k = 0; k < a->k; k++)
        for (int r = 0; r < 16; r++)
            w[k][r] = (uint8_t)a->reg[weights][k / 4 * 64 + r * 4 + k % 4];
    for (int t = 0; t < AMX_TOKENS; t++)
        for (int k = 0; k < a->k; k++)
            for (int r = 0; r < 16; r++)
                sum[t][r] += a->reg[rows][t * a->k + k] * w[k][r];
    memcpy(a->reg[sums], sum, sizeof sum);
}

/* sums[token][row] += the products of the even k and those of the odd ones, each added by
 * themselves from zero on (Intel's manual, TDPBF16PS) */
INL void amx_dot_bf16(struct amx *a, int sums, int rows, int weights)
{
    for (int t = 0; t < AMX_TOKENS; t++) {
        float *sum = (float *)(void *)a->reg[sums] + t * 16;
        vf even = vf_splat(0), odd = even;
        for (int i = 0; i < 16; i++) {
            const vu w = (vu)vf_load((float *)(void *)a->reg[weights] + i * 16);
            const vu x = (vu)vf_splat(((float *)(void *)a->reg[rows])[t * 16 + i]);
            even = vf_fma((vf)(w << 16), (vf)(x << 16), even);
            odd = vf_fma((vf)(w & 0xffff0000), (vf)(x & 0xffff0000), odd);
        }
        vf_store(sum, vf_load(sum) + (even + odd));
    }
}

INL void amx_store(const struct amx *a, int sums, void *to)
{
    memcpy(to, a->reg[sums], sizeof *a->reg);
}
#endif

#endif
