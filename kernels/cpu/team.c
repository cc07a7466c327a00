#include "team.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_MEMBERS 1024
#define SPINS 3000 /* of some 15 to 40 ns each */
#define CHECK 100  /* spins after which to look for a member that is in the way */

/* A number that only grows; who waits for it to change spins, then parks.
 * Lost wake-ups: the opener changes `count`, then reads `parked`; the waiter adds to `parked`,
 * then reads `count`. All four are sequentially consistent, so one of them sees the other. */
struct gate {
    alignas(64) atomic_uint count;
    atomic_int parked;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
};

struct member {
    struct team *team;
    int index;
    pthread_t thread;
    alignas(64) atomic_int processor;
    alignas(64) atomic_int taken[2]; /* units of its share, in even and in odd phases */
};

struct team {
    alignas(64) atomic_int next;    /* the phase's next unit; the barrier sets it to 0 */
    alignas(64) atomic_int arrived; /* members at the barrier */
    struct gate phase, start;
    int size, started, spins;          /* `started`: members that there are, while helpers start */
    void (*fn)(void *arg, int member); /* NULL: the members leave */
    void *arg;
    struct member *members;
};

static void gate_init(struct gate *g)
{
    atomic_init(&g->count, 0);
    atomic_init(&g->parked, 0);
    pthread_mutex_init(&g->mutex, NULL);
    pthread_cond_init(&g->cond, NULL);
}

static void gate_destroy(struct gate *g)
{
    pthread_mutex_destroy(&g->mutex);
    pthread_cond_destroy(&g->cond);
}

static void gate_open(struct gate *g)
{
    atomic_fetch_add(&g->count, 1);
    if (atomic_load(&g->parked) == 0)
        return;
    pthread_mutex_lock(&g->mutex);
    pthread_cond_broadcast(&g->cond);
    pthread_mutex_unlock(&g->mutex);
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* The processor of each member when it last met the others */
static void note_processor(struct team *t, int member)
{
    atomic_store_explicit(&t->members[member].processor, sched_getcpu(), memory_order_relaxed);
}

/* Another member was last seen where this one spins. */
static bool in_the_way(const struct team *t, int member)
{
    int here = sched_getcpu();
    for (int i = 0; i < t->size; i++)
        if (i != member &&
            atomic_load_explicit(&t->members[i].processor, memory_order_relaxed) == here)
            return true;
    return false;
}

static void gate_wait(struct team *t, int member, struct gate *g, unsigned seen)
{
    for (int i = 1; i <= t->spins; i++) {
        if (atomic_load_explicit(&g->count, memory_order_acquire) != seen)
            return;
        if (i % CHECK == 0 && in_the_way(t, member))
            break;
        relax();
    }
    pthread_mutex_lock(&g->mutex);
    atomic_fetch_add(&g->parked, 1);
    while (atomic_load(&g->count) == seen)
        pthread_cond_wait(&g->cond, &g->mutex);
    atomic_fetch_sub(&g->parked, 1);
    pthread_mutex_unlock(&g->mutex);
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

int team_take(struct team *t, int member, int n)
{
    const unsigned odd = atomic_load_explicit(&t->phase.count, memory_order_relaxed) & 1;
    for (int i = 0; i < t->size; i++) {
        const int owner = member + i < t->size ? member + i : member + i - t->size;
        const int first = team_first(t, owner, n), share = team_first(t, owner + 1, n) - first;
        atomic_int *taken = &t->members[owner].taken[odd];
        if (atomic_load_explicit(taken, memory_order_relaxed) >= share)
            continue;
        const int unit = atomic_fetch_add_explicit(taken, 1, memory_order_relaxed);
        if (unit < share)
            return first + unit;
    }
    return -1;
}

void team_barrier(struct team *t, int member)
{
    note_processor(t, member);
    unsigned seen = atomic_load_explicit(&t->phase.count, memory_order_relaxed);
    /* For the next phase; of the last one, which used it, everybody has left. */
    atomic_store_explicit(&t->members[member].taken[~seen & 1], 0, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) < t->size - 1) {
        gate_wait(t, member, &t->phase, seen);
        return;
    }
    atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&t->next, 0, memory_order_relaxed);
    gate_open(&t->phase);
}

static void *helper(void *arg)
{
    struct member *m = arg;
    struct team *t = m->team;
    for (unsigned seen = 0;; seen++) {
        gate_wait(t, m->index, &t->start, seen);
        if (!t->fn)
            return NULL;
        t->fn(t->arg, m->index);
        team_barrier(t, m->index);
    }
}

void team_run(struct team *t, void (*fn)(void *arg, int member), void *arg)
{
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

static int processors(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                        : (int)sysconf(_SC_NPROCESSORS_ONLN);
    int q = team_quota("/sys/fs/cgroup");
    n = n < q ? n : q;
    return n < 1 ? 1 : n > MAX_MEMBERS ? MAX_MEMBERS : n;
}

static bool start_helpers(struct team *t, int size, struct err *e)
{
    t->size = size;
    t->members = aligned_alloc(64, (size_t)size * sizeof *t->members);
    if (!t->members)
        return err_set(e, ERR_MEMORY, "out of memory for %d threads", size);
    memset(t->members, 0, (size_t)size * sizeof *t->members);
    for (int i = 0; i < size; i++) {
        t->members[i].team = t;
        t->members[i].index = i;
        atomic_init(&t->members[i].processor, -1);
        atomic_init(&t->members[i].taken[0], 0);
        atomic_init(&t->members[i].taken[1], 0);
    }
    for (t->started = 1; t->started < size; t->started++) {
        struct member *m = &t->members[t->started];
        int rc = pthread_create(&m->thread, NULL, helper, m);
        if (rc != 0)
            return err_set(e, ERR_IO, "cannot start thread %d of %d: %s", t->started + 1, size,
                           strerror(rc));
    }
    return true;
}

struct team *team_new(int size, struct err *e)
{
    int cores = processors();
    size = size == 0 ? cores : size;
    if (size < 0 || size > MAX_MEMBERS) {
        err_set(e, ERR_INVALID, "%d threads: expected 0 to %d", size, MAX_MEMBERS);
        return NULL;
    }
    struct team *t = aligned_alloc(64, sizeof *t);
    if (!t) {
        err_set(e, ERR_MEMORY, "out of memory for %d threads", size);
        return NULL;
    }
    memset(t, 0, sizeof *t);
    atomic_init(&t->next, 0);
    atomic_init(&t->arrived, 0);
    gate_init(&t->phase);
    gate_init(&t->start);
    /* Spinning for a member that has no processor to run on only delays it. */
    t->spins = size > cores ? 10 : SPINS;
    if (!start_helpers(t, size, e)) {
        team_free(t);
        return NULL;
    }
    return t;
}

void team_free(struct team *t)
{
    if (!t)
        return;
    t->fn = NULL;
    gate_open(&t->start);
    for (int i = 1; i < t->started; i++)
        pthread_join(t->members[i].thread, NULL);
    gate_destroy(&t->phase);
    gate_destroy(&t->start);
    free(t->members);
    free(t);
}
