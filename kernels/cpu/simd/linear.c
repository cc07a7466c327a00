#include "amx.h"
#include "table.h"

void ISA_FN(linear)(const struct weight *w, const struct rows_view *x, int t0, int n, int p0,
                    int p1, float *y, int ldy)
{
    static linear_panel_fn *const quantised[DTYPE_COUNT] = {
        [DTYPE_Q8_0] = ISA_FN(linear_q8_0),        [DTYPE_Q4_1] = ISA_FN(linear_q4_1),
        [DTYPE_Q4_0] = ISA_FN(linear_q4_0),        [DTYPE_Q5_0] = ISA_FN(linear_q5_0),
        [DTYPE_Q5_1] = ISA_FN(linear_q5_1),        [DTYPE_Q4_K] = ISA_FN(linear_q4_k),
        [DTYPE_Q5_K] = ISA_FN(linear_q5_k),        [DTYPE_Q6_K] = ISA_FN(linear_q6_k),
        [DTYPE_Q2_K] = ISA_FN(linear_q2_k),        [DTYPE_Q3_K] = ISA_FN(linear_q3_k),
        [DTYPE_Q4_Z] = ISA_FN(linear_q4_z),        [DTYPE_TQ1_0] = ISA_FN(linear_ternary),
        [DTYPE_TQ2_0] = ISA_FN(linear_ternary),    [DTYPE_Q1_0] = ISA_FN(linear_ternary),
        [DTYPE_MXFP4] = ISA_FN(linear_mxfp4),      [DTYPE_NVFP4] = ISA_FN(linear_nvfp4),
        [DTYPE_IQ4_NL] = ISA_FN(linear_iq4_nl),    [DTYPE_IQ4_XS] = ISA_FN(linear_codes_32),
        [DTYPE_IQ1_S] = ISA_FN(linear_codes_32),   [DTYPE_IQ2_XXS] = ISA_FN(linear_codes_32),
        [DTYPE_IQ3_XXS] = ISA_FN(linear_codes_32), [DTYPE_IQ3_S] = ISA_FN(linear_codes_32),
        [DTYPE_IQ1_M] = ISA_FN(linear_codes_16),   [DTYPE_IQ2_XS] = ISA_FN(linear_codes_16),
        [DTYPE_IQ2_S] = ISA_FN(linear_codes_16),
    };
    linear_panel_fn *one = quantised[w->type];
    if (!one) {
        ISA_FN(linear_float)(w, x, t0, n, p0, p1, y, ldy);
        return;
    }
    const bool tiles = AMX && n >= AMX_TOKENS;
    if (tiles)
        amx_begin(amx_k(w->type));
    for (int p = p0; p < p1; p++)
        one(w, p, x, t0, n, y + (p - p0) * PANEL, ldy);
    if (tiles)
        amx_end();
}
