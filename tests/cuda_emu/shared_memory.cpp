/* A block's shared memory: every array a piece of its own, of exact size. */
#include "emu.h"

#include <vector>

struct piece {
    const void *key; /* NULL: the dynamic one */
    void *at;
    size_t size;
};

static std::vector<piece> pieces;
static size_t n_static;

static void *take(const void *key, size_t size)
{
    piece p = {key, emu_memory_take(size, true), size};
    memset(p.at, 0xff, size);
    pieces.push_back(p);
    return p.at;
}

void *emu_shared(const void *key, size_t size)
{
    for (const piece &p : pieces)
        if (p.key == key)
            return p.at;
    n_static += size;
    if (n_static > EMU_SHARED_DEFAULT)
        emu_fault({__FILE__, __LINE__}, "%zu bytes of static shared memory, at most 49152",
                  n_static);
    return take(key, size);
}

void *emu_dynamic_shared()
{
    for (const piece &p : pieces)
        if (!p.key)
            return p.at;
    emu_fault({__FILE__, __LINE__}, "launched without dynamic shared memory");
}

void shared_open(size_t dynamic)
{
    n_static = 0;
    if (dynamic)
        take(nullptr, dynamic);
}

void shared_refill()
{
    for (const piece &p : pieces)
        memset(p.at, 0xff, p.size);
}

void shared_close()
{
    for (const piece &p : pieces)
        emu_memory_give(p.at, true);
    pieces.clear();
}
