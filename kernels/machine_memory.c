#include "machine_memory.h"

#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

/* What a control group may take: a number, or "max", or no such file. */
static uint64_t group_limit(const char *path)
{
    unsigned long long v = 0;
    FILE *f = fopen(path, "re");
    if (!f)
        return UINT64_MAX;
    int found = fscanf(f, "%llu", &v);
    fclose(f);
    return found == 1 ? v : UINT64_MAX;
}

uint64_t memory_of_machine(void)
{
    uint64_t total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    static const char *const limits[] = {
        "/sys/fs/cgroup/memory.max",                   /* version 2 */
        "/sys/fs/cgroup/memory/memory.limit_in_bytes", /* version 1: without a limit, huge */
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        uint64_t limit = group_limit(limits[i]);
        total = limit < total ? limit : total;
    }
    return total;
}
