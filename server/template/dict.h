/* dict.h: lists and dicts of values, in arena memory.
 *
 * Hashes are keyed with a random seed, so that nobody can choose keys that collide. */
#ifndef TOKEND_DICT_H
#define TOKEND_DICT_H

#include "value.h"

uint64_t hash_seed(void);
uint64_t hash_bytes(uint64_t seed, const void *bytes, size_t n);
struct hash_work { /* what is left of the bounds on hashing nested tuples */
    int depth;
    size_t items;
};
/* Python's hash(): equal keys (1, 1.0, True) have equal hashes. False for a value that cannot
 * be a key (list, dict, …), or that is beyond the bounds. */
bool value_hash(uint64_t seed, struct value key, struct hash_work *, uint64_t *hash);

/* NULL or false: out of memory. */
struct list *list_new(struct arena *, size_t cap);
bool list_push(struct arena *, struct list *, struct value);

struct dict *dict_new(struct arena *);
/* Sets d[key]; an existing key keeps its place. `hash` is the key's. */
bool dict_put(struct arena *, struct dict *, struct value key, uint64_t hash, struct value);
/* The value of a key, or NULL; stays valid until the next dict_put. */
struct value *dict_find(const struct dict *, struct value key, uint64_t hash);

#endif
