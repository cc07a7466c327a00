/* devices.h: what memory plans know of devices: the figures of their makers' data sheets. */
#ifndef TOKEND_DEVICES_H
#define TOKEND_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

struct device_facts {
    const char *name; /* "a100-80g" */
    uint64_t memory;  /* bytes, as the driver tells; 0: not known */
    double bandwidth; /* of it, bytes a second; 0: not known */
    double flops;     /* dense, 16-bit floats, added in 32 bits, a second; 0: not known */
    bool is_gpu;
};

/* All that are known by name; *n of them. */
const struct device_facts *devices_all(int *n);
/* NULL: no such name (any case). */
const struct device_facts *device_find(const char *name);

#endif
