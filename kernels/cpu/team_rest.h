/* team_rest.h: when members of a team may move to another processor.
 *
 * A member that spins on the processor of another moves to one where no member is. That gains
 * nothing where other programs leave little of that processor: soon the others wait for who moved.
 * Then no member moves for a while, twice as long each time, until a move has served for longer. A
 * rest is never shortened. Any thread may call these; `now` is in ns of one clock, above 0. */
#ifndef TOKEND_TEAM_REST_H
#define TOKEND_TEAM_REST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define REST_NS INT64_C(300000)         /* least time between two moves of members, … */
#define MOST_REST_NS INT64_C(200000000) /* … and most, where moving does not help */
#define SHORT_NS INT64_C(3000000)       /* who moved and then ran for less has not gained by it */

struct team_rest {
    _Atomic int64_t until, length; /* of the rest; its length is REST_NS at first */
    _Atomic int64_t moved;         /* when the last move was that is not judged yet; 0: none */
};

static inline void team_rest_init(struct team_rest *r)
{
    atomic_init(&r->until, 0);
    atomic_init(&r->length, REST_NS);
    atomic_init(&r->moved, 0);
}

/* Whether this member may move now: no other then may for REST_NS. */
static inline bool team_rest_is_over(struct team_rest *r, int64_t now)
{
    int64_t until = atomic_load(&r->until);
    return now >= until && atomic_compare_exchange_strong(&r->until, &until, now + REST_NS);
}

static inline void team_rest_moved(struct team_rest *r, int64_t now)
{
    atomic_store(&r->moved, now);
}

/* A member was found without a processor: rests, as long as the last move teaches. */
static inline void team_rest_begin(struct team_rest *r, int64_t now)
{
    const int64_t moved = atomic_exchange(&r->moved, 0);
    int64_t length = atomic_load(&r->length), until = atomic_load(&r->until);
    if (moved && now - moved >= SHORT_NS)
        length = REST_NS;
    else if (moved)
        length = 2 * length < MOST_REST_NS ? 2 * length : MOST_REST_NS;
    atomic_store(&r->length, length);
    while (until < now + length && !atomic_compare_exchange_weak(&r->until, &until, now + length))
        ;
}

#endif
