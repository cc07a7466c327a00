#include "prefix_cache.h"

#include "check.h"
#include "list.h"
#include "siphash.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

enum node_state {
    NODE_FREE,
    NODE_LINKED,   /* in the tree and in the hash table */
    NODE_DETACHED, /* forgotten while in use: in neither, has neither parent nor children */
};

/* Page p belongs to node p + 1; node 0 is the root, which has no page. */
struct node {
    enum node_state state;
    prefix_node parent, first_child, next_sibling, prev_sibling;
    prefix_node next_in_bucket;
    uint64_t hash;
    struct prefix_key key;
    struct list_node lru; /* linked while nobody references the page */
};

struct prefix_cache {
    struct page_pool *pool;
    int n_pages, block_size;
    struct siphash_key hash_key;
    uint64_t hash_mask;
    size_t n_buckets;         /* a power of two */
    prefix_node *buckets;     /* [n_buckets] first node of each chain */
    struct node *nodes;       /* [n_pages + 1] */
    int32_t *tokens;          /* [n_pages][block_size] */
    unsigned char *hash_text; /* [sizeof(struct hash_head) + block_size * 4], scratch */
    uint64_t version;         /* see prefix_cache_version */
    struct list lru;          /* unreferenced nodes, least recently used first */
};

/* What is hashed before the tokens. */
struct hash_head {
    uint64_t salt;
    int32_t parent, adapter;
};

static int32_t page_of(prefix_node n)
{
    return n - 1;
}

static int32_t *tokens_of(const struct prefix_cache *c, prefix_node n)
{
    return c->tokens + (size_t)page_of(n) * (size_t)c->block_size;
}

static struct node *node_at(const struct prefix_cache *c, prefix_node n)
{
    CHECK(n >= PREFIX_ROOT && n <= c->n_pages && c->nodes[n].state != NODE_FREE);
    return &c->nodes[n];
}

static bool in_use(const struct prefix_cache *c, prefix_node n)
{
    return page_pool_refs(c->pool, page_of(n)) > 0;
}

/* --- open and close --- */

static bool draw_key(struct siphash_key *key, struct err *e)
{
    ssize_t n;
    do
        n = getrandom(key, sizeof *key, 0);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof *key)
        return err_errno(e, "prefix cache: getrandom");
    return true;
}

static bool take_memory(struct prefix_cache *c)
{
    size_t n = (size_t)c->n_pages, block = (size_t)c->block_size;
    c->n_buckets = 1;
    while (c->n_buckets < 2 * n)
        c->n_buckets *= 2;
    c->buckets = malloc(c->n_buckets * sizeof *c->buckets);
    c->nodes = calloc(n + 1, sizeof *c->nodes);
    c->tokens = calloc(n * block, sizeof *c->tokens);
    c->hash_text = malloc(sizeof(struct hash_head) + block * sizeof *c->tokens);
    if (!c->buckets || !c->nodes || !c->tokens || !c->hash_text)
        return false;
    for (size_t i = 0; i < c->n_buckets; i++)
        c->buckets[i] = PREFIX_NONE;
    c->nodes[PREFIX_ROOT] =
        (struct node){.state = NODE_LINKED, .parent = PREFIX_NONE, .first_child = PREFIX_NONE};
    return true;
}

static void on_unused(void *cache, int32_t page);
static void on_used(void *cache, int32_t page);

struct prefix_cache *prefix_cache_open(struct page_pool *pool, int block_size, struct err *e)
{
    if (block_size < 1) {
        err_set(e, ERR_INVALID, "prefix cache: block size is %d, must be at least 1", block_size);
        return NULL;
    }
    struct prefix_cache *c = calloc(1, sizeof *c);
    if (!c) {
        err_set(e, ERR_MEMORY, "prefix cache: out of memory");
        return NULL;
    }
    c->pool = pool;
    c->n_pages = page_pool_total(pool);
    c->block_size = block_size;
    c->hash_mask = UINT64_MAX;
    list_init(&c->lru);
    if (!take_memory(c)) {
        err_set(e, ERR_MEMORY, "prefix cache for %d pages: out of memory", c->n_pages);
        goto fail;
    }
    if (!draw_key(&c->hash_key, e))
        goto fail;
    page_pool_watch(pool, (struct page_watcher){on_unused, on_used, c});
    return c;
fail:
    prefix_cache_free(c);
    return NULL;
}

void prefix_cache_free(struct prefix_cache *c)
{
    if (!c)
        return;
    page_pool_watch(c->pool, (struct page_watcher){0});
    for (int32_t page = 0; c->nodes && page < c->n_pages; page++)
        if (c->nodes[page + 1].state != NODE_FREE)
            page_pool_set_known(c->pool, page, false);
    free(c->buckets);
    free(c->nodes);
    free(c->tokens);
    free(c->hash_text);
    free(c);
}

