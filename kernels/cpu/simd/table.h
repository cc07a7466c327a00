/* table.h: the functions of this folder, named after the set they are compiled for. */
#ifndef TOKEND_SIMD_TABLE_H
#define TOKEND_SIMD_TABLE_H

#include "kernels.h"
#include "simd.h"

void ISA_FN(quantise)(const struct activation *, int stride, int row, int block, const float *x,
                      int n_blocks);
void ISA_FN(linear)(const struct weight *w, const struct rows_view *x, int t0, int n, int p0,
                    int p1, float *y, int ldy);
/* One panel of a type: y[t * ldy + r] for rows [t0, t0 + n) */
typedef void linear_panel_fn(const struct weight *w, int panel, const struct rows_view *x, int t0,
                             int n, float *y, int ldy);
linear_panel_fn ISA_FN(linear_q8_0), ISA_FN(linear_q4_1), ISA_FN(linear_q4_0), ISA_FN(linear_q5_0),
    ISA_FN(linear_q5_1), ISA_FN(linear_q4_k), ISA_FN(linear_q5_k), ISA_FN(linear_q6_k),
    ISA_FN(linear_q2_k), ISA_FN(linear_q3_k), ISA_FN(linear_q4_z), ISA_FN(linear_ternary),
    ISA_FN(linear_mxfp4), ISA_FN(linear_nvfp4), ISA_FN(linear_iq4_nl), ISA_FN(linear_codes_32),
    ISA_FN(linear_codes_16);
/* Panels [p0, p1) of F32, F16 or BF16 */
void ISA_FN(linear_float)(const struct weight *w, const struct rows_view *x, int t0, int n, int p0,
                          int p1, float *y, int ldy);
/* Panels of BF16 times n rounded rows at x */
void ISA_FN(linear_bf16)(const struct weight *w, const float *x, int ldx, int n, int p0, int p1,
                         float *y, int ldy);
void ISA_FN(act)(enum act_fn, float *x, int n);
void ISA_FN(act_mul)(enum act_fn, float *gate, const float *up, int n);
void ISA_FN(soft_cap)(float *x, int n, float cap);
void ISA_FN(gated_add)(float *x, const float *y, int n, const float *in, const float *w, int n_in);
void ISA_FN(route)(const float *logits, int n, int n_used, bool renormalise, float *scratch,
                   int32_t *chosen, float *share);
void ISA_FN(mix)(float *out, bool add, const float *y, int stride, const int32_t *slots,
                 const float *share, int n_used, int n);
void ISA_FN(norm)(float *out, const float *x, int n, const struct norm_row *);
void ISA_FN(norm_add)(float *out, const float *x, int n, const struct norm_row *);
void ISA_FN(rotate)(enum rope_style, float *x, const float *cos, const float *sin, int n_dims);
void ISA_FN(kv_write)(const struct kv_pool *, uint8_t *sub_page, int slot, int head, const float *k,
                      const float *v);
void ISA_FN(attend_one)(const struct attend_unit *, const struct attend_unit *next,
                        const struct score_config *, const float *q, int ldq, int rows, float *part,
                        int ldp);
void ISA_FN(attend_tile)(const struct kv_view *, const struct score_config *, int segment,
                         const int *lo, const int *hi, const float *q, int ldq, int rows,
                         float *part, int ldp, float *scratch);
void ISA_FN(part_join)(float *acc, const float *part, int n);
void ISA_FN(part_finish)(float *out, const float *part, const float *sink, int n);

#endif
