/* arena.h: memory that is freed all at once, with a limit.
 *
 * Everything that a parsed template or one rendering holds lives in its arena, so every way
 * out (error, limit, success) frees everything with one call. A zeroed arena with a limit is
 * empty and ready. One owner, one thread at a time. */
#ifndef TOKEND_ARENA_H
#define TOKEND_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct arena {
    struct arena_block *blocks; /* small allocations are carved from the first one */
    struct arena_big *bigs;     /* large ones stand alone, so that they can grow in place */
    size_t used, limit;         /* bytes taken, and how many may be */
    bool over_limit;            /* why the last allocation failed: limit, or malloc */
};

/* n bytes, 16-byte aligned, not zeroed; NULL when the limit or memory is exhausted. */
void *arena_alloc(struct arena *, size_t n);
void *arena_zalloc(struct arena *, size_t n);
/* Room for count * size bytes, checked for overflow. */
void *arena_array(struct arena *, size_t count, size_t size);
/* Moves p (of old bytes) to a place of n >= old bytes; p is dead afterwards. p may be NULL. */
void *arena_grow(struct arena *, void *p, size_t old, size_t n);
void arena_free(struct arena *);

#endif
