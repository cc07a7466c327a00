#include "heap_trim.h"

#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

static void trim(uv_work_t *work)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

static void on_trimmed(uv_work_t *work, int status)
{
    free(work);
}

void heap_trim_start(uv_loop_t *loop)
{
    uv_work_t *work = malloc(sizeof *work);
    if (work && uv_queue_work(loop, work, trim, on_trimmed) != 0)
        free(work);
}
