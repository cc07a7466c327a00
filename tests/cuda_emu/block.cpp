/* A block's threads: who runs, who waits for what, and what they did wrong. */
#include "emu.h"
#include "fiber.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

enum { MAX_THREADS = 1024, MAX_WARPS = 32, N_BARRIERS = 16 };

struct thread {
    fiber stack;
    uint3 index;
    bool ended;
    const char *waits_for; /* NULL: for nothing */
    emu_place at;
};
struct barrier {
    std::vector<int> waiting;
    int expected; /* 0: all that live */
    emu_place at;
};
struct meeting {
    unsigned mask, arrived;
    const char *kind;
    emu_place at;
    void *operands[32];
};

static thread *threads; /* [MAX_THREADS], the first n_threads of use */
static fiber host;
static int current = -1, n_threads, n_alive;
static std::vector<int> ready;
static barrier barriers[N_BARRIERS];
static std::vector<meeting> meetings[MAX_WARPS];
static uint32_t warp_rank[MAX_WARPS]; /* EMU_WARP: the highest runs */
static const std::function<void()> *kernel_body;
static const char *kernel_name = "?";
static bool failed;

int emu_thread()
{
    return current;
}

unsigned emu_lane()
{
    return (unsigned)current & 31;
}

/* --- choosing who runs --- */

static size_t pick()
{
    size_t best = 0;
    if (emu_now.order == EMU_FIFO)
        return 0;
    if (emu_now.order == EMU_LIFO)
        return ready.size() - 1;
    if (emu_now.order == EMU_RANDOM)
        return emu_random() % ready.size();
    if (emu_random() % 512 == 0)
        warp_rank[emu_random() % MAX_WARPS] = emu_random();
    for (size_t i = 1; i < ready.size(); i++)
        if (warp_rank[ready[i] / 32] > warp_rank[ready[best] / 32])
            best = i;
    return best;
}

static void switch_to(int to)
{
    int from = current;
    current = to;
    if (to >= 0)
        threadIdx = threads[to].index;
    if (from != to)
        fiber_switch(from < 0 ? &host : &threads[from].stack, to < 0 ? &host : &threads[to].stack);
}

static const char *file_name(emu_place at)
{
    const char *slash = strrchr(at.file, '/');
    return slash ? slash + 1 : at.file;
}

static void report_fault(const std::string &what)
{
    char block[64];
    snprintf(block, sizeof block, " block (%u,%u,%u): ", blockIdx.x, blockIdx.y, blockIdx.z);
    emu_report("kernel " + std::string(kernel_name) + block + what);
    failed = true;
}

