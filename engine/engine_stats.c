#include "engine_impl.h"

#include <string.h>
#include <time.h>

double engine_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void stats_write(struct stats_box *b, const struct engine_stats *s)
{
    uint64_t words[STATS_WORDS] = {0};
    memcpy(words, s, sizeof *s);
    unsigned v = atomic_load_explicit(&b->version, memory_order_relaxed);
    atomic_store_explicit(&b->version, v + 1, memory_order_relaxed);
    for (int i = 0; i < STATS_WORDS; i++)
        atomic_store_explicit(&b->words[i], words[i], memory_order_release);
    atomic_store_explicit(&b->version, v + 2, memory_order_release);
}

void stats_read(struct stats_box *b, struct engine_stats *out)
{
    uint64_t words[STATS_WORDS];
    unsigned before, after;
    do {
        before = atomic_load_explicit(&b->version, memory_order_acquire);
        for (int i = 0; i < STATS_WORDS; i++)
            words[i] = atomic_load_explicit(&b->words[i], memory_order_acquire);
        after = atomic_load_explicit(&b->version, memory_order_relaxed);
    } while (before != after || before % 2);
    memcpy(out, words, sizeof *out);
}

void engine_get_stats(struct engine *e, struct engine_stats *out)
{
    stats_read(&e->stats_box, out);
    uint64_t beat = atomic_load(&e->heartbeat);
    double age = engine_now() - (double)beat * 1e-9;
    out->heartbeat_age = age > 0 ? age : 0;
    out->dead = atomic_load(&e->dead);
}
