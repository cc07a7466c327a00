/* attention.h: what the kernels of one query and of a tile of queries share.
 *
 * Orders that fix the bits, the same in both:
 *   score   s = fma(k[d], q[d], s), dims ascending, one chain a (row, token); soft cap
 *   max     over the visible tokens of the segment: exact in any order
 *   weights p = exp2(s - max); of tokens that the row does not see +0
 *   sum     lane i adds the weights of token i of each sub-page, then a fixed tree
 *   output  o = fma(p, v, o), tokens ascending, one chain a (row, dim)
 * A weight of +0 leaves sum and output as they are where V is finite, so it does not matter which
 * unseen tokens a tile computes because another row sees them; where V has a NaN, a tile takes
 * each row by itself. A NaN among what a row sees makes its sum and output NaN: the maximum
 * passes over it, the weights do not. A partial result whose sum is 0 saw nothing. */
#ifndef TOKEND_SIMD_ATTENTION_H
#define TOKEND_SIMD_ATTENTION_H

#include <math.h>

#include "table.h"

#define CHUNK_VECS 4 /* vectors of V that one query's rows work on at a time */

/* LANES values of the pool's type */
INL vf kv_load(const uint8_t *p, size_t i, const enum dtype type)
{
    const void *at = p;
    if (type == DTYPE_F32)
        return vf_load((const float *)at + i);
    if (type == DTYPE_F16)
        return f16_load((const uint16_t *)at + i);
    return bf16_load((const uint16_t *)at + i);
}

/* The sub-page of 16 tokens that starts at token `pos` of the sequence. */
INL uint8_t *sub_page_at(const struct kv_view *kv, int pos)
{
    int size = kv->pool->block_size;
    return kv_sub_page(kv->pool, kv->layer, kv->table[pos / size], pos % size / PANEL);
}

/* cap * tanh(s / cap), in units of log2; tanh(x) = 2 sigmoid(2x) - 1 */
INL vf cap_score(vf s, float cap)
{
    vf t = vf_sigmoid(s * (2 / cap)) * 2.0f - 1.0f;
    return t * (cap * LOG2E);
}

/* Of 16 lanes without NaN */
INL float max16(const vf *v)
{
    vf most = v[0];
    for (int g = 1; g < GROUPS; g++)
        most = vf_max(v[g], most);
#if LANES == 16
    return _mm512_reduce_max_ps(most);
#else
    float m = most[0];
    for (int i = 1; i < LANES; i++)
        m = most[i] > m ? most[i] : m;
    return m;
#endif
}

/* Scores of sub-pages [p0, p1) of one row become weights; the row sees tokens [lo, hi), a range
 * within them. */
INL void softmax_row(float *s, int p0, int p1, int lo, int hi, float cap, float *part)
{
    if (lo >= hi) {
        part[0] = -INFINITY;
        part[1] = 0;
        memset(s + p0 * PANEL, 0, (size_t)(p1 - p0) * PANEL * sizeof *s);
        return;
    }
    if (cap > 0)
        for (int i = p0 * PANEL; i < p1 * PANEL; i += LANES)
            vf_store(s + i, cap_score(vf_load(s + i), cap));
    for (int i = p0 * PANEL; i < lo; i++)
        s[i] = -INFINITY;
    for (int i = hi; i < p1 * PANEL; i++)
        s[i] = -INFINITY;
    vf most[GROUPS], sum[GROUPS];
    for (int g = 0; g < GROUPS; g++) {
        most[g] = vf_splat(-INFINITY);
        sum[g] = vf_splat(0);
        for (int p = p0; p < p1; p++)
            most[g] = vf_max(vf_load(s + p * PANEL + g * LANES), most[g]);
    }
    const float top = max16(most);
    part[0] = top;
    for (int p = p0; p < p1; p++) {
        for (int g = 0; g < GROUPS; g++) {
            float *at = s + p * PANEL + g * LANES;
            vf w = vf_exp2(vf_load(at) - top);
            vf_store(at, w);
            sum[g] += w;
        }
    }
    part[1] = sum16(sum);
}

#endif
