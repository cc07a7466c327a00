/* team.h: helper threads that work on one thing at a time, in lockstep.
 *
 * team_run calls one function on every member, the calling thread being member 0. Inside it
 * work is split into phases: members claim units 0, 1, 2, … of a phase until there are none
 * left, and then meet at team_barrier, which starts the next phase. Which member does a unit is
 * chance, so no unit's result may depend on it.
 *
 * Who waits spins for a few dozen microseconds and then sleeps: an idle team takes no CPU. Who
 * finds that it spins on the processor that another member needs sleeps at once: on a busy
 * machine the scheduler puts two of them on one. So that a busy neighbour costs its share and not
 * a multiple, members also move: away from each other, and one that waits for a processor to that
 * of another who waits for it, which costs microseconds where a time slice is milliseconds.
 *
 * Members that are pinned stay on a core each as long as there are cores, and neighbouring members
 * on one memory node. The calling thread is pinned from its first team_run on.
 * Only one thread may call team_run, team_for and team_free. Nothing here allocates but
 * team_new. */
#ifndef TOKEND_TEAM_H
#define TOKEND_TEAM_H

#include <stdint.h>

#include "err.h"

struct team;

/* `size` members, the caller counted; 0 = as many as the process may use processors. Pinned ones
 * cannot be more than there are processors. */
struct team *team_new(int size, bool pinned, struct err *e);
void team_free(struct team *); /* NULL is fine */
int team_size(const struct team *);

/* Calls fn(arg, member) on all members and returns when all have returned. */
void team_run(struct team *, void (*fn)(void *arg, int member), void *arg);
/* Calls fn(arg, i) for i in [0, n), each once, in any order, and returns when all are done. */
void team_for(struct team *, void (*fn)(void *arg, int i), void *arg, int n);

/* The calling thread may run again wherever it could before, until its next team_run. */
void team_unpin_caller(struct team *);
/* Memory nodes of the processors that the process may use, as bits. */
uint64_t team_nodes(const struct team *);

/* Whole processors that the control group at `root` may use: a container's share of a large
 * machine. INT_MAX: no limit. */
int team_quota(const char *root);

/* Inside team_run: the next unit of this phase, the same number for one member only. */
int team_claim(struct team *);
/* The same where neighbouring units lie side by side in memory: a member takes its own share of
 * the phase's n units, [member * n / size, (member + 1) * n / size), one after the other, and then
 * what is left of other members' shares (of all in a small team, of some in a large one). Negative
 * when it finds nothing. A phase uses this or team_claim, and every member the same n. */
int team_take(struct team *, int member, int n);
/* The unit that team_take gives this member first, if it comes in time. */
int team_first(const struct team *, int member, int n);
/* Inside team_run, by every member: what was written before is seen by all after. */
void team_barrier(struct team *, int member);

#endif
