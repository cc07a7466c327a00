#include "http_impl.h"

void http_wait_list_init(struct http_wait_list *l, uint64_t period,
                         void (*expire)(struct http_server *, struct http_wait *))
{
    list_init(&l->waiting);
    l->period = period ? period : 1;
    l->expire = expire;
}

static void set_timer(struct http_server *s, uint64_t due)
{
    uint64_t now = uv_now(s->loop);
    uv_timer_start(&s->wait_timer, http_wait_on_timer, due > now ? due - now : 0, 0);
}

void http_wait_start(struct http_server *s, struct http_wait_list *l, struct http_wait *w)
{
    http_wait_stop(w);
    w->due = uv_now(s->loop) + l->period;
    list_push_back(&l->waiting, &w->node);
    if (!uv_is_active((uv_handle_t *)&s->wait_timer) ||
        uv_timer_get_due_in(&s->wait_timer) > l->period)
        set_timer(s, w->due);
}

void http_wait_stop(struct http_wait *w)
{
    if (list_linked(&w->node))
        list_remove(&w->node);
}

static void expire_due(struct http_server *s, struct http_wait_list *l)
{
    struct list_node *n;
    while ((n = list_first(&l->waiting))) {
        struct http_wait *w = list_entry(n, struct http_wait, node);
        if (w->due > uv_now(s->loop))
            return;
        list_remove(n);
        l->expire(s, w);
    }
}

/* The timer is set for the earliest that ever waited; one that was removed meanwhile makes
 * it fire in vain, which costs less than keeping it exact. */
void http_wait_on_timer(uv_timer_t *t)
{
    struct http_server *s = t->data;
    struct http_wait_list *lists[] = {&s->idle,  &s->body,      &s->writing,
                                      &s->dying, &s->lingering, &s->trimming};
    uint64_t next = UINT64_MAX;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        expire_due(s, lists[i]);
        struct list_node *n = list_first(&lists[i]->waiting);
        if (n && list_entry(n, struct http_wait, node)->due < next)
            next = list_entry(n, struct http_wait, node)->due;
    }
    if (next != UINT64_MAX)
        set_timer(s, next);
    else
        uv_timer_stop(t);
}
