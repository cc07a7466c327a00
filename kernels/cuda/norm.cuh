/* norm.cuh: what a norm multiplies with, by a warp or by the whole block. LayerNorm takes two
 * passes, so that a large mean cancels nothing. */
#ifndef TOKEND_NORM_CUH
#define TOKEND_NORM_CUH

#include "kernels.h"

#include "block_sum.cuh"

/* Over the whole block, or, sums NULL, over the warp; see block_sum. */
INLINE float span_sum(float x, float *sums)
{
    return sums ? block_sum(x, sums) : warp_sum(x);
}

/* What (x - mean) is multiplied with, to all threads of the span; *mean is 0 for RMS. */
INLINE float norm_scale(const float *x, int width, enum norm_kind kind, float eps, float *mean,
                        float *sums)
{
    const int first = sums ? threadIdx.x : threadIdx.x % 32, step = sums ? ROW_THREADS : 32;
    float sum = 0;
    *mean = 0;
    if (kind == NORM_LAYER) {
        for (int i = first; i < width; i += step)
            sum += x[i];
        *mean = span_sum(sum, sums) / width;
        sum = 0;
    }
    for (int i = first; i < width; i += step) {
        float v = x[i] - *mean;
        sum = fmaf(v, v, sum);
    }
    return 1 / sqrtf(span_sum(sum, sums) / width + eps);
}

#endif
