#include "mailbox.h"

#include <math.h>
#include <string.h>
#include <time.h>

bool mailbox_init(struct mailbox *m, struct err *e)
{
    memset(m, 0, sizeof *m);
    return sem_init(&m->bell, 0, 0) == 0 || err_errno(e, "semaphore");
}

void mailbox_destroy(struct mailbox *m)
{
    sem_destroy(&m->bell);
}

/* The flags of the two sides are read and written in one total order (seq_cst): either the
 * engine sees the news before it sleeps, or the poster sees that it is parked. */
static void wake_engine(struct mailbox *m)
{
    if (atomic_exchange(&m->parked, false))
        sem_post(&m->bell);
}

void mailbox_submit(struct mailbox *m, struct request *r)
{
    struct request *top = atomic_load_explicit(&m->inbox, memory_order_relaxed);
    do {
        r->inbox_next = top;
    } while (!atomic_compare_exchange_weak(&m->inbox, &top, r));
    wake_engine(m);
}

void mailbox_ring(struct mailbox *m)
{
    atomic_store(&m->rung, true);
    wake_engine(m);
}

struct request *mailbox_take(struct mailbox *m)
{
    struct request *r = atomic_exchange(&m->inbox, NULL), *oldest = NULL;
    while (r) {
        struct request *next = r->inbox_next;
        r->inbox_next = oldest;
        oldest = r;
        r = next;
    }
    return oldest;
}

bool mailbox_was_rung(struct mailbox *m)
{
    return atomic_exchange(&m->rung, false);
}

void mailbox_park(struct mailbox *m, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    double whole = floor(seconds);
    until.tv_sec += (time_t)whole;
    until.tv_nsec += (long)((seconds - whole) * 1e9);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    atomic_store(&m->parked, true);
    if (!atomic_load(&m->inbox) && !atomic_load(&m->rung))
        sem_clockwait(&m->bell, CLOCK_MONOTONIC, &until);
    atomic_store(&m->parked, false);
}

bool mailbox_publish(struct mailbox *m, struct request *r, bool final)
{
    if (atomic_exchange(&r->outbox_state, final ? OUTBOX_FINAL : OUTBOX_QUEUED) != OUTBOX_OUT)
        return false;
    struct request *top = atomic_load_explicit(&m->outbox, memory_order_relaxed);
    do {
        r->outbox_next = top;
    } while (!atomic_compare_exchange_weak(&m->outbox, &top, r));
    return !top;
}

struct request *mailbox_poll(struct mailbox *m)
{
    if (!m->polled) {
        struct request *r = atomic_exchange(&m->outbox, NULL);
        while (r) {
            struct request *next = r->outbox_next;
            r->outbox_next = m->polled;
            m->polled = r;
            r = next;
        }
    }
    struct request *r = m->polled;
    if (!r)
        return NULL;
    m->polled = r->outbox_next;
    if (atomic_exchange(&r->outbox_state, OUTBOX_OUT) == OUTBOX_FINAL)
        atomic_store(&r->ended, true);
    return r;
}
