/* hf_quant.h: quantised checkpoints: what config.json's quantization_config says, and a matrix of
 * packed tensors as rows of a type of ours. */
#ifndef TOKEND_HF_QUANT_H
#define TOKEND_HF_QUANT_H

#include "checkpoint_quant.h"
#include "hf_spec.h"
#include "safetensors.h"

enum hf_quant_kind { HF_QUANT_NONE, HF_QUANT_MXFP4, HF_QUANT_INT4, HF_QUANT_FP8 };

struct hf_quant {
    enum hf_quant_kind kind;
    enum int4_packing packing; /* of INT4 */
    int group;                 /* inputs that share a scale; 0: all */
};

/* Methods, and kinds of them, that we do not read are refused by name. */
bool hf_quant_read(const struct hf_config *, const struct hf_arch *, struct hf_quant *out);

/* The tensors of one matrix. */
struct hf_packed {
    const struct st_tensor *data;          /* qweight, or weight of F8 */
    const struct st_tensor *scales;        /* NULL: none (F8 alone) */
    const struct st_tensor *zeros, *g_idx; /* of INT4; g_idx may be NULL */
};

/* A matrix [rows][cols] (all of the tensor), checked, ready to be read. */
struct hf_packed_matrix {
    bool is_int4;
    enum dtype type; /* of the rows that are read */
    struct int4_matrix int4;
    struct fp8_matrix fp8;
};
bool hf_packed_open(const struct hf_quant *, const struct hf_packed *, int64_t rows, int64_t cols,
                    struct hf_packed_matrix *out, struct err *e);
/* What rows and cols its tensors would be right for. */
void hf_packed_shape(const struct hf_quant *, const struct hf_packed *, int64_t *rows,
                     int64_t *cols);
void hf_packed_rows(const struct hf_packed_matrix *, int64_t row, int64_t n, void *out);

#endif
