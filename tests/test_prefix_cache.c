#include "prefix_cache.h"
#include "siphash.h"

#include <string.h>

#include "random.h"
#include "test.h"

enum { BLOCK = 2, N_PAGES = 24, N_USERS = 8, MAX_DEPTH = 5, LEVEL = BLOCK + 1 };
enum { N_OPERATIONS = 100000 };

/* One page's worth of a path, as text: the key's letter, then a letter for each token. */
static struct prefix_key key_of(char letter)
{
    static const struct prefix_key keys[] = {{-1, 0}, {-1, 7}, {3, 0}};
    return keys[letter - 'a'];
}

static const int32_t *tokens_of(const char *level, int32_t *tokens)
{
    for (int i = 0; i < BLOCK; i++)
        tokens[i] = level[1 + i];
    return tokens;
}

/* The naive model: a dictionary from whole paths to pages, searched from end to end. */
struct entry {
    bool live, detached;
    char path[LEVEL * (MAX_DEPTH + 1) + 1];
    int refs;
    long unused_at; /* when the last reference went */
};
struct user {
    int32_t pages[MAX_DEPTH];
    int n;
};
struct world {
    struct page_pool *pool;
    struct prefix_cache *cache;
    struct entry entries[N_PAGES]; /* by page */
    struct user users[N_USERS];
    uint64_t rng;
    long clock;
};

static struct world *world_open(uint64_t seed, uint64_t hash_mask)
{
    struct world *w = calloc(1, sizeof *w);
    w->rng = seed;
    w->pool = page_pool_open(N_PAGES, NULL);
    w->cache = prefix_cache_open(w->pool, BLOCK, NULL);
    assert_non_null(w->cache);
    prefix_cache_mask_hash(w->cache, hash_mask);
    return w;
}

static int32_t model_find(const struct world *w, const char *path)
{
    for (int32_t p = 0; p < N_PAGES; p++)
        if (w->entries[p].live && !w->entries[p].detached && !strcmp(w->entries[p].path, path))
            return p;
    return -1;
}

static bool model_has_child(const struct world *w, const char *path)
{
    size_t n = strlen(path);
    for (int32_t p = 0; p < N_PAGES; p++) {
        const struct entry *e = &w->entries[p];
        if (e->live && !e->detached && strlen(e->path) > n && !strncmp(e->path, path, n))
            return true;
    }
    return false;
}

/* -1: nothing can be reclaimed */
static int32_t model_oldest_leaf(const struct world *w)
{
    int32_t oldest = -1;
    for (int32_t p = 0; p < N_PAGES; p++) {
        const struct entry *e = &w->entries[p];
        if (e->live && e->refs == 0 && !model_has_child(w, e->path) &&
            (oldest < 0 || e->unused_at < w->entries[oldest].unused_at))
            oldest = p;
    }
    return oldest;
}

static void model_forget(struct world *w, const char *top)
{
    for (int32_t p = 0; p < N_PAGES; p++) {
        struct entry *e = &w->entries[p];
        if (!e->live || e->detached || strncmp(e->path, top, strlen(top)))
            continue;
        e->detached = true;
        e->live = e->refs > 0;
    }
}

static void equals_model(const struct world *w)
{
    int n_cached = 0, n_in_use = 0;
    for (int32_t p = 0; p < N_PAGES; p++) {
        const struct entry *e = &w->entries[p];
        assert_int_equal(page_pool_is_known(w->pool, p), e->live);
        assert_int_equal(page_pool_refs(w->pool, p), e->refs);
        n_in_use += e->refs > 0;
        n_cached += e->live && e->refs == 0;
    }
    assert_int_equal(page_pool_n_cached(w->pool), n_cached);
    assert_int_equal(page_pool_n_in_use(w->pool), n_in_use);
    assert_int_equal(page_pool_n_free(w->pool), N_PAGES - n_cached - n_in_use);
    page_pool_check(w->pool);
    prefix_cache_check(w->cache);
}

/* --- operations, on cache and model alike --- */

static void random_level(struct world *w, char *level)
{
    level[0] = "aaabc"[random_below(&w->rng, 5)];
    for (int i = 0; i < BLOCK; i++)
        level[1 + i] = "xy"[random_below(&w->rng, 2)];
    level[LEVEL] = '\0';
}

