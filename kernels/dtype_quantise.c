/* Values to blocks. For each run of values that shares a scale, a few scales are tried around the
 * one that just holds the largest value; each gives integers, for which the scale (and minimum)
 * that leaves the least squared error is known; the best is kept. Then scales are rounded as the
 * type stores them, and the values once more to the nearest that these reach. */
#include <math.h>
#include <string.h>

#include "dtype.h"

#define RUN 32  /* most values that share a scale */
#define STEPS 8 /* scales tried to each side of the first */

/* The nearest whole number within [lo, hi]; lo for NaN */
static float nearest(float x, float lo, float hi)
{
    x = x > lo ? x : lo;
    x = x < hi ? x : hi;
    return (x + 0x1.8p23f) - 0x1.8p23f;
}

static uint16_t half_of(float x)
{
    return f32_to_f16(x > 65504 ? 65504 : x < -65504 ? -65504 : x);
}

static void put_half(uint8_t *at, uint16_t h)
{
    memcpy(at, &h, sizeof h);
}

/* Sums over a run. Eight chains, so that a compiler may use vectors. */
struct sums {
    float x, q, xq, qq;
};

static float total(const float *lanes)
{
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
           ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

/* q = nearest(x * inverse + shift) within [lo, hi] */
static struct sums try_scale(const float *x, int n, float inverse, float shift, float lo, float hi)
{
    float sx[8] = {0}, sq[8] = {0}, sxq[8] = {0}, sqq[8] = {0};
    for (int i = 0; i < n; i += 8)
        for (int j = 0; j < 8; j++) {
            float v = x[i + j], q = nearest(v * inverse + shift, lo, hi);
            sx[j] += v;
            sq[j] += q;
            sxq[j] += v * q;
            sqq[j] += q * q;
        }
    return (struct sums){total(sx), total(sq), total(sxq), total(sqq)};
}

/* d of the least sum of (x - d q)^2, q in [-top, top - 1]. For given q d is xq / qq, and what the
 * sum of x^2 loses is xq^2 / qq. */
static float search_symmetric(const float *x, int n, int top)
{
    float extreme = 0, best = 0, best_gain = -1;
    for (int i = 0; i < n; i++)
        extreme = fabsf(x[i]) > fabsf(extreme) ? x[i] : extreme;
    if (fabsf(extreme) < 1e-30f)
        return 0;
    for (int step = -STEPS; step <= STEPS; step++) {
        float inverse = -((float)top + 0.1f * (float)step) / extreme;
        struct sums s = try_scale(x, n, inverse, 0, (float)-top, (float)(top - 1));
        if (s.qq > 0 && s.xq * s.xq > best_gain * s.qq) {
            best_gain = s.xq * s.xq / s.qq;
            best = s.xq / s.qq;
        }
    }
    return best;
}

struct line {
    float d, m; /* value = d * q + m */
};

/* The line of the least sum of (x - d q - m)^2 for given q. */
static struct line fit(const struct sums *s, int n, bool negative, float *error)
{
    float count = (float)n, det = count * s->qq - s->q * s->q;
    struct line l = {0, s->x / count};
    if (det > 0)
        l = (struct line){(count * s->xq - s->x * s->q) / det, (s->qq * s->x - s->q * s->xq) / det};
    if (negative && l.m > 0)
        l = (struct line){s->qq > 0 ? s->xq / s->qq : 0, 0};
    /* without the sum of x^2, which is the same for all */
    *error =
        l.d * l.d * s->qq + count * l.m * l.m + 2 * (l.d * l.m * s->q - l.d * s->xq - l.m * s->x);
    return l;
}

/* q in [0, top]; `negative`: m is 0 or less */
static struct line search_line(const float *x, int n, int top, bool negative)
{
    float low = x[0], high = x[0], best_error = INFINITY;
    struct line best = {0, 0};
    for (int i = 1; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    low = negative && low > 0 ? 0 : low;
    if (!(high - low > 1e-30f))
        return (struct line){0, low};
    for (int step = -STEPS; step <= STEPS; step++) {
        float inverse = ((float)top + 0.1f * (float)step) / (high - low), error;
        struct sums s = try_scale(x, n, inverse, -low * inverse, 0, (float)top);
        struct line l = fit(&s, n, negative, &error);
        if (l.d > 0 && error < best_error) {
            best_error = error;
            best = l;
        }
    }
    return best;
}

/* u = nearest((x - m) / d) + offset, for n values */
static void round_run(const float *x, int n, struct line l, int offset, int top, uint8_t *u)
{
    float inverse = l.d != 0 ? 1 / l.d : 0;
    for (int i = 0; i < n; i++)
        u[i] =
            (uint8_t)((int)nearest((x[i] - l.m) * inverse, (float)-offset, (float)(top - offset)) +
                      offset);
}

static void put_nibbles(const uint8_t *u, int n, uint8_t *out)
{
    for (int i = 0; i < n; i++)
        out[i] = (uint8_t)((u[i] & 15) | (u[i + n] & 15) << 4);
}

/* --- blocks of 32 --- */

static void block_q8_0(const float *x, uint8_t *out)
{
    float most = 0;
    uint8_t u[32];
    for (int i = 0; i < 32; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    uint16_t d = half_of(most / 127);
    put_half(out, d);
    round_run(x, 32, (struct line){f16_to_f32(d), 0}, 127, 254, u);
    for (int i = 0; i < 32; i++)
        out[2 + i] = (uint8_t)(u[i] - 127);
}

/* Q4_0, Q4_1, Q5_0 and Q5_1: d, with a minimum m, with five bits their fifths, nibbles */
static void block_32(const float *x, uint8_t *out, int bits, bool minimum)
{
    const int top = 1 << bits;
    uint8_t u[32];
    struct line l = minimum ? search_line(x, 32, top - 1, false)
                            : (struct line){search_symmetric(x, 32, top / 2), 0};
    uint16_t d = half_of(l.d), m = half_of(l.m);
    put_half(out, d);
    out += 2;
    if (minimum) {
        put_half(out, m);
        out += 2;
    }
    l = (struct line){f16_to_f32(d), minimum ? f16_to_f32(m) : 0};
    round_run(x, 32, l, minimum ? 0 : top / 2, top - 1, u);
    if (bits == 5) {
        memset(out, 0, 4);
        for (int i = 0; i < 32; i++)
            out[i / 8] |= (uint8_t)((u[i] >> 4) << i % 8);
        out += 4;
    }
    put_nibbles(u, 16, out);
}

/* --- blocks of 256 --- */

/* Six-bit scales and minima as quant_block.c reads them */
static void put_scales(const uint8_t *scales, const uint8_t *minima, uint8_t *out)
{
    for (int i = 0; i < 4; i++) {
        out[i] = (uint8_t)(scales[i] | scales[i + 4] >> 4 << 6);
        out[i + 4] = (uint8_t)(minima[i] | minima[i + 4] >> 4 << 6);
        out[i + 8] = (uint8_t)((scales[i + 4] & 15) | (minima[i + 4] & 15) << 4);
    }
}

/* Q4_K and Q5_K */
static void block_k(const float *x, uint8_t *out, int bits)
{
    const int top = (1 << bits) - 1;
    struct line lines[8];
    uint8_t scales[8], minima[8], u[256];
    float most_d = 0, most_m = 0;
    for (int s = 0; s < 8; s++) {
        lines[s] = search_line(x + s * 32, 32, top, true);
        most_d = fmaxf(most_d, lines[s].d);
        most_m = fmaxf(most_m, -lines[s].m);
    }
    uint16_t d = half_of(most_d / 63), m = half_of(most_m / 63);
    float df = f16_to_f32(d), mf = f16_to_f32(m);
    for (int s = 0; s < 8; s++) {
        scales[s] = (uint8_t)nearest(df > 0 ? lines[s].d / df : 0, 0, 63);
        minima[s] = (uint8_t)nearest(mf > 0 ? -lines[s].m / mf : 0, 0, 63);
        struct line l = {df * scales[s], -(mf * minima[s])};
        round_run(x + s * 32, 32, l, 0, top, u + s * 32);
    }
    put_half(out, d);
    put_half(out + 2, m);
    put_scales(scales, minima, out + 4);
    out += 16;
    if (bits == 5) {
        memset(out, 0, 32);
        for (int i = 0; i < 256; i++)
            out[i % 32] |= (uint8_t)((u[i] >> 4) << i / 32);
        out += 32;
    }
    for (int s = 0; s < 8; s += 2)
        put_nibbles(u + s * 32, 32, out + s * 16);
}

static void block_q6_k(const float *x, uint8_t *out)
{
    float ds[16], most = 0;
    uint8_t u[256];
    for (int s = 0; s < 16; s++) {
        ds[s] = search_symmetric(x + s * 16, 16, 32);
        most = fabsf(ds[s]) > fabsf(most) ? ds[s] : most;
    }
    uint16_t d = half_of(most / -128);
    float df = f16_to_f32(d);
    for (int s = 0; s < 16; s++) {
        int8_t scale = (int8_t)nearest(df != 0 ? ds[s] / df : 0, -128, 127);
        out[192 + s] = (uint8_t)scale;
        round_run(x + s * 16, 16, (struct line){df * scale, 0}, 32, 63, u + s * 16);
    }
    put_half(out + 208, d);
    for (int half = 0; half < 2; half++) {
        const uint8_t *h = u + half * 128;
        for (int i = 0; i < 64; i++)
            out[half * 64 + i] = (uint8_t)((h[i] & 15) | (h[i + 64] & 15) << 4);
        for (int i = 0; i < 32; i++)
            out[128 + half * 32 + i] = (uint8_t)(h[i] >> 4 | (h[i + 32] >> 4) << 2 |
                                                 (h[i + 64] >> 4) << 4 | (h[i + 96] >> 4) << 6);
    }
}

static bool all_finite(const float *x, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * 0; /* NaN for NaN and infinities, else 0 */
    return sum == 0;
}

static void block_of(enum dtype t, const float *x, uint8_t *out)
{
    switch (t) {
    case DTYPE_Q4_0:
    case DTYPE_Q4_1:
        block_32(x, out, 4, t == DTYPE_Q4_1);
        break;
    case DTYPE_Q5_0:
    case DTYPE_Q5_1:
        block_32(x, out, 5, t == DTYPE_Q5_1);
        break;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        block_k(x, out, t == DTYPE_Q4_K ? 4 : 5);
        break;
    case DTYPE_Q6_K:
        block_q6_k(x, out);
        break;
    default:
        block_q8_0(x, out);
    }
}

static bool quantises(enum dtype t)
{
    return t == DTYPE_Q8_0 || t == DTYPE_Q4_0 || t == DTYPE_Q4_1 || t == DTYPE_Q5_0 ||
           t == DTYPE_Q5_1 || t == DTYPE_Q4_K || t == DTYPE_Q5_K || t == DTYPE_Q6_K;
}

static bool float_from_f32(enum dtype t, const float *src, void *dst, int64_t n)
{
    if (t == DTYPE_F32)
        memcpy(dst, src, (size_t)n * sizeof *src);
    else if (t != DTYPE_F16 && t != DTYPE_BF16)
        return false;
    for (int64_t i = 0; t != DTYPE_F32 && i < n; i++) {
        uint16_t h = t == DTYPE_F16 ? f32_to_f16(src[i]) : f32_to_bf16(src[i]);
        put_half((uint8_t *)dst + 2 * i, h);
    }
    return true;
}

bool dtype_from_f32(enum dtype t, const float *src, void *dst, int64_t n)
{
    const struct dtype_info *info = dtype_info(t);
    if (!quantises(t))
        return float_from_f32(t, src, dst, n);
    uint8_t *out = dst;
    for (; n > 0; n -= info->block_elems, src += info->block_elems, out += info->block_bytes) {
        if (all_finite(src, info->block_elems))
            block_of(t, src, out);
        else
            memset(out, 0xFF, (size_t)info->block_bytes); /* d is NaN */
    }
    return true;
}