/* --- the hash table --- */

uint64_t prefix_cache_hash(const struct prefix_cache *c, prefix_node parent, struct prefix_key key,
                           const int32_t *tokens)
{
    struct hash_head head = {key.salt, parent, key.adapter};
    size_t n = (size_t)c->block_size * sizeof *tokens;
    memcpy(c->hash_text, &head, sizeof head);
    memcpy(c->hash_text + sizeof head, tokens, n);
    return siphash24(c->hash_key, c->hash_text, sizeof head + n) & c->hash_mask;
}

void prefix_cache_mask_hash(struct prefix_cache *c, uint64_t mask)
{
    c->hash_mask = mask;
}

static prefix_node *bucket(const struct prefix_cache *c, uint64_t hash)
{
    return &c->buckets[hash & (c->n_buckets - 1)];
}

static bool is_child(const struct prefix_cache *c, prefix_node n, prefix_node parent,
                     struct prefix_key key, const int32_t *tokens)
{
    const struct node *node = &c->nodes[n];
    return node->parent == parent && prefix_key_equal(node->key, key) &&
           !memcmp(tokens_of(c, n), tokens, (size_t)c->block_size * sizeof *tokens);
}

static prefix_node find_hashed(const struct prefix_cache *c, uint64_t hash, prefix_node parent,
                               struct prefix_key key, const int32_t *tokens)
{
    prefix_node n = *bucket(c, hash);
    while (n != PREFIX_NONE && !(c->nodes[n].hash == hash && is_child(c, n, parent, key, tokens)))
        n = c->nodes[n].next_in_bucket;
    return n;
}

prefix_node prefix_cache_find(const struct prefix_cache *c, prefix_node parent,
                              struct prefix_key key, const int32_t *tokens)
{
    if (node_at(c, parent)->state == NODE_DETACHED)
        return PREFIX_NONE;
    return find_hashed(c, prefix_cache_hash(c, parent, key, tokens), parent, key, tokens);
}

static void remove_from_bucket(struct prefix_cache *c, prefix_node n)
{
    prefix_node *at = bucket(c, c->nodes[n].hash);
    while (*at != n)
        at = &c->nodes[*at].next_in_bucket;
    *at = c->nodes[n].next_in_bucket;
}

/* --- the tree --- */

static void link_node(struct prefix_cache *c, prefix_node n)
{
    struct node *node = &c->nodes[n], *parent = &c->nodes[node->parent];
    prefix_node *first = bucket(c, node->hash);
    node->next_in_bucket = *first;
    *first = n;
    node->prev_sibling = PREFIX_NONE;
    node->next_sibling = parent->first_child;
    if (parent->first_child != PREFIX_NONE)
        c->nodes[parent->first_child].prev_sibling = n;
    parent->first_child = n;
    node->state = NODE_LINKED;
    c->version++;
}

/* Takes a leaf out of tree and table. */
static void unlink_node(struct prefix_cache *c, prefix_node n)
{
    struct node *node = &c->nodes[n];
    CHECK(node->first_child == PREFIX_NONE);
    remove_from_bucket(c, n);
    if (node->prev_sibling != PREFIX_NONE)
        c->nodes[node->prev_sibling].next_sibling = node->next_sibling;
    else
        c->nodes[node->parent].first_child = node->next_sibling;
    if (node->next_sibling != PREFIX_NONE)
        c->nodes[node->next_sibling].prev_sibling = node->prev_sibling;
    node->parent = PREFIX_NONE;
    node->state = NODE_DETACHED;
    c->version++;
}

/* The end of a detached node without users. */
static void free_node(struct prefix_cache *c, prefix_node n)
{
    c->nodes[n].state = NODE_FREE;
    page_pool_set_known(c->pool, page_of(n), false);
}

prefix_node prefix_cache_insert(struct prefix_cache *c, prefix_node parent, struct prefix_key key,
                                const int32_t *tokens, int32_t page)
{
    bool detached = node_at(c, parent)->state == NODE_DETACHED;
    uint64_t hash = prefix_cache_hash(c, parent, key, tokens);
    prefix_node n = detached ? PREFIX_NONE : find_hashed(c, hash, parent, key, tokens);
    if (n != PREFIX_NONE)
        return n;
    page_pool_set_known(c->pool, page, true);
    n = page + 1;
    c->nodes[n] = (struct node){.state = NODE_DETACHED,
                                .parent = detached ? PREFIX_NONE : parent,
                                .first_child = PREFIX_NONE,
                                .hash = hash,
                                .key = key};
    memcpy(tokens_of(c, n), tokens, (size_t)c->block_size * sizeof *tokens);
    if (!detached)
        link_node(c, n);
    return n;
}

