/* Rotary embedding, and writing a token's K and V to its page. */
#include "table.h"

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
    if (kv->type == DTYPE_F16)
        write_head(DTYPE_F16, kv, sub_page, slot, head, k, v);
    else if (kv->type == DTYPE_BF16)
        write_head(DTYPE_BF16, kv, sub_page, slot, head, k, v);
    else
        write_head(DTYPE_F32, kv, sub_page, slot, head, k, v);
}
