/* dtype.h: the types that tensors are stored in, and their exact meaning.
 *
 * Block layouts follow ggml's quantised formats (GGUF specification), except where said. Values
 * and order of the enum are our own; readers map their file's type numbers to these. */
#ifndef TOKEND_DTYPE_H
#define TOKEND_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype {
    DTYPE_F32,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_Q8_0, /* 32 values: f16 d, i8 q[32];            value = d*q */
    DTYPE_Q4_1, /* 32 values: f16 d, f16 m, u8 qs[16];    value = d*q + m; low nibbles first */
    DTYPE_Q4_0, /* 32 values: f16 d, u8 qs[16];           value = d*(q - 8) */
    DTYPE_Q5_0, /* 32 values: f16 d, u32 h, u8 qs[16];    value = d*(q - 16); h: the fifth bits */
    DTYPE_Q5_1, /* 32 values: f16 d, f16 m, u32 h, u8 qs[16]; value = d*q + m */
    DTYPE_Q4_K, /* 256 values: f16 d, f16 m, 6-bit s[8], t[8]; value = d*s*q - m*t, s of each 32 */
    DTYPE_Q5_K, /* as Q4_K, with fifth bits */
    DTYPE_Q6_K, /* 256 values: 6-bit q, i8 s[16], f16 d;  value = d*s*(q - 32), s of each 16 */
    DTYPE_Q2_K, /* 256 values: 4-bit s[16], t[16], 2-bit q, f16 d, m; value = d*s*q - m*t, of each
                   16 */
    DTYPE_Q3_K, /* 256 values: 3-bit q, 6-bit s[16], f16 d; value = d*(s - 32)*(q - 4), s of each 16
                 */
    DTYPE_IQ4_NL,  /* 32 values: f16 d, u8 qs[16];        value = d*c, c of a table of 16 */
    DTYPE_IQ4_XS,  /* 256 values: f16 d, 6-bit s[8], 4-bit q; value = d*(s - 32)*c, s of each 32 */
    DTYPE_MXFP4,   /* 32 values: e8m0 d, u8 qs[16];       value = d*c, c an e2m1 (OCP MX) */
    DTYPE_NVFP4,   /* 64 values: ue4m3 d[4], u8 qs[32];   value = d*c, d of each 16 */
    DTYPE_IQ2_XXS, /* IQ1 to IQ3: 256 values, codes of points of a lattice (quant_grids.h), */
    DTYPE_IQ2_XS,  /*     f16 d and 3- or 4-bit s of each 16 or 32 */
    DTYPE_IQ2_S,
    DTYPE_IQ3_XXS,
    DTYPE_IQ3_S,
    DTYPE_IQ1_S,
    DTYPE_IQ1_M,
    DTYPE_TQ1_0,   /* 256 values: five to a byte, f16 d;    value = d*(q - 1), q of 0, 1, 2 */
    DTYPE_TQ2_0,   /* 256 values: 2-bit q, f16 d;           value = d*(q - 1) */
    DTYPE_Q1_0,    /* 128 values: f16 d, bits;              value = d or -d */
    DTYPE_Q4_Z,    /* ours, 32 values: f16 d, u8 z, u8 qs[16]; value = d*(q - z): AWQ and GPTQ */
    DTYPE_F8_E4M3, /* of Hugging Face files: no infinities; 0x7F and 0xFF are NaN; of KV pools times
                      a scale of each token and head */
    DTYPE_F8_E5M2, /* the upper byte of an f16 */
    DTYPE_COUNT,   /* of tensors; the rest are types of KV pools only */
    DTYPE_INT8 = DTYPE_COUNT, /* i8 q of -127 to 127; value = d*q, d of each token and head */
    DTYPE_ALL
};

struct dtype_info {
    const char *name;
    int block_elems; /* values in a block; 1 for plain floats */
    int block_bytes;
};

/* The facts of a type; never NULL for a valid dtype. */
const struct dtype_info *dtype_info(enum dtype t);

/* Finds a type by its name ("q8_0", any case), of tensors or of KV pools. */
bool dtype_from_name(const char *name, enum dtype *out);

/* Bytes of a row of n values; n must be a multiple of block_elems. */
size_t dtype_row_bytes(enum dtype t, int64_t n);

/* dst[n] = values of src (n a multiple of block_elems), bit for bit as the format's
 * reference implementation computes them in float32. */
void dtype_to_f32(enum dtype t, const void *src, float *dst, int64_t n);

/* dst = a row of type t that is near src[n] (n a multiple of block_elems), by the least squared
 * error within each run of values that shares a scale. A block with an infinity or a NaN becomes
 * NaN. False, and nothing done: t is not one of the floats of 16 and 32 bits, Q8_0, Q4_0, Q4_1,
 * Q5_0, Q5_1, Q4_K, Q5_K, Q6_K. */
bool dtype_from_f32(enum dtype t, const float *src, void *dst, int64_t n);

float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f); /* round to nearest even; overflow becomes infinity */
static inline float bf16_to_f32(uint16_t h)
{
    union {
        uint32_t u;
        float f;
    } v = {(uint32_t)h << 16};
    return v.f;
}
uint16_t f32_to_bf16(float f);             /* round to nearest even; NaN stays NaN */
uint16_t f8_to_f16(enum dtype, uint8_t v); /* of an F8 type; exact */

#endif
