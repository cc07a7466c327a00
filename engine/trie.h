/* trie.h: finds the strings of a set that a text starts with.
 *
 * A double array: a node's child by a byte lies at the node's base ^ byte, if the unit there has
 * that byte as its label. No two nodes have the same base, so that the label alone tells whose
 * child a unit is: a step reads one unit and searches nothing. Immutable after building. */
#ifndef TOKEND_TRIE_H
#define TOKEND_TRIE_H

#include <stdint.h>

#include "err.h"
#include "str.h"

enum { TRIE_NO_LABEL = 256 };

struct trie { /* zeroed = empty; free with trie_free */
    struct trie_unit {
        uint32_t base : 23;
        uint32_t label : 9; /* the byte that leads here, or TRIE_NO_LABEL: no node, or the root */
        int32_t value;      /* number of the string that ends here, or -1 */
    } * units;              /* whole blocks of 256; the root is the first */
};

/* Of equal strings the last counts; empty ones are left out. */
bool trie_build(struct trie *, const struct str *strings, size_t n, struct err *e);
void trie_free(struct trie *);

/* The child of a node by byte, or 0. The root is node 0. */
static inline uint32_t trie_step(const struct trie *t, uint32_t node, unsigned char byte)
{
    const uint32_t child = t->units[node].base ^ byte;
    return t->units[child].label == byte ? child : 0;
}

/* Number of the string that leads to a node, or -1. */
static inline int32_t trie_value(const struct trie *t, uint32_t node)
{
    return t->units[node].value;
}

#endif
