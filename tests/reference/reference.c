#include "reference.h"

#include "reference_blocks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

float ref_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(*state >> 40) / (float)(1 << 23) - 1;
}

/* --- number formats --- */

static double nearest_even(double x)
{
    double f = floor(x), r = x - f;
    return r > 0.5 || (r == 0.5 && fmod(f, 2) != 0) ? f + 1 : f;
}

double ref_round(enum dtype type, double x)
{
    int bits = type == DTYPE_F16 ? 11 : type == DTYPE_BF16 ? 8 : 24;
    int least = type == DTYPE_F16 ? -14 : -126, e;
    double most = type == DTYPE_F16 ? 65504 : ldexp(2 - ldexp(1, 1 - bits), 127);
    frexp(x, &e); /* x = m * 2^e, 0.5 <= m < 1 */
    int unit = (e - 1 < least ? least : e - 1) - (bits - 1);
    x = ldexp(nearest_even(ldexp(x, -unit)), unit);
    return x > most ? most : x < -most ? -most : x;
}

static double round_e4m3(double x)
{
    int e;
    frexp(x, &e); /* of 2^-6 and more three bits of fraction, below steps of 2^-9 */
    const int unit = (e - 1 < -6 ? -6 : e - 1) - 3;
    return ldexp(nearest_even(ldexp(x, -unit)), unit);
}

double ref_round_codes(enum dtype type, double *x, int n)
{
    const double largest = type == DTYPE_INT8 ? 127 : 448;
    double most = 0;
    int e;
    for (int i = 0; i < n; i++)
        most = fmax(most, fabs(x[i]));
    if (most == 0)
        return 0;
    frexp(most / largest, &e);
    const double scale = ldexp(ceil(ldexp(most / largest, 8 - e)), e - 8);
    for (int i = 0; i < n; i++)
        x[i] = (type == DTYPE_INT8 ? nearest_even(x[i] / scale) : round_e4m3(x[i] / scale)) * scale;
    return scale;
}

static uint16_t half_bits(double x) /* of a value that f16 has */
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    int e;
    x = fabs(x);
    if (x < ldexp(1, -14))
        return sign | (uint16_t)ldexp(x, 24);
    double m = frexp(x, &e);
    return sign | (uint16_t)((e - 1 + 15) << 10) | (uint16_t)(ldexp(m, 11) - 1024);
}

void ref_put_half(uint8_t *at, double x)
{
    uint16_t h = half_bits(x);
    memcpy(at, &h, 2);
}

/* --- matrices --- */

/* The eight bits of an F8 type towards zero from x, |x| < 1, and their value */
static void put_f8(struct ref_matrix *m, size_t i, double x)
{
    uint8_t *at = (uint8_t *)m->bytes + i;
    uint16_t h = half_bits(ref_round(DTYPE_F16, x)), magnitude = h & 0x7FFF;
    float value;
    if (m->type == DTYPE_F8_E5M2)
        *at = (uint8_t)(h >> 8);
    else /* exponents 8 less far from 0 */
        *at = (uint8_t)(h >> 8 & 0x80) | (uint8_t)(magnitude < 9 << 10 ? 1 : (magnitude >> 7) - 64);
    dtype_to_f32(m->type, at, &value, 1);
    m->values[i] = value;
}

static void put_float(struct ref_matrix *m, size_t i, double x)
{
    float f = (float)(m->values[i] = ref_round(m->type, x));
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (m->type == DTYPE_F32)
        memcpy((uint8_t *)m->bytes + i * 4, &f, 4);
    else if (m->type == DTYPE_F16)
        ref_put_half((uint8_t *)m->bytes + i * 2, f);
    else
        memcpy((uint8_t *)m->bytes + i * 2, (uint8_t *)&bits + 2, 2);
}

struct ref_matrix ref_matrix_new(enum dtype type, int rows, int cols, double scale, uint64_t *seed)
{
    size_t n = (size_t)rows * cols;
    struct ref_matrix m = {type, rows, cols, malloc(n * 4), malloc(n * sizeof(double))};
    if (dtype_info(type)->block_elems > 1)
        ref_blocks_fill(&m, scale, seed);
    else
        for (size_t i = 0; i < n; i++) {
            if (dtype_info(type)->block_bytes == 1)
                put_f8(&m, i, scale * ref_random(seed));
            else
                put_float(&m, i, scale * ref_random(seed));
        }
    return m;
}

