/* Attention over K and V of BF16 */
#include "attention_mma.cuh"

struct attention_code attention_bf16(int head_dim)
{
    return mma_code<__nv_bfloat16>(head_dim);
}