static prefix_node node_of(const struct world *w, int32_t page)
{
    return page < 0 ? PREFIX_ROOT : prefix_cache_node_of(w->cache, page);
}

static void reclaim(struct world *w)
{
    int32_t oldest = model_oldest_leaf(w);
    assert_int_equal(prefix_cache_reclaim(w->cache), oldest >= 0);
    if (oldest >= 0)
        w->entries[oldest].live = false;
}

static void use(struct world *w, struct user *u, int32_t page)
{
    w->entries[page].refs++;
    u->pages[u->n++] = prefix_cache_use(w->cache, node_of(w, page));
}

static void unref(struct world *w, int32_t page)
{
    struct entry *e = &w->entries[page];
    if (--e->refs == 0) {
        e->unused_at = w->clock++;
        e->live = !e->detached;
    }
    page_pool_unref(w->pool, page);
}

/* The user gets the page of `level` below `parent` (-1: the root), found or made. */
static bool extend(struct world *w, struct user *u, int32_t parent, const char *level)
{
    const struct entry *above = parent < 0 ? NULL : &w->entries[parent];
    char path[sizeof above->path];
    int32_t tokens[BLOCK];
    snprintf(path, sizeof path, "%s%s", above ? above->path : "", level);
    bool detached = above && above->detached;
    int32_t known = detached ? -1 : model_find(w, path);
    prefix_node node =
        prefix_cache_find(w->cache, node_of(w, parent), key_of(level[0]), tokens_of(level, tokens));
    assert_int_equal(node, known < 0 ? PREFIX_NONE : node_of(w, known));
    if (known >= 0 && random_below(&w->rng, 3)) {
        use(w, u, known);
        return true;
    }
    int32_t own = page_pool_take(w->pool);
    if (own < 0)
        return false;
    node = prefix_cache_insert(w->cache, node_of(w, parent), key_of(level[0]), tokens, own);
    if (known >= 0) {
        assert_int_equal(prefix_cache_page(w->cache, node), known);
        page_pool_unref(w->pool, own);
        use(w, u, known);
        return true;
    }
    assert_int_equal(prefix_cache_page(w->cache, node), own);
    struct entry *e = &w->entries[own];
    *e = (struct entry){.live = true, .detached = detached, .refs = 1};
    memcpy(e->path, path, sizeof path);
    u->pages[u->n++] = own;
    return true;
}

static void walk_from_the_root(struct world *w, struct user *u)
{
    char level[LEVEL + 1];
    int depth = 1 + random_below(&w->rng, MAX_DEPTH);
    do
        random_level(w, level);
    while (extend(w, u, u->n ? u->pages[u->n - 1] : -1, level) && u->n < depth);
}

/* A page below one that its user does not reference: no sequence does this, but it must hold. */
static void insert_below_a_stranger(struct world *w, struct user *u)
{
    char level[LEVEL + 1];
    int32_t parent = random_below(&w->rng, N_PAGES);
    random_level(w, level);
    if (w->entries[parent].live && strlen(w->entries[parent].path) < LEVEL * MAX_DEPTH)
        extend(w, u, parent, level);
}

static void release(struct world *w, struct user *u)
{
    while (u->n > 0)
        unref(w, u->pages[--u->n]);
}

static void forget(struct world *w)
{
    int32_t page = random_below(&w->rng, N_PAGES);
    const struct entry *e = &w->entries[page];
    if (random_below(&w->rng, 10) == 0) {
        prefix_cache_reset(w->cache);
        model_forget(w, "");
    } else if (e->live) {
        prefix_cache_forget(w->cache, node_of(w, page));
        char top[sizeof e->path];
        memcpy(top, e->path, sizeof top);
        if (!e->detached)
            model_forget(w, top);
    }
}

static void operate(struct world *w)
{
    struct user *u = &w->users[random_below(&w->rng, N_USERS)];
    int what = random_below(&w->rng, 40);
    if (what < 12)
        reclaim(w);
    else if (what == 12)
        forget(w);
    else if (u->n > 0)
        release(w, u);
    else if (what < 36)
        walk_from_the_root(w, u);
    else
        insert_below_a_stranger(w, u);
}

