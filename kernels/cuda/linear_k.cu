/* Linears of Q2_K to Q6_K. */
#include "linear_quant.cuh"

cudaError_t linear_launch_k(cudaStream_t s, const struct cuda_linear &l,
                            const struct linear_experts &e, const struct panel_form &form,
                            const struct quant_facts &f, const struct cuda_qrows &x, int n_rows)
{
    LAUNCH_IF(4, false, PANEL_K32, PANEL_MINIMUM, false);
    LAUNCH_IF(5, false, PANEL_K32, PANEL_MINIMUM, false);
    LAUNCH_IF(6, false, PANEL_K16, PANEL_PLAIN, false);
    LAUNCH_IF(2, false, PANEL_K16, PANEL_MINIMUM, false);
    LAUNCH_IF(3, false, PANEL_K16, PANEL_PLAIN, false);
    return cudaErrorInvalidValue;
}
