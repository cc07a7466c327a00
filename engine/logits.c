#include "logits.h"

#include "sampling_math.h"

#include <math.h>
#include <string.h>

enum { LANES = 8 };

bool logits_finite(const float *x, int n)
{
    uint32_t bad = 0;
    for (int i = 0; i < n; i++) {
        bad |= (sampling_bits(x[i]) & 0x7F800000u) == 0x7F800000u;
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

/* Adds the masses of w[n] to the accumulators; n is a multiple of LANES but in the last block. */
static void add_block(uint64_t sum[LANES], const float *w, int n)
{
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            sum[j] += sampling_mass(w[i + j]);
    for (; i < n; i++)
        sum[0] += sampling_mass(w[i]);
}

static uint64_t add_up(const uint64_t sum[LANES])
{
    uint64_t total = 0;
    for (int j = 0; j < LANES; j++)
        total += sum[j];
    return total;
}

uint64_t logits_weights(const float *x, int n, float max, float temperature, float *w)
{
    enum { BLOCK = 256 };
    float block[BLOCK];
    uint64_t sum[LANES] = {0};
    for (int at = 0; at < n; at += BLOCK) {
        const int m = n - at < BLOCK ? n - at : BLOCK;
        for (int i = 0; i < m; i++)
            block[i] = sampling_weight((x[at + i] - max) / temperature);
        add_block(sum, block, m);
        if (w)
            memcpy(w + at, block, (size_t)m * sizeof *w);
    }
    return add_up(sum);
}

int logits_draw(const float *w, int n, uint64_t target)
{
    enum { BLOCK = 1024 };
    uint64_t have = 0;
    int i = 0;
    for (; i + BLOCK < n; i += BLOCK) {
        uint64_t sum[LANES] = {0};
        add_block(sum, w + i, BLOCK);
        const uint64_t more = add_up(sum);
        if (have + more > target)
            break;
        have += more;
    }
    while (i < n - 1 && (have += sampling_mass(w[i])) <= target)
        i++;
    return i;
}
