/* RMSNorm and gated activations. The sum of squares runs in 16 lanes over the row (lane i adds
 * x[i], x[i + 16], …) and ends in a fixed tree. */
#include "table.h"

#include <math.h>

/* Rows are padded to 16 floats, but what lies there is nobody's. */
INL void load_tail(float *t, const float *x, int n)
{
    memset(t, 0, 16 * sizeof *t);
    memcpy(t, x, (size_t)n * sizeof *t);
}

INL void add_squares(vf *sum, const float *x)
{
    for (int g = 0; g < GROUPS; g++) {
        vf v = vf_load(x + g * LANES);
        sum[g] = vf_fma(v, v, sum[g]);
    }
}

/* out = [out +] x / sqrt(mean(x^2) + eps) * w; out may be x */
INL void norm_into(float *out, const float *x, const float *w, int n, float eps, const bool add)
{
    float tail[16], tail_w[16];
    int whole = n / 16 * 16;
    vf sum[GROUPS] = {{0}};
    for (int i = 0; i < whole; i += 16)
        add_squares(sum, x + i);
    if (whole < n) {
        load_tail(tail, x + whole, n - whole);
        load_tail(tail_w, w + whole, n - whole);
        add_squares(sum, tail);
    }
    float scale = 1.0f / sqrtf(sum16(sum) / (float)n + eps);
    for (int i = 0; i < whole; i += LANES) {
        vf v = vf_load(x + i) * scale * vf_load(w + i);
        vf_store(out + i, add ? vf_load(out + i) + v : v);
    }
    for (int i = whole; i < n; i++) {
        float v = tail[i - whole] * scale * tail_w[i - whole];
        out[i] = add ? out[i] + v : v;
    }
}

void ISA_FN(norm)(float *out, const float *x, const float *w, int n, float eps)
{
    norm_into(out, x, w, n, eps, false);
}

void ISA_FN(norm_add)(float *x, const float *y, const float *w, int n, float eps)
{
    norm_into(x, y, w, n, eps, true);
}

/* x * sigmoid(x) */
INL vf silu(vf x)
{
    return x * vf_sigmoid(x);
}

/* 0.5 x (1 + tanh(u)) = x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3) */
INL vf gelu_tanh(vf x)
{
    vf u = vf_fma(x * x * 0.044715f, x, x);
    return x * vf_sigmoid(u * 1.5957691216057308f);
}

void ISA_FN(act_mul)(enum act_fn fn, float *gate, const float *up, int n)
{
    for (int i = 0; i < n; i += LANES) {
        vf x = vf_load(gate + i);
        x = fn == ACT_SILU ? silu(x) : gelu_tanh(x);
        vf_store(gate + i, x * vf_load(up + i));
    }
}