void ref_matrix_free(struct ref_matrix *m)
{
    free(m->bytes);
    free(m->values);
}

/* --- operations --- */

void ref_linear(const struct ref_matrix *m, const double *x, double *y)
{
    for (int r = 0; r < m->rows; r++) {
        y[r] = 0;
        for (int k = 0; k < m->cols; k++)
            y[r] += m->values[(size_t)r * m->cols + k] * x[k];
    }
}

void ref_quantise(const float *x, int n, double *out)
{
    for (int b = 0; b < n; b += 32) {
        float most = 0;
        for (int k = b; k < b + 32; k++)
            most = fabsf(x[k]) > most ? fabsf(x[k]) : most;
        float inverse = most > 0 ? 127 / most : 0, d = most / 127;
        for (int k = b; k < b + 32; k++)
            out[k] = nearest_even((double)(x[k] * inverse)) * d;
    }
}

void ref_norm(enum norm_kind kind, const float *x, const double *w, const double *bias, int n,
              double eps, double *out)
{
    double mean = 0, sum = 0;
    for (int i = 0; i < n && kind == NORM_LAYER; i++)
        mean += (double)x[i] / n;
    for (int i = 0; i < n; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    for (int i = 0; i < n; i++)
        out[i] = (x[i] - mean) / sqrt(sum / n + eps) * w[i] + (bias ? bias[i] : 0);
}

double ref_act(enum act_fn fn, double g, double up)
{
    if (fn == ACT_SILU)
        return g / (1 + exp(-g)) * up;
    if (fn == ACT_GELU)
        return 0.5 * g * erfc(-g / sqrt(2)) * up;
    if (fn == ACT_SWIGLU_CLAMPED) {
        g = g > 7 ? 7 : g;
        up = up > 7 ? 7 : up < -7 ? -7 : up;
        return g / (1 + exp(-1.702 * g)) * (up + 1);
    }
    return 0.5 * g * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * up;
}

void ref_route(const double *logits, int n_experts, int n_used, bool renormalise, int *chosen,
               double *share)
{
    bool taken[MOE_MAX_EXPERTS] = {false};
    double all = 0, sum = 0;
    for (int i = 0; i < n_experts; i++)
        all += exp(logits[i]);
    for (int k = 0; k < n_used; k++) {
        int best = -1;
        for (int i = 0; i < n_experts; i++)
            if (!taken[i] && (best < 0 || logits[i] > logits[best]))
                best = i;
        taken[best] = true;
        chosen[k] = best;
        sum += share[k] = exp(logits[best]);
    }
    for (int k = 0; k < n_used; k++)
        share[k] /= renormalise ? sum : all;
}

void ref_rotate(const struct rope_config *c, int position, double *x)
{
    for (int i = 0; i < c->n_dims / 2; i++) {
        int a = c->style == ROPE_NORMAL ? 2 * i : i;
        int b = c->style == ROPE_NORMAL ? 2 * i + 1 : i + c->n_dims / 2;
        double angle = (float)position * c->inv_freq[i];
        double cs = cos(angle) * c->mscale, sn = sin(angle) * c->mscale, u = x[a], v = x[b];
        if (c->style == ROPE_NONE)
            return;
        x[a] = u * cs - v * sn;
        x[b] = v * cs + u * sn;
    }
}

void ref_attend(const struct attention_config *c, int pos, const double *sink, const double *q,
                const double *k, const double *v, double *out)
{
    int first = c->window > 0 && pos + 1 > c->window ? pos + 1 - c->window : 0, dim = c->head_dim;
    double *p = malloc((size_t)(pos + 1) * sizeof *p), most = -INFINITY, sum = 0;
    for (int t = first; t <= pos; t++) {
        p[t] = 0;
        for (int d = 0; d < dim; d++)
            p[t] += q[d] * k[(size_t)t * dim + d];
        p[t] *= c->scale;
        if (c->soft_cap > 0)
            p[t] = c->soft_cap * tanh(p[t] / c->soft_cap);
        most = p[t] > most ? p[t] : most;
    }
    if (sink) {
        most = *sink > most ? *sink : most;
        sum = exp(*sink - most);
    }
    for (int t = first; t <= pos; t++)
        sum += p[t] = exp(p[t] - most);
    for (int d = 0; d < dim; d++) {
        out[d] = 0;
        for (int t = first; t <= pos; t++)
            out[d] += p[t] / sum * v[(size_t)t * dim + d];
    }
    free(p);
}
