#include "dtype.h"

#include "quant_block.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

static const struct dtype_info infos[DTYPE_ALL] = {
    [DTYPE_F32] = {"F32", 1, 4},
    [DTYPE_F16] = {"F16", 1, 2},
    [DTYPE_BF16] = {"BF16", 1, 2},
    [DTYPE_Q8_0] = {"Q8_0", 32, 34},
    [DTYPE_Q4_1] = {"Q4_1", 32, 20},
    [DTYPE_Q4_0] = {"Q4_0", 32, 18},
    [DTYPE_Q5_0] = {"Q5_0", 32, 22},
    [DTYPE_Q5_1] = {"Q5_1", 32, 24},
    [DTYPE_Q4_K] = {"Q4_K", 256, 144},
    [DTYPE_Q5_K] = {"Q5_K", 256, 176},
    [DTYPE_Q6_K] = {"Q6_K", 256, 210},
    [DTYPE_Q2_K] = {"Q2_K", 256, 84},
    [DTYPE_Q3_K] = {"Q3_K", 256, 110},
    [DTYPE_IQ4_NL] = {"IQ4_NL", 32, 18},
    [DTYPE_IQ4_XS] = {"IQ4_XS", 256, 136},
    [DTYPE_MXFP4] = {"MXFP4", 32, 17},
    [DTYPE_NVFP4] = {"NVFP4", 64, 36},
    [DTYPE_IQ2_XXS] = {"IQ2_XXS", 256, 66},
    [DTYPE_IQ2_XS] = {"IQ2_XS", 256, 74},
    [DTYPE_IQ2_S] = {"IQ2_S", 256, 82},
    [DTYPE_IQ3_XXS] = {"IQ3_XXS", 256, 98},
    [DTYPE_IQ3_S] = {"IQ3_S", 256, 110},
    [DTYPE_IQ1_S] = {"IQ1_S", 256, 50},
    [DTYPE_IQ1_M] = {"IQ1_M", 256, 56},
    [DTYPE_TQ1_0] = {"TQ1_0", 256, 54},
    [DTYPE_TQ2_0] = {"TQ2_0", 256, 66},
    [DTYPE_Q1_0] = {"Q1_0", 128, 18},
    [DTYPE_Q4_Z] = {"Q4_Z", 32, 19},
    [DTYPE_F8_E4M3] = {"F8_E4M3", 1, 1},
    [DTYPE_F8_E5M2] = {"F8_E5M2", 1, 1},
    [DTYPE_INT8] = {"INT8", 1, 1},
};

const struct dtype_info *dtype_info(enum dtype t)
{
    assert((unsigned)t < DTYPE_ALL);
    return &infos[t];
}

bool dtype_from_name(const char *name, enum dtype *out)
{
    for (int t = 0; t < DTYPE_ALL; t++) {
        if (strcasecmp(name, infos[t].name) == 0) {
            *out = (enum dtype)t;
            return true;
        }
    }
    return false;
}

size_t dtype_row_bytes(enum dtype t, int64_t n)
{
    const struct dtype_info *info = dtype_info(t);
    assert(n >= 0 && n % info->block_elems == 0);
    return (size_t)(n / info->block_elems) * (size_t)info->block_bytes;
}

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = (h >> 10) & 0x1F, fraction = h & 0x3FF;

    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24, exact */
        float f = (float)fraction * 0x1p-24f;
        return float_of(sign | bits_of(f));
    }
    if (exponent == 31) { /* infinity, or a NaN made quiet as the hardware's conversion does */
        uint32_t quiet = fraction ? 0x400000 : 0;
        return float_of(sign | 0x7F800000 | quiet | fraction << 13);
    }
    return float_of(sign | (exponent + 127 - 15) << 23 | fraction << 13);
}

/* u / 2^shift, to the nearest, ties to even. */
static uint32_t shift_round_even(uint32_t u, int shift)
{
    uint32_t below_half = (1u << (shift - 1)) - 1;
    return (u + below_half + (u >> shift & 1)) >> shift;
}

uint16_t f32_to_f16(float f)
{
    uint32_t u = bits_of(f), magnitude = u & 0x7FFFFFFF;
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);

    if (magnitude > 0x7F800000) /* NaN */
        return sign | 0x7E00 | (uint16_t)(magnitude >> 13 & 0x1FF);
    if (magnitude >= 0x477FF000) /* 65520 and above round to infinity */
        return sign | 0x7C00;
    if (magnitude < 0x33000000) /* below 2^-25, half the smallest subnormal */
        return sign;
    int exponent = (int)(magnitude >> 23) - 127;
    if (exponent >= -14) /* a carry out of the fraction rightly raises the exponent */
        return sign | (uint16_t)shift_round_even(magnitude - ((127u - 15) << 23), 13);
    uint32_t significand = (magnitude & 0x7FFFFF) | 0x800000;
    return sign | (uint16_t)shift_round_even(significand, 13 + (-14 - exponent));
}

uint16_t f32_to_bf16(float f)
{
    uint32_t u = bits_of(f);
    if ((u & 0x7FFFFFFF) > 0x7F800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)shift_round_even(u, 16);
}

uint16_t f8_to_f16(enum dtype t, uint8_t v)
{
    uint16_t sign = (uint16_t)((v & 0x80) << 8), magnitude = v & 0x7F;
    if (t == DTYPE_F8_E5M2)
        return (uint16_t)(v << 8);
    if (magnitude == 0x7F)
        return sign | 0x7E00;
    if (magnitude >= 8) /* three bits of fraction, exponents 8 less far from 0 than f16's */
        return sign | (uint16_t)((magnitude << 7) + (8 << 10));
    return sign | f32_to_f16((float)magnitude * 0x1p-9f);
}

static uint16_t load_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void f16_row(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = f16_to_f32(load_u16(src + 2 * i));
}

static void bf16_row(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = bf16_to_f32(load_u16(src + 2 * i));
}

static void f8_row(enum dtype t, const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = f16_to_f32(f8_to_f16(t, src[i]));
}

static void quantised_row(enum dtype t, const uint8_t *src, float *dst, int64_t n)
{
    const struct dtype_info *info = dtype_info(t);
    struct quant_block block;
    for (; n > 0; n -= info->block_elems, src += info->block_bytes, dst += info->block_elems) {
        quant_unpack(t, src, &block);
        quant_values(t, &block, info->block_elems, dst);
    }
}

void dtype_to_f32(enum dtype t, const void *src, float *dst, int64_t n)
{
    assert(n >= 0 && n % dtype_info(t)->block_elems == 0);
    switch (t) {
    case DTYPE_F32:
        memcpy(dst, src, (size_t)n * sizeof *dst);
        break;
    case DTYPE_F16:
        f16_row(src, dst, n);
        break;
    case DTYPE_BF16:
        bf16_row(src, dst, n);
        break;
    case DTYPE_F8_E4M3:
    case DTYPE_F8_E5M2:
        f8_row(t, src, dst, n);
        break;
    default:
        quantised_row(t, src, dst, n);
    }
}
