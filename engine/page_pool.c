#include "page_pool.h"

#include "check.h"

enum { END_OF_LIST = -1, NOT_FREE = -2 };

struct page {
    int32_t refs;
    int32_t next_free; /* a page, END_OF_LIST, or NOT_FREE */
    bool known;
};

struct page_pool {
    int n_pages, n_free, n_cached;
    int n_touched; /* pages from here on were never taken, and lie at the list's end in order */
    int32_t first_free;
    struct page_watcher watcher;
    struct page pages[];
};

static void push_free(struct page_pool *pool, int32_t page)
{
    pool->pages[page].next_free = pool->first_free;
    pool->first_free = page;
    pool->n_free++;
}

struct page_pool *page_pool_open(int n_pages, struct err *e)
{
    if (n_pages < 1) {
        err_set(e, ERR_INVALID, "page pool of %d pages: at least 1 is needed", n_pages);
        return NULL;
    }
    size_t bytes = sizeof(struct page_pool) + (size_t)n_pages * sizeof(struct page);
    struct page_pool *pool = calloc(1, bytes);
    if (!pool) {
        err_set(e, ERR_MEMORY, "page pool of %d pages: out of memory", n_pages);
        return NULL;
    }
    pool->n_pages = n_pages;
    pool->first_free = END_OF_LIST;
    for (int32_t page = n_pages; page-- > 0;)
        push_free(pool, page);
    return pool;
}

void page_pool_free(struct page_pool *pool)
{
    free(pool);
}

int page_pool_total(const struct page_pool *pool)
{
    return pool->n_pages;
}

int page_pool_n_free(const struct page_pool *pool)
{
    return pool->n_free;
}

int page_pool_n_cached(const struct page_pool *pool)
{
    return pool->n_cached;
}

int page_pool_n_in_use(const struct page_pool *pool)
{
    return pool->n_pages - pool->n_free - pool->n_cached;
}

int page_pool_n_touched(const struct page_pool *pool)
{
    return pool->n_touched;
}

static struct page *page_at(struct page_pool *pool, int32_t page)
{
    CHECK(page >= 0 && page < pool->n_pages);
    return &pool->pages[page];
}

int32_t page_pool_take(struct page_pool *pool)
{
    int32_t page = pool->first_free;
    if (page < 0)
        return -1;
    struct page *p = &pool->pages[page];
    pool->first_free = p->next_free;
    pool->n_free--;
    p->next_free = NOT_FREE;
    p->refs = 1;
    if (page >= pool->n_touched)
        pool->n_touched = page + 1;
    return page;
}

void page_pool_ref(struct page_pool *pool, int32_t page)
{
    struct page *p = page_at(pool, page);
    CHECK(p->refs > 0 || p->known);
    if (p->refs++ > 0)
        return;
    pool->n_cached--;
    if (pool->watcher.used)
        pool->watcher.used(pool->watcher.arg, page);
}

void page_pool_unref(struct page_pool *pool, int32_t page)
{
    struct page *p = page_at(pool, page);
    CHECK(p->refs > 0);
    if (--p->refs > 0)
        return;
    if (!p->known) {
        push_free(pool, page);
        return;
    }
    pool->n_cached++;
    if (pool->watcher.unused)
        pool->watcher.unused(pool->watcher.arg, page);
}

int page_pool_refs(const struct page_pool *pool, int32_t page)
{
    return page_at((struct page_pool *)pool, page)->refs;
}

void page_pool_set_known(struct page_pool *pool, int32_t page, bool known)
{
    struct page *p = page_at(pool, page);
    CHECK(p->known != known);
    CHECK(p->refs > 0 || !known);
    p->known = known;
    if (p->refs > 0)
        return;
    pool->n_cached--;
    push_free(pool, page);
}

bool page_pool_is_known(const struct page_pool *pool, int32_t page)
{
    return page_at((struct page_pool *)pool, page)->known;
}

void page_pool_watch(struct page_pool *pool, struct page_watcher watcher)
{
    pool->watcher = watcher;
}

void page_pool_check(const struct page_pool *pool)
{
    int n_cached = 0, n_free = 0, n_listed = 0, n_fresh = 0;
    for (int32_t i = 0; i < pool->n_pages; i++) {
        const struct page *p = &pool->pages[i];
        CHECK(p->refs >= 0);
        n_cached += p->refs == 0 && p->known;
        n_free += p->refs == 0 && !p->known;
        CHECK((p->next_free == NOT_FREE) == (p->refs > 0 || p->known));
    }
    for (int32_t i = pool->first_free; i != END_OF_LIST; i = pool->pages[i].next_free) {
        CHECK(++n_listed <= pool->n_pages);
        CHECK(i >= pool->n_touched ? i == pool->n_touched + n_fresh++ : n_fresh == 0);
    }
    CHECK(pool->n_touched + n_fresh == pool->n_pages);
    CHECK(n_listed == n_free);
    CHECK(n_free == pool->n_free);
    CHECK(n_cached == pool->n_cached);
}
