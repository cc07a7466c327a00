/* model_spec_read.h: the parts of model_spec_from_gguf. Each fills its fields of *s, whose
 * architecture and sizes are there already. */
#ifndef TOKEND_MODEL_SPEC_READ_H
#define TOKEND_MODEL_SPEC_READ_H

#include "model_spec.h"

/* Every tensor of the file is one that the forward pass uses, and none of it is missing in
 * some layer: fills the bias flags and n_params. (Shapes are the loader's to check.) */
bool model_spec_read_tensors(const struct gguf *, struct model_spec *s, struct err *e);

/* The ids that end a generation. */
bool model_spec_read_eos(const struct gguf *, struct model_spec *s, struct err *e);

#endif
