/* Linears of Q4_0, Q4_1 and what AWQ and GPTQ become. */
#include "linear_quant.cuh"

cudaError_t linear_launch_4(cudaStream_t s, const struct cuda_linear &l,
                            const struct linear_experts &e, const struct panel_form &form,
                            const struct quant_facts &f, const struct cuda_qrows &x, int n_rows)
{
    LAUNCH_IF(4, false, PANEL_D32, PANEL_PLAIN, false);
    LAUNCH_IF(4, false, PANEL_D32, PANEL_MINIMUM, false);
    LAUNCH_IF(4, false, PANEL_D32, PANEL_ZERO, false);
    return cudaErrorInvalidValue;
}