uint64_t prefix_cache_version(const struct prefix_cache *c)
{
    return c->version;
}

int32_t prefix_cache_page(const struct prefix_cache *c, prefix_node n)
{
    CHECK(n != PREFIX_ROOT);
    node_at(c, n);
    return page_of(n);
}

prefix_node prefix_cache_node_of(const struct prefix_cache *c, int32_t page)
{
    node_at(c, page + 1);
    return page + 1;
}

/* --- use and reclaim --- */

int32_t prefix_cache_use(struct prefix_cache *c, prefix_node n)
{
    int32_t page = prefix_cache_page(c, n);
    page_pool_ref(c->pool, page);
    return page;
}

static void on_used(void *cache, int32_t page)
{
    struct prefix_cache *c = cache;
    c->version++;
    list_remove(&c->nodes[page + 1].lru);
}

static void on_unused(void *cache, int32_t page)
{
    struct prefix_cache *c = cache;
    struct node *node = &c->nodes[page + 1];
    c->version++;
    if (node->state == NODE_DETACHED)
        free_node(c, page + 1);
    else
        list_push_back(&c->lru, &node->lru);
}

bool prefix_cache_reclaim(struct prefix_cache *c)
{
    struct list_node *at = list_first(&c->lru);
    while (at && list_entry(at, struct node, lru)->first_child != PREFIX_NONE)
        at = list_next(&c->lru, at);
    if (!at)
        return false;
    prefix_node n = (prefix_node)(list_entry(at, struct node, lru) - c->nodes);
    list_remove(at);
    unlink_node(c, n);
    free_node(c, n);
    return true;
}

static void forget_leaf(struct prefix_cache *c, prefix_node n)
{
    unlink_node(c, n);
    if (in_use(c, n))
        return;
    list_remove(&c->nodes[n].lru);
    free_node(c, n);
}

void prefix_cache_forget(struct prefix_cache *c, prefix_node top)
{
    if (node_at(c, top)->state == NODE_DETACHED)
        return;
    for (prefix_node n = top;;) {
        while (c->nodes[n].first_child != PREFIX_NONE)
            n = c->nodes[n].first_child;
        prefix_node parent = c->nodes[n].parent;
        if (n != PREFIX_ROOT)
            forget_leaf(c, n);
        if (n == top)
            return;
        n = parent;
    }
}

void prefix_cache_reset(struct prefix_cache *c)
{
    prefix_cache_forget(c, PREFIX_ROOT);
}

/* --- check --- */

static int count_children(const struct prefix_cache *c, prefix_node parent)
{
    int n_children = 0;
    prefix_node prev = PREFIX_NONE;
    for (prefix_node n = c->nodes[parent].first_child; n != PREFIX_NONE;
         prev = n, n = c->nodes[n].next_sibling) {
        CHECK(c->nodes[n].state == NODE_LINKED && c->nodes[n].parent == parent);
        CHECK(c->nodes[n].prev_sibling == prev);
        CHECK(++n_children <= c->n_pages);
    }
    return n_children;
}

static void check_node(const struct prefix_cache *c, prefix_node n)
{
    const struct node *node = &c->nodes[n];
    CHECK(page_pool_is_known(c->pool, page_of(n)) == (node->state != NODE_FREE));
    if (node->state == NODE_FREE)
        return;
    CHECK(list_linked(&node->lru) == !in_use(c, n));
    CHECK(node->state == NODE_LINKED || in_use(c, n));
    if (node->state == NODE_LINKED)
        CHECK(prefix_cache_find(c, node->parent, node->key, tokens_of(c, n)) == n);
    else
        CHECK(node->first_child == PREFIX_NONE);
}

void prefix_cache_check(const struct prefix_cache *c)
{
    int n_linked = 0, n_children = count_children(c, PREFIX_ROOT), n_lru = 0;
    for (prefix_node n = 1; n <= c->n_pages; n++) {
        check_node(c, n);
        n_linked += c->nodes[n].state == NODE_LINKED;
        n_children += c->nodes[n].state == NODE_LINKED ? count_children(c, n) : 0;
    }
    CHECK(n_children == n_linked);
    for (const struct list_node *at = list_first(&c->lru); at; at = list_next(&c->lru, at))
        CHECK(++n_lru <= c->n_pages);
    CHECK(n_lru == page_pool_n_cached(c->pool));
}
