/* weights_impl.h: what each kind of model file implements of weights.h. A kind's own struct
 * begins with struct weights. */
#ifndef TOKEND_WEIGHTS_IMPL_H
#define TOKEND_WEIGHTS_IMPL_H

#include "weights.h"

struct weights {
    const struct weights_kind *kind;
};

struct weights_kind {
    bool (*has)(const struct weights *, const char *name);
    bool (*get)(const struct weights *, const char *name, int expert, int64_t rows, int64_t cols,
                bool check, struct weight_view *out, struct err *e); /* *out is zeroed */
    bool (*all_f32)(const struct weights *);
    void (*close)(struct weights *);
};

#endif
