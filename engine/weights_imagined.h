/* weights_imagined.h: the tensors of a model whose weights are not there, only its configuration:
 * whatever name and shape is asked for exists. For counting: they can be checked, not got. */
#ifndef TOKEND_WEIGHTS_IMAGINED_H
#define TOKEND_WEIGHTS_IMAGINED_H

#include "weights.h"

/* As which types files have them: norms, biases and routers are floats in every file. */
struct imagined_types {
    enum dtype layers;  /* matrices of the layers; rows that its blocks do not divide: `plain` */
    enum dtype experts; /* those of experts */
    enum dtype plain;   /* F32, F16 or BF16: all the rest */
};

/* NULL and *e: out of memory. */
struct weights *weights_open_imagined(const struct imagined_types *, struct err *e);

#endif
