/* Linears of quantised weights: which kernel. */
#include "linear_quant.cuh"

cudaError_t linear_quantised(cudaStream_t s, const struct cuda_linear &l,
                             const struct linear_experts &e, const struct cuda_qrows &x, int n_rows)
{
    const struct panel_form form = panel_form(l.w[0].type);
    const struct quant_facts f = facts_of(form, l.w[0].cols);
    linear_launch *launch = form.codebook ? linear_launch_codes
                            : form.scales == PANEL_K32 || form.scales == PANEL_K16 ? linear_launch_k
                            : form.bits == 4                                       ? linear_launch_4
                                             : linear_launch_5_8;
    return launch(s, l, e, form, f, x, n_rows);
}

cudaError_t cuda_linear_quantised(cudaStream_t s, const struct cuda_linear *l,
                                  const struct cuda_qrows *x, int n_rows)
{
    return linear_quantised(s, *l, linear_experts(), *x, n_rows);
}
