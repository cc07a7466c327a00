/* backend_module.h: a backend in a shared library of its own, so that the program needs neither its
 * headers nor its runtime.
 *
 * The library exports one symbol, backend_module_of. Both sides are built from one tree; what
 * they must agree on is in the struct's first fields, which are compared before anything else is
 * used. */
#ifndef TOKEND_BACKEND_MODULE_H
#define TOKEND_BACKEND_MODULE_H

#include "backend.h"

enum { BACKEND_MODULE_ABI = 1 }; /* of what sizes do not show */

struct backend_module {
    uint32_t abi;
    uint32_t ops_bytes, config_bytes, inputs_bytes; /* of the structs of backend.h */
    const char *version;                            /* of the program that it belongs to */
    /* Whether there is a device that open could use; false and *e: why not. */
    bool (*usable)(struct err *e);
    struct backend *(*open)(const struct backend_config *, struct err *e);
};

#define BACKEND_MODULE_SYMBOL "backend_module_of"
const struct backend_module *backend_module_of(void);

#endif
