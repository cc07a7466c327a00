/* fake_rig.h: engine_rig.h on the device of fake_backend.h. Include after test.h. */
#ifndef TOKEND_FAKE_RIG_H
#define TOKEND_FAKE_RIG_H

#include "engine_rig.h"
#include "fake_backend.h"

static const char *const file = "llama3.F16.gguf";

static bool steps_ahead; /* tests run once without and once with */

static inline struct engine_config fake_config(void)
{
    struct engine_config c = rig_defaults;
    c.open_backend = fake_open;
    c.async_scheduling = steps_ahead;
    return c;
}

static inline int setup(void **state)
{
    fake_reset();
    steps_ahead = false;
    return 0;
}

static inline int setup_ahead(void **state)
{
    fake_reset();
    steps_ahead = true;
    return 0;
}
/* A test that runs in both modes */
#define WITH_AND_WITHOUT_AHEAD(f)                                                                  \
    cmocka_unit_test_setup(f, setup),                                                              \
    {                                                                                              \
        "steps ahead: " #f, f, setup_ahead, NULL, NULL                                             \
    }

#endif
