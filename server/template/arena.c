#include "arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    ALIGN = 16,
    BLOCK = 64 * 1024,
    BIG = 16 * 1024, /* from here on an allocation stands alone */
};

struct arena_block {
    struct arena_block *next;
    size_t used;
    _Alignas(ALIGN) char data[];
};

struct arena_big {
    struct arena_big *next, *prev;
    _Alignas(ALIGN) char data[];
};

/* Counts n more bytes against the limit. */
static bool charge(struct arena *a, size_t n)
{
    if (a->used > a->limit || n > a->limit - a->used) {
        a->over_limit = true;
        return false;
    }
    a->used += n;
    return true;
}

static void link_big(struct arena *a, struct arena_big *b)
{
    b->prev = NULL;
    b->next = a->bigs;
    if (a->bigs)
        a->bigs->prev = b;
    a->bigs = b;
}

static void unlink_big(struct arena *a, struct arena_big *b)
{
    if (b->prev)
        b->prev->next = b->next;
    else
        a->bigs = b->next;
    if (b->next)
        b->next->prev = b->prev;
}

static void *alloc_big(struct arena *a, size_t n)
{
    struct arena_big *b = malloc(sizeof *b + n);
    if (!b)
        return NULL;
    link_big(a, b);
    return b->data;
}

static void *alloc_small(struct arena *a, size_t n)
{
    if (!a->blocks || BLOCK - a->blocks->used < n) {
        struct arena_block *b = malloc(sizeof *b + BLOCK);
        if (!b)
            return NULL;
        b->next = a->blocks;
        b->used = 0;
        a->blocks = b;
    }
    void *p = a->blocks->data + a->blocks->used;
    a->blocks->used += n;
    return p;
}

void *arena_alloc(struct arena *a, size_t n)
{
    a->over_limit = false;
    if (n > SIZE_MAX / 2) {
        a->over_limit = true;
        return NULL;
    }
    n = (n + ALIGN - 1) / ALIGN * ALIGN;
    if (n == 0)
        n = ALIGN;
    if (!charge(a, n))
        return NULL;
    return n >= BIG ? alloc_big(a, n) : alloc_small(a, n);
}

void *arena_zalloc(struct arena *a, size_t n)
{
    void *p = arena_alloc(a, n);
    if (p)
        memset(p, 0, n);
    return p;
}

void *arena_array(struct arena *a, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / 2 / size) {
        a->over_limit = true;
        return NULL;
    }
    return arena_alloc(a, count * size);
}

static void *grow_big(struct arena *a, void *p, size_t old, size_t n)
{
    if (n > SIZE_MAX / 2 || !charge(a, n - old)) {
        a->over_limit = true;
        return NULL;
    }
    struct arena_big *b = (struct arena_big *)((char *)p - offsetof(struct arena_big, data));
    unlink_big(a, b);
    struct arena_big *moved = realloc(b, sizeof *b + n);
    if (!moved) {
        link_big(a, b);
        return NULL;
    }
    link_big(a, moved);
    return moved->data;
}

void *arena_grow(struct arena *a, void *p, size_t old, size_t n)
{
    a->over_limit = false;
    old = (old + ALIGN - 1) / ALIGN * ALIGN;
    if (p && old >= BIG) {
        n = n > SIZE_MAX / 2 ? n : (n + ALIGN - 1) / ALIGN * ALIGN;
        return grow_big(a, p, old, n);
    }
    void *q = arena_alloc(a, n);
    if (q && p)
        memcpy(q, p, old < n ? old : n);
    return q;
}

void arena_free(struct arena *a)
{
    while (a->blocks) {
        struct arena_block *b = a->blocks;
        a->blocks = b->next;
        free(b);
    }
    while (a->bigs) {
        struct arena_big *b = a->bigs;
        a->bigs = b->next;
        free(b);
    }
    a->used = 0;
}
