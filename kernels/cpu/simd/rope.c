/* Rotary embedding, and writing a token's K and V to its page. */
#include "attention_int8.h"

#include <float.h>

INL void turn(float *a, float *b, float c, float s)
{
    float x = *a, y = *b;
    *a = f_fma(x, c, -(y * s));
    *b = f_fma(y, c, x * s);
}

void ISA_FN(rotate)(enum rope_style style, float *x, const float *cos, const float *sin, int n_dims)
{
    int half = n_dims / 2;
    if (style == ROPE_NORMAL) {
        for (int i = 0; i < half; i++)
            turn(x + 2 * i, x + 2 * i + 1, cos[i], sin[i]);
        return;
    }
    int i = 0;
    for (; i + LANES <= half; i += LANES) {
        vf a = vf_load(x + i), b = vf_load(x + half + i);
        vf c = vf_load(cos + i), s = vf_load(sin + i);
        vf_store(x + i, vf_fma(a, c, -(b * s)));
        vf_store(x + half + i, vf_fma(b, c, a * s));
    }
    for (; i < half; i++)
        turn(x + i, x + half + i, cos[i], sin[i]);
}

/* Never infinite, so that what a later row outshines stays finite; NaN stays NaN, so that every
 * row that sees it says so. */
INL float clamp(float x, float most)
{
    x = x < -most ? -most : x;
    return x > most ? most : x;
}

INL void put(enum dtype type, uint8_t *at, size_t i, float x)
{
    if (type == DTYPE_F32)
        ((float *)(void *)at)[i] = clamp(x, FLT_MAX);
    else if (type == DTYPE_BF16)
        ((uint16_t *)(void *)at)[i] = f32_to_bf16(clamp(x, 0x1.fep127f));
    else
#ifdef __F16C__
        ((uint16_t *)(void *)at)[i] = _cvtss_sh(clamp(x, 65504), 0);
#elif defined(SIMD_NEON)
        ((float16_t *)(void *)at)[i] = (float16_t)clamp(x, 65504);
#else
        ((uint16_t *)(void *)at)[i] = f32_to_f16(clamp(x, 65504));
#endif
}

#define INT8_MOST 3e38f /* 127 times its scale, rounded up, is finite */

/* The bf16 that is not below x > 0: what is divided by it stays in the range that x was made for */
INL uint16_t bf16_not_below(float x)
{
    union {
        float value;
        uint32_t bits;
    } v = {x};
    return (uint16_t)((v.bits + 0xffff) >> 16);
}

/* x[n] as bytes q + 128, |q| <= 127, then zeros to a multiple of 16; their scale, bf16 */
INL uint16_t to_int8(const float *x, int n, uint8_t to[INT8_MAX_DIM])
{
    float padded[INT8_MAX_DIM];
    const int all = round_up_16(n);
    memcpy(padded, x, (size_t)n * sizeof *x);
    memset(padded + n, 0, (size_t)(all - n) * sizeof *x);
    for (int i = 0; i < all; i += LANES) {
        vf below = vf_min(vf_splat(INT8_MOST), vf_load(padded + i)); /* NaN stays */
        vf_store(padded + i, vf_max(vf_splat(-INT8_MOST), below));
    }
    const float most = largest_of(padded, all);
    if (!(most >= 1e-30f)) { /* its inverse overflows, or NaN */
        memset(to, 128, INT8_MAX_DIM);
        return most == most ? 0 : 0x7fc0;
    }
    const uint16_t scale = bf16_not_below(most / 127);
    const float inverse = 1 / bf16_to_f32(scale);
    for (int i = 0; i < all; i += LANES) {
        vi q = vf_round(vf_load(padded + i) * inverse) + 128;
        for (int j = 0; j < LANES; j++)
            to[i + j] = (uint8_t)q[j];
    }
    return scale;
}

INL void write_int8(const struct kv_pool *kv, uint8_t *sub_page, int slot, int head, const float *k,
                    const float *v)
{
    uint8_t *kp = kv_k(kv, sub_page, head), *vp = kv_v(kv, sub_page, head), q[INT8_MAX_DIM];
    uint16_t *scales = kv_scales(kv, kp);
    scales[slot] = to_int8(k, kv->head_dim, q);
    for (int d = 0; d < kv->head_dim; d += 4)
        memcpy(kp + d * PANEL + slot * 4, q + d, 4);
    scales[PANEL + slot] = to_int8(v, kv->head_dim, q);
    vp += slot / 4 * 4 * kv->v_dim + slot % 4;
    for (int d = 0; d < kv->v_dim; d++)
        vp[d * 4] = q[d];
}

INL void write_head(enum dtype type, const struct kv_pool *kv, uint8_t *sub_page, int slot,
                    int head, const float *k, const float *v)
{
    uint8_t *kp = kv_k(kv, sub_page, head), *vp = kv_v(kv, sub_page, head);
    size_t row = (size_t)slot * kv->v_dim;
    for (int d = 0; d < kv->head_dim; d++)
        put(type, kp, (size_t)d * PANEL + slot, k[d]);
    for (int d = 0; d < kv->head_dim; d++)
        put(type, vp, row + d, v[d]);
    for (int d = kv->head_dim; d < kv->v_dim; d++)
        put(type, vp, row + d, 0);
}

void ISA_FN(kv_write)(const struct kv_pool *kv, uint8_t *sub_page, int slot, int head,
                      const float *k, const float *v)
{
    if (kv->type == DTYPE_INT8)
        write_int8(kv, sub_page, slot, head, k, v);
    else if (kv->type == DTYPE_F16)
        write_head(DTYPE_F16, kv, sub_page, slot, head, k, v);
    else if (kv->type == DTYPE_BF16)
        write_head(DTYPE_BF16, kv, sub_page, slot, head, k, v);
    else
        write_head(DTYPE_F32, kv, sub_page, slot, head, k, v);
}
