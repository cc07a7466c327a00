#include "quant_block.h"

#include <assert.h>
#include <string.h>

static void nibbles(const uint8_t *src, int n, uint8_t *q)
{
    for (int i = 0; i < n; i++) {
        q[i] = src[i] & 15;
        q[i + n] = src[i] >> 4;
    }
}

/* Bit i of the 32 at src is bit 4 of q[i]. */
static void fifth_bits(const uint8_t *src, uint8_t *q)
{
    for (int i = 0; i < 32; i++)
        q[i] |= (uint8_t)((src[i / 8] >> i % 8 & 1) << 4);
}

static void unpack_q8_0(const uint8_t *src, struct quant_block *out)
{
    for (int i = 0; i < 32; i++)
        out->q[i] = src[i] ^ 128;
}

/* Twelve bytes: eight 6-bit scales and eight 6-bit minima. The first four of each lie in the low
 * bits of bytes 0 to 3 and 4 to 7; the others' low nibbles share bytes 8 to 11, and their upper
 * two bits top the bytes of the first. */
static void unpack_scales(const uint8_t *src, struct quant_block *out)
{
    for (int i = 0; i < 4; i++) {
        out->scales[i] = src[i] & 63;
        out->minima[i] = src[i + 4] & 63;
        out->scales[i + 4] = (uint8_t)((src[i + 8] & 15) | src[i] >> 6 << 4);
        out->minima[i + 4] = (uint8_t)(src[i + 8] >> 4 | src[i + 4] >> 6 << 4);
    }
}

/* 32 bytes hold the nibbles of 64 values; bit s of high[i] tops value i of the s-th 32. */
static void unpack_k(const uint8_t *scales, const uint8_t *high, const uint8_t *low,
                     struct quant_block *out)
{
    unpack_scales(scales, out);
    for (int s = 0; s < 8; s += 2)
        nibbles(low + s * 16, 32, out->q + s * 32);
    for (int i = 0; high && i < 256; i++)
        out->q[i] |= (uint8_t)((high[i % 32] >> i / 32 & 1) << 4);
}

/* Each half of 128 has 64 bytes of nibbles, two times 32, and 32 of upper pairs of bits. */
static void unpack_q6_k(const uint8_t *src, struct quant_block *out)
{
    for (int half = 0; half < 2; half++) {
        const uint8_t *low = src + half * 64, *high = src + 128 + half * 32;
        for (int i = 0; i < 128; i++) {
            int q = low[i % 64] >> i / 64 * 4 & 15;
            out->q[half * 128 + i] = (uint8_t)(q | (high[i % 32] >> i / 32 * 2 & 3) << 4);
        }
    }
    memcpy(out->scales, src + 192, 16);
    memcpy(&out->d, src + 208, 2);
}

void quant_unpack(enum dtype t, const uint8_t *src, struct quant_block *out)
{
    if (t != DTYPE_Q6_K)
        memcpy(&out->d, src, 2);
    if (quant_form(t).minimum)
        memcpy(&out->m, src + 2, 2);
    switch (t) {
    case DTYPE_Q8_0:
        unpack_q8_0(src + 2, out);
        break;
    case DTYPE_Q4_0:
        nibbles(src + 2, 16, out->q);
        break;
    case DTYPE_Q4_1:
        nibbles(src + 4, 16, out->q);
        break;
    case DTYPE_Q5_0:
        nibbles(src + 6, 16, out->q);
        fifth_bits(src + 2, out->q);
        break;
    case DTYPE_Q5_1:
        nibbles(src + 8, 16, out->q);
        fifth_bits(src + 4, out->q);
        break;
    case DTYPE_Q4_K:
        unpack_k(src + 4, NULL, src + 16, out);
        break;
    case DTYPE_Q5_K:
        unpack_k(src + 4, src + 16, src + 48, out);
        break;
    case DTYPE_Q6_K:
        unpack_q6_k(src, out);
        break;
    default:
        assert(!"a quantised type");
    }
}

void quant_values(enum dtype t, const struct quant_block *b, float *out)
{
    const struct quant_form f = quant_form(t);
    int n = dtype_info(t)->block_elems, run = f.scale_run ? f.scale_run : n;
    float d = f16_to_f32(b->d), m = f.minimum ? f16_to_f32(b->m) : 0;
    for (int k = 0; k < n; k += run) {
        uint8_t scale = b->scales[k / run];
        float step = !f.scale_run ? d : d * (float)(t == DTYPE_Q6_K ? (int8_t)scale : scale);
        float base = !f.scale_run ? m : -(m * (float)b->minima[k / 32]);
        for (int i = k; i < k + run; i++) {
            out[i] = step * (float)(b->q[i] - f.offset);
            if (f.minimum)
                out[i] += base;
        }
    }
}
