#include "trie.h"

#include <stdlib.h>

struct key {
    struct str text;
    int32_t number;
};

/* A node to give children to: its strings, from lo to hi, share the `depth` bytes that lead to it.
 */
struct pending {
    uint32_t node, lo, hi;
    size_t depth;
};

struct building {
    struct trie *t;
    struct key *keys;
    struct list { /* of the units that are free, both ways; unit 0 is its head */
        uint32_t next, last;
    } * list;
    uint8_t *used; /* a bit for each base that a node has */
    uint32_t n_units, cap;
    uint32_t tried; /* where the search for room for one goes on */
    struct pending *stack;
    size_t n_stack, cap_stack;
};

enum {
    BLOCK = 256,
    MAX_UNITS = 1 << 23,
    MAX_BYTES = 64 << 20,
    TRIES = 256, /* of free units, before a new block is opened */
};

static int compare_keys(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    size_t n = x->text.len < y->text.len ? x->text.len : y->text.len;
    int c = memcmp(x->text.data, y->text.data, n);
    if (c)
        return c;
    if (x->text.len != y->text.len)
        return x->text.len < y->text.len ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

static bool same_text(const struct key *a, const struct key *b)
{
    return a->text.len == b->text.len && memcmp(a->text.data, b->text.data, a->text.len) == 0;
}

/* Sorted, each text once. Returns how many. */
static uint32_t sort_keys(struct key *keys, size_t n)
{
    uint32_t kept = 0;
    qsort(keys, n, sizeof *keys, compare_keys);
    for (size_t i = 0; i < n; i++) {
        if (kept && same_text(&keys[kept - 1], &keys[i]))
            kept--;
        keys[kept++] = keys[i];
    }
    return kept;
}

/* --- room for children --- */

static void link_free(struct building *b, uint32_t unit)
{
    const uint32_t last = b->list[0].last;
    b->list[unit] = (struct list){.next = 0, .last = last};
    b->list[last].next = b->list[0].last = unit;
}

static void take(struct building *b, uint32_t unit)
{
    const struct list at = b->list[unit];
    b->list[at.last].next = at.next;
    b->list[at.next].last = at.last;
    if (b->tried == unit)
        b->tried = at.next;
}

static bool grow(struct building *b)
{
    if (b->n_units + BLOCK > MAX_UNITS)
        return false;
    if (b->n_units + BLOCK > b->cap) {
        b->cap = b->cap ? 2 * b->cap : 16 * BLOCK;
        void *units = realloc(b->t->units, b->cap * sizeof *b->t->units);
        b->t->units = units ? units : b->t->units;
        void *list = units ? realloc(b->list, b->cap * sizeof *b->list) : NULL;
        b->list = list ? list : b->list;
        void *used = list ? realloc(b->used, b->cap / 8) : NULL;
        b->used = used ? used : b->used;
        if (!used)
            return false;
    }
    memset(b->used + b->n_units / 8, 0, BLOCK / 8);
    if (b->n_units == 0)
        b->list[0] = (struct list){0, 0};
    for (uint32_t i = 0; i < BLOCK; i++, b->n_units++) {
        b->t->units[b->n_units] = (struct trie_unit){0, TRIE_NO_LABEL, -1};
        if (b->n_units)
            link_free(b, b->n_units);
    }
    return true;
}

static bool is_free(const struct building *b, uint32_t unit)
{
    return unit != 0 && b->t->units[unit].label == TRIE_NO_LABEL;
}

static bool has_room(const struct building *b, uint32_t base, const uint8_t *labels, int n)
{
    if (b->used[base / 8] >> base % 8 & 1)
        return false;
    for (int i = 0; i < n; i++)
        if (!is_free(b, base ^ labels[i]))
            return false;
    return true;
}

/* A base below which all of the labels are free; false: no memory, or too many units. One child
 * fits nearly everywhere, so these fill what is oldest; several want the newest blocks. */
static bool find_base(struct building *b, const uint8_t *labels, int n, uint32_t *base)
{
    uint32_t unit = n == 1 ? b->tried : b->list[0].last;
    for (int i = 0; i < TRIES; i++, unit = n == 1 ? b->list[unit].next : b->list[unit].last) {
        if (unit == 0)
            unit = n == 1 ? b->list[0].next : b->list[0].last;
        if (unit == 0)
            break;
        *base = unit ^ labels[0];
        if (has_room(b, *base, labels, n)) {
            b->tried = n == 1 ? unit : b->tried;
            return true;
        }
    }
    b->tried = n == 1 ? unit : b->tried;
    *base = b->n_units;
    return grow(b);
}

/* --- nodes --- */

static bool push(struct building *b, struct pending p)
{
    if (b->n_stack == b->cap_stack) {
        const size_t cap = b->cap_stack ? 2 * b->cap_stack : 1024;
        struct pending *grown = realloc(b->stack, cap * sizeof *grown);
        if (!grown)
            return false;
        b->stack = grown;
        b->cap_stack = cap;
    }
    b->stack[b->n_stack++] = p;
    return true;
}

/* The different bytes at `depth` of the keys of a node; starts[n] is where the last ones end. */
static int list_labels(const struct building *b, const struct pending *p, uint8_t labels[256],
                       uint32_t starts[257])
{
    int n = 0;
    for (uint32_t i = p->lo; i < p->hi; i++) {
        const uint8_t byte = (uint8_t)b->keys[i].text.data[p->depth];
        if (n && labels[n - 1] == byte)
            continue;
        labels[n] = byte;
        starts[n++] = i;
    }
    starts[n] = p->hi;
    return n;
}

static bool add_children(struct building *b, struct pending p)
{
    uint8_t labels[256];
    uint32_t starts[257], base;
    if (p.lo < p.hi && b->keys[p.lo].text.len == p.depth)
        b->t->units[p.node].value = b->keys[p.lo++].number;
    const int n = list_labels(b, &p, labels, starts);
    if (n == 0)
        return true;
    if (!find_base(b, labels, n, &base))
        return false;
    b->used[base / 8] |= (uint8_t)(1 << base % 8);
    b->t->units[p.node].base = base & (MAX_UNITS - 1);
    for (int i = 0; i < n; i++) {
        take(b, base ^ labels[i]);
        b->t->units[base ^ labels[i]].label = labels[i];
        if (!push(b, (struct pending){base ^ labels[i], starts[i], starts[i + 1], p.depth + 1}))
            return false;
    }
    return true;
}

static size_t copy_keys(struct key *keys, const struct str *strings, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (strings[i].len)
            keys[kept++] = (struct key){strings[i], (int32_t)i};
    return kept;
}

/* Nodes without children have base 0, which no other node may have then. */
static bool add_nodes(struct building *b, uint32_t n_keys)
{
    if (!grow(b))
        return false;
    b->used[0] |= 1;
    bool ok = push(b, (struct pending){.lo = 0, .hi = n_keys});
    while (ok && b->n_stack)
        ok = add_children(b, b->stack[--b->n_stack]);
    return ok;
}

bool trie_build(struct trie *t, const struct str *strings, size_t n, struct err *e)
{
    size_t bytes = 0;
    *t = (struct trie){0};
    for (size_t i = 0; i < n; i++) {
        bytes += strings[i].len; /* cannot overflow: the strings are in memory */
        if (bytes > MAX_BYTES)
            return err_set(e, ERR_LIMIT, "tokens hold more than %d bytes", MAX_BYTES);
    }
    struct building b = {.t = t, .keys = malloc((n + 1) * sizeof *b.keys)};
    bool ok = b.keys && add_nodes(&b, sort_keys(b.keys, copy_keys(b.keys, strings, n)));
    const bool full = b.n_units + BLOCK > MAX_UNITS;
    free(b.keys);
    free(b.list);
    free(b.used);
    free(b.stack);
    return ok || (full ? err_set(e, ERR_LIMIT, "%zu tokens need a trie of more than %d units", n,
                                 MAX_UNITS)
                       : err_set(e, ERR_MEMORY, "out of memory for %zu tokens", n));
}

void trie_free(struct trie *t)
{
    free(t->units);
    *t = (struct trie){0};
}
