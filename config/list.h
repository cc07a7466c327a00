/* list.h: an intrusive doubly linked list with a sentinel. A zeroed node is in no list. */
#ifndef TOKEND_LIST_H
#define TOKEND_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list_node {
    struct list_node *prev, *next;
};
struct list {
    struct list_node head;
};

#define list_entry(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))

static inline void list_init(struct list *l)
{
    l->head.prev = l->head.next = &l->head;
}
static inline bool list_empty(const struct list *l)
{
    return l->head.next == &l->head;
}
static inline bool list_linked(const struct list_node *n)
{
    return n->next != NULL;
}
/* NULL when empty. */
static inline struct list_node *list_first(const struct list *l)
{
    return list_empty(l) ? NULL : l->head.next;
}
static inline struct list_node *list_last(const struct list *l)
{
    return list_empty(l) ? NULL : l->head.prev;
}
/* NULL after the last. */
static inline struct list_node *list_next(const struct list *l, const struct list_node *n)
{
    return n->next == &l->head ? NULL : n->next;
}
static inline struct list_node *list_prev(const struct list *l, const struct list_node *n)
{
    return n->prev == &l->head ? NULL : n->prev;
}
static inline void list_insert_before(struct list_node *at, struct list_node *n)
{
    n->prev = at->prev;
    n->next = at;
    at->prev->next = n;
    at->prev = n;
}
static inline void list_push_back(struct list *l, struct list_node *n)
{
    list_insert_before(&l->head, n);
}
static inline void list_push_front(struct list *l, struct list_node *n)
{
    list_insert_before(l->head.next, n);
}
static inline void list_remove(struct list_node *n)
{
    n->prev->next = n->next;
    n->next->prev = n->prev;
    n->prev = n->next = NULL;
}

#endif
