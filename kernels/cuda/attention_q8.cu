/* Attention over K and V of 8 bits, INT8 or F8_E4M3, by the tensor cores' F16: codes become F16
 * exactly in registers, after ldmatrix. The scale of a token's K multiplies its scores; that of V
 * its weight, which is rounded to F16 relative to the largest of the row so far (a power of two,
 * the unit of its sums), so that no size of V leaves F16's range.
 *
 * Codes are finite whatever lies in a slot, and the weight of what a row does not see is set to 0:
 * a NaN is in a scale, and reaches those who see it by way of their score or their weight. */
#include "attention_mma.cuh"

/* The lane's two rows; rows.acc are in units, one of each row and segment, a power of two, which
 * lie behind rows.run_acc: [32 lanes][2] */
template <class K, int D> struct q8_state {
    struct mma_state<__half, D> rows;
};

enum { LEAST_UNIT = (127 - 100) << 23 }; /* bits of 2^-100: what is less is lost */

/* Bytes 0 and 2 of a word of codes, and 1 and 3, as pairs of F16, times code_unit */
INLINE void widen(struct kv_int8, uint32_t codes, uint32_t pairs[2])
{
    const __half2 offset = __floats2half2_rn(1024 + 128, 1024 + 128);
    for (int i = 0; i < 2; i++) {
        uint32_t sum = __byte_perm(codes, 0x64646464, 0x4240 + 0x101 * i); /* 1024 + code */
        __half2 q = __hsub2(*(__half2 *)&sum, offset);
        pairs[i] = *(uint32_t *)&q;
    }
}

/* E4M3's bits are those of an F16 of 2^-8 its size, but for where the sign is. */
INLINE void widen(struct kv_e4m3, uint32_t codes, uint32_t pairs[2])
{
    for (int i = 0; i < 2; i++) {
        uint32_t high = i ? codes : codes << 8;
        pairs[i] = (high & 0x80008000) | (high & 0x7f007f00) >> 1;
    }
}

INLINE float code_unit(struct kv_int8)
{
    return 1;
}

INLINE float code_unit(struct kv_e4m3)
{
    return 256;
}

template <class K, int D> INLINE float2 *units_of(const struct q8_state<K, D> *s)
{
    return (float2 *)(s->rows.run_acc + D * 4) + threadIdx.x % 32;
}

template <class K, int D> INLINE void unit_begin(const struct q8_state<K, D> *s)
{
    const float least = __int_as_float(LEAST_UNIT);
    *units_of(s) = make_float2(least, least);
}

template <class K, int D>
INLINE void run_begin(struct q8_state<K, D> *s, const struct attention_args &a,
                      const struct attention_run &run)
{
    run_begin(&s->rows, a, run);
    unit_begin(s);
}

/* The scales of the lane's keys, those of scores[n][0] and [1] in scales[2 n], [2 n + 1] */
template <class K> INLINE void read_scales(float scales[KEYS / 4], const K *of_tile)
{
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) {
        uint32_t both = *(const uint32_t *)(of_tile + (8 * n + (int)threadIdx.x % 4 * 2) * 2);
        scales[2 * n] = __int_as_float((int)(both << 16));
        scales[2 * n + 1] = __int_as_float((int)(both & 0xffff0000));
    }
}

/* scores[KEYS / 8][4] = q · K^T: of each 16 dims a lane's word has what two 8 x 8 parts of an mma's
 * right side want, for four times 8 keys. */
template <class K, int D>
INLINE void score_codes(float scores[KEYS / 8][4], const __half *q, const K *k)
{
    const int lane = threadIdx.x % 32;
    const __half *left_row = q + lane % 16 * (D + Q_PAD) + lane / 16 * 8;
    const K *row = k + lane * tile_layout<K, D>::PITCH;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
        scores[n][0] = scores[n][1] = scores[n][2] = scores[n][3] = 0;
#pragma unroll
    for (int d = 0; d < D / 16; d++) {
        uint32_t left[4], codes[KEYS / 8];
        ldmatrix_x4(left, left_row + d * 16);
        ldmatrix_x4(codes, row + d * 16);
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
            uint32_t b[2];
            widen(K(), codes[n], b);
            mma_f16(scores[n], left, b);
        }
    }
}

template <class K> INLINE void scale_scores(float scores[KEYS / 8][4], const K *k_scales)
{
    float scales[KEYS / 4];
    read_scales(scales, k_scales);
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            scores[n][e] *= scales[2 * n + e % 2] * code_unit(K());
}

/* Its bits; x at least 2^-126 and at most 2^127 */
INLINE int power_of_two_not_below(float x)
{
    return (__float_as_int(x) + 0x7fffff) & 0x7f800000;
}

template <class K> INLINE void scale_weights(float p[KEYS / 8][4], const K *v_scales)
{
    float scales[KEYS / 4];
    read_scales(scales, v_scales);
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            p[n][e] *= scales[2 * n + e % 2];
}

/* 0 for what a row does not see, whatever lies there */
INLINE void mask_weights(float p[KEYS / 8][4], const int position[2], int window, int key0)
{
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (!is_seen(key_of(key0, n, e), position[e / 2], window))
                p[n][e] = 0;
}

/* Brings the weights of row half `half` to the row's unit, which grows to the largest of them or
 * shrinks with the sums so far, that `scale` is meant for; what these are to be multiplied with. */
