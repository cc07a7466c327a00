/* cuda_record.h: the recording functions of the CUDA backend's table (backend.h). They check what a
 * debug build can and append to the plan. */
#ifndef TOKEND_CUDA_RECORD_H
#define TOKEND_CUDA_RECORD_H

#include "backend.h"

struct step_inputs *cuda_step_begin(struct backend *);
void cuda_record_embed(struct backend *, struct activation *x, const struct weight *table,
                       float scale);
void cuda_record_norm(struct backend *, struct activation *out, const struct activation *x,
                      const struct norm *);
void cuda_record_norm_add(struct backend *, struct activation *x, const struct activation *y,
                          const struct norm *);
void cuda_record_norm_logit_rows(struct backend *, struct activation *out,
                                 const struct activation *x, const struct norm *);
void cuda_record_linear(struct backend *, enum linear_into, enum act_fn, const struct activation *x,
                        int n_w, const struct weight *const *w, const struct weight *const *bias,
                        struct activation *const *outs);
void cuda_record_rope_write_kv(struct backend *, int layer, const struct qk_norm *,
                               const struct rope *, int n_heads, struct activation *q,
                               struct activation *k, struct activation *v);
void cuda_record_attention(struct backend *, int layer, const struct attention_config *,
                           const struct weight *sinks, struct activation *out,
                           const struct activation *q);
void cuda_record_soft_cap(struct backend *, struct activation *x, float cap);
void cuda_record_gated_add(struct backend *, struct activation *x, const struct activation *y,
                           const struct activation *in, const struct weight *w);
void cuda_record_moe(struct backend *, struct moe *, const struct moe_layer *, enum linear_into,
                     const struct activation *x, const struct activation *router_logits,
                     struct activation *out);

#endif
