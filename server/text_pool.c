#include "text_pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { NICER = 5, NICEST = 19 };

void text_pool_setup(void)
{
    setenv("UV_THREADPOOL_SIZE", "2", 0);
}

/* On Linux priorities are a thread's: 0 is the calling one, the process's id its first. */
void text_pool_enter(void)
{
    const int usual = getpriority(PRIO_PROCESS, (id_t)getpid());
    const int wanted = usual + NICER < NICEST ? usual + NICER : NICEST;
    if (getpriority(PRIO_PROCESS, 0) >= wanted)
        return;
    setpriority(PRIO_PROCESS, 0, wanted);
    pthread_setname_np(pthread_self(), "text");
}
