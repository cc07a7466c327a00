#include "table.h"

void ISA_FN(linear)(const struct weight *w, const struct rows_view *x, int t0, int n, int p0,
                    int p1, float *y, int ldy)
{
    if (w->type == DTYPE_Q4_1) {
        for (int p = p0; p < p1; p++)
            ISA_FN(linear_q4_1)(w, p, x, t0, n, y + (p - p0) * PANEL, ldy);
    } else if (w->type == DTYPE_Q8_0) {
        for (int p = p0; p < p1; p++)
            ISA_FN(linear_q8_0)(w, p, x, t0, n, y + (p - p0) * PANEL, ldy);
    } else {
        ISA_FN(linear_float)(w, x, t0, n, p0, p1, y, ldy);
    }
}
