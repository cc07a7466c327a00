#include "team.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "team_rest.h"
#include "topology.h"

#define MAX_MEMBERS 1024
#define SPINS 3000 /* of some 15 to 40 ns each */
#define CHECK 100  /* spins after which to look for a member that is in the way */
#define GROUP 8    /* members that count their arrival together, or that one wakes */
#define NEAR 8     /* neighbours whose shares a member looks at; beyond, ever fewer */
#define PLACES 1024
#define MOST_LOOKS 4 /* late members that one looks at */

/* A number that only grows; who waits for it to change spins, then sleeps.
 * Lost wake-ups: the opener changes `count`, then reads `parked`; the waiter adds to `parked`,
 * then the kernel compares `count`. All are sequentially consistent, so one sees the other. */
struct gate {
    alignas(64) atomic_uint count;
    atomic_int parked[2]; /* those that wait for an even count to change, an odd one */
};

struct member {
    struct team *team;
    int index, place; /* `place`: the processor where it last met the others, -1 before */
    int pinned_to;    /* processor */
    pthread_t thread;
    atomic_int tid;                  /* 0: not known yet */
    clockid_t clock;                 /* the processor time that it has had */
    atomic_flag changes;             /* its affinity, and will be what it was */
    alignas(64) atomic_int taken[2]; /* units of its share, in even and in odd phases */
    atomic_uint phase;               /* the last that it has ended */
};

/* With one counter for all, 64 members would queue for its cache line at every barrier. */
struct group {
    alignas(64) atomic_int arrived;
};

struct team {
    alignas(64) atomic_int next;    /* the phase's next unit; the barrier sets it to 0 */
    alignas(64) atomic_int arrived; /* groups of which all members are at the barrier */
    struct gate phase, start;
    int size, started, spins;          /* `started`: members that there are, while helpers start */
    void (*fn)(void *arg, int member); /* NULL: the members leave */
    void *arg;
    struct member *members;
    struct group *groups;

    struct team_rest rest;
    bool pinned;
    bool moves; /* members away from each other, and from where they get no time */
    bool caller_is_known, caller_is_pinned;
    pthread_t caller;  /* member 0, if it is known: it was pinned, or could not be */
    cpu_set_t allowed; /* where it may run when it is not pinned */
    uint64_t nodes;
    atomic_short at_place[PLACES]; /* members at each processor */
};

/* Sleeps until the gate has changed from `seen`, perhaps for less. */
static void sleep_at(struct gate *g, unsigned seen)
{
    syscall(SYS_futex, &g->count, FUTEX_WAIT_BITSET_PRIVATE, seen, NULL, NULL, 1u << seen % 32);
}

/* Wakes some of those that wait for a change from `seen`, not who waits already for the next. Who
 * is woken wakes more: the last of 64 need not wait for 63 wake-ups by one thread. */
static void wake_some(struct gate *g, unsigned seen)
{
    if (atomic_load(&g->parked[seen & 1]) > 0)
        syscall(SYS_futex, &g->count, FUTEX_WAKE_BITSET_PRIVATE, GROUP, NULL, NULL,
                1u << seen % 32);
}

