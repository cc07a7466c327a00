/* text_pool.h: libuv's pool, where text is parsed, rendered, tokenised and written.
 *
 * Few threads, and niced: text yields to the threads that compute. Two already read more text than
 * any machine prefills; the second one is for what comes while the first has something long. */
#ifndef TOKEND_TEXT_POOL_H
#define TOKEND_TEXT_POOL_H

/* Before anything is queued: how many threads, unless the user says (UV_THREADPOOL_SIZE). */
void text_pool_setup(void);

/* First thing in every function that works on text there. Once niced a thread stays so, and would
 * pass it on to those it starts: loading, which starts the engine's, does not call this. */
void text_pool_enter(void);

#endif
