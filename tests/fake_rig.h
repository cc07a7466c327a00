/* fake_rig.h: engine_rig.h on the device of fake_backend.h. Include after test.h. */
#ifndef TOKEND_FAKE_RIG_H
#define TOKEND_FAKE_RIG_H

#include "engine_rig.h"
#include "fake_backend.h"

static const char *const file = "llama3.F16.gguf";

static inline struct engine_config fake_config(void)
{
    struct engine_config c = rig_defaults;
    c.open_backend = fake_open;
    return c;
}

static inline int setup(void **state)
{
    fake_reset();
    return 0;
}

#endif
