#include "quant_block.h"

#include <assert.h>
#include <string.h>

void quant_nibbles(const uint8_t *src, int n, uint8_t *q)
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
        out->scales[i] = (int8_t)(src[i] & 63);
        out->minima[i] = src[i + 4] & 63;
        out->scales[i + 4] = (int8_t)((src[i + 8] & 15) | src[i] >> 6 << 4);
        out->minima[i + 4] = (uint8_t)(src[i + 8] >> 4 | src[i + 4] >> 6 << 4);
    }
}

/* 32 bytes hold the nibbles of 64 values; bit s of high[i] tops value i of the s-th 32. */
static void unpack_k(const uint8_t *scales, const uint8_t *high, const uint8_t *low,
                     struct quant_block *out)
{
    unpack_scales(scales, out);
    for (int s = 0; s < 8; s += 2)
        quant_nibbles(low + s * 16, 32, out->q + s * 32);
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
    memcpy(out->d, src + 208, 2);
}

/* Each half of 128 has 32 bytes of four pairs of bits: value i has pair i / 32 of byte i % 32. */
static void pairs(const uint8_t *src, uint8_t *q)
{
    for (int i = 0; i < 256; i++)
        q[i] = src[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

static void unpack_q2_k(const uint8_t *src, struct quant_block *out)
{
    for (int i = 0; i < 16; i++) {
        out->scales[i] = src[i] & 15;
        out->minima[i] = src[i] >> 4;
    }
    pairs(src + 16, out->q);
    memcpy(out->d, src + 80, 2);
    memcpy(&out->m, src + 82, 2);
}

/* 16 scales of 6 bits: nibbles of eight bytes, all the low ones first, and pairs of bits of four */
static void unpack_q3_k(const uint8_t *src, struct quant_block *out)
{
    const uint8_t *low = src + 96, *high = src + 104;
    pairs(src + 32, out->q);
    for (int i = 0; i < 256; i++)
        out->q[i] |= (uint8_t)((src[i % 32] >> i / 32 & 1) << 2);
    for (int i = 0; i < 16; i++)
        out->scales[i] =
            (int8_t)(((low[i % 8] >> i / 8 * 4 & 15) | (high[i % 4] >> i / 4 * 2 & 3) << 4) - 32);
    memcpy(out->d, src + 108, 2);
}

/* 48 bytes of five values and 4 of four, each a number below 3^5 as a fraction of 256. */
static void unpack_tq1_0(const uint8_t *src, struct quant_block *out)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    for (int i = 0; i < 256; i++) {
        int at = i < 160 ? i % 32 : i < 240 ? 32 + i % 16 : 48 + i % 4;
        int digit = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
        uint8_t rest = (uint8_t)(src[at] * power[digit]);
        out->q[i] = (uint8_t)(rest * 3 >> 8);
    }
    memcpy(out->d, src + 52, 2);
}

static void unpack_q1_0(const uint8_t *src, struct quant_block *out)
{
    for (int i = 0; i < 128; i++)
        out->q[i] = (uint8_t)((src[i / 8] >> i % 8 & 1) * 2);
}

/* d first, then m where there is one: every type whose block does not end with them */
static const uint8_t *unpack_head(enum dtype t, const uint8_t *src, struct quant_block *out)
{
    memcpy(out->d, src, 2);
    src += 2;
    if (quant_form(t).zero)
        out->m = *src++;
    if (quant_form(t).minimum) {
        memcpy(&out->m, src, 2);
        src += 2;
    }
    return src;
}

/* Blocks of 32, and of 256 with scales and minima of 6 bits */
static void unpack_plain(enum dtype t, const uint8_t *src, struct quant_block *out)
{
    src = unpack_head(t, src, out);
    switch (t) {
    case DTYPE_Q8_0:
        unpack_q8_0(src, out);
        break;
    case DTYPE_Q4_0:
    case DTYPE_Q4_1:
    case DTYPE_Q4_Z:
        quant_nibbles(src, 16, out->q);
        break;
    case DTYPE_Q5_0:
    case DTYPE_Q5_1:
        quant_nibbles(src + 4, 16, out->q);
        fifth_bits(src, out->q);
        break;
    case DTYPE_Q4_K:
        unpack_k(src, NULL, src + 12, out);
        break;
    case DTYPE_Q5_K:
        unpack_k(src, src + 12, src + 44, out);
        break;
    case DTYPE_Q1_0:
        unpack_q1_0(src, out);
        break;
    default:
        assert(!"a quantised type");
    }
}

void quant_unpack(enum dtype t, const uint8_t *src, struct quant_block *out)
{
    if (quant_form(t).codebook) {
        quant_unpack_codes(t, src, out);
        return;
    }
    switch (t) {
    case DTYPE_Q2_K:
        unpack_q2_k(src, out);
        break;
    case DTYPE_Q3_K:
        unpack_q3_k(src, out);
        break;
    case DTYPE_Q6_K:
        unpack_q6_k(src, out);
        break;
    case DTYPE_TQ1_0:
        unpack_tq1_0(src, out);
        break;
    case DTYPE_TQ2_0:
        pairs(src, out->q);
        memcpy(out->d, src + 64, 2);
        break;
    default:
        unpack_plain(t, src, out);
    }
}

/* 2^(e - 128), the half of an e8m0: e2m1 values are stored doubled */
static float e8m0_half(uint8_t e)
{
    union {
        uint32_t bits;
        float value;
    } v = {e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23};
    return v.value;
}

static float scale_of(const struct quant_form *f, uint16_t d)
{
    if (f->d == QUANT_D_E8M0)
        return e8m0_half((uint8_t)d);
    return f16_to_f32(d) / (float)(1 << f->d_shift);
}

void quant_values(enum dtype t, const struct quant_block *b, int n, float *out)
{
    const struct quant_form f = quant_form(t);
    const int run = f.scale_run ? f.scale_run : f.d_run ? f.d_run : n;
    const int offset = f.zero ? b->m : f.offset;
    const float m = f.minimum ? f16_to_f32(b->m) : 0;
    for (int k = 0; k < n; k += run) {
        float step = scale_of(&f, b->d[f.d_run ? k / f.d_run : 0]), base = m;
        if (f.scale_run) {
            step *= (float)b->scales[k / run];
            base = -(m * (float)b->minima[k / run]);
        }
        for (int i = k; i < k + run; i++) {
            int u = f.codebook ? f.codebook[b->q[i]] : b->q[i];
            out[i] = step * (float)(u - offset);
            if (f.minimum)
                out[i] += base;
        }
    }
}
