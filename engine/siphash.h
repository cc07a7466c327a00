/* siphash.h: SipHash-2-4 (Aumasson & Bernstein, 2012), a keyed hash for tables whose keys
 * come from strangers: without the key nobody can construct collisions. */
#ifndef TOKEND_SIPHASH_H
#define TOKEND_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct siphash_key {
    uint64_t k0, k1;
};

uint64_t siphash24(struct siphash_key, const void *data, size_t n);

#endif
