/* Types with a codebook of 16 */
#include "linear_packed.h"

LINEAR(mxfp4, DTYPE_MXFP4)
LINEAR(nvfp4, DTYPE_NVFP4)
LINEAR(iq4_nl, DTYPE_IQ4_NL)
LINEAR(codes_32, DTYPE_IQ4_XS) /* a scale of each 32 */
LINEAR(codes_16, DTYPE_IQ2_S)  /* of each 16 */
