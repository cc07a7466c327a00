#include "cache_salts.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

struct salt {
    char *text; /* [n]; n 0: a place not taken yet */
    size_t n;
    uint64_t number, used; /* by the clock below */
};

struct cache_salts {
    uv_mutex_t lock; /* of all below */
    uint64_t n_given, clock;
    struct salt list[CACHE_SALTS_MAX];
};

struct cache_salts *cache_salts_new(void)
{
    struct cache_salts *s = calloc(1, sizeof *s);
    if (s && uv_mutex_init(&s->lock) != 0) {
        free(s);
        return NULL;
    }
    return s;
}

void cache_salts_free(struct cache_salts *s)
{
    if (!s)
        return;
    for (int i = 0; i < CACHE_SALTS_MAX; i++)
        free(s->list[i].text);
    uv_mutex_destroy(&s->lock);
    free(s);
}

/* The salt's place, else the one that was used longest ago. */
static struct salt *find(struct cache_salts *s, const char *text, size_t n, bool *found)
{
    struct salt *oldest = &s->list[0];
    *found = true;
    for (struct salt *p = s->list; p < s->list + CACHE_SALTS_MAX; p++) {
        if (p->n == n && memcmp(p->text, text, n) == 0)
            return p;
        if (p->used < oldest->used)
            oldest = p;
    }
    *found = false;
    return oldest;
}

static bool take(struct cache_salts *s, struct salt *p, const char *text, size_t n)
{
    char *copy = malloc(n);
    if (!copy)
        return false;
    memcpy(copy, text, n);
    free(p->text);
    *p = (struct salt){.text = copy, .n = n, .number = ++s->n_given};
    return true;
}

uint64_t cache_salts_number(struct cache_salts *s, const char *text, size_t n)
{
    uint64_t number = 0;
    bool found;
    uv_mutex_lock(&s->lock);
    struct salt *p = find(s, text, n, &found);
    if (found || take(s, p, text, n)) {
        p->used = ++s->clock;
        number = p->number;
    }
    uv_mutex_unlock(&s->lock);
    return number;
}
