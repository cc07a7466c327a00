/* cp.async: copies of each thread, in groups, that land when the options say. */
#include "emu.h"

#include <vector>

struct copy {
    void *to;
    const void *from;
    int size, n_source;
    bool landed;
};
struct copies {
    std::vector<copy> issued;
    std::vector<size_t> groups; /* where each ends in issued */
};

static std::vector<copies> of_thread;

void copies_reset(int n_threads)
{
    of_thread.assign((size_t)n_threads, {});
}

static void land(copy *c)
{
    if (c->landed)
        return;
    memcpy(c->to, c->from, (size_t)c->n_source);
    memset((char *)c->to + c->n_source, 0, (size_t)(c->size - c->n_source));
    c->landed = true;
}

static bool lands_now()
{
    return emu_now.landing == EMU_EARLY || (emu_now.landing == EMU_EITHER && emu_random() % 2);
}

void emu_copy_async(void *to, const void *from, int size, int n_source, emu_place at)
{
    if ((uintptr_t)to % (unsigned)size || (n_source && (uintptr_t)from % (unsigned)size))
        emu_fault(at, "cp.async: addresses must be multiples of %d", size);
    if (n_source < 0 || n_source > size)
        emu_fault(at, "cp.async: %d of %d bytes", n_source, size);
    race_access(to, (size_t)size, true, __builtin_return_address(0));
    if (n_source)
        race_access(from, (size_t)n_source, false, __builtin_return_address(0));
    copy c = {to, from, size, n_source, false};
    if (lands_now())
        land(&c);
    of_thread[(size_t)emu_thread()].issued.push_back(c);
}

void emu_copy_commit()
{
    copies *c = &of_thread[(size_t)emu_thread()];
    c->groups.push_back(c->issued.size());
}

void emu_copy_wait(int n_pending)
{
    copies *c = &of_thread[(size_t)emu_thread()];
    int n = (int)c->groups.size() - n_pending;
    if (n <= 0)
        return;
    size_t end = c->groups[(size_t)n - 1];
    for (size_t i = 0; i < end; i++) {
        race_access(c->issued[i].to, (size_t)c->issued[i].size, true, __builtin_return_address(0));
        land(&c->issued[i]);
    }
    c->issued.erase(c->issued.begin(), c->issued.begin() + (long)end);
    c->groups.erase(c->groups.begin(), c->groups.begin() + n);
    for (size_t &g : c->groups)
        g -= end;
}
