/* linear_quant.cuh: linears of quantised weights; a file for some of the types instantiates it. A
 * block of 32 k is an exact integer product on the tensor cores, then per element acc = fma(d_w *
 * d_x, i, acc), and with a minimum acc = fma(-m_w, d_x * sum of q, acc).
 *
 * Bound: small batches by the weights' bytes; large ones not by mma but by the three or four float
 * operations for each element and block. The conversion of the integer is free: mma adds it to an
 * integer whose bits are those of the float 1.5 * 2^23. */
#ifndef TOKEND_LINEAR_QUANT_CUH
#define TOKEND_LINEAR_QUANT_CUH

#include "linear.cuh"

#include <string.h>

/* The bits of 1.5 * 2^23: the bits of this plus i are the float 1.5 * 2^23 + i, if |i| < 2^22. */
#define BIASED_ZERO 0x4B400000
#define BIAS 12582912.0f

/* What the kernel is compiled for, of a panel_form */
template <int BITS_, bool CODES_, enum panel_scales SCALES_, enum panel_extra EXTRA_, bool BF16_D_>
struct quant_type {
    static const int BITS = BITS_;
    static const bool CODES = CODES_, BF16_D = BF16_D_;
    static const enum panel_scales SCALES = SCALES_;
    static const enum panel_extra EXTRA = EXTRA_;
    static const bool SUPER = SCALES_ == PANEL_K32 || SCALES_ == PANEL_K16;
    static const int HALVES = SCALES_ == PANEL_D16 || SCALES_ == PANEL_K16 ? 2 : 1;
};

/* The sizes and facts that are numbers */
struct quant_facts {
    struct panel_sizes size;
    float factor, offset;
    uint32_t codes[4]; /* four int8 each */
};

static inline struct quant_facts facts_of(const struct panel_form &form, int cols)
{
    struct quant_facts f = {};
    f.size = panel_sizes(&form, cols);
    f.factor = form.factor;
    f.offset = (float)form.offset;
    memcpy(f.codes, form.codes, sizeof f.codes);
    return f;
}

/* A lane's words of a group, as they lie */
template <class Q> struct group_words {
    static const int LOW = Q::BITS == 8 ? 4 : Q::BITS >= 4 ? 2 : 0;
    static const bool PAIRS = Q::BITS == 2 || Q::BITS == 3 || Q::BITS == 6;
    static const bool BIT = Q::BITS == 3 || Q::BITS == 5;
    uint32_t low[LOW + 1][4], pairs[4], bit[2]; /* low: one more, for there is no empty array */
};

INLINE void load_16(uint32_t to[4], const uint8_t *from)
{
    uint4 v = *(const uint4 *)from;
    to[0] = v.x;
    to[1] = v.y;
    to[2] = v.z;
    to[3] = v.w;
}

template <class Q> INLINE void load_group(group_words<Q> &g, const uint8_t *plane)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < g.LOW; i++)
        load_16(g.low[i], plane + (i * 32 + lane) * 16);
    plane += g.LOW * 512;
    if (g.PAIRS) {
        load_16(g.pairs, plane + lane * 16);
        plane += 512;
    }
    if (g.BIT) {
        uint2 v = *(const uint2 *)(plane + lane * 8);
        g.bit[0] = v.x;
        g.bit[1] = v.y;
    }
}

/* The codes of four 4-bit values, one a byte. A byte permutation looks up three bits; the fourth
 * chooses between two of them. */
INLINE uint32_t look_up(const uint32_t codes[4], uint32_t q)
{
    uint32_t pairs = (q | q >> 4) & 0x00ff00ff, at = (pairs | pairs >> 8) & 0xffff;
    uint32_t below = __byte_perm(codes[0], codes[1], at & 0x7777);
    uint32_t above = __byte_perm(codes[2], codes[3], at & 0x7777);
    return __byte_perm(below, above, 0x3210 | (at & 0x8888) >> 1);
}

