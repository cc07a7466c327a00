/* Linears of Q5_0, Q5_1, Q8_0 and the ternary types. */
#include "linear_quant.cuh"

cudaError_t linear_launch_5_8(cudaStream_t s, const struct cuda_linear &l,
                              const struct linear_experts &e, const struct panel_form &form,
                              const struct quant_facts &f, const struct cuda_qrows &x, int n_rows)
{
    LAUNCH_IF(5, false, PANEL_D32, PANEL_PLAIN, false);
    LAUNCH_IF(5, false, PANEL_D32, PANEL_MINIMUM, false);
    LAUNCH_IF(8, false, PANEL_D32, PANEL_PLAIN, false);
    LAUNCH_IF(2, false, PANEL_D32, PANEL_PLAIN, false);
    return cudaErrorInvalidValue;
}
