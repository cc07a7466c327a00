/* quant_block.h: a block of a quantised type, spread out: what the packed forms of a file and of
 * a backend have in common. */
#ifndef TOKEND_QUANT_BLOCK_H
#define TOKEND_QUANT_BLOCK_H

#include "dtype.h"

/* Facts of a type's blocks. A value is scale * (q - offset) + minimum. */
struct quant_form {
    int bits;      /* of q */
    int offset;    /* 0 if there is a minimum */
    bool minimum;  /* m, with 6-bit minima of each 32 values if there are scales */
    int scale_run; /* values that share one of the block's integer scales; 0: there are none */
};

struct quant_block {
    uint16_t d, m;      /* f16 bits */
    uint8_t scales[16]; /* of every scale_run values; Q6_K: int8 */
    uint8_t minima[8];  /* of every 32 values */
    uint8_t q[256];
};

static inline struct quant_form quant_form(enum dtype t)
{
    static const struct quant_form forms[DTYPE_COUNT] = {
        [DTYPE_Q8_0] = {8, 128, false, 0}, [DTYPE_Q4_1] = {4, 0, true, 0},
        [DTYPE_Q4_0] = {4, 8, false, 0},   [DTYPE_Q5_0] = {5, 16, false, 0},
        [DTYPE_Q5_1] = {5, 0, true, 0},    [DTYPE_Q4_K] = {4, 0, true, 32},
        [DTYPE_Q5_K] = {5, 0, true, 32},   [DTYPE_Q6_K] = {6, 32, false, 16},
    };
    return forms[t];
}

/* Fills *out from a block of a file, at any alignment. */
void quant_unpack(enum dtype, const uint8_t *src, struct quant_block *out);
/* The block's values, bit for bit as dtype_to_f32 has them. */
void quant_values(enum dtype, const struct quant_block *, float *out);

#endif
