/* Types whose blocks of 32 have a scale of their own */
#include "linear_packed.h"

LINEAR(q8_0, DTYPE_Q8_0)
LINEAR(q4_0, DTYPE_Q4_0)
LINEAR(q4_1, DTYPE_Q4_1)
LINEAR(q5_0, DTYPE_Q5_0)
LINEAR(q5_1, DTYPE_Q5_1)
LINEAR(q4_z, DTYPE_Q4_Z)
LINEAR(ternary, DTYPE_TQ2_0)
