/* weights_hf.h: the tensors of a Hugging Face directory by canonical name. */
#ifndef TOKEND_WEIGHTS_HF_H
#define TOKEND_WEIGHTS_HF_H

#include "hf_quant.h"
#include "hf_shards.h"
#include "hf_spec.h"
#include "weights.h"

/* Bytes that all names of a model's tensors begin with ("model."), and how many rows its
 * embedding has. False: it has none. */
bool hf_find_embedding(const struct hf_shards *, char prefix[64], int64_t *rows, struct err *e);

/* All must outlive it. Refuses a checkpoint with tensors that the forward pass would not read, or
 * without one that it would. */
struct weights *weights_open_hf(const struct hf_shards *, const char *dir, const struct hf_arch *,
                                const struct hf_quant *, const struct model_spec *, struct err *e);
/* Elements of all tensors that are read. */
uint64_t weights_hf_elems(const struct weights *);

#endif
