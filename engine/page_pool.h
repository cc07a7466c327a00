/* page_pool.h: which KV pages are free, cached or in use.
 *
 * A pool counts pages and knows nothing of devices: page i is slot i of the backend's pool.
 * A page in use has one reference for each sequence that names it. When the last reference
 * goes, a page that the prefix cache holds becomes `cached` (the cache keeps the LRU order
 * and gives it back when the pool runs dry), any other becomes free.
 * Promise 3: free + cached + in use = total after any history.
 * take, ref and unref are O(1); the page freed last is taken first, and pages that were never
 * taken come last: memory that nobody has touched stays so while there is other.
 * Owned and called by the engine thread only. No allocation after page_pool_open. */
#ifndef TOKEND_PAGE_POOL_H
#define TOKEND_PAGE_POOL_H

#include "err.h"

#include <stdint.h>

struct page_pool;

struct page_pool *page_pool_open(int n_pages, struct err *e);
void page_pool_free(struct page_pool *); /* NULL is fine */

int page_pool_total(const struct page_pool *);
int page_pool_n_free(const struct page_pool *);
int page_pool_n_cached(const struct page_pool *);
int page_pool_n_in_use(const struct page_pool *);
/* Pages that were ever taken, which only grows: those that a device's memory really holds. */
int page_pool_n_touched(const struct page_pool *);

/* A free page with one reference, or -1 when none is free (cached pages are not free). */
int32_t page_pool_take(struct page_pool *);
/* One more reference; a cached page comes into use again. A free page cannot be referenced. */
void page_pool_ref(struct page_pool *, int32_t page);
/* One reference less. Pages of a sequence are released tail first. */
void page_pool_unref(struct page_pool *, int32_t page);
int page_pool_refs(const struct page_pool *, int32_t page);

/* The prefix cache marks the pages that it knows (only pages in use become known). An
 * unreferenced page that stops being known becomes free. */
void page_pool_set_known(struct page_pool *, int32_t page, bool known);
bool page_pool_is_known(const struct page_pool *, int32_t page);

/* How the prefix cache learns of known pages' comings and goings. Called after the counts
 * have changed, so that the callee may change the pool again. */
struct page_watcher {
    void (*unused)(void *arg, int32_t page); /* a known page lost its last reference */
    void (*used)(void *arg, int32_t page);   /* a cached page got its first one */
    void *arg;
};
/* One watcher a pool; a zeroed one watches nothing. */
void page_pool_watch(struct page_pool *, struct page_watcher);

/* Recounts everything and aborts on a difference: tests, and debug builds when idle. */
void page_pool_check(const struct page_pool *);

#endif
