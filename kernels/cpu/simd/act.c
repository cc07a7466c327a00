/* Activations, caps and gates of rows. */
#include "table.h"

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

/* x (1 + erf(z)) / 2 = max(x, 0) - |x| erfc(|z|) / 2, z = x / sqrt(2), so that nothing cancels.
 * erfc(z) = e^(-z^2) p(1 / (1 + z / 2)), p of degree 7 in the argument scaled to [-1, 1], by
 * Chebyshev's nodes for z up to 9.6: 6e-8 of the result at most. */
INL vf gelu(vf x)
{
    static const float p[8] = {0.3366392479514495f,    0.4283629687193814f,
                               0.19368903260751677f,   0.045006452339090106f,
                               -1.141459415342295e-3f, -2.792513647805389e-3f,
                               4.131890373780367e-5f,  1.9517762619979616e-4f};
    vf a = vf_min(vf_splat(13.5f), vf_max(-x, x)); /* NaN stays */
    vf t = 1.0f / (1.0f + a * 0.35355339059327376f);
    vf s = vf_fma(t, vf_splat(2.4166666666666665f), vf_splat(-1.4166666666666667f));
    vf v = vf_splat(p[7]);
    for (int i = 6; i >= 0; i--)
        v = vf_fma(v, s, vf_splat(p[i]));
    vf tail = a * 0.5f * v * vf_exp2(a * a * (-0.5f * LOG2E));
    return vf_max(vf_splat(0), x) - tail;
}

INL vf activate(enum act_fn fn, vf x)
{
    return fn == ACT_SILU ? silu(x) : fn == ACT_GELU ? gelu(x) : gelu_tanh(x);
}

/* Of gpt-oss; NaN stays. */
INL vf swiglu_clamped(vf gate, vf up)
{
    vf g = vf_min(vf_splat(7), gate), u = vf_max(vf_splat(-7), vf_min(vf_splat(7), up));
    return g * vf_sigmoid(g * 1.702f) * (u + 1.0f);
}

void ISA_FN(act)(enum act_fn fn, float *x, int n)
{
    for (int i = 0; i < n; i += LANES)
        vf_store(x + i, activate(fn, vf_load(x + i)));
}

void ISA_FN(act_mul)(enum act_fn fn, float *gate, const float *up, int n)
{
    for (int i = 0; i < n; i += LANES) {
        vf g = vf_load(gate + i), u = vf_load(up + i);
        vf_store(gate + i, fn == ACT_SWIGLU_CLAMPED ? swiglu_clamped(g, u) : activate(fn, g) * u);
    }
}

/* tanh(x) = 2 sigmoid(2x) - 1 */
INL vf cap(vf x, float most)
{
    return (vf_sigmoid(x * (2 / most)) * 2.0f - 1.0f) * most;
}

void ISA_FN(soft_cap)(float *x, int n, float most)
{
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        vf_store(x + i, cap(vf_load(x + i), most));
    for (; i < n; i++)
        x[i] = cap(vf_splat(x[i]), most)[0];
}

/* in · w in 16 lanes over the row and the fixed tree */
INL float dot(const float *a, const float *b, int n)
{
    vf sum[GROUPS] = {{0}};
    float tail_a[16] = {0}, tail_b[16] = {0};
    int whole = n / 16 * 16;
    memcpy(tail_a, a + whole, (size_t)(n - whole) * sizeof *a);
    memcpy(tail_b, b + whole, (size_t)(n - whole) * sizeof *b);
    for (int i = 0; i < whole; i += 16)
        for (int g = 0; g < GROUPS; g++)
            sum[g] = vf_fma(vf_load(a + i + g * LANES), vf_load(b + i + g * LANES), sum[g]);
    for (int g = 0; g < GROUPS; g++)
        sum[g] = vf_fma(vf_load(tail_a + g * LANES), vf_load(tail_b + g * LANES), sum[g]);
    return sum16(sum);
}

void ISA_FN(gated_add)(float *x, const float *y, int n, const float *in, const float *w, int n_in)
{
    vf gate = vf_sigmoid(vf_splat(dot(in, w, n_in)));
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        vf_store(x + i, vf_fma(gate, vf_load(y + i), vf_load(x + i)));
    for (; i < n; i++)
        x[i] = f_fma(gate[0], y[i], x[i]);
}
