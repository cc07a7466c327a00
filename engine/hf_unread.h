/* hf_unread.h: the tensors of a checkpoint that the forward pass reads, and those it does not. */
#ifndef TOKEND_HF_UNREAD_H
#define TOKEND_HF_UNREAD_H

#include "hf_names.h"

/* Counts the elements of what is read. What a text model has no use for (a vision tower,
 * tables that are computed here) is passed over; any other tensor that is not read is a feature
 * that we do not have, and an error. `dir` is for messages. */
bool hf_count_read(const struct hf_names *, const struct model_spec *, const char *dir,
                   uint64_t *elems, struct err *e);

#endif
