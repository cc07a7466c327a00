/* cache_salts.h: numbers for requests' cache salts, which the prefix cache compares.
 *
 * Exact: two calls give one number only for equal salts, for a number is never given to two. The
 * CACHE_SALTS_MAX salts used last keep theirs; one that is used again after so many others gets
 * a new one, so that pages cached under its old number are not found any more, and age out.
 * Any thread. */
#ifndef TOKEND_CACHE_SALTS_H
#define TOKEND_CACHE_SALTS_H

#include <stddef.h>
#include <stdint.h>

enum {
    CACHE_SALTS_MAX = 1024,
    CACHE_SALT_MAX_BYTES = 1024,
};

struct cache_salts;

struct cache_salts *cache_salts_new(void);   /* NULL: out of memory */
void cache_salts_free(struct cache_salts *); /* NULL is fine */

/* The number of salt[n], n from 1 to CACHE_SALT_MAX_BYTES; 0: out of memory. */
uint64_t cache_salts_number(struct cache_salts *, const char *salt, size_t n);

#endif
