/* Types of blocks of 256 with integer scales */
#include "linear_packed.h"

LINEAR(q2_k, DTYPE_Q2_K)
LINEAR(q3_k, DTYPE_Q3_K)
LINEAR(q4_k, DTYPE_Q4_K)
LINEAR(q5_k, DTYPE_Q5_K)
LINEAR(q6_k, DTYPE_Q6_K)