static void gate_open(struct gate *g)
{
    wake_some(g, atomic_fetch_add(&g->count, 1));
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Processors beyond PLACES share a place: their members are then taken to be in each other's way.
 */
static int place_here(void)
{
    return (int)((unsigned)sched_getcpu() % PLACES);
}

static void note_place(struct team *t, struct member *m)
{
    const int here = place_here();
    if (here == m->place)
        return;
    if (m->place >= 0)
        atomic_fetch_sub_explicit(&t->at_place[m->place], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->at_place[here], 1, memory_order_relaxed);
    m->place = here;
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Another member was last seen where this one spins. */
static bool in_the_way(struct team *t, struct member *m)
{
    note_place(t, m);
    return atomic_load_explicit(&t->at_place[m->place], memory_order_relaxed) > 1;
}

/* Where the processors allowed to the process have changed meanwhile, to all that there are now:
 * the kernel takes of a mask what is allowed. */
static void widen_again(pid_t tid, const cpu_set_t *usual)
{
    cpu_set_t all;
    memset(&all, 0xFF, sizeof all);
    if (sched_setaffinity(tid, sizeof *usual, usual) && sched_setaffinity(tid, sizeof all, &all))
        log_warn("thread %d stays on one processor: %s", (int)tid, strerror(errno));
}

/* Moves a member to one of these processors, now; afterwards it may run where it could before. */
static bool move_to(struct member *m, const cpu_set_t *to)
{
    const pid_t tid = atomic_load(&m->tid);
    cpu_set_t usual;
    if (tid == 0 || atomic_flag_test_and_set(&m->changes))
        return false;
    bool moved = false;
    if (sched_getaffinity(tid, sizeof usual, &usual) == 0) {
        cpu_set_t both;
        CPU_AND(&both, &usual, to);
        moved = CPU_COUNT(&both) > 0 && sched_setaffinity(tid, sizeof both, &both) == 0;
        if (moved)
            widen_again(tid, &usual);
    }
    atomic_flag_clear(&m->changes);
    return moved;
}

/* Two members on one processor, each of which sleeps while the other works, look to the scheduler
 * like one busy thread: while the others have anything to do it finds nothing to balance. So who
 * waits moves to where no member is, now and then. */
static bool step_aside(struct team *t, struct member *m)
{
    const int64_t now = now_ns();
    cpu_set_t free;
    if (!t->moves || !team_rest_is_over(&t->rest, now))
        return false;
    CPU_ZERO(&free);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (atomic_load_explicit(&t->at_place[i % PLACES], memory_order_relaxed) == 0)
            CPU_SET(i, &free);
    if (!move_to(m, &free))
        return false;
    team_rest_moved(&t->rest, now);
    note_place(t, m);
    return true;
}

static int64_t time_of(const struct member *m)
{
    struct timespec t;
    return clock_gettime(m->clock, &t) == 0 ? t.tv_sec * INT64_C(1000000000) + t.tv_nsec : -1;
}

/* It has work, but no processor. */
static bool lacks_processor(const struct member *m, const struct gate *g, unsigned seen)
{
    const int64_t before = time_of(m);
    for (int i = 0; i < CHECK; i++) {
        if (atomic_load_explicit(&g->count, memory_order_acquire) != seen)
            return false;
        relax();
    }
    return before >= 0 && time_of(m) == before;
}

/* Another program may have the processor of a member for several ms, for which all would wait: the
 * first one that is so kept is moved to this processor, which the caller leaves by going to sleep.
 */
static void fetch_late(struct team *t, unsigned seen)
{
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(place_here(), &here);
    for (int i = 0, looks = 0; t->moves && i < t->size && looks < MOST_LOOKS; i++) {
        struct member *m = &t->members[i];
        if (atomic_load_explicit(&m->phase, memory_order_relaxed) == seen + 1 ||
            atomic_load(&m->tid) == 0)
            continue;
        looks++;
        if (!lacks_processor(m, &t->phase, seen))
            continue;
        team_rest_begin(&t->rest, now_ns());
        move_to(m, &here);
        return;
    }
}

static void gate_wait(struct team *t, int member, struct gate *g, unsigned seen)
{
    struct member *m = &t->members[member];
    int i = 1;
    for (; i <= t->spins; i++) {
        if (atomic_load_explicit(&g->count, memory_order_acquire) != seen)
            return;
        if (i % CHECK == 0 && in_the_way(t, m) && !step_aside(t, m))
            break;
        relax();
    }
    if (i > t->spins && g == &t->phase)
        fetch_late(t, seen);
    atomic_fetch_add(&g->parked[seen & 1], 1);
    while (atomic_load(&g->count) == seen)
        sleep_at(g, seen);
    atomic_fetch_sub(&g->parked[seen & 1], 1);
    wake_some(g, seen);
}

int team_size(const struct team *t)
{
    return t->size;
}

int team_claim(struct team *t)
{
    return atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed);
}

int team_first(const struct team *t, int member, int n)
{
    return (int)((int64_t)member * n / t->size);
}

/* The next unit of the owner's share of n, or -1. */
static int take_from(struct team *t, int owner, int n, unsigned odd)
{
    const int first = team_first(t, owner, n), share = team_first(t, owner + 1, n) - first;
    atomic_int *taken = &t->members[owner].taken[odd];
    if (atomic_load_explicit(taken, memory_order_relaxed) >= share)
        return -1;
    const int unit = atomic_fetch_add_explicit(taken, 1, memory_order_relaxed);
    return unit < share ? first + unit : -1;
}

/* The owner takes all of its share that others leave, so who helps need not look at every share:
 * each look is at a line of another's cache. */
int team_take(struct team *t, int member, int n)
{
    const unsigned odd = atomic_load_explicit(&t->phase.count, memory_order_relaxed) & 1;
    for (int d = 0; d < t->size; d = d < NEAR ? d + 1 : 2 * d) {
        const int owner = member + d < t->size ? member + d : member + d - t->size;
        const int unit = take_from(t, owner, n, odd);
        if (unit >= 0)
            return unit;
    }
    return -1;
}

static bool is_last_of(atomic_int *arrived, int n)
{
    if (atomic_fetch_add_explicit(arrived, 1, memory_order_acq_rel) < n - 1)
        return false;
    atomic_store_explicit(arrived, 0, memory_order_relaxed);
    return true;
}

static bool is_last(struct team *t, int member)
{
    const int group = member / GROUP, left = t->size - group * GROUP;
    return is_last_of(&t->groups[group].arrived, left < GROUP ? left : GROUP) &&
           is_last_of(&t->arrived, (t->size + GROUP - 1) / GROUP);
}

void team_barrier(struct team *t, int member)
{
    note_place(t, &t->members[member]);
    unsigned seen = atomic_load_explicit(&t->phase.count, memory_order_relaxed);
    /* For the next phase; of the last one, which used it, everybody has left. */
    atomic_store_explicit(&t->members[member].taken[~seen & 1], 0, memory_order_relaxed);
    atomic_store_explicit(&t->members[member].phase, seen + 1, memory_order_relaxed);
    if (!is_last(t, member)) {
        gate_wait(t, member, &t->phase, seen);
        return;
    }
    atomic_store_explicit(&t->next, 0, memory_order_relaxed);
    gate_open(&t->phase);
}

/* Of the calling thread, before it can be late for the others. */
static void note_thread(struct member *m)
{
    const pid_t tid = gettid();
    if (atomic_load_explicit(&m->tid, memory_order_relaxed) == tid)
        return;
    atomic_store(&m->tid, 0);
    if (pthread_getcpuclockid(pthread_self(), &m->clock) == 0)
        atomic_store(&m->tid, tid);
}

static void *helper(void *arg)
{
    struct member *m = arg;
    struct team *t = m->team;
    note_thread(m);
    for (unsigned seen = 0;; seen++) {
        gate_wait(t, m->index, &t->start, seen);
        if (!t->fn)
            return NULL;
        t->fn(t->arg, m->index);
        team_barrier(t, m->index);
    }
}

static int pin(pthread_t thread, int processor)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    return pthread_setaffinity_np(thread, sizeof one, &one);
}

