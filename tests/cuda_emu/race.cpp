/* Finds data races. Kernels are compiled with -fsanitize=thread, whose calls land here instead of
 * in the compiler's library. Each CUDA thread has a vector clock (Lamport; as FastTrack, Flanagan
 * and Freund 2009); barriers and __syncwarp join clocks, shuffles and mma do not. Blocks of a
 * launch are never ordered. What is found does not depend on the order of threads. */
#include "emu.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

/* One access; block 0: none */
struct touch {
    uint32_t block, clock, pc;
    uint16_t thread, atomic;
};
/* Of one byte: the last write, and the last reads of two threads */
struct cell {
    touch write, read, other_read;
};

enum { ARENA_BYTES = 1 << 30, SHARED_BYTES = 16 << 20, GAP = 256 };

static char *arena; /* shared memory first, then the device's */
static cell *cells; /* [ARENA_BYTES] */
static size_t shared_used, device_used = SHARED_BYTES;
static std::multimap<size_t, char *> unused;
static std::map<char *, size_t> sizes;
static uint32_t block, first_block;
static int n_threads;
static std::vector<uint32_t> clocks;                            /* [n_threads][n_threads] */
static std::map<const void *, std::vector<uint32_t>> of_object; /* a clock each */
static std::set<std::pair<uint32_t, uint32_t>> told;
static const char *kernel_name = "?";
extern "C" const char __executable_start;

static void *map_lazily(size_t size)
{
    void *p = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        perror("cuda_emu: memory for finding races");
        abort();
    }
    return p;
}

static char *take_device(size_t size)
{
    auto it = unused.lower_bound(size);
    if (it != unused.end() && it->first == size) {
        char *p = it->second;
        unused.erase(it);
        return p;
    }
    char *p = arena + device_used;
    device_used += size + GAP;
    if (device_used > ARENA_BYTES) {
        fprintf(stderr, "cuda_emu: the arena of %d bytes is full\n", ARENA_BYTES);
        abort();
    }
    sizes[p] = size;
    return p;
}

void *emu_memory_take(size_t size, bool shared)
{
    if (!arena) {
        arena = (char *)map_lazily(ARENA_BYTES);
        cells = (cell *)map_lazily(ARENA_BYTES * sizeof(cell));
    }
    if (!shared)
        return take_device((size + GAP - 1) / GAP * GAP);
    char *p = arena + shared_used;
    shared_used += (size + 2047) / 1024 * 1024;
    return p;
}

void emu_memory_give(void *p, bool shared)
{
    if (shared)
        shared_used = 0; /* all are given at once, at a launch's end */
    else
        unused.insert({sizes[(char *)p], (char *)p});
}

int emu_finds_races(void)
{
    return 1;
}

void race_launch(const char *kernel)
{
    kernel_name = kernel;
    first_block = block + 1;
}

void race_block(int n)
{
    block++;
    n_threads = n;
    of_object.clear();
    clocks.assign((size_t)n * n, 0);
    for (int i = 0; i < n; i++)
        clocks[(size_t)i * n + i] = 1;
}

void race_join(const int *who, int n)
{
    std::vector<uint32_t> joined((size_t)n_threads, 0);
    for (int w = 0; w < n; w++)
        for (int i = 0; i < n_threads; i++)
            joined[i] = max(joined[i], clocks[(size_t)who[w] * n_threads + i]);
    for (int w = 0; w < n; w++) {
        uint32_t *own = &clocks[(size_t)who[w] * n_threads];
        memcpy(own, joined.data(), joined.size() * sizeof *own);
        own[who[w]]++;
    }
}

static void join(std::vector<uint32_t> *into, const uint32_t *clock)
{
    into->resize((size_t)n_threads);
    for (int i = 0; i < n_threads; i++)
        (*into)[(size_t)i] = max((*into)[(size_t)i], clock[i]);
}

void race_release(const void *object)
{
    uint32_t *own = &clocks[(size_t)emu_thread() * n_threads];
    join(&of_object[object], own);
    own[emu_thread()]++;
}

void race_acquire(const void *object)
{
    std::vector<uint32_t> both = of_object[object]; /* a copy: to acquire is not to release */
    uint32_t *own = &clocks[(size_t)emu_thread() * n_threads];
    join(&both, own);
    memcpy(own, both.data(), both.size() * sizeof *own);
}

