/* page_claims.h: which pages a step computes that others could use, too.
 *
 * While a step is put together, each sequence with a prefill chunk claims the next whole page
 * of its path; a sequence that needs an equal page (parent node, key and tokens are compared)
 * waits for the prefix cache to have it. Only the next page needs a claim: whoever could share
 * a later one stands at the same node now and waits already.
 * A claim points to the claimer's tokens and lives until the next page_claims_clear. */
#ifndef TOKEND_PAGE_CLAIMS_H
#define TOKEND_PAGE_CLAIMS_H

#include "prefix_cache.h"

struct page_claims;

/* Room for max_claims a step. NULL: out of memory. */
struct page_claims *page_claims_open(const struct prefix_cache *, int block_size, int max_claims);
void page_claims_free(struct page_claims *); /* NULL is fine */

void page_claims_clear(struct page_claims *);
void page_claims_add(struct page_claims *, prefix_node parent, struct prefix_key,
                     const int32_t *tokens);
bool page_claims_has(const struct page_claims *, prefix_node parent, struct prefix_key,
                     const int32_t *tokens);

#endif
