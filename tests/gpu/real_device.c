/* real_device.c: emu_control.h where the device is a GPU: there is nothing to choose, and what is
 * found is found by the results, by errors of calls and by compute-sanitizer. */
#include <cuda_runtime_api.h>

#include "emu_control.h"

int emu_emulated(void)
{
    return 0;
}

void emu_configure(const struct emu_options *o)
{
    (void)o;
}

void emu_device(int capability)
{
    (void)capability;
}

int emu_reports(void)
{
    return 0;
}

const char *emu_last_report(void)
{
    return "";
}

void emu_quiet(int quiet)
{
    (void)quiet;
}

void emu_forgive(void)
{
    cudaGetLastError();
}

uint64_t emu_memory_held(void)
{
    return 0;
}

int emu_finds_races(void)
{
    return 0;
}
