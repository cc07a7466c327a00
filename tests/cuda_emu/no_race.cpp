/* Memory of a build that does not look for races: the host's, so that ASan guards it. */
#include "emu.h"

#include <cstdio>
#include <cstdlib>

void *emu_memory_take(size_t size, bool)
{
    void *p = nullptr;
    if (posix_memalign(&p, 1024, size ? size : 1)) {
        fprintf(stderr, "cuda_emu: no memory\n");
        abort();
    }
    return p;
}

void emu_memory_give(void *p, bool)
{
    free(p);
}

int emu_finds_races(void)
{
    return 0;
}

void emu_atomic(const void *, size_t)
{
}

void race_launch(const char *)
{
}

void race_block(int)
{
}

void race_join(const int *, int)
{
}

void race_release(const void *)
{
}

void race_acquire(const void *)
{
}

void race_access(const void *, size_t, bool, const void *)
{
}