static bool is_known(const struct team *t)
{
    return t->caller_is_known && pthread_equal(t->caller, pthread_self());
}

/* In the middle of a step there is nobody to give an error to; it is slower, not wrong. */
static void pin_caller(struct team *t)
{
    if (is_known(t))
        return;
    t->caller = pthread_self();
    t->caller_is_known = true;
    const int rc = pin(t->caller, t->members[0].pinned_to);
    t->caller_is_pinned = rc == 0;
    if (rc)
        log_warn("cannot pin thread 1 to processor %d: %s", t->members[0].pinned_to, strerror(rc));
}

void team_unpin_caller(struct team *t)
{
    if (t->caller_is_pinned && is_known(t)) {
        const int rc = pthread_setaffinity_np(t->caller, sizeof t->allowed, &t->allowed);
        if (rc)
            log_warn("a thread stays pinned to processor %d: %s", t->members[0].pinned_to,
                     strerror(rc));
    }
    t->caller_is_known = t->caller_is_pinned = false;
}

void team_run(struct team *t, void (*fn)(void *arg, int member), void *arg)
{
    if (t->pinned)
        pin_caller(t);
    note_thread(&t->members[0]);
    t->fn = fn;
    t->arg = arg;
    if (t->size > 1)
        gate_open(&t->start);
    fn(arg, 0);
    team_barrier(t, 0);
}

struct loop {
    struct team *team;
    void (*fn)(void *arg, int i);
    void *arg;
    int n;
};

static void loop_member(void *arg, int member)
{
    const struct loop *l = arg;
    for (int i; (i = team_claim(l->team)) < l->n;)
        l->fn(l->arg, i);
}

void team_for(struct team *t, void (*fn)(void *arg, int i), void *arg, int n)
{
    struct loop l = {t, fn, arg, n};
    if (n == 1)
        fn(arg, 0);
    else if (n > 1)
        team_run(t, loop_member, &l);
}

/* The numbers that a file of the control group begins with. */
static int read_numbers(const char *root, const char *name, long long *a, long long *b)
{
    char path[512];
    const int len = snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = len > 0 && (size_t)len < sizeof path ? fopen(path, "re") : NULL;
    const int found = f ? fscanf(f, "%lld %lld", a, b) : 0;
    if (f)
        fclose(f);
    return found;
}