static void world_close(struct world *w)
{
    for (int i = 0; i < N_USERS; i++)
        release(w, &w->users[i]);
    equals_model(w);
    while (model_oldest_leaf(w) >= 0)
        reclaim(w);
    assert_false(prefix_cache_reclaim(w->cache));
    assert_int_equal(page_pool_n_free(w->pool), N_PAGES);
    prefix_cache_free(w->cache);
    page_pool_free(w->pool);
    free(w);
}

static void run_history(uint64_t seed, uint64_t hash_mask)
{
    struct world *w = world_open(seed, hash_mask);
    for (int i = 0; i < N_OPERATIONS; i++) {
        operate(w);
        equals_model(w);
    }
    world_close(w);
}

static void any_history_finds_what_a_dictionary_of_paths_finds(void **state)
{
    run_history(random_seed("prefix cache"), UINT64_MAX);
}

static void any_history_does_so_where_every_hash_collides(void **state)
{
    run_history(random_seed("prefix cache, colliding"), 0);
}

/* --- single behaviours --- */

struct small {
    struct page_pool *pool;
    struct prefix_cache *cache;
};

static struct small small_open(void)
{
    struct small s = {.pool = page_pool_open(8, NULL)};
    s.cache = prefix_cache_open(s.pool, BLOCK, NULL);
    return s;
}

static void small_close(struct small s)
{
    prefix_cache_free(s.cache);
    page_pool_free(s.pool);
}

static const struct prefix_key no_key = {-1, 0};

static prefix_node enter(struct small s, prefix_node parent, int32_t a, int32_t b)
{
    return prefix_cache_insert(s.cache, parent, no_key, (int32_t[]){a, b}, page_pool_take(s.pool));
}

static void leave(struct small s, prefix_node n)
{
    page_pool_unref(s.pool, prefix_cache_page(s.cache, n));
}

static bool knows(struct small s, prefix_node parent, int32_t a, int32_t b)
{
    return prefix_cache_find(s.cache, parent, no_key, (int32_t[]){a, b}) != PREFIX_NONE;
}

static void a_hash_collision_does_not_share_a_page(void **state)
{
    struct small s = small_open();
    prefix_cache_mask_hash(s.cache, 0);
    prefix_node a = enter(s, PREFIX_ROOT, 1, 2);
    assert_int_equal(prefix_cache_hash(s.cache, PREFIX_ROOT, no_key, (int32_t[]){1, 2}),
                     prefix_cache_hash(s.cache, a, no_key, (int32_t[]){3, 4}));
    assert_true(knows(s, PREFIX_ROOT, 1, 2));
    assert_false(knows(s, PREFIX_ROOT, 1, 3));
    assert_false(knows(s, a, 1, 2));
    assert_int_not_equal(enter(s, PREFIX_ROOT, 1, 3), a);
    small_close(s);
}

static void another_adapter_or_salt_does_not_share_a_page(void **state)
{
    struct small s = small_open();
    enter(s, PREFIX_ROOT, 1, 2);
    int32_t tokens[] = {1, 2};
    struct prefix_key salted = {-1, 1}, adapted = {0, 0};
    assert_int_equal(prefix_cache_find(s.cache, PREFIX_ROOT, salted, tokens), PREFIX_NONE);
    assert_int_equal(prefix_cache_find(s.cache, PREFIX_ROOT, adapted, tokens), PREFIX_NONE);
    small_close(s);
}

static void reclaim_takes_leaves_before_parents(void **state)
{
    struct small s = small_open();
    prefix_node a = enter(s, PREFIX_ROOT, 1, 1), b = enter(s, a, 2, 2), c = enter(s, b, 3, 3);
    leave(s, a); /* head first: the wrong way, and still */
    leave(s, b);
    leave(s, c);
    assert_true(prefix_cache_reclaim(s.cache));
    assert_true(knows(s, a, 2, 2) && !knows(s, b, 3, 3));
    assert_true(prefix_cache_reclaim(s.cache));
    assert_true(knows(s, PREFIX_ROOT, 1, 1) && !knows(s, a, 2, 2));
    assert_true(prefix_cache_reclaim(s.cache));
    assert_false(prefix_cache_reclaim(s.cache));
    assert_int_equal(page_pool_n_free(s.pool), 8);
    small_close(s);
}

