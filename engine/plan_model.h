/* plan_model.h: what a memory plan has to know of a model, from its files, or from its
 * configuration alone. */
#ifndef TOKEND_PLAN_MODEL_H
#define TOKEND_PLAN_MODEL_H

#include "model_spec.h"

struct plan_model {
    struct model_spec spec; /* n_params is filled in every case */
    uint64_t weight_bytes;  /* as the model's file has them, or as --quantization makes them */
    /* Parameters that a token is multiplied with: of the experts those that it uses, and not the
     * table of embeddings, unless that is the output head, too. */
    uint64_t active_params;
    uint64_t expert_bytes; /* of weight_bytes, those of experts */
    bool is_quantised;     /* some matrices are */
    enum dtype plain;      /* type of those that are not */
};

/* `model` is a model as `tokend serve` takes it; a config.json, or a directory with no more than
 * that; or one that is built in: llama-2-7b, llama-2-13b, llama-2-70b. quantise: the type that
 * float matrices get, DTYPE_COUNT: as they are. */
bool plan_model_read(const char *model, enum dtype quantise, struct plan_model *out, struct err *e);

#endif
