/* Norms. Sums over a row run in 16 lanes (lane i adds x[i], x[i + 16], …) and end in a fixed tree.
 * A LayerNorm takes two passes, so that a large mean cancels nothing: the mean, then the squares
 * of what is left of it. */
#include "table.h"

#include <math.h>

/* A row: whole groups of 16, and a copy of the rest filled up, for what lies there is nobody's. */
struct row {
    const float *x;
    int n, whole;
    float tail[16];
};

INL void copy_tail(float *tail, const float *x, int n, float fill)
{
    for (int i = n; i < 16; i++)
        tail[i] = fill;
    memcpy(tail, x, (size_t)n * sizeof *tail);
}

INL void add_values(vf *sum, const float *x)
{
    for (int g = 0; g < GROUPS; g++)
        sum[g] += vf_load(x + g * LANES);
}

INL float mean_of(struct row *r)
{
    vf sum[GROUPS] = {{0}};
    for (int i = 0; i < r->whole; i += 16)
        add_values(sum, r->x + i);
    if (r->whole < r->n) {
        copy_tail(r->tail, r->x + r->whole, r->n - r->whole, 0);
        add_values(sum, r->tail);
    }
    return sum16(sum) / (float)r->n;
}

INL void add_squares(vf *sum, const float *x, float mean, const bool centred)
{
    for (int g = 0; g < GROUPS; g++) {
        vf v = vf_load(x + g * LANES);
        v = centred ? v - mean : v;
        sum[g] = vf_fma(v, v, sum[g]);
    }
}

INL float mean_square(struct row *r, float mean, const bool centred)
{
    vf sum[GROUPS] = {{0}};
    for (int i = 0; i < r->whole; i += 16)
        add_squares(sum, r->x + i, mean, centred);
    if (r->whole < r->n) {
        copy_tail(r->tail, r->x + r->whole, r->n - r->whole, mean);
        add_squares(sum, r->tail, mean, centred);
    }
    return sum16(sum) / (float)r->n;
}

/* (x - mean) * scale * w + bias of LANES values */
INL vf normed(const float *x, const float *w, const float *bias, float mean, float scale,
              const bool centred)
{
    vf v = vf_load(x);
    v = (centred ? v - mean : v) * scale * vf_load(w);
    return bias ? v + vf_load(bias) : v;
}

/* out = [out +] the norm of x */
INL void norm_into(float *out, const float *x, int n, const struct norm_row *c, const bool centred,
                   const bool add)
{
    struct row r = {.x = x, .n = n, .whole = n / 16 * 16};
    float mean = centred ? mean_of(&r) : 0, w[16], bias[16] = {0};
    float scale = 1.0f / sqrtf(mean_square(&r, mean, centred) + c->eps);
    for (int i = 0; i < r.whole; i += LANES) {
        vf v = normed(x + i, c->w + i, c->bias ? c->bias + i : NULL, mean, scale, centred);
        vf_store(out + i, add ? vf_load(out + i) + v : v);
    }
    if (r.whole == n)
        return;
    copy_tail(w, c->w + r.whole, n - r.whole, 0);
    if (c->bias)
        copy_tail(bias, c->bias + r.whole, n - r.whole, 0);
    for (int g = 0; g < 16; g += LANES)
        vf_store(r.tail + g,
                 normed(r.tail + g, w + g, c->bias ? bias + g : NULL, mean, scale, centred));
    for (int i = r.whole; i < n; i++)
        out[i] = add ? out[i] + r.tail[i - r.whole] : r.tail[i - r.whole];
}

void ISA_FN(norm)(float *out, const float *x, int n, const struct norm_row *c)
{
    if (c->kind == NORM_LAYER)
        norm_into(out, x, n, c, true, false);
    else
        norm_into(out, x, n, c, false, false);
}

void ISA_FN(norm_add)(float *out, const float *x, int n, const struct norm_row *c)
{
    if (c->kind == NORM_LAYER)
        norm_into(out, x, n, c, true, true);
    else
        norm_into(out, x, n, c, false, true);
}