static void reclaim_takes_the_page_used_longest_ago(void **state)
{
    struct small s = small_open();
    prefix_node a = enter(s, PREFIX_ROOT, 1, 1), b = enter(s, PREFIX_ROOT, 2, 2);
    leave(s, a);
    leave(s, b);
    prefix_cache_use(s.cache, a);
    leave(s, a);
    assert_true(prefix_cache_reclaim(s.cache));
    assert_true(knows(s, PREFIX_ROOT, 1, 1) && !knows(s, PREFIX_ROOT, 2, 2));
    small_close(s);
}

static void a_parent_that_nobody_uses_outlives_its_child_in_use(void **state)
{
    struct small s = small_open();
    prefix_node a = enter(s, PREFIX_ROOT, 1, 1), b = enter(s, a, 2, 2);
    leave(s, a);
    assert_false(prefix_cache_reclaim(s.cache));
    assert_true(knows(s, a, 2, 2));
    leave(s, b);
    assert_true(prefix_cache_reclaim(s.cache));
    assert_true(prefix_cache_reclaim(s.cache));
    small_close(s);
}

static void an_equal_page_is_not_entered_twice(void **state)
{
    struct small s = small_open();
    prefix_node a = enter(s, PREFIX_ROOT, 1, 1);
    int32_t own = page_pool_take(s.pool);
    int32_t tokens[] = {1, 1};
    assert_int_equal(prefix_cache_insert(s.cache, PREFIX_ROOT, no_key, tokens, own), a);
    assert_false(page_pool_is_known(s.pool, own));
    small_close(s);
}

static void a_forgotten_page_in_use_is_freed_with_its_last_user(void **state)
{
    struct small s = small_open();
    prefix_node a = enter(s, PREFIX_ROOT, 1, 1), b = enter(s, a, 2, 2);
    prefix_cache_forget(s.cache, a);
    assert_false(knows(s, PREFIX_ROOT, 1, 1));
    prefix_node c = enter(s, b, 3, 3);
    assert_false(knows(s, b, 3, 3));
    prefix_node again = enter(s, PREFIX_ROOT, 1, 1);
    assert_int_not_equal(again, a);
    assert_int_equal(page_pool_n_in_use(s.pool), 4);
    leave(s, c);
    leave(s, b);
    leave(s, a);
    assert_int_equal(page_pool_n_free(s.pool), 7);
    assert_true(knows(s, PREFIX_ROOT, 1, 1));
    small_close(s);
}

static void closing_gives_the_cached_pages_back(void **state)
{
    struct small s = small_open();
    prefix_node a = enter(s, PREFIX_ROOT, 1, 1);
    leave(s, a);
    assert_int_equal(page_pool_n_cached(s.pool), 1);
    prefix_cache_free(s.cache);
    assert_int_equal(page_pool_n_free(s.pool), 8);
    page_pool_free(s.pool);
    prefix_cache_free(NULL);
}

/* From the table of the authors' reference implementation. */
static void siphash_gives_the_reference_values(void **state)
{
    unsigned char text[15];
    for (int i = 0; i < 15; i++)
        text[i] = (unsigned char)i;
    struct siphash_key key = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
    assert_true(siphash24(key, text, 0) == 0x726fdb47dd0e0e31);
    assert_true(siphash24(key, text, 1) == 0x74f839c593dc67fd);
    assert_true(siphash24(key, text, 8) == 0x93f5f5799a932462);
    assert_true(siphash24(key, text, 15) == 0xa129ca6149be45e5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_history_finds_what_a_dictionary_of_paths_finds),
        cmocka_unit_test(any_history_does_so_where_every_hash_collides),
        cmocka_unit_test(a_hash_collision_does_not_share_a_page),
        cmocka_unit_test(another_adapter_or_salt_does_not_share_a_page),
        cmocka_unit_test(reclaim_takes_leaves_before_parents),
        cmocka_unit_test(reclaim_takes_the_page_used_longest_ago),
        cmocka_unit_test(a_parent_that_nobody_uses_outlives_its_child_in_use),
        cmocka_unit_test(an_equal_page_is_not_entered_twice),
        cmocka_unit_test(a_forgotten_page_in_use_is_freed_with_its_last_user),
        cmocka_unit_test(closing_gives_the_cached_pages_back),
        cmocka_unit_test(siphash_gives_the_reference_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