static bool unordered(const touch *a, int thread, bool shared)
{
    if (a->block < first_block)
        return false;
    if (a->block != block)
        return !shared; /* another block's shared memory only has the same address */
    return a->thread != thread && clocks[(size_t)thread * n_threads + a->thread] < a->clock;
}

/* "file:line" of an instruction, by addr2line where there is one */
static std::string source_line(uint32_t pc)
{
    char command[96], line[300] = "?";
    snprintf(command, sizeof command, "addr2line -e /proc/%d/exe 0x%x 2>/dev/null", (int)getpid(),
             pc);
    FILE *f = popen(command, "r");
    if (f && fgets(line, sizeof line, f))
        line[strcspn(line, "\n")] = 0;
    if (f)
        pclose(f);
    const char *slash = strrchr(line, '/');
    return slash ? slash + 1 : line;
}

static void tell(const char *kind, const touch *a, uint32_t pc, int thread)
{
    if (!told.insert({min(a->pc, pc), max(a->pc, pc)}).second)
        return;
    emu_report("kernel " + std::string(kernel_name) + ": race (" + kind + "): thread " +
               std::to_string(thread) + " at " + source_line(pc) + " and thread " +
               std::to_string(a->thread) + (a->block == block ? "" : " of another block") + " at " +
               source_line(a->pc));
}

static void note_write(cell *c, const touch *now, bool shared)
{
    int t = now->thread;
    if (!(now->atomic && c->write.atomic) && unordered(&c->write, t, shared))
        tell("write after write", &c->write, now->pc, t);
    if (unordered(&c->read, t, shared))
        tell("write after read", &c->read, now->pc, t);
    else if (unordered(&c->other_read, t, shared))
        tell("write after read", &c->other_read, now->pc, t);
    c->write = *now;
}

static void note_read(cell *c, const touch *now, bool shared)
{
    if (unordered(&c->write, now->thread, shared))
        tell("read after write", &c->write, now->pc, now->thread);
    if (c->read.thread != now->thread || c->read.block != block)
        c->other_read = c->read;
    c->read = *now;
}

static void note(const void *at, size_t size, bool write, bool atomic, const void *pc)
{
    const char *p = (const char *)at;
    int thread = emu_thread();
    if (thread < 0 || !arena || p < arena || p >= arena + device_used)
        return;
    bool shared = p < arena + SHARED_BYTES;
    touch now = {block, clocks[(size_t)thread * n_threads + thread],
                 (uint32_t)((const char *)pc - &__executable_start) - 1, (uint16_t)thread, atomic};
    for (size_t i = 0; i < size; i++) {
        cell *c = &cells[p - arena + i];
        if (write)
            note_write(c, &now, shared);
        else
            note_read(c, &now, shared);
    }
}

void race_access(const void *p, size_t size, bool write, const void *pc)
{
    note(p, size, write, false, pc);
}

void emu_atomic(const void *p, size_t size)
{
    note(p, size, true, true, __builtin_return_address(0));
}

/* --- what the compiler calls --- */

#define CALLED_FROM __builtin_return_address(0)
#define ACCESS(prefix, size)                                                                       \
    void __tsan_##prefix##read##size(void *p)                                                      \
    {                                                                                              \
        note(p, size, false, false, CALLED_FROM);                                                  \
    }                                                                                              \
    void __tsan_##prefix##write##size(void *p)                                                     \
    {                                                                                              \
        note(p, size, true, false, CALLED_FROM);                                                   \
    }
extern "C" {
ACCESS(, 1)
ACCESS(, 2)
ACCESS(, 4)
ACCESS(, 8)
ACCESS(, 16)
ACCESS(unaligned_, 2)
ACCESS(unaligned_, 4)
ACCESS(unaligned_, 8)
ACCESS(unaligned_, 16)

void __tsan_read_range(void *p, size_t n)
{
    note(p, n, false, false, CALLED_FROM);
}

void __tsan_write_range(void *p, size_t n)
{
    note(p, n, true, false, CALLED_FROM);
}

void __tsan_init()
{
}

void __tsan_func_entry(void *)
{
}

void __tsan_func_exit()
{
}

void __tsan_vptr_update(void **, void *)
{
}

void __tsan_vptr_read(void **)
{
}
}
