/* mailbox.h: requests on their way to the engine thread and back.
 *
 * Inbox: an intrusive stack that any thread pushes to and the engine detaches whole, as H2O
 * and libuv do. Outbox: the same the other way round, one engine and one loop. A request is
 * in the inbox once in its life, and in the outbox at most once at a time: news of a request
 * that still waits there need no second entry. Nothing here allocates or locks. */
#ifndef TOKEND_MAILBOX_H
#define TOKEND_MAILBOX_H

#include "engine.h"

#include <semaphore.h>

/* Who holds a request, as request.outbox_state. The engine's last exchange writes FINAL, after
 * which it never touches the request again; the poll that finds FINAL there is the last. */
enum outbox_state { OUTBOX_OUT, OUTBOX_QUEUED, OUTBOX_FINAL };

struct mailbox {
    _Atomic(struct request *) inbox, outbox;
    struct request *polled; /* the loop's: detached from the outbox, oldest first */
    _Atomic bool rung;      /* something other than the inbox asks for the engine */
    _Atomic bool parked;    /* the engine sleeps, or is about to: post the bell */
    sem_t bell;
};

bool mailbox_init(struct mailbox *, struct err *e);
void mailbox_destroy(struct mailbox *);

/* --- the submitter's side --- */
void mailbox_submit(struct mailbox *, struct request *);
/* Makes the engine look at flags that were set before the call. */
void mailbox_ring(struct mailbox *);
/* The next request with news, or NULL; sets `ended` when it is the last time. */
struct request *mailbox_poll(struct mailbox *);

/* --- the engine's side --- */
/* All submitted requests, oldest first, linked by inbox_next. */
struct request *mailbox_take(struct mailbox *);
/* Whether mailbox_ring was called since the last time. */
bool mailbox_was_rung(struct mailbox *);
/* Sleeps until there is a submission or a ring, or the time is over. */
void mailbox_park(struct mailbox *, double seconds);
/* Puts the request before the loop. True when the outbox was empty: the loop must be woken. */
bool mailbox_publish(struct mailbox *, struct request *, bool final);

#endif
