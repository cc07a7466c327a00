#include "string_table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

void string_table_new_key(uint64_t key[2])
{
    if (getrandom(key, 16, GRND_NONBLOCK) == 16)
        return;
    struct timespec now; /* early in the boot of a machine: better than nothing */
    clock_gettime(CLOCK_MONOTONIC, &now);
    key[0] = (uint64_t)now.tv_nsec * 0x9E3779B97F4A7C15u + (uint64_t)now.tv_sec;
    key[1] = hash_mix(key[0], (uint64_t)(uintptr_t)key | 1);
}

static uint64_t word_at(const char *s)
{
    uint64_t word;
    memcpy(&word, s, 8);
    return word;
}

/* Up to 8 bytes as a word, without a copy of variable length. */
static uint64_t short_word(const char *s, size_t n)
{
    uint32_t low = 0, high = 0;
    if (n >= 4) {
        memcpy(&low, s, 4);
        memcpy(&high, s + n - 4, 4);
    } else if (n > 0) {
        low = (uint32_t)(unsigned char)s[0] | (uint32_t)(unsigned char)s[n / 2] << 8;
        high = (unsigned char)s[n - 1];
    }
    return (uint64_t)high << 32 | low;
}

static uint32_t hash_string(const struct string_table *t, const char *s, size_t n)
{
    uint64_t h = t->key[0] ^ n;
    size_t i = 0;
    for (; n - i > 8; i += 8)
        h = hash_mix(h ^ word_at(s + i), t->key[1]);
    h = hash_mix(h ^ short_word(s + i, n - i), t->key[1]);
    return (uint32_t)(hash_mix(h, t->key[0]) >> 32);
}

bool string_table_init(struct string_table *t, const struct str *strings, size_t most)
{
    *t = (struct string_table){.strings = strings};
    if (most > UINT32_MAX / 4)
        return false;
    uint32_t n = 16;
    while (n < most * 2)
        n *= 2;
    t->slots = malloc(n * sizeof *t->slots);
    if (!t->slots)
        return false;
    memset(t->slots, 0xFF, n * sizeof *t->slots);
    t->mask = n - 1;
    string_table_new_key(t->key);
    t->key[0] |= 1; /* neither word may make every product 0 */
    t->key[1] |= 1;
    return true;
}

/* The slot that holds the string, or the empty one where it belongs. */
static struct string_slot *slot_of(const struct string_table *t, uint32_t hash, const char *s,
                                   size_t n)
{
    for (uint32_t i = hash & t->mask;; i = (i + 1) & t->mask) {
        struct string_slot *slot = &t->slots[i];
        if (slot->number < 0)
            return slot;
        if (slot->hash != hash)
            continue;
        const struct str *have = &t->strings[slot->number];
        if (have->len == n && memcmp(have->data, s, n) == 0)
            return slot;
    }
}

void string_table_add(struct string_table *t, int32_t number)
{
    const struct str *s = &t->strings[number];
    uint32_t hash = hash_string(t, s->data, s->len);
    *slot_of(t, hash, s->data, s->len) = (struct string_slot){.hash = hash, .number = number};
}

int32_t string_table_find(const struct string_table *t, const char *s, size_t n)
{
    return t->slots ? slot_of(t, hash_string(t, s, n), s, n)->number : -1;
}

void string_table_free(struct string_table *t)
{
    free(t->slots);
    *t = (struct string_table){0};
}
