/* The choice of experts, and the sum of what they made. */
#include "table.h"

#include <math.h>

/* The best n_used of s, of equal ones the first; s is used up, none is NaN. */
INL void best_of(float *s, int n, int n_used, int32_t *chosen)
{
    for (int k = 0; k < n_used; k++) {
        int best = -1;
        for (int i = 0; i < n; i++)
            if (!isnan(s[i]) && (best < 0 || s[i] > s[best]))
                best = i;
        chosen[k] = best;
        s[best] = NAN;
    }
}

/* Sum of exp2((x - most) log2(e)) of s[n], in 16 lanes and the fixed tree; s has room for more */
INL float sum_of_weights(float *s, int n, float most)
{
    vf sum[GROUPS] = {{0}};
    for (int i = n; i % 16 != 0; i++)
        s[i] = -INFINITY;
    for (int i = 0; i < n; i += 16)
        for (int g = 0; g < GROUPS; g++)
            sum[g] += vf_exp2((vf_load(s + i + g * LANES) - most) * LOG2E);
    return sum16(sum);
}

void ISA_FN(route)(const float *logits, int n, int n_used, bool renormalise, float *scratch,
                   int32_t *chosen, float *share)
{
    float most = -INFINITY, all, sum = 0;
    bool nan = false;
    for (int i = 0; i < n; i++) {
        nan |= isnan(logits[i]);
        most = logits[i] > most ? logits[i] : most;
    }
    for (int k = 0; nan && k < n_used; k++) {
        chosen[k] = k;
        share[k] = NAN;
    }
    if (nan)
        return;
    memcpy(scratch, logits, (size_t)n * sizeof *scratch);
    all = sum_of_weights(scratch, n, most);
    best_of(scratch, n, n_used, chosen);
    for (int k = 0; k < n_used; k++) {
        share[k] = vf_exp2(vf_splat((logits[chosen[k]] - most) * LOG2E))[0];
        sum += share[k];
    }
    for (int k = 0; k < n_used; k++)
        share[k] /= renormalise ? sum : all;
}

/* Rows slots[k] of y, in order; the first product is rounded, the others are fused */
INL vf mixed(const float *y, int stride, const int32_t *slots, const float *share, int n_used)
{
    vf sum = vf_load(y + (size_t)slots[0] * stride) * share[0];
    for (int k = 1; k < n_used; k++)
        sum = vf_fma(vf_load(y + (size_t)slots[k] * stride), vf_splat(share[k]), sum);
    return sum;
}

void ISA_FN(mix)(float *out, bool add, const float *y, int stride, const int32_t *slots,
                 const float *share, int n_used, int n)
{
    for (int i = 0; i < n; i += LANES) { /* rows are padded */
        vf v = mixed(y + i, stride, slots, share, n_used);
        vf_store(out + i, add ? vf_load(out + i) + v : v);
    }
}
