/* model_spec_read.h: the parts of model_spec_from_gguf. Each fills its fields of r->s, in this
 * order: architecture, sizes, layers and experts, scales, rotary embedding, tensors, ends. */
#ifndef TOKEND_MODEL_SPEC_READ_H
#define TOKEND_MODEL_SPEC_READ_H

#include "architectures.h"

struct spec_reader {
    const struct gguf *g;
    const struct architecture *a;
    struct model_spec *s;
    struct err *e;
};

/* --- model_spec_keys.c: single values --- */

/* The name of an architecture's own key: "llama." and the rest. */
struct key_name {
    char text[96];
};
struct key_name spec_key(const struct spec_reader *, const char *rest);
bool spec_has(const struct spec_reader *, const char *rest);

/* An integer in [least, most]; dflt when absent, or an error when dflt < 0. An array of a value
 * for each layer is fine if they are equal. */
bool spec_int(const struct spec_reader *, const char *rest, int least, int most, int dflt,
              int *out);
/* A finite float above 0; dflt when absent, or an error when dflt is 0. */
bool spec_positive(const struct spec_reader *, const char *rest, float dflt, float *out);
/* A finite float of at least 0; dflt when absent. */
bool spec_not_negative(const struct spec_reader *, const char *rest, float dflt, float *out);
/* A value for each layer, [n_layers], of booleans or integers: true is 1. The key is an array. */
bool spec_layer_flags(const struct spec_reader *, const char *rest, bool *out);
/* The float tensor's values, [n], each finite and above 0. */
bool spec_factors(const struct spec_reader *, const char *tensor, int n, float *out);
/* A tensor of layer i, or NULL */
const struct gguf_tensor *spec_layer_tensor(const struct spec_reader *, int i, const char *part);

/* --- the parts --- */

bool spec_read_sizes(const struct spec_reader *);
bool spec_read_layers(const struct spec_reader *);
bool spec_read_experts(const struct spec_reader *);
bool spec_read_scales(const struct spec_reader *);
bool spec_read_rope(const struct spec_reader *);
/* Every tensor of the file is one that the forward pass uses, and none of it is missing in
 * some layer: fills the bias flags and n_params. (Shapes are the loader's to check.) */
bool spec_read_tensors(const struct spec_reader *);
/* The ids that end a generation. */
bool spec_read_eos(const struct spec_reader *);
/* Logs the keys of the architecture's own that nothing of the above reads. */
void spec_warn_of_unknown(const struct spec_reader *);

#endif