INLINE float weigh_values(float p[KEYS / 8][4], int half, float scale, float *unit)
{
    float most = fmaxf(*unit * scale, __int_as_float(LEAST_UNIT));
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; e++)
            most = fmaxf(most, p[n][e]);
    most = fmaxf(most, __shfl_xor_sync((unsigned)ALL_LANES, most, 1));
    most = fmaxf(most, __shfl_xor_sync((unsigned)ALL_LANES, most, 2));
    int now = power_of_two_not_below(most);
    float inverse = __int_as_float(0x7f000000 - now);
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; e++)
            p[n][e] *= inverse;
    scale *= *unit * inverse;
    *unit = __int_as_float(now);
    return scale;
}

/* acc += p · V; transposed, a word has two dims of two tokens */
template <class K, int D>
INLINE void add_codes(float acc[D / 8][4], const float p[KEYS / 8][4], const K *v)
{
    const int lane = threadIdx.x % 32;
    const K *row = v + lane % 16 * tile_layout<K, D>::PITCH + lane / 16 * 16;
#pragma unroll
    for (int n = 0; n < KEYS / 16; n++) {
        uint32_t left[4];
        weights_of<__half>(left, p, n);
#pragma unroll
        for (int d = 0; d < D / 16; d += 2) {
            uint32_t codes[4];
            ldmatrix_x4_trans(codes, row + n * 16 * tile_layout<K, D>::PITCH + d * 16);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                uint32_t first[2], second[2];
                widen(K(), codes[2 * i], first);
                widen(K(), codes[2 * i + 1], second);
                const uint32_t low[2] = {first[0], second[0]}, high[2] = {first[1], second[1]};
                mma_f16(acc[2 * (d + i)], left, low);
                mma_f16(acc[2 * (d + i) + 1], left, high);
            }
        }
    }
}

template <class K, int D>
INLINE void tile_of_keys(struct q8_state<K, D> *s, const struct attention_args &a, const K *k,
                         int key0)
{
    struct mma_state<__half, D> *rows = &s->rows;
    const K *scales = k + tile_layout<K, D>::SCALES;
    float scores[KEYS / 8][4], scale[2];
    if (!rows_see_some(rows->position, key0, a.window))
        return;
    bool whole = rows_see_all(rows->position, key0, a.window);
    score_codes<K, D>(scores, rows->q, k);
    scale_scores(scores, scales);
    if (a.cap > 0)
        cap_scores(scores, a);
    if (!whole)
        mask_scores(scores, rows->position, a.window, key0);
#pragma unroll
    for (int half = 0; half < 2; half++)
        scale[half] = weigh(scores, half, a.to_log2, &rows->most[half], &rows->sum[half]);
    scale_weights(scores, scales + 2 * KEYS);
    if (!whole)
        mask_weights(scores, rows->position, a.window, key0);
    float2 unit = *units_of(s);
    scale[0] = weigh_values(scores, 0, scale[0], &unit.x);
    scale[1] = weigh_values(scores, 1, scale[1], &unit.y);
    *units_of(s) = unit;
    scale_sums<D>(rows->acc, scale);
    add_codes<K, D>(rows->acc, scores, k + tile_layout<K, D>::V);
}

template <class K, int D>
INLINE void segment_end(struct q8_state<K, D> *s, const struct attention_args &a,
                        const struct attention_run &run, int segment, bool first, bool last)
{
    const float2 units = *units_of(s);
    const float unit[2] = {units.x * code_unit(K()), units.y * code_unit(K())};
    scale_sums<D>(s->rows.acc, unit);
    segment_end(&s->rows, a, run, segment, first, last);
    unit_begin(s);
}

template <class K, int D>
static __global__ void __launch_bounds__(32 * MAX_WARPS, D > 64 ? 2 : 3)
    attention_q8_kernel(struct attention_args a, enum cuda_attention_kind kind, int n_stages)
{
    DYN_SHARED(unsigned char, bytes);
    struct q8_state<K, D> s;
    K *stages = (K *)bytes;
    __half *q = (__half *)(stages + n_stages * tile_layout<K, D>::STAGE);
    int n_warps = blockDim.x / 32, warp = threadIdx.x / 32;
    s.rows.q = q + warp * WARP_ROWS * (D + Q_PAD);
    s.rows.run_acc = (float4 *)(q + n_warps * WARP_ROWS * (D + Q_PAD)) + warp * (D * 4 + 16);
    attend_share<K, D>(&s, a, kind, stages, n_stages);
}

template <class K, int D> static struct attention_code q8_code_of()
{
    const size_t q = WARP_ROWS * (D + Q_PAD) * sizeof(__half);
    struct attention_code c = {attention_q8_kernel<K, D>, tile_layout<K, D>::STAGE,
                               q + WARP_ROWS * D * sizeof(float) + 32 * sizeof(float2)};
    return c;
}

template <class K> static struct attention_code q8_code(int head_dim)
{
    if (head_dim <= 64)
        return q8_code_of<K, 64>();
    if (head_dim <= 96)
        return q8_code_of<K, 96>();
    return head_dim <= 128 ? q8_code_of<K, 128>() : q8_code_of<K, 256>();
}

struct attention_code attention_int8(int head_dim)
{
    return q8_code<struct kv_int8>(head_dim);
}

struct attention_code attention_e4m3(int head_dim)
{
    return q8_code<struct kv_e4m3>(head_dim);
}
