#include "logits.h"

#include <math.h>

enum { LANES = 8 };

bool logits_finite(const float *x, int n)
{
    uint32_t bad = 0;
    for (int i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, x + i, sizeof u);
        bad |= (u & 0x7F800000u) == 0x7F800000u;
    }
    return bad == 0;
}

float logits_max(const float *x, int n)
{
    float m[LANES];
    for (int j = 0; j < LANES; j++)
        m[j] = x[0];
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            m[j] = x[i + j] > m[j] ? x[i + j] : m[j];
    for (; i < n; i++)
        m[0] = x[i] > m[0] ? x[i] : m[0];
    for (int j = 1; j < LANES; j++)
        m[0] = m[j] > m[0] ? m[j] : m[0];
    return m[0];
}

bool logits_best(const float *x, int n, int32_t *best)
{
    enum { BLOCK = 1024 }; /* read twice, the second time from the L1 cache */
    float max = -INFINITY;
    int at = 0;
    for (int i = 0; i < n; i += BLOCK) {
        const int m = n - i < BLOCK ? n - i : BLOCK;
        if (!logits_finite(x + i, m))
            return false;
        const float block_max = logits_max(x + i, m);
        if (block_max > max) {
            max = block_max;
            at = i;
        }
    }
    while (at < n - 1 && x[at] != max)
        at++;
    *best = at;
    return true;
}

static inline float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* e^x for x <= 0: 2^k · e^r with |r| <= ln2 / 2, e^r by its Taylor polynomial of degree 7 (its
 * remainder, 5e-9, is below float's rounding). No branch and no float comparison, so that the
 * compiler turns a loop over it into vectors. */
static inline float exp_nonpositive(float x)
{
    const uint32_t least = 0x42AE0000; /* 87, whose e^-87 is still a normal number */
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    u &= 0x7FFFFFFF;
    const uint32_t keep = u > least ? 0 : UINT32_MAX;
    const float y = -float_of(u & keep);
    const int k = (int)(y * 1.44269504f - 0.5f);
    const float kf = (float)k;
    const float r = (y - kf * 0.693359375f) - kf * -2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    p *= float_of((uint32_t)(k + 127) << 23);
    memcpy(&u, &p, sizeof u);
    return float_of(u & keep);
}

/* Adds w[n] to the accumulators; n is a multiple of LANES but in the last block. */
static void add_block(double sum[LANES], const float *w, int n)
{
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            sum[j] += (double)w[i + j];
    for (int j = 0; i < n; i++, j++)
        sum[j] += (double)w[i];
}

double logits_weights(const float *x, int n, float max, float temperature, float *w)
{
    enum { BLOCK = 256 };
    float block[BLOCK];
    double sum[LANES] = {0};
    for (int at = 0; at < n; at += BLOCK) {
        const int m = n - at < BLOCK ? n - at : BLOCK;
        for (int i = 0; i < m; i++)
            block[i] = exp_nonpositive((x[at + i] - max) / temperature);
        add_block(sum, block, m);
        if (w)
            memcpy(w + at, block, (size_t)m * sizeof *w);
    }
    for (int j = 1; j < LANES; j++)
        sum[0] += sum[j];
    return sum[0];
}
