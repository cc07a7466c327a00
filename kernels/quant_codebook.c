/* Blocks whose values are named by codes: of a table of 16, or of points of a lattice. A lattice's
 * values become four bits each, a magnitude and a sign, so that all are codes of tables of 16. */
#include "quant_block.h"

#include <assert.h>
#include <string.h>

#include "quant_grids.h"

/* As unsigned numbers: values plus their types' offset, 128 or for e2m1 12. Where the sign has a
 * bit of its own it is the uppermost. */
const uint8_t quant_codes_iq4[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                     129, 141, 153, 166, 181, 197, 217, 241};
const uint8_t quant_codes_e2m1[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
/* ± 8, 25, 43 */
const uint8_t quant_codes_iq2[16] = {136, 153, 171, 128, 128, 128, 128, 128,
                                     120, 103, 85,  128, 128, 128, 128, 128};
/* ± 4, 12, 20, 28, 36, 44, 52, 62 */
const uint8_t quant_codes_iq3_xxs[16] = {132, 140, 148, 156, 164, 172, 180, 190,
                                         124, 116, 108, 100, 92,  84,  76,  66};
/* ± 1, 3, 5, … 15 */
const uint8_t quant_codes_iq3_s[16] = {129, 131, 133, 135, 137, 139, 141, 143,
                                       127, 125, 123, 121, 119, 117, 115, 113};
/* Eighths: -1, 0, 1 plus a shift of 1/8, or with the uppermost bit less 1/8 */
const uint8_t quant_codes_iq1[16] = {121, 129, 137, 128, 128, 128, 128, 128,
                                     119, 127, 135, 128, 128, 128, 128, 128};

static uint16_t load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t load_u32(const uint8_t *p)
{
    return load_u16(p) | (uint32_t)load_u16(p + 2) << 16;
}

/* n fields of `bits` bits of a grid's entry; bit i of signs tops the i-th. */
static void point(uint16_t entry, int n, int bits, uint8_t signs, uint8_t *q)
{
    for (int i = 0; i < n; i++)
        q[i] = (uint8_t)((entry >> i * bits & ((1 << bits) - 1)) | (signs >> i & 1) << 3);
}

/* Seven signs; the eighth makes their number even. */
static uint8_t even_signs(uint32_t seven)
{
    uint8_t s = seven & 127, odd = s ^ s >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return (uint8_t)(s | (odd & 1) << 7);
}

static int8_t odd_scale(unsigned s)
{
    return (int8_t)(2 * s + 1);
}

/* Of each 32 values: 4 bytes of codes, then 4 times 7 signs and 4 bits of scale */
static void unpack_iq2_xxs(const uint8_t *src, struct quant_block *out)
{
    for (int s = 0; s < 8; s++, src += 8) {
        uint32_t signs = load_u32(src + 4);
        out->scales[s] = odd_scale(signs >> 28);
        for (int i = 0; i < 4; i++)
            point(quant_grid_iq2_xxs[src[i]], 8, 2, even_signs(signs >> 7 * i),
                  out->q + s * 32 + i * 8);
    }
}

static void nibble_scales(const uint8_t *src, int n, struct quant_block *out)
{
    for (int i = 0; i < n; i++)
        out->scales[i] = odd_scale(src[i / 2] >> i % 2 * 4 & 15);
}

static void unpack_iq2_xs(const uint8_t *src, struct quant_block *out)
{
    for (int i = 0; i < 32; i++) {
        uint16_t code = load_u16(src + 2 * i);
        point(quant_grid_iq2_xs[code & 511], 8, 2, even_signs(code >> 9), out->q + i * 8);
    }
    nibble_scales(src + 64, 16, out);
}

/* 32 codes' low bytes, 32 bytes of signs, the codes' upper pairs of bits */
static void unpack_iq2_s(const uint8_t *src, struct quant_block *out)
{
    for (int i = 0; i < 32; i++) {
        int high = src[64 + i / 4] >> i % 4 * 2 & 3;
        point(quant_grid_iq2_s[src[i] | high << 8], 8, 2, src[32 + i], out->q + i * 8);
    }
    nibble_scales(src + 72, 16, out);
}

static void unpack_iq3_xxs(const uint8_t *src, struct quant_block *out)
{
    for (int i = 0; i < 64; i++) {
        uint32_t signs = load_u32(src + 64 + i / 8 * 4);
        uint8_t eight = even_signs(signs >> i % 8 / 2 * 7);
        out->scales[i / 8] = odd_scale(signs >> 28);
        point(quant_grid_iq3_xxs[src[i]], 4, 3, eight >> i % 2 * 4, out->q + i * 4);
    }
}

/* 64 codes' low bytes, 8 of their ninth bits, 32 bytes of signs */
static void unpack_iq3_s(const uint8_t *src, struct quant_block *out)
{
    for (int i = 0; i < 64; i++) {
        int ninth = src[64 + i / 8] >> i % 8 & 1;
        point(quant_grid_iq3_s[src[i] | ninth << 8], 4, 3, src[72 + i / 2] >> i % 2 * 4,
              out->q + i * 4);
    }
    nibble_scales(src + 104, 8, out);
}

/* Of each 32 values u16: 4 times 3 upper bits of codes, 3 of the scale, the shift's sign */
static void unpack_iq1_s(const uint8_t *src, struct quant_block *out)
{
    for (int i = 0; i < 32; i++) {
        uint16_t high = load_u16(src + 32 + i / 4 * 2);
        out->scales[i / 4] = odd_scale(high >> 12 & 7);
        point(quant_grid_iq1[src[i] | (high >> i % 4 * 3 & 7) << 8], 8, 2, high >> 15 ? 255 : 0,
              out->q + i * 8);
    }
}

/* Four u16 hold 3 bits of scale of each 16 and above them d, 4 bits each. */
static void unpack_iq1_m(const uint8_t *src, struct quant_block *out)
{
    for (int i = 0; i < 32; i++) {
        int high = src[32 + i / 2] >> i % 2 * 4;
        point(quant_grid_iq1[src[i] | (high & 7) << 8], 8, 2, high & 8 ? 255 : 0, out->q + i * 8);
    }
    out->d[0] = 0;
    for (int i = 0; i < 4; i++) {
        uint16_t word = load_u16(src + 48 + 2 * i);
        out->d[0] |= (uint16_t)(word >> 12 << 4 * i);
        for (int k = 0; k < 4; k++)
            out->scales[i * 4 + k] = odd_scale(word >> 3 * k & 7);
    }
}

static void unpack_iq4_xs(const uint8_t *src, struct quant_block *out)
{
    uint16_t high = load_u16(src);
    for (int s = 0; s < 8; s++) {
        int low = src[2 + s / 2] >> s % 2 * 4 & 15;
        out->scales[s] = (int8_t)((low | (high >> 2 * s & 3) << 4) - 32);
        quant_nibbles(src + 6 + s * 16, 16, out->q + s * 32);
    }
}

/* Half the value of an unsigned e4m3, as an f16; the format has no NaN. */
static uint16_t ue4m3_half(uint8_t x)
{
    int e = x >> 3 & 15, fraction = x & 7;
    if (x == 0x7F)
        return 0;
    if (e == 0)
        return f32_to_f16((float)fraction * 0x1p-10f);
    return (uint16_t)((e + 7) << 10 | fraction << 7);
}

static void unpack_nvfp4(const uint8_t *src, struct quant_block *out)
{
    for (int i = 0; i < 4; i++) {
        out->d[i] = ue4m3_half(src[i]);
        quant_nibbles(src + 4 + i * 8, 8, out->q + i * 16);
    }
}

void quant_unpack_codes(enum dtype t, const uint8_t *src, struct quant_block *out)
{
    static void (*const lattice[DTYPE_COUNT])(const uint8_t *, struct quant_block *) = {
        [DTYPE_IQ4_XS] = unpack_iq4_xs,   [DTYPE_IQ2_XXS] = unpack_iq2_xxs,
        [DTYPE_IQ2_XS] = unpack_iq2_xs,   [DTYPE_IQ2_S] = unpack_iq2_s,
        [DTYPE_IQ3_XXS] = unpack_iq3_xxs, [DTYPE_IQ3_S] = unpack_iq3_s,
        [DTYPE_IQ1_S] = unpack_iq1_s,
    };
    if (t == DTYPE_NVFP4) {
        unpack_nvfp4(src, out);
    } else if (t == DTYPE_IQ1_M) {
        unpack_iq1_m(src, out);
    } else if (t == DTYPE_MXFP4) {
        out->d[0] = src[0];
        quant_nibbles(src + 1, 16, out->q);
    } else {
        memcpy(out->d, src, 2);
        if (t == DTYPE_IQ4_NL)
            quant_nibbles(src + 2, 16, out->q);
        else
            lattice[t](src + 2, out);
    }
}
