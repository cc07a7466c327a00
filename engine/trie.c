#include "trie.h"

#include <stdlib.h>

struct key {
    struct str text;
    int32_t number;
};

/* A node's strings: those from lo to hi, which share the bytes that lead to it. */
struct range {
    uint32_t lo, hi;
};

struct building {
    struct trie *t;
    struct key *keys;
    struct range *ranges; /* [nodes] */
};

enum { MAX_NODES = 64 << 20 };

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

/* Adds the children of a node whose strings share `depth` bytes. */
static void add_children(struct building *b, uint32_t node, size_t depth)
{
    struct range r = b->ranges[node];
    struct trie *t = b->t;
    uint32_t i = r.lo;
    t->nodes[node].first = t->n_nodes;
    t->nodes[node].value = -1;
    if (i < r.hi && b->keys[i].text.len == depth)
        t->nodes[node].value = b->keys[i++].number;
    while (i < r.hi) {
        uint32_t from = i;
        unsigned char byte = (unsigned char)b->keys[i].text.data[depth];
        while (i < r.hi && (unsigned char)b->keys[i].text.data[depth] == byte)
            i++;
        uint32_t child = t->n_nodes++;
        t->labels[child] = byte;
        b->ranges[child] = (struct range){from, i};
        if (node == 0)
            t->root[byte] = t->n_first = child;
        else if (node <= t->n_first)
            t->second[t->labels[node] << 8 | byte] = child;
    }
}

static void add_nodes(struct building *b, uint32_t n_keys)
{
    struct trie *t = b->t;
    b->ranges[0] = (struct range){0, n_keys};
    t->n_nodes = 1;
    size_t depth = 0;
    for (uint32_t node = 0, level_end = 1; node < t->n_nodes; node++) {
        if (node == level_end) {
            depth++;
            level_end = t->n_nodes;
        }
        add_children(b, node, depth);
    }
    t->nodes[t->n_nodes].first = t->n_nodes;
}

static size_t copy_keys(struct key *keys, const struct str *strings, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (strings[i].len)
            keys[kept++] = (struct key){strings[i], (int32_t)i};
    return kept;
}

bool trie_build(struct trie *t, const struct str *strings, size_t n, struct err *e)
{
    size_t nodes = 1;
    *t = (struct trie){0};
    for (size_t i = 0; i < n; i++) {
        nodes += strings[i].len; /* cannot overflow: the strings are in memory */
        if (nodes > MAX_NODES)
            return err_set(e, ERR_LIMIT, "tokens hold more than %d bytes", MAX_NODES);
    }
    struct building b = {.t = t, .keys = malloc((n + 1) * sizeof *b.keys)};
    b.ranges = malloc(nodes * sizeof *b.ranges);
    t->nodes = malloc((nodes + 1) * sizeof *t->nodes);
    t->labels = malloc(nodes);
    t->second = calloc(1 << 16, sizeof *t->second);
    bool ok = b.keys && b.ranges && t->nodes && t->labels && t->second;
    if (ok)
        add_nodes(&b, sort_keys(b.keys, copy_keys(b.keys, strings, n)));
    free(b.keys);
    free(b.ranges);
    return ok || err_set(e, ERR_MEMORY, "out of memory for %zu tokens", n);
}

void trie_free(struct trie *t)
{
    free(t->nodes);
    free(t->labels);
    free(t->second);
    *t = (struct trie){0};
}
