#include "charsmap.h"

#include <stdint.h>
#include <stdlib.h>

#include "utf8.h"

struct charsmap {
    uint32_t *units; /* [n_units] of the trie */
    size_t n_units;
    char *results; /* [n_results], the last byte is NUL */
    size_t n_results;
    bool plain[128];
};

static uint32_t word_at(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* What a unit says: its byte (with a high bit that no byte has, where it is a leaf), whether a
 * leaf hangs on it, where its children are, and a leaf's value. */
static uint32_t unit_label(uint32_t u)
{
    return u & (1u << 31 | 0xFF);
}

static uint32_t unit_offset(uint32_t u)
{
    return (u >> 10) << ((u & 1u << 9) >> 6);
}

/* Goes on from where *at's children are to the one by `byte`. */
static bool step(const struct charsmap *m, uint32_t *at, unsigned char byte, bool *leaf)
{
    uint32_t child = *at ^ byte;
    if (byte == 0 || child >= m->n_units || unit_label(m->units[child]) != byte)
        return false;
    *leaf = m->units[child] >> 8 & 1;
    *at = child ^ unit_offset(m->units[child]);
    return true;
}

static bool is_plain(const struct charsmap *m, unsigned char c)
{
    bool leaf;
    uint32_t at = unit_offset(m->units[0]);
    if (!step(m, &at, c, &leaf))
        return true;
    for (unsigned char d = 1; d < 128 && !leaf; d++) {
        uint32_t next = at;
        bool any;
        if (step(m, &next, d, &any))
            return false;
    }
    return !leaf;
}

bool charsmap_is_plain(const struct charsmap *m, unsigned char c)
{
    return c < 128 && m->plain[c];
}

struct charsmap *charsmap_new(const void *bytes, size_t n, struct err *e)
{
    const unsigned char *p = bytes;
    size_t trie = n >= 4 ? word_at(p) : 0;
    if (n < 4 || trie == 0 || trie % 4 != 0 || trie >= n - 4) {
        err_set(e, ERR_INVALID,
                "a character map of %zu bytes whose trie has %zu: expected fewer, a multiple of 4",
                n, trie);
        return NULL;
    }
    size_t n_results = n - 4 - trie;
    struct charsmap *m = calloc(1, sizeof *m);
    if (m) {
        *m = (struct charsmap){.units = malloc(trie),
                               .n_units = trie / 4,
                               .results = malloc(n_results + 1),
                               .n_results = n_results + 1};
        if (m->units && m->results) {
            for (size_t i = 0; i < m->n_units; i++)
                m->units[i] = word_at(p + 4 + i * 4);
            memcpy(m->results, p + 4 + trie, n_results);
            m->results[n_results] = 0;
            for (int c = 0; c < 128; c++)
                m->plain[c] = is_plain(m, (unsigned char)c);
            return m;
        }
    }
    charsmap_free(m);
    err_set(e, ERR_MEMORY, "out of memory for a character map");
    return NULL;
}

void charsmap_free(struct charsmap *m)
{
    if (!m)
        return;
    free(m->units);
    free(m->results);
    free(m);
}

enum { LONGEST_RESULT = 256 }; /* of Unicode's own 33: text must not grow without bound */

/* A result is whole UTF-8 or no rule. */
static bool result_at(const struct charsmap *m, uint32_t at, struct str *becomes)
{
    if (at >= m->n_results)
        return false;
    *becomes = (struct str){m->results + at, strnlen(m->results + at, LONGEST_RESULT + 1)};
    return becomes->len <= LONGEST_RESULT &&
           utf8_check(becomes->data, becomes->len) == becomes->len;
}

static size_t find(const struct charsmap *m, const char *text, size_t n, bool longest,
                   struct str *becomes)
{
    size_t found = 0;
    uint32_t at = unit_offset(m->units[0]);
    bool leaf;
    for (size_t i = 0; i < n && step(m, &at, (unsigned char)text[i], &leaf); i++)
        if (leaf && at < m->n_units && result_at(m, m->units[at] & ~(1u << 31), becomes)) {
            found = i + 1;
            if (!longest)
                break;
        }
    return found;
}

size_t charsmap_longest(const struct charsmap *m, const char *text, size_t n, struct str *becomes)
{
    return find(m, text, n, true, becomes);
}

size_t charsmap_shortest(const struct charsmap *m, const char *text, size_t n, struct str *becomes)
{
    return find(m, text, n, false, becomes);
}
