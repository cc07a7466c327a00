#include "table.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

extern const struct kernels ISA_FN(kernels);
const struct kernels ISA_FN(kernels) = {
    .name = TEXT(ISA),
    .quantise = ISA_FN(quantise),
    .linear = ISA_FN(linear),
    .act = ISA_FN(act),
    .act_mul = ISA_FN(act_mul),
    .soft_cap = ISA_FN(soft_cap),
    .gated_add = ISA_FN(gated_add),
    .route = ISA_FN(route),
    .mix = ISA_FN(mix),
    .norm = ISA_FN(norm),
    .norm_add = ISA_FN(norm_add),
    .rotate = ISA_FN(rotate),
    .kv_write = ISA_FN(kv_write),
    .attend_one = ISA_FN(attend_one),
    .attend_tile = ISA_FN(attend_tile),
    .part_join = ISA_FN(part_join),
    .part_finish = ISA_FN(part_finish),
};
