/* model.h: a model's weights on a backend, and its forward pass.
 *
 * model_load checks every tensor's type and shape (the message names the tensor, what it is
 * and what it should be) and gives the weights to the backend; the files may be closed
 * afterwards. model_forward records one step; the engine thread calls it between step_begin
 * and submit, with step_inputs filled. */
#ifndef TOKEND_MODEL_H
#define TOKEND_MODEL_H

#include "backend.h"
#include "model_spec.h"
#include "weights.h"

struct model;

/* Whether model_load would find every tensor that it wants, with the type and shape that it wants,
 * how many bytes it would give to the backend, and the type that most of them have (NULL: nobody
 * wants to know). Reads headers only. */
bool model_check(const struct weights *, const struct model_spec *, uint64_t *bytes,
                 enum dtype *main_type, struct err *e);

/* Also takes the activation buffers. The backend must outlive the model. */
struct model *model_load(struct backend *, const struct weights *, const struct model_spec *,
                         int max_positions, struct err *e);
/* The type that most of the weights' bytes have. */
enum dtype model_main_dtype(const struct model *);
/* Host side only: weights belong to the backend. NULL is fine. */
void model_free(struct model *);

/* Records the whole forward pass of the step's rows: embedding to logits of logit_rows. */
void model_forward(struct model *);
/* Records only its last part: logits of logit_rows, from the hidden states that the last
 * submitted model_forward left. For steps that want more logits than max_logits: submit the
 * same rows again with the next logit_rows. */
void model_forward_logits(struct model *);
/* Records draws from the logits, behind model_forward. */
void model_sample(struct model *, const struct draw *, int n);
/* After submit: logits [n_vocab] of the i-th row of logit_rows, valid until the next step. */
const float *model_logits(const struct model *, int i);

/* The shape of this model's KV pool (n_pages left 0). */
struct kv_config model_kv_config(const struct model_spec *, int block_size, enum dtype kv_dtype);
#endif