/* The thread's stack is left as it is: nobody on it may own memory. */
void emu_fault(emu_place at, const char *format, ...)
{
    char text[600], where[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(where, sizeof where, " (at %s:%d, thread %d)", file_name(at), at.line, current);
    report_fault(std::string(text) + where);
    switch_to(-1);
    abort();
}

/* Nobody can run: says where everyone is. */
static void report_stuck()
{
    std::map<std::string, std::pair<int, int>> places; /* how many, the first */
    for (int i = 0; i < n_threads; i++) {
        thread *t = &threads[i];
        std::string where = "ended";
        if (!t->ended)
            where = std::string(t->waits_for) + " at " + file_name(t->at) + ":" +
                    std::to_string(t->at.line);
        auto it = places.insert({where, {0, i}}).first;
        it->second.first++;
    }
    std::string text = "divergence, nobody can go on:";
    for (auto &p : places)
        text += " [" + std::to_string(p.second.first) + " threads " + p.first + ", the first is " +
                std::to_string(p.second.second) + "]";
    report_fault(text);
}

static void run_next()
{
    if (ready.empty()) {
        if (n_alive)
            report_stuck();
        switch_to(-1);
        return;
    }
    size_t i = pick();
    int next = ready[i];
    ready.erase(ready.begin() + (long)i);
    threads[next].waits_for = nullptr;
    switch_to(next);
}

/* --- barriers --- */

static bool same_place(emu_place a, emu_place b)
{
    return a.line == b.line && !strcmp(a.file, b.file);
}

static void open_if_full(barrier *b)
{
    int expected = b->expected ? b->expected : n_alive;
    if (b->waiting.empty() || (int)b->waiting.size() < expected)
        return;
    race_join(b->waiting.data(), (int)b->waiting.size());
    ready.insert(ready.end(), b->waiting.begin(), b->waiting.end());
    b->waiting.clear();
}

void emu_barrier(int id, int expected, emu_place at)
{
    if (id < 0 || id >= N_BARRIERS || expected % 32)
        emu_fault(at, "barrier %d of %d threads: 0 to 15, and whole warps", id, expected);
    barrier *b = &barriers[id];
    if (b->waiting.empty()) {
        b->expected = expected;
        b->at = at;
    } else if (b->expected != expected || !same_place(b->at, at)) {
        emu_fault(at, "divergent barrier %d: others wait at %s:%d", id, file_name(b->at),
                  b->at.line);
    }
    b->waiting.push_back(current);
    threads[current].waits_for = "barrier";
    threads[current].at = at;
    open_if_full(b);
    run_next();
}

void emu_sleep(const char *what, emu_place at)
{
    threads[current].waits_for = what;
    threads[current].at = at;
    run_next();
}

void emu_wake(int thread)
{
    ready.push_back(thread);
}

/* --- warps --- */

/* The lanes of a warp that exist and run */
static unsigned lanes_alive(int warp)
{
    unsigned lanes = 0;
    for (int i = warp * 32; i < n_threads && i < warp * 32 + 32; i++)
        lanes |= (unsigned)!threads[i].ended << (i & 31);
    return lanes;
}

static meeting *join_meeting(unsigned mask, const char *kind, emu_place at)
{
    std::vector<meeting> *of_warp = &meetings[current / 32];
    for (meeting &m : *of_warp) {
        if (!(m.mask & mask))
            continue;
        if (m.mask != mask || strcmp(m.kind, kind) || !same_place(m.at, at))
            emu_fault(at, "lanes of a warp meet at %s of %08x, others wait at %s of %08x at %s:%d",
                      kind, mask, m.kind, m.mask, file_name(m.at), m.at.line);
        return &m;
    }
    of_warp->push_back(meeting{mask, 0, kind, at, {}});
    return &of_warp->back();
}

static void close_meeting(meeting *m, bool ordering)
{
    int who[32], n = 0, first = current & ~31;
    for (int i = 0; i < 32; i++)
        if (m->mask >> i & 1)
            who[n++] = first + i;
    if (ordering)
        race_join(who, n);
    ready.insert(ready.end(), who, who + n);
    *m = meetings[current / 32].back();
    meetings[current / 32].pop_back();
}

void emu_meet(unsigned mask, const char *kind, void (*meet)(void **, unsigned), void *operand,
              bool ordering, emu_place at)
{
    unsigned self = 1u << (current & 31);
    if (!(mask & self))
        emu_fault(at, "%s: lane %d calls and is not in mask %08x", kind, current & 31, mask);
    unsigned gone = mask & ~lanes_alive(current / 32);
    if (gone)
        emu_fault(at, "%s: lanes %08x of its mask %08x have ended or do not exist", kind, gone,
                  mask);
    meeting *m = join_meeting(mask, kind, at);
    m->operands[current & 31] = operand;
    m->arrived |= self;
    threads[current].waits_for = kind;
    threads[current].at = at;
    if (m->arrived == mask) {
        if (meet)
            meet(m->operands, mask);
        close_meeting(m, ordering);
    }
    run_next();
}

/* --- a block --- */

__attribute__((no_sanitize("address", "undefined"))) static void thread_main()
{
    fiber_entered();
    (*kernel_body)();
    threads[current].ended = true;
    n_alive--;
    for (barrier &b : barriers) /* a barrier of all does not wait for who has ended */
        if (!b.expected)
            open_if_full(&b);
    run_next();
    abort();
}

static void start_threads(int n)
{
    if (!threads)
        threads = new thread[MAX_THREADS]();
    n_threads = n_alive = n;
    ready.clear();
    for (int i = 0; i < n; i++) {
        thread *t = &threads[i];
        if (!t->stack.stack)
            fiber_stack(&t->stack);
        fiber_reset(&t->stack, thread_main);
        t->ended = false;
        t->waits_for = nullptr;
        t->index.x = (unsigned)i % blockDim.x;
        t->index.y = (unsigned)i / blockDim.x % blockDim.y;
        t->index.z = (unsigned)i / blockDim.x / blockDim.y;
        ready.push_back(i);
    }
}

static bool run_block(int n)
{
    failed = false;
    for (barrier &b : barriers)
        b.waiting.clear();
    for (auto &m : meetings)
        m.clear();
    for (uint32_t &r : warp_rank)
        r = emu_random();
    start_threads(n);
    copies_reset(n);
    hopper_reset();
    race_block(n);
    run_next();
    return !failed;
}

/* --- a launch --- */

static std::map<const void *, size_t> &dynamic_limits()
{
    static std::map<const void *, size_t> limits;
    return limits;
}

void emu_allow_dynamic(const void *kernel, size_t bytes)
{
    dynamic_limits()[kernel] = bytes;
}

cudaError_t emu_check_launch(const emu_launch &l, size_t argument_bytes)
{
    auto it = dynamic_limits().find(l.kernel);
    size_t most = it == dynamic_limits().end() ? (size_t)EMU_SHARED_DEFAULT : it->second;
    uint64_t n = (uint64_t)l.block.x * l.block.y * l.block.z;
    const char *what = nullptr;
    if (!n || n > MAX_THREADS || l.block.z > 64)
        what = "a block has 1 to 1,024 threads, at most 64 deep";
    else if (!l.grid.x || !l.grid.y || !l.grid.z || l.grid.x > 0x7fffffff || l.grid.y > 65535 ||
             l.grid.z > 65535)
        what = "a grid has 1 to 2^31 - 1 by 65,535 by 65,535 blocks";
    else if (l.dynamic > most)
        what = "more dynamic shared memory than cudaFuncSetAttribute allowed";
    else if (argument_bytes > 4096)
        what = "more than 4,096 bytes of arguments";
    if (!what)
        return cudaSuccess;
    emu_report("launch of " + std::string(l.name) + ": " + what);
    return l.dynamic > most ? cudaErrorInvalidValue : cudaErrorInvalidConfiguration;
}

cudaError_t emu_run_grid(const emu_launch &l, const std::function<void()> &body)
{
    size_t n_blocks = (size_t)l.grid.x * l.grid.y * l.grid.z;
    bool good = true;
    kernel_name = l.name;
    kernel_body = &body;
    gridDim = l.grid;
    blockDim = l.block;
    race_launch(l.name);
    shared_open(l.dynamic);
    for (size_t i = 0; i < n_blocks && good; i++) {
        size_t b = emu_now.order == EMU_FIFO ? i : n_blocks - 1 - i;
        blockIdx.x = (unsigned)(b % l.grid.x);
        blockIdx.y = (unsigned)(b / l.grid.x % l.grid.y);
        blockIdx.z = (unsigned)(b / l.grid.x / l.grid.y);
        shared_refill();
        good = run_block((int)(l.block.x * l.block.y * l.block.z));
    }
    shared_close();
    return good ? cudaSuccess : cudaErrorLaunchFailure;
}
