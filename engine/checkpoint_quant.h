/* checkpoint_quant.h: matrices of quantised Hugging Face checkpoints, as rows of a type of ours.
 *
 * Pure functions of tensors whose shapes the caller has checked to be as said here; their contents
 * may be anything. Rows are independent: helpers may make different ones at once. */
#ifndef TOKEND_CHECKPOINT_QUANT_H
#define TOKEND_CHECKPOINT_QUANT_H

#include "dtype.h"
#include "err.h"

/* --- four bits: AWQ and GPTQ. A value is scale * (q - zero) of its group of inputs --- */

enum int4_packing {
    INT4_GPTQ,    /* eight inputs to a word; zeros are stored less 1 */
    INT4_GPTQ_V2, /* zeros as they are (checkpoint_format "gptq_v2") */
    INT4_AWQ,     /* eight outputs to a word, the even ones first (version "gemm") */
};

struct int4_matrix {
    enum int4_packing packing;
    int64_t rows, cols;    /* outputs and inputs */
    int64_t group;         /* inputs of a group; the file's -1 is cols */
    const void *qweight;   /* i32 [cols / 8][rows]; AWQ: [cols][rows / 8] */
    const void *qzeros;    /* i32 [cols / group][rows / 8] */
    enum dtype scale_type; /* F16, BF16 or F32 */
    const void *scales;    /* [cols / group][rows] */
    const void *g_idx;     /* i32 [cols], the group of each input; NULL: in order */
};

/* Whether it can be read; *type is what its rows become: Q4_Z, to the bit (scales of BF16 and F32
 * are rounded to F16), or F16 where inputs of a block of 32 are of different groups (desc_act). */
bool int4_check(const struct int4_matrix *, const char *what, enum dtype *type, struct err *e);
/* Rows [row, row + n) in that type; dozens at once are fastest. */
void int4_rows(const struct int4_matrix *, enum dtype type, int64_t row, int64_t n, void *out);

/* --- eight bits: a float times the scale of its block --- */

struct fp8_matrix {
    enum dtype type; /* F8_E4M3 or F8_E5M2 */
    int64_t rows, cols;
    const void *data; /* [rows][cols] */
    int64_t block_rows,
        block_cols;        /* those of all: one scale; 1, all columns: one a row; 128, 128 */
    enum dtype scale_type; /* F16, BF16 or F32 */
    const void *scales;    /* [rows / block_rows][cols / block_cols], both rounded up;
                              weight_scale or weight_scale_inv: both are multiplied */
};

/* *type is what its rows become: F16, F32 if some value may be beyond F16. */
bool fp8_check(const struct fp8_matrix *, const char *what, enum dtype *type, struct err *e);
void fp8_rows(const struct fp8_matrix *, enum dtype type, int64_t row, int64_t n, void *out);

#endif
