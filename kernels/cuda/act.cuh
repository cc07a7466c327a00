/* act.cuh: activations of one value. */
#ifndef TOKEND_ACT_CUH
#define TOKEND_ACT_CUH

#include "backend.h"

#include "device.cuh"

INLINE float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

INLINE float gelu_tanh(float x)
{
    return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

/* erfc, for 1 + erf(x) would cancel where x is far below 0 */
INLINE float gelu(float x)
{
    return 0.5f * x * erfcf(-0.7071067812f * x);
}

/* NaN stays NaN. */
INLINE float clamp(float x, float least, float most)
{
    x = x < least ? least : x;
    return x > most ? most : x;
}

INLINE float act_value(enum act_fn fn, float gate, float up)
{
    if (fn == ACT_SILU)
        return gate * sigmoid(gate) * up;
    if (fn == ACT_GELU_TANH)
        return gelu_tanh(gate) * up;
    if (fn == ACT_GELU)
        return gelu(gate) * up;
    gate = gate > 7 ? 7 : gate;
    return gate * sigmoid(1.702f * gate) * (clamp(up, -7, 7) + 1);
}

#endif
