#include "blocks.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__linux__) && defined(SYS_mbind)
#include <linux/mempolicy.h>
#endif

#define HUGE_PAGE ((size_t)2 << 20)
#define CHUNK (16 * HUGE_PAGE)

struct block {
    struct block *next;
    void *data;
    size_t bytes; /* as asked for */
    void *map;    /* of large blocks: what to unmap */
    size_t map_bytes;
};

/* Of pages that nobody has touched. Where the kernel refuses (in a container it may), they lie near
 * to who first writes them. */
static void spread_over(uint64_t nodes, const struct block *b)
{
#if defined(__linux__) && defined(SYS_mbind)
    const unsigned long mask = (unsigned long)nodes;
    if (mask)
        (void)!syscall(SYS_mbind, b->data, b->bytes, MPOL_INTERLEAVE, &mask, 8 * sizeof mask + 1,
                       0);
#endif
}

/* A mapping whose data starts on a huge page. */
static bool map_large(struct block *b, uint64_t spread)
{
    if (b->bytes > SIZE_MAX - 2 * HUGE_PAGE)
        return false;
    b->map_bytes = b->bytes + HUGE_PAGE;
    b->map = mmap(NULL, b->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->map == MAP_FAILED) {
        b->map = NULL;
        return false;
    }
    uintptr_t at = ((uintptr_t)b->map + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    b->data = (void *)at;
#ifdef MADV_HUGEPAGE
    madvise(b->data, b->bytes, MADV_HUGEPAGE);
#endif
    spread_over(spread, b);
    return true;
}

static bool take_small(struct block *b)
{
    size_t bytes = (b->bytes + 63) / 64 * 64;
    b->data = aligned_alloc(64, bytes ? bytes : 64);
    if (!b->data)
        return false;
    memset(b->data, 0, bytes);
    return true;
}

void *blocks_take(struct blocks *all, size_t count, size_t size, const char *what, uint64_t *total,
                  struct err *e)
{
    size_t bytes;
    struct block *b = calloc(1, sizeof *b);
    if (!b || __builtin_mul_overflow(count, size, &bytes))
        goto fail;
    b->bytes = bytes;
    if (!(bytes >= HUGE_PAGE ? map_large(b, all->spread) : take_small(b)))
        goto fail;
    b->next = all->head;
    all->head = b;
    if (total)
        *total += bytes;
    return b->data;
fail:
    free(b);
    err_set(e, ERR_MEMORY, "%s: cannot take %zu x %zu bytes of memory", what, count, size);
    return NULL;
}

void *blocks_pack(struct blocks *all, size_t count, size_t size, const char *what, uint64_t *total,
                  struct err *e)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes >= HUGE_PAGE)
        return blocks_take(all, count, size, what, total, e);
    size_t room = (bytes + 63) / 64 * 64;
    if (room > all->chunk_left) {
        all->chunk = blocks_take(all, 1, CHUNK, what, NULL, e);
        all->chunk_left = all->chunk ? CHUNK : 0;
    }
    if (!all->chunk)
        return NULL;
    uint8_t *data = all->chunk;
    all->chunk += room;
    all->chunk_left -= room;
    if (total)
        *total += bytes;
    return data;
}

static void release(struct block *b)
{
    if (b->map)
        munmap(b->map, b->map_bytes);
    else
        free(b->data);
    free(b);
}

void blocks_give(struct blocks *all, void *data, uint64_t *total)
{
    for (struct block **at = &all->head; data && *at; at = &(*at)->next) {
        struct block *b = *at;
        if (b->data != data)
            continue;
        *at = b->next;
        if (total)
            *total -= b->bytes;
        release(b);
        return;
    }
}

void blocks_free(struct blocks *all)
{
    while (all->head) {
        struct block *b = all->head;
        all->head = b->next;
        release(b);
    }
}
