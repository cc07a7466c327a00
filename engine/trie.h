/* trie.h: finds the strings of a set that a text starts with.
 *
 * Nodes lie in breadth-first order, so that a node's children are a run whose end is where the
 * next node's children start. Immutable after building. */
#ifndef TOKEND_TRIE_H
#define TOKEND_TRIE_H

#include <stdint.h>

#include "err.h"
#include "str.h"

struct trie { /* zeroed = empty; free with trie_free */
    struct trie_node {
        uint32_t first; /* where the children start */
        int32_t value;  /* number of the string that ends here, or -1 */
    } * nodes;          /* [n_nodes + 1] */
    uint8_t *labels;    /* [n_nodes] the byte that leads to the node */
    uint32_t n_nodes;
    uint32_t root[256]; /* the root's children by byte; 0: none */
    uint32_t n_first;   /* how many these are: nodes 1 to n_first */
    uint32_t *second;   /* [1 << 16] their children by both bytes */
};

/* Of equal strings the last counts; empty ones are left out. */
bool trie_build(struct trie *, const struct str *strings, size_t n, struct err *e);
void trie_free(struct trie *);

/* The child of a node by byte, or 0. The root is node 0. */
static inline uint32_t trie_step(const struct trie *t, uint32_t node, unsigned char byte)
{
    if (node == 0)
        return t->root[byte];
    if (node <= t->n_first)
        return t->second[t->labels[node] << 8 | byte];
    uint32_t c = t->nodes[node].first, end = t->nodes[node + 1].first;
    if (end - c > 16) {
        const uint8_t *at = memchr(t->labels + c, byte, end - c);
        return at ? (uint32_t)(at - t->labels) : 0;
    }
    for (; c < end; c++)
        if (t->labels[c] == byte)
            return c;
    return 0;
}

#endif