int team_quota(const char *root)
{
    long long share = 0, period = 0, none;
    if (read_numbers(root, "cpu.max", &share, &period) != 2 && /* version 2 */
        (read_numbers(root, "cpu/cpu.cfs_quota_us", &share, &none) < 1 ||
         read_numbers(root, "cpu/cpu.cfs_period_us", &period, &none) < 1))
        return INT_MAX;
    if (share <= 0 || period <= 0 || share > LLONG_MAX - period) /* version 1: -1 is none */
        return INT_MAX;
    long long whole = (share + period - 1) / period;
    return whole < INT_MAX ? (int)whole : INT_MAX;
}

uint64_t team_nodes(const struct team *t)
{
    return t->nodes;
}

/* As many members as may run at once; what the kernel does not say is not known to topology.h. */
static int find_processors(struct team *t, struct topology *all)
{
    const int quota = team_quota("/sys/fs/cgroup");
    CPU_ZERO(&t->allowed);
    const bool known = sched_getaffinity(0, sizeof t->allowed, &t->allowed) == 0;
    topology_read(all, "/sys", &t->allowed);
    t->nodes = topology_nodes(all);
    int n = known ? all->n : (int)sysconf(_SC_NPROCESSORS_ONLN);
    n = n < quota ? n : quota;
    return n < 1 ? 1 : n > MAX_MEMBERS ? MAX_MEMBERS : n;
}

static bool take_members(struct team *t, const struct topology *all, struct err *e)
{
    const size_t n_groups = ((size_t)t->size + GROUP - 1) / GROUP;
    int places[MAX_MEMBERS];
    if (t->pinned && !topology_place(all, t->size, places))
        return err_set(e, ERR_INVALID,
                       "%d threads cannot be pinned: the process may use %d processors "
                       "(--threads, --pin-threads)",
                       t->size, all->n);
    t->members = aligned_alloc(64, (size_t)t->size * sizeof *t->members);
    t->groups = aligned_alloc(64, n_groups * sizeof *t->groups);
    if (!t->members || !t->groups)
        return err_set(e, ERR_MEMORY, "out of memory for %d threads", t->size);
    memset(t->groups, 0, n_groups * sizeof *t->groups);
    for (int i = 0; i < t->size; i++)
        t->members[i] = (struct member){
            .team = t, .index = i, .place = -1, .pinned_to = t->pinned ? places[i] : -1};
    return true;
}

static bool start_helpers(struct team *t, struct err *e)
{
    for (t->started = 1; t->started < t->size; t->started++) {
        struct member *m = &t->members[t->started];
        char name[16];
        int rc = pthread_create(&m->thread, NULL, helper, m);
        if (rc != 0)
            return err_set(e, ERR_IO, "cannot start thread %d of %d: %s", t->started + 1, t->size,
                           strerror(rc));
        snprintf(name, sizeof name, "compute %d", m->index);
        pthread_setname_np(m->thread, name);
        if (t->pinned && (rc = pin(m->thread, m->pinned_to)) != 0) {
            t->started++;
            return err_set(e, ERR_IO, "cannot pin thread %d to processor %d: %s", m->index + 1,
                           m->pinned_to, strerror(rc));
        }
    }
    return true;
}

struct team *team_new(int size, bool pinned, struct err *e)
{
    struct topology all;
    struct team *t = aligned_alloc(64, sizeof *t);
    if (!t) {
        err_set(e, ERR_MEMORY, "out of memory for %d threads", size);
        return NULL;
    }
    memset(t, 0, sizeof *t);
    const int cores = find_processors(t, &all);
    t->size = size == 0 ? cores : size;
    t->pinned = pinned;
    t->moves = !pinned && t->size <= cores;
    team_rest_init(&t->rest);
    /* Spinning for a member that has no processor to run on only delays it. */
    t->spins = t->size > cores ? 10 : SPINS;
    bool ok = t->size > 0 && t->size <= MAX_MEMBERS;
    if (!ok)
        err_set(e, ERR_INVALID, "%d threads: expected 0 to %d", size, MAX_MEMBERS);
    if (ok && take_members(t, &all, e) && start_helpers(t, e))
        return t;
    team_free(t);
    return NULL;
}

void team_free(struct team *t)
{
    if (!t)
        return;
    t->fn = NULL;
    gate_open(&t->start);
    for (int i = 1; i < t->started; i++)
        pthread_join(t->members[i].thread, NULL);
    free(t->members);
    free(t->groups);
    free(t);
}
