/* kv.cuh: where K and V of a token lie. */
#ifndef TOKEND_KV_CUH
#define TOKEND_KV_CUH

#include "kernels.h"

#include "device.cuh"

enum kv_which { KV_K, KV_V };
enum { KV_BLOCK = 16 }; /* tokens that lie together */

/* Index of the first of a head's head_dim values, in values */
INLINE size_t kv_at(struct cuda_kv kv, int layer, int slot, enum kv_which which, int head)
{
    int page = slot / kv.block_size, in_page = slot % kv.block_size;
    size_t block =
        ((size_t)page * kv.n_layers + layer) * (kv.block_size / KV_BLOCK) + in_page / KV_BLOCK;
    size_t row = ((block * 2 + which) * kv.n_kv_heads + head) * KV_BLOCK + in_page % KV_BLOCK;
    return row * kv.head_dim;
}

#endif
