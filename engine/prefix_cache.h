/* prefix_cache.h: full pages of earlier prompts and answers, found by their tokens.
 *
 * A tree of full pages: a node is (parent, the page's tokens, adapter, salt). A keyed hash
 * (SipHash-2-4, key drawn per process) finds the candidate; equality of parent, tokens,
 * adapter and salt decides (promise 2). A node holds its page as long as it lives: pages
 * without a user stay, in the order of their last use, leaves before parents, until
 * reclaimed. Which node is found or reclaimed never depends on the hash key.
 *
 * A user of a node should reference the pages of the whole path to it, and release them tail
 * first: then the page used longest ago is always a leaf, every cached page can be reclaimed,
 * and reclaiming is O(1). (The cache stays correct without: a page with children is passed
 * over, and stays as long as they do.)
 *
 * A node that was forgotten while in use is detached: nobody finds it any more, its handle
 * stays valid for its users, what they insert below it is detached too, and its page is freed
 * with their last reference.
 * Owned and called by the engine thread only. No allocation after prefix_cache_open: a pool
 * of n pages can have at most n nodes. */
#ifndef TOKEND_PREFIX_CACHE_H
#define TOKEND_PREFIX_CACHE_H

#include "page_pool.h"

struct prefix_cache;
typedef int32_t prefix_node; /* PREFIX_ROOT above the first page; < 0 below it: none */
enum { PREFIX_NONE = -1, PREFIX_ROOT = 0 };

/* Two requests share pages only if their keys are equal. */
struct prefix_key {
    int32_t adapter; /* -1: none */
    uint64_t salt;   /* 0: none; else the number of the request's cache_salt */
};

static inline bool prefix_key_equal(struct prefix_key a, struct prefix_key b)
{
    return a.adapter == b.adapter && a.salt == b.salt;
}

/* Becomes the pool's watcher. The pool must outlive it. */
struct prefix_cache *prefix_cache_open(struct page_pool *, int block_size, struct err *e);
void prefix_cache_free(struct prefix_cache *); /* NULL is fine; forgets all pages */

/* The child of `parent` that holds exactly tokens[block_size], or PREFIX_NONE. */
prefix_node prefix_cache_find(const struct prefix_cache *, prefix_node parent, struct prefix_key,
                              const int32_t *tokens);
int32_t prefix_cache_page(const struct prefix_cache *, prefix_node);
/* A number that changes whenever another page can be found, one cannot any more, or a known page
 * comes into use or out of it: equal numbers mean that equal look-ups have equal results. */
uint64_t prefix_cache_version(const struct prefix_cache *);
/* Takes a reference on the node's page for a sequence, so that the node counts as used until
 * that goes (page_pool_unref). */
int32_t prefix_cache_use(struct prefix_cache *, prefix_node);

/* Enters a page (in use, full, computed, not known yet) under parent. When an equal node is
 * there already, nothing changes and that node is returned: the caller had better change over
 * to that node's page and release its own. */
prefix_node prefix_cache_insert(struct prefix_cache *, prefix_node parent, struct prefix_key,
                                const int32_t *tokens, int32_t page);

/* Frees the least recently used page that nobody references and that has no child with
 * pages; false when there is none. */
bool prefix_cache_reclaim(struct prefix_cache *);
/* Forgets everything (engine_reset_prefix_cache); what is in use is detached. */
void prefix_cache_reset(struct prefix_cache *);
/* Forgets a node and everything below it: a request whose numbers were bad. */
void prefix_cache_forget(struct prefix_cache *, prefix_node);
/* The node of a known page. */
prefix_node prefix_cache_node_of(const struct prefix_cache *, int32_t page);

/* The keyed hash of what makes a node, for tables that find pages not yet entered. */
uint64_t prefix_cache_hash(const struct prefix_cache *, prefix_node parent, struct prefix_key,
                           const int32_t *tokens);
/* Tests: keeps only these bits of every hash; 0 makes everything collide. Before the first insert.
 */
void prefix_cache_mask_hash(struct prefix_cache *, uint64_t mask);

/* Recounts the tree against the pool and aborts on a difference. */
void prefix_cache_check(const struct prefix_cache *);

#endif
