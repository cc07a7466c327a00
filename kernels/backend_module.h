/* backend_module.h: a backend in a shared library of its own, so that the program needs neither its
 * headers nor its runtime.
 *
 * The library exports one symbol, backend_module_of. Both sides are built from one tree; what
 * they must agree on is in the struct's first fields, which are compared before anything else is
 * used. */
#ifndef TOKEND_BACKEND_MODULE_H
#define TOKEND_BACKEND_MODULE_H

#include "backend.h"
#include "log.h"

#include <stddef.h>

/* Of what the layout does not show: the order of functions, what they mean */
enum { BACKEND_MODULE_ABI = 2 };

/* A number that changes with the size of any struct that both sides use, or the number of a kind.
 */
#define BACKEND_LAYOUT_STEP(sum, x) ((sum)*UINT64_C(1099511628211) + (x))
#define BACKEND_LAYOUT_4(sum, a, b, c, d)                                                          \
    BACKEND_LAYOUT_STEP(                                                                           \
        BACKEND_LAYOUT_STEP(BACKEND_LAYOUT_STEP(BACKEND_LAYOUT_STEP(sum, a), b), c), d)
static const uint64_t backend_module_layout = BACKEND_LAYOUT_4(
    BACKEND_LAYOUT_4(
        BACKEND_LAYOUT_4(
            BACKEND_LAYOUT_4(
                BACKEND_LAYOUT_4(0, sizeof(struct draw), sizeof(struct drawn),
                                 sizeof(struct sampler_config),
                                 sizeof(struct top_logprob) * 64 + sizeof(struct logit_bias)),
                sizeof(struct backend_ops), sizeof(struct backend_config),
                sizeof(struct step_inputs), sizeof(struct step_seq)),
            sizeof(struct kv_config), sizeof(struct backend), sizeof(struct err),
            sizeof(struct backend_memory)),
        sizeof(struct norm), sizeof(struct qk_norm), sizeof(struct rope_config),
        sizeof(struct attention_config)),
    sizeof(struct moe_config), sizeof(struct moe_layer), DTYPE_ALL,
    offsetof(struct backend_ops, host_for) * 1024 + offsetof(struct backend_ops, step_begin));

struct backend_module {
    uint32_t abi, struct_bytes; /* struct_bytes: of this one */
    uint64_t layout;
    const char *version; /* of the program that it belongs to */
    /* The library has its own copy of log.h, which then writes as the program's. */
    void (*log_setup)(enum log_level, enum log_format);
    /* Whether there is a device that open could use; false and *e: why not. */
    bool (*usable)(struct err *e);
    struct backend *(*open)(const struct backend_config *, struct err *e);
};

#define BACKEND_MODULE_SYMBOL "backend_module_of"
const struct backend_module *backend_module_of(void);

#endif
