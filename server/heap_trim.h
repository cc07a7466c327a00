/* heap_trim.h: memory that was freed goes back to the system.
 *
 * What was made in many small pieces (JSON) leaves free pages between those still used; malloc
 * keeps them, in each thread's arena, until it is asked. */
#ifndef TOKEND_HEAP_TRIM_H
#define TOKEND_HEAP_TRIM_H

#include <uv.h>

/* Asks it on a pool thread; costs milliseconds there. Loop thread. */
void heap_trim_start(uv_loop_t *);

#endif
