#include "siphash.h"

#include <string.h>

struct state {
    uint64_t a, b, c, d; /* the paper's v0 … v3 */
};

static inline uint64_t rotl(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static inline void rounds(struct state *v, int n)
{
    while (n--) {
        v->a += v->b;
        v->c += v->d;
        v->b = rotl(v->b, 13) ^ v->a;
        v->d = rotl(v->d, 16) ^ v->c;
        v->a = rotl(v->a, 32) + v->d;
        v->c += v->b;
        v->d = rotl(v->d, 21) ^ v->a;
        v->b = rotl(v->b, 17) ^ v->c;
        v->c = rotl(v->c, 32);
    }
}

static inline void absorb(struct state *v, uint64_t word)
{
    v->d ^= word;
    rounds(v, 2);
    v->a ^= word;
}

static inline uint64_t load_le(const unsigned char *p, size_t n)
{
    uint64_t word = 0;
    for (size_t i = 0; i < n; i++)
        word |= (uint64_t)p[i] << (8 * i);
    return word;
}

uint64_t siphash24(struct siphash_key key, const void *data, size_t n)
{
    struct state v = {
        key.k0 ^ 0x736f6d6570736575,
        key.k1 ^ 0x646f72616e646f6d,
        key.k0 ^ 0x6c7967656e657261,
        key.k1 ^ 0x7465646279746573,
    };
    const unsigned char *p = data;
    size_t left = n;
    for (; left >= 8; left -= 8, p += 8)
        absorb(&v, load_le(p, 8));
    absorb(&v, load_le(p, left) | (uint64_t)(n & 0xff) << 56);
    v.c ^= 0xff;
    rounds(&v, 4);
    return v.a ^ v.b ^ v.c ^ v.d;
}
