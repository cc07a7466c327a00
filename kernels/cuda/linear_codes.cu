/* Linears of the types with codebooks: MXFP4, NVFP4, IQ4 and the lattices. */
#include "linear_quant.cuh"

cudaError_t linear_launch_codes(cudaStream_t s, const struct cuda_linear &l,
                                const struct linear_experts &e, const struct panel_form &form,
                                const struct quant_facts &f, const struct cuda_qrows &x, int n_rows)
{
    LAUNCH_IF(4, true, PANEL_D32, PANEL_PLAIN, true);
    LAUNCH_IF(4, true, PANEL_D32, PANEL_PLAIN, false);
    LAUNCH_IF(4, true, PANEL_D16, PANEL_PLAIN, false);
    LAUNCH_IF(4, true, PANEL_K32, PANEL_PLAIN, false);
    LAUNCH_IF(4, true, PANEL_K16, PANEL_PLAIN, false);
    return cudaErrorInvalidValue;
}
