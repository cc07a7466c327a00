#include "page_pool.h"

#include <string.h>

#include "random.h"
#include "test.h"

enum { N_PAGES = 37, N_OPERATIONS = 200000 };

/* The naive model: what a page is, in plain words. */
struct model {
    int refs[N_PAGES];
    bool known[N_PAGES];
    int n_touched;
    int n_unused, n_used; /* calls of the watcher */
};

static void note_unused(void *arg, int32_t page)
{
    struct model *m = arg;
    assert_true(m->known[page] && m->refs[page] == 0);
    m->n_unused++;
}

static void note_used(void *arg, int32_t page)
{
    struct model *m = arg;
    assert_true(m->known[page] && m->refs[page] == 1);
    m->n_used++;
}

static void counts_equal(const struct page_pool *pool, const struct model *m)
{
    int n_free = 0, n_cached = 0, n_in_use = 0;
    for (int i = 0; i < N_PAGES; i++) {
        n_in_use += m->refs[i] > 0;
        n_cached += m->refs[i] == 0 && m->known[i];
        n_free += m->refs[i] == 0 && !m->known[i];
        assert_int_equal(page_pool_refs(pool, i), m->refs[i]);
        assert_int_equal(page_pool_is_known(pool, i), m->known[i]);
    }
    assert_int_equal(page_pool_n_free(pool), n_free);
    assert_int_equal(page_pool_n_cached(pool), n_cached);
    assert_int_equal(page_pool_n_in_use(pool), n_in_use);
    assert_int_equal(page_pool_n_touched(pool), m->n_touched);
    page_pool_check(pool);
}

static void take(struct page_pool *pool, struct model *m)
{
    int n_free = page_pool_n_free(pool);
    const bool fresh = n_free > 0 && n_free == N_PAGES - m->n_touched;
    int32_t page = page_pool_take(pool);
    assert_int_equal(page < 0, n_free == 0);
    if (page < 0)
        return;
    assert_int_equal(page >= m->n_touched, fresh); /* only where no used one is free */
    m->n_touched += fresh;
    assert_true(m->refs[page] == 0 && !m->known[page]);
    m->refs[page] = 1;
}

static void change(struct page_pool *pool, struct model *m, int32_t page, int what)
{
    int unused = m->n_unused, used = m->n_used;
    bool idle = m->refs[page] == 0;
    if (what == 0 && (!idle || m->known[page])) {
        m->refs[page]++;
        page_pool_ref(pool, page);
        assert_int_equal(m->n_used - used, idle);
    } else if (what == 1 && !idle) {
        bool last = --m->refs[page] == 0;
        page_pool_unref(pool, page);
        assert_int_equal(m->n_unused - unused, last && m->known[page]);
    } else if (what == 2 && (m->known[page] || !idle)) {
        m->known[page] = !m->known[page];
        page_pool_set_known(pool, page, m->known[page]);
    }
}

static void any_history_keeps_the_counts_of_a_naive_model(void **state)
{
    uint64_t rng = random_seed("page pool");
    struct model m = {0};
    struct err e;
    struct page_pool *pool = page_pool_open(N_PAGES, &e);
    assert_non_null(pool);
    page_pool_watch(pool, (struct page_watcher){note_unused, note_used, &m});
    for (int i = 0; i < N_OPERATIONS; i++) {
        int what = random_below(&rng, 5);
        if (what >= 3)
            take(pool, &m);
        else
            change(pool, &m, random_below(&rng, N_PAGES), what);
        counts_equal(pool, &m);
    }
    page_pool_free(pool);
}

static void the_page_freed_last_is_taken_first(void **state)
{
    struct page_pool *pool = page_pool_open(4, NULL);
    int32_t a = page_pool_take(pool), b = page_pool_take(pool);
    page_pool_unref(pool, b);
    page_pool_unref(pool, a);
    assert_int_equal(page_pool_take(pool), a);
    assert_int_equal(page_pool_take(pool), b);
    page_pool_free(pool);
}

static void an_empty_pool_is_refused_and_says_so(void **state)
{
    struct err e;
    assert_null(page_pool_open(0, &e));
    assert_contains(e.msg, "at least 1");
    page_pool_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_history_keeps_the_counts_of_a_naive_model),
        cmocka_unit_test(the_page_freed_last_is_taken_first),
        cmocka_unit_test(an_empty_pool_is_refused_and_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