/* Word e (k = 4t… or 16+4t…) of block b of row g + 8 h */
template <class Q>
INLINE uint32_t word_of(const group_words<Q> &g, const struct quant_facts &f, int h, int b, int e)
{
    if (Q::BITS == 8)
        return g.low[(8 * h + 2 * b + e) / 4][(2 * b + e) % 4];
    uint32_t pair = g.pairs[2 * h + b / 2] >> 2 * (b % 2 * 2 + e) & 0x03030303;
    uint32_t bit = g.bit[h] >> (2 * b + e) & 0x01010101;
    if (Q::BITS == 2)
        return pair;
    if (Q::BITS == 3)
        return pair | bit << 2;
    uint32_t low = g.low[h][b] >> 4 * e & 0x0f0f0f0f;
    if (Q::CODES)
        return look_up(f.codes, low);
    return Q::BITS == 4 ? low : Q::BITS == 5 ? low | bit << 4 : low | pair << 4;
}

INLINE float half_at(const uint8_t *at, int i)
{
    return __half2float(((const __half *)at)[i]);
}

template <class Q> INLINE float d_at(const uint8_t *at, int i)
{
    return Q::BF16_D ? __bfloat162float(((const __nv_bfloat16 *)at)[i]) : half_at(at, i);
}

/* What a block of a row multiplies with, of each half that has its own */
struct row_scales {
    float d[2], m[2], zero;
};

/* Of block b of row r of the group whose scales these are; `super` is that of its 256 k. */
template <class Q>
INLINE struct row_scales scales_of(const uint8_t *at, const uint8_t *super, float factor, int r,
                                   int b)
{
    struct row_scales s = {};
    int i = r * GROUP_BLOCKS + b;
    float d = Q::SUPER ? half_at(super, r) * factor : factor;
    float m = Q::SUPER && Q::EXTRA == PANEL_MINIMUM ? half_at(super, PANEL_ROWS + r) : 0;
#pragma unroll
    for (int half = 0; half < Q::HALVES; half++) {
        int j = i * Q::HALVES + half;
        const int run = PANEL_ROWS * GROUP_BLOCKS * Q::HALVES; /* scales of the group */
        s.d[half] = Q::SUPER ? d * (float)(int8_t)at[j] : d_at<Q>(at, j) * d;
        if (Q::EXTRA == PANEL_MINIMUM) /* K types subtract theirs */
            s.m[half] = Q::SUPER ? -m * (float)at[run + j] : half_at(at + 2 * run, j);
        if (Q::EXTRA == PANEL_ZERO)
            s.zero = (float)at[2 * run + i];
    }
    return s;
}

/* acc += one (half) block: c is mma's, biased; s0 and s1 are the two rows', sums of x those of the
 * two tokens */
template <class Q>
INLINE void add_block(float acc[4], const int c[4], const struct row_scales s[2], int half,
                      const float d_x[2], const float sum_x[2], float offset)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const struct row_scales &row = s[i / 2];
        float product = __int_as_float(c[i]) - fmaf(offset, sum_x[i % 2], BIAS);
        if (Q::EXTRA == PANEL_ZERO)
            product = fmaf(-row.zero, sum_x[i % 2], product);
        acc[i] = fmaf(row.d[half] * d_x[i % 2], product, acc[i]);
        if (Q::EXTRA == PANEL_MINIMUM)
            acc[i] = fmaf(row.m[half], d_x[i % 2] * sum_x[i % 2], acc[i]);
    }
}

/* acc += block b of the group, of 8 tokens from `token` on */
template <class Q>
INLINE void add_tile(float acc[4], const uint32_t a[4], const struct row_scales s[2],
                     const struct cuda_qrows &x, int block, int token, float offset)
{
    int lane = threadIdx.x % 32;
    size_t at = (size_t)block * x.stride + token;
    uint2 b = *(const uint2 *)(x.q + (at + lane / 4) * BLOCK_VALUES + lane % 4 * 8);
    uint32_t words[2] = {b.x, b.y};
    const struct cuda_block_scale *x_scales = x.s + at + lane % 4 * 2;
    float d[2], sums[2][2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        d[i] = x_scales[i].d;
        sums[0][i] = block_sum_of(x_scales[i], 0);
        sums[1][i] = block_sum_of(x_scales[i], 1);
    }
    if (Q::HALVES == 1) {
        int c[4] = {BIASED_ZERO, BIASED_ZERO, BIASED_ZERO, BIASED_ZERO};
        float both[2] = {sums[0][0] + sums[1][0], sums[0][1] + sums[1][1]};
        mma_s8(c, a, words);
        add_block<Q>(acc, c, s, 0, d, both, offset);
    } else {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int c[4] = {BIASED_ZERO, BIASED_ZERO, BIASED_ZERO, BIASED_ZERO};
            mma_s8_half(c, a[2 * half], a[2 * half + 1], words[half]);
            add_block<Q>(acc, c, s, half, d, sums[half], offset);
        }
    }
}

