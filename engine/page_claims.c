#include "page_claims.h"

#include "check.h"

#include <string.h>

struct claim {
    uint64_t step; /* of page_claims; an older one is empty */
    uint64_t hash;
    prefix_node parent;
    struct prefix_key key;
    const int32_t *tokens;
};

struct page_claims {
    const struct prefix_cache *cache;
    int block_size, max_claims, n_claims;
    uint64_t step;
    size_t n_slots;       /* a power of two, at least twice max_claims */
    struct claim slots[]; /* open addressing */
};

struct page_claims *page_claims_open(const struct prefix_cache *cache, int block_size,
                                     int max_claims)
{
    size_t n_slots = 2;
    while (n_slots < 2 * (size_t)max_claims)
        n_slots *= 2;
    struct page_claims *c = calloc(1, sizeof *c + n_slots * sizeof c->slots[0]);
    if (!c)
        return NULL;
    c->cache = cache;
    c->block_size = block_size;
    c->max_claims = max_claims;
    c->n_slots = n_slots;
    c->step = 1;
    return c;
}

void page_claims_free(struct page_claims *c)
{
    free(c);
}

void page_claims_clear(struct page_claims *c)
{
    c->step++;
    c->n_claims = 0;
}

static bool is_claim(const struct page_claims *c, const struct claim *claim, uint64_t hash,
                     prefix_node parent, struct prefix_key key, const int32_t *tokens)
{
    return claim->hash == hash && claim->parent == parent && prefix_key_equal(claim->key, key) &&
           !memcmp(claim->tokens, tokens, (size_t)c->block_size * sizeof *tokens);
}

/* The equal claim's slot, or the empty one where it would go. */
static size_t find_slot(const struct page_claims *c, uint64_t hash, prefix_node parent,
                        struct prefix_key key, const int32_t *tokens)
{
    size_t i = hash & (c->n_slots - 1);
    while (c->slots[i].step == c->step && !is_claim(c, &c->slots[i], hash, parent, key, tokens))
        i = (i + 1) & (c->n_slots - 1);
    return i;
}

void page_claims_add(struct page_claims *c, prefix_node parent, struct prefix_key key,
                     const int32_t *tokens)
{
    uint64_t hash = prefix_cache_hash(c->cache, parent, key, tokens);
    struct claim *claim = &c->slots[find_slot(c, hash, parent, key, tokens)];
    if (claim->step == c->step)
        return;
    CHECK(c->n_claims < c->max_claims);
    c->n_claims++;
    *claim = (struct claim){c->step, hash, parent, key, tokens};
}

bool page_claims_has(const struct page_claims *c, prefix_node parent, struct prefix_key key,
                     const int32_t *tokens)
{
    uint64_t hash = prefix_cache_hash(c->cache, parent, key, tokens);
    return c->slots[find_slot(c, hash, parent, key, tokens)].step == c->step;
}
