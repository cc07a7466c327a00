/* Attention over K and V of F16 */
#include "attention_mma.cuh"

struct attention_code attention_f16(int head_dim)
{
    return mma_code<__half>(head_dim);
}
