#include "heap_trim.h"

#include "text_pool.h"

#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

enum { MOST_KEPT = 2 << 20 };

void heap_trim_setup(void)
{
#ifdef __GLIBC__
    mallopt(M_TRIM_THRESHOLD, MOST_KEPT);
    mallopt(M_MXFAST, 0); /* what is freed joins its neighbours at once, up to the arena's end */
#endif
}

static void trim(uv_work_t *work)
{
    text_pool_enter();
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
