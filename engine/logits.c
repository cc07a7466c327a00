#include "logits.h"

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

/* e^x for x <= 0: 2^n · e^r with |r| <= ln2 / 2, e^r by its Taylor polynomial of degree 7
 * (its remainder, 5e-9, is below float's rounding). No branch, so that a loop vectorises. */
static inline float exp_nonpositive(float x)
{
    float y = x < -87.0f ? -87.0f : x;
    int k = (int)(y * 1.44269504f - 0.5f);
    float kf = (float)k;
    float r = (y - kf * 0.693359375f) - kf * -2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t bits = (uint32_t)(k + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return x < -87.0f ? 0.0f : p * scale;
}

double logits_weights(const float *x, int n, float max, float temperature, float *w)
{
    enum { BLOCK = 256 };
    float block[BLOCK];
    double sum[LANES] = {0};
    for (int at = 0; at < n; at += BLOCK) {
        int m = n - at < BLOCK ? n - at : BLOCK;
        float *e = w ? w + at : block;
        for (int i = 0; i < m; i++)
            e[i] = exp_nonpositive((x[at + i] - max) / temperature);
        for (int i = 0; i < m; i++)
            sum[i % LANES] += (double)e[i];
    }
    for (int j = 1; j < LANES; j++)
        sum[0] += sum[j];
    return sum[0];
}
