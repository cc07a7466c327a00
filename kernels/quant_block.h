/* quant_block.h: a block of a quantised type, spread out: what the packed forms of a file and of
 * a backend have in common. */
#ifndef TOKEND_QUANT_BLOCK_H
#define TOKEND_QUANT_BLOCK_H

#include "dtype.h"

enum quant_d { QUANT_D_F16, QUANT_D_E8M0 /* a power of two, by its exponent */ };

/* Facts of a type's blocks. A value is scale * (u - offset) + minimum, where u is q or, with a
 * codebook, codebook[q]; scale is d * 2^-d_shift, times the integer scale where there are any. */
struct quant_form {
    uint8_t bits;      /* of q */
    uint8_t top;       /* largest u */
    uint8_t offset;    /* 0 if there is a minimum or a zero */
    uint8_t scale_run; /* values that share one of the block's integer scales; 0: there are none */
    uint8_t d_run;     /* values that share a d; 0: all of the block */
    uint8_t d_shift;
    bool minimum; /* m, times an integer of every scale_run values, subtracted, if there are scales
                   */
    bool zero;    /* m is an integer that is used for the offset */
    enum quant_d d;
    const uint8_t *codebook; /* [16] */
};

struct quant_block {
    uint16_t d[4], m;   /* as the type has them: bits of an f16, … */
    int8_t scales[16];  /* of every scale_run values */
    uint8_t minima[16]; /* likewise */
    uint8_t q[256];
};

/* The least of these codebooks' values are 0: the offset is added. */
extern const uint8_t quant_codes_iq1[16], quant_codes_iq2[16], quant_codes_iq3_xxs[16],
    quant_codes_iq3_s[16], quant_codes_iq4[16], quant_codes_e2m1[16];

static inline struct quant_form quant_form(enum dtype t)
{
    static const struct quant_form forms[DTYPE_COUNT] = {
        [DTYPE_Q8_0] = {8, 255, 128},
        [DTYPE_Q4_0] = {4, 15, 8},
        [DTYPE_Q4_1] = {4, 15, .minimum = true},
        [DTYPE_Q4_Z] = {4, 15, .zero = true},
        [DTYPE_Q5_0] = {5, 31, 16},
        [DTYPE_Q5_1] = {5, 31, .minimum = true},
        [DTYPE_Q2_K] = {2, 3, .minimum = true, .scale_run = 16},
        [DTYPE_Q3_K] = {3, 7, 4, .scale_run = 16},
        [DTYPE_Q4_K] = {4, 15, .minimum = true, .scale_run = 32},
        [DTYPE_Q5_K] = {5, 31, .minimum = true, .scale_run = 32},
        [DTYPE_Q6_K] = {6, 63, 32, .scale_run = 16},
        [DTYPE_TQ1_0] = {2, 3, 1},
        [DTYPE_TQ2_0] = {2, 3, 1},
        [DTYPE_Q1_0] = {2, 3, 1},
        [DTYPE_MXFP4] = {4, 24, 12, .d = QUANT_D_E8M0, .codebook = quant_codes_e2m1},
        [DTYPE_NVFP4] = {4, 24, 12, .d_run = 16, .codebook = quant_codes_e2m1},
        [DTYPE_IQ4_NL] = {4, 255, 128, .codebook = quant_codes_iq4},
        [DTYPE_IQ4_XS] = {4, 255, 128, .scale_run = 32, .codebook = quant_codes_iq4},
        [DTYPE_IQ1_S] = {4, 255, 128, 32, .d_shift = 3, .codebook = quant_codes_iq1},
        [DTYPE_IQ1_M] = {4, 255, 128, 16, .d_shift = 3, .codebook = quant_codes_iq1},
        [DTYPE_IQ2_XXS] = {4, 255, 128, 32, .d_shift = 3, .codebook = quant_codes_iq2},
        [DTYPE_IQ2_XS] = {4, 255, 128, 16, .d_shift = 3, .codebook = quant_codes_iq2},
        [DTYPE_IQ2_S] = {4, 255, 128, 16, .d_shift = 3, .codebook = quant_codes_iq2},
        [DTYPE_IQ3_XXS] = {4, 255, 128, 32, .d_shift = 2, .codebook = quant_codes_iq3_xxs},
        [DTYPE_IQ3_S] = {4, 255, 128, 32, .codebook = quant_codes_iq3_s},
    };
    return forms[t];
}

/* Fills *out from a block of a file, at any alignment. */
void quant_unpack(enum dtype, const uint8_t *src, struct quant_block *out);
/* The block's first n values, bit for bit as dtype_to_f32 has them. */
void quant_values(enum dtype, const struct quant_block *, int n, float *out);

/* quant_unpack of the types with a codebook (quant_codebook.c) */
void quant_unpack_codes(enum dtype, const uint8_t *src, struct quant_block *out);
/* q[i] and q[i + n] from the low and the high half of byte i */
void quant_nibbles(const uint8_t *src, int n, uint8_t *q);

#endif
