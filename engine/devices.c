#include "devices.h"

#include <stddef.h>
#include <strings.h>

#define GPU(name, mib, gb_s, tflops)                                                               \
    {                                                                                              \
        name, (uint64_t)(mib) << 20, (gb_s)*1e9, (tflops)*1e12, true                               \
    }

static const struct device_facts all[] = {
    GPU("t4", 15360, 320, 65),          GPU("a10", 23028, 600, 125),
    GPU("a100-40g", 40960, 1555, 312),  GPU("a100-80g", 81920, 2039, 312),
    GPU("l4", 23034, 300, 121),         GPU("l40s", 46068, 864, 362),
    GPU("rtx-3090", 24576, 936, 71),    GPU("rtx-4090", 24564, 1008, 165),
    GPU("rtx-5090", 32607, 1792, 209),  GPU("h100", 81559, 3350, 989),
    GPU("h100-pcie", 81559, 2000, 756), GPU("h200", 143771, 4800, 989),
    GPU("b200", 183359, 8000, 2250),
};

const struct device_facts *devices_all(int *n)
{
    *n = sizeof all / sizeof *all;
    return all;
}

const struct device_facts *device_find(const char *name)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcasecmp(all[i].name, name) == 0)
            return &all[i];
    return NULL;
}
