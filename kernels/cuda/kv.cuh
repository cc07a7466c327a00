/* kv.cuh: where K and V of a token lie, and the values of 8 bits. */
#ifndef TOKEND_KV_CUH
#define TOKEND_KV_CUH

#include "kernels.h"

#include "device.cuh"

enum kv_which { KV_K, KV_V };
enum { KV_BLOCK = 16 }; /* tokens that lie together */

/* Values of 8 bits: code times the scale of the token and head. Of each 16 dims the bytes lie in
 * the order 0, 8, 1, 9, 2 … 15: so 4 bytes hold the pairs that an mma wants of a lane, and the sums
 * of p · V come out in order. */
struct kv_int8 {
    uint8_t code; /* q + 128, |q| at most 127 */
};
struct kv_e4m3 {
    uint8_t code; /* finite */
};

/* Values of type T of a head in a block: its tokens', and, of 8 bits, their scales, bf16 [16] */
template <class T> INLINE size_t kv_head_values(const struct cuda_kv &kv)
{
    return (size_t)KV_BLOCK * kv.head_dim + (sizeof(T) == 1 ? KV_BLOCK * 2 : 0);
}

/* How many heads' blocks lie before that of token `slot` */
INLINE size_t kv_head_at(const struct cuda_kv &kv, int layer, int slot, enum kv_which which,
                         int head)
{
    int page = slot / kv.block_size, in_page = slot % kv.block_size;
    size_t block =
        ((size_t)page * kv.n_layers + layer) * (kv.block_size / KV_BLOCK) + in_page / KV_BLOCK;
    return (block * 2 + which) * kv.n_kv_heads + head;
}

/* Index of the block's first value */
template <class T>
INLINE size_t kv_block_at(const struct cuda_kv &kv, int layer, int slot, enum kv_which which,
                          int head)
{
    return kv_head_at(kv, layer, slot, which, head) * kv_head_values<T>(kv);
}

/* Of the token itself: pages have whole blocks */
template <class T>
INLINE size_t kv_at(const struct cuda_kv &kv, int layer, int slot, enum kv_which which, int head)
{
    return kv_block_at<T>(kv, layer, slot, which, head) + slot % KV_BLOCK * kv.head_dim;
}

/* Runs the statement with T as the C type of a pool's dtype; of another the calling function
 * returns cudaErrorInvalidValue. */
#define WITH_KV_TYPE(dtype, T, ...)                                                                \
    do {                                                                                           \
        if ((dtype) == DTYPE_INT8) {                                                               \
            typedef struct kv_int8 T;                                                              \
            __VA_ARGS__;                                                                           \
        } else if ((dtype) == DTYPE_F8_E4M3) {                                                     \
            typedef struct kv_e4m3 T;                                                              \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            WITH_FLOAT_TYPE(dtype, T, __VA_ARGS__);                                                \
        }                                                                                          \
    } while (0)

#endif
