/* string_table.h: finds the number of a string.
 *
 * The strings stay where they are: the table holds numbers of an array that the caller keeps
 * as long as the table. The hash is keyed per table with random bits, so that no file can
 * bring strings that all fall on one place. Immutable after filling: any thread may read. */
#ifndef TOKEND_STRING_TABLE_H
#define TOKEND_STRING_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "str.h"

struct string_slot {
    uint32_t hash;
    int32_t number; /* -1: empty */
};

struct string_table { /* zeroed = empty; free with string_table_free */
    const struct str *strings;
    struct string_slot *slots;
    uint32_t mask;
    uint64_t key[2];
};

/* Two random words. */
void string_table_new_key(uint64_t key[2]);
/* A mix of two words, of which the upper 32 bits are best. */
static inline uint64_t hash_mix(uint64_t a, uint64_t b)
{
    unsigned __int128 p = (unsigned __int128)a * b;
    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

/* Room for at most `most` strings. False: out of memory. */
bool string_table_init(struct string_table *, const struct str *strings, size_t most);
/* Adds strings[number]; of two equal strings the later one is found. */
void string_table_add(struct string_table *, int32_t number);
int32_t string_table_find(const struct string_table *, const char *s, size_t n); /* or -1 */
void string_table_free(struct string_table *);

#endif
