/* Groups of sequences by the pages of their leading segments: a group goes on as long as all have
 * the pages of its first; where they part, those with equal pages are found by sorting hashes. */
#include "attention_share.h"

#include <string.h>

/* The pages of a sequence's segment, some of which may belong to its neighbours, too */
static const int32_t *pages_of(const struct share_search *s, const struct share_item *i,
                               int segment, int *n)
{
    const int64_t first = (int64_t)segment * s->segment;
    const int page = (int)(first / s->block_size);
    *n = (int)((first + s->segment - 1) / s->block_size) - page + 1;
    return s->tables + (int64_t)i->seq * s->max_pages + page;
}

static bool equal(const struct share_search *s, const struct share_item *a,
                  const struct share_item *b, int segment)
{
    int n;
    if (segment >= a->n_segments || segment >= b->n_segments)
        return false;
    const int32_t *x = pages_of(s, a, segment, &n), *y = pages_of(s, b, segment, &n);
    return memcmp(x, y, (size_t)n * sizeof *x) == 0;
}

static bool all_equal(const struct share_search *s, struct share_span g, int segment)
{
    const struct share_item *items = s->items + g.first;
    for (int i = 1; i < g.n; i++)
        if (!equal(s, items, items + i, segment))
            return false;
    return true;
}

static uint32_t hash(const struct share_search *s, const struct share_item *i, int segment)
{
    int n;
    const int32_t *pages = pages_of(s, i, segment, &n);
    uint32_t h = 2166136261u;
    for (int p = 0; p < n; p++)
        h = (h ^ (uint32_t)pages[p]) * 16777619u;
    return h;
}

static void swap(struct share_item *a, struct share_item *b)
{
    const struct share_item was = *a;
    *a = *b;
    *b = was;
}

/* By keys, ascending (Shell's sort: in place, and quick enough for a thousand) */
static void sort(struct share_item *items, int n)
{
    int gap = 1;
    while (gap < n / 3)
        gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3)
        for (int i = gap; i < n; i++) {
            const struct share_item item = items[i];
            int to = i;
            for (; to >= gap && items[to - gap].key > item.key; to -= gap)
                items[to] = items[to - gap];
            items[to] = item;
        }
}

/* Items that have such a segment come first; how many */
static int with_segment(struct share_item *items, int n, int segment)
{
    int left = 0;
    for (int i = 0; i < n; i++)
        if (items[i].n_segments > segment)
            swap(items + left++, items + i);
    return left;
}

/* Of items with one key those that equal the first come first; how many */
static int with_equal_pages(const struct share_search *s, struct share_item *items, int n,
                            int segment)
{
    int same = 1;
    for (int i = 1; i < n; i++)
        if (equal(s, items, items + i, segment))
            swap(items + same++, items + i);
    return same;
}

/* Puts the groups that go on with `segment` on the stack. They are disjoint and of two or more, so
 * there is room. */
static int part(struct share_search *s, struct share_span g, int segment, int n_spans)
{
    struct share_item *items = s->items + g.first;
    const int n = with_segment(items, g.n, segment);
    for (int i = 0; i < n; i++)
        items[i].key = hash(s, items + i, segment);
    sort(items, n);
    for (int i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && items[end].key == items[i].key;)
            end++;
        const int same = with_equal_pages(s, items + i, end - i, segment);
        if (same > 1)
            s->spans[n_spans++] = (struct share_span){g.first + i, same, segment};
    }
    return n_spans;
}

void attention_share_find(struct share_search *s)
{
    const struct share_span all = {0, s->n_items, 0};
    int n_spans = s->n_items > 1 ? part(s, all, 0, 0) : 0;
    while (n_spans > 0) {
        const struct share_span g = s->spans[--n_spans];
        int to = g.depth + 1;
        while (all_equal(s, g, to))
            to++;
        if (s->found(s->arg, g.first, g.n, g.depth, to))
            n_spans = part(s, g, to, n_spans);
    }
}