/* The operand: groups are its units. */
template <class Q> struct quant_operand {
    /* for 7.5 and from 10.0 on ptxas takes more where weights are of many bits or looked up */
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ < 800 || __CUDA_ARCH__ >= 1000)
    static const int SETS = Q::BITS >= 5 || Q::CODES || Q::EXTRA == PANEL_MINIMUM ? 2 : Q::HALVES;
#else
    static const int SETS = Q::HALVES;
#endif
    struct quant_facts f;
    struct cuda_qrows x;
    int planes;
};

template <class Q> INLINE int n_units(const quant_operand<Q> &o, const struct cuda_matrix &)
{
    return o.f.size.groups;
}

template <int NT, class Q>
INLINE void add_units(tile_sums<NT> &sums, const quant_operand<Q> &o, const struct cuda_matrix &w,
                      const void *data, int at, int from, int end, int token)
{
    const struct quant_facts &f = o.f;
    const uint8_t *panel = (const uint8_t *)data + (size_t)at * f.size.bytes;
    const int n_blocks = w.cols / BLOCK_VALUES;
    const uint8_t *scales = panel + (size_t)f.size.groups * f.size.plane_bytes;
    const uint8_t *supers = scales + (size_t)f.size.groups * f.size.scale_bytes;
    int row = threadIdx.x % 32 / 4;
    group_words<Q> words, next;
    if (from < end)
        load_group(next, panel + (size_t)from * f.size.plane_bytes);
    for (int g = from; g < end; g++) {
        words = next;
        if (g + 1 < end) /* is on its way while this one is multiplied */
            load_group(next, panel + (size_t)(g + 1) * f.size.plane_bytes);
        const uint8_t *scale = scales + (size_t)g * f.size.scale_bytes;
        const uint8_t *super = supers + (size_t)(g / 2) * f.size.super_bytes;
#pragma unroll
        for (int b = 0; b < GROUP_BLOCKS; b++) {
            int block = g * GROUP_BLOCKS + b;
            if (block >= n_blocks)
                break;
            uint32_t a[4];
            struct row_scales s[2];
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[i] = word_of<Q>(words, f, i % 2, b, i / 2);
#pragma unroll
            for (int h = 0; h < 2; h++)
                s[h] = scales_of<Q>(scale, super, f.factor, row + 8 * h, b);
#pragma unroll
            for (int n = 0; n < NT; n++)
                add_tile<Q>(sums.at[n], a, s, o.x, block, token + n * TILE_TOKENS, f.offset);
        }
    }
}

/* Launches in the file of their types; cudaErrorInvalidValue: the form is not one of its own. */
typedef cudaError_t linear_launch(cudaStream_t, const struct cuda_linear &,
                                  const struct linear_experts &, const struct panel_form &,
                                  const struct quant_facts &, const struct cuda_qrows &,
                                  int n_rows);
linear_launch linear_launch_4, linear_launch_5_8, linear_launch_k, linear_launch_codes;

/* In such a launch: if the form is this one */
#define LAUNCH_IF(bits_, codes_, scales_, extra_, bf16_d_)                                         \
    do {                                                                                           \
        if (form.bits == (bits_) && form.codebook == (codes_) && form.scales == (scales_) &&       \
            form.extra == (extra_) && form.bf16_d == (bf16_d_)) {                                  \
            typedef quant_type<bits_, codes_, scales_, extra_, bf16_d_> type;                      \
            return launch_linear(s, l, e, quant_operand<type>{f, x, x.planes}, n_rows);            \
        }                                                                                          \
    } while (0)

#endif
