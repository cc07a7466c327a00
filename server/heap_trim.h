/* heap_trim.h: memory that was freed goes back to the system.
 *
 * What was made in many small pieces (JSON) leaves free pages between those still used; malloc
 * keeps them, in each thread's arena, until it is asked. */
#ifndef TOKEND_HEAP_TRIM_H
#define TOKEND_HEAP_TRIM_H

#include <uv.h>

/* Once, before there are threads: free memory at an arena's end goes back by itself. malloc's own
 * bound for that grows with what is allocated, to 64 MiB an arena, which no asking trims. */
void heap_trim_setup(void);
/* Asks it on a pool thread; costs milliseconds there. Loop thread. */
void heap_trim_start(uv_loop_t *);

#endif
