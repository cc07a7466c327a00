/* loop.c: for loops and their loop variable. */
#include "functions.h"
#include "runtime.h"

#include <stdio.h>

struct loop {
    const struct stmt *s;
    struct scope *scope; /* around the loop */
    struct value iterable;
    struct iter it;
    struct list *rest; /* what is still to come, once the length of a generator was asked */
    size_t rest_at;
    int64_t index0; /* -1 before the first turn */
    int depth0;
    struct value current, before, after;
    bool has_after,
        ended;            /* the next item was looked at already: it is `after`, or there is none */
    struct list *changed; /* arguments of the last changed() */
};

/* Whether the loop's `if` holds for an item. */
static bool passes(struct rt *r, struct loop *l, struct value item, bool *out)
{
    struct value v;
    struct scope *outer = r->scope;
    r->scope = l->scope;
    if (!scope_push(r) || !assign_target(r, l->s->loop.target, item) ||
        !eval_expr(r, l->s->loop.filter, &v))
        return false;
    r->scope = outer;
    *out = value_truth(v);
    return true;
}

static bool fetch(struct rt *r, struct loop *l, struct value *out, bool *more)
{
    if (l->rest) {
        *more = l->rest_at < l->rest->n;
        if (*more)
            *out = l->rest->v[l->rest_at++];
        return true;
    }
    for (bool ok = false; !ok;) {
        if (!rt_charge(r, 1) || !iter_next(r, &l->it, out, more))
            return false;
        if (!*more || !l->s->loop.filter)
            return true;
        if (!passes(r, l, *out, &ok))
            return false;
    }
    return true;
}

static bool peek(struct rt *r, struct loop *l)
{
    if (l->has_after || l->ended)
        return true;
    bool more;
    if (!fetch(r, l, &l->after, &more))
        return false;
    l->has_after = more;
    l->ended = !more;
    return true;
}

static bool step(struct rt *r, struct loop *l, bool *more)
{
    if (!peek(r, l))
        return false;
    *more = l->has_after;
    if (!*more)
        return true;
    l->has_after = false;
    l->index0++;
    l->before = l->current;
    l->current = l->after;
    return true;
}

static bool loop_length(struct rt *r, struct loop *l, int64_t *out)
{
    size_t n;
    if (!l->s->loop.filter && value_has_length(l->iterable)) {
        if (!value_length(r, l->iterable, &n))
            return false;
        *out = (int64_t)n;
        return true;
    }
    if (!l->rest) {
        struct list *rest = make_list(r, 0);
        bool more = true;
        for (struct value v; rest && more && !l->ended;) {
            if (!fetch(r, l, &v, &more) || (more && !list_append(r, rest, v)))
                return false;
        }
        if (!rest)
            return false;
        l->rest = rest;
    }
    *out = (int64_t)(l->rest->n - l->rest_at) + l->index0 + 1 + l->has_after;
    return true;
}

/* A scope for the next turn: the last one again, unless a macro holds on to it. */
static bool turn_scope(struct rt *r, struct loop *l)
{
    if (r->scope != l->scope && !r->scope->captured) {
        r->scope->n = 0;
        return true;
    }
    r->scope = l->scope;
    return scope_push(r) != NULL;
}

static bool run_turns(struct rt *r, struct loop *l, bool *any)
{
    enum flow flow = FLOW_NEXT;
    bool more;
    for (*any = false; flow != FLOW_BREAK; *any = true) {
        r->line = l->s->line;
        if (!step(r, l, &more))
            return false;
        if (!more)
            break;
        struct value self = {.type = V_LOOP, .loop = l};
        flow = FLOW_NEXT;
        if (!rt_charge(r, 1) || !turn_scope(r, l) || !scope_set(r, r->t->loop_id, self) ||
            !assign_target(r, l->s->loop.target, l->current) ||
            !exec_body(r, &l->s->loop.body, &flow))
            return false;
    }
    return true;
}

static bool run_loop(struct rt *r, const struct stmt *s, struct value iterable, int depth0,
                     enum flow *flow)
{
    struct loop *l = rt_alloc(r, sizeof *l);
    if (!l)
        return false;
    *l = (struct loop){.s = s, .scope = r->scope, .iterable = iterable, .depth0 = depth0};
    l->index0 = -1;
    l->current = value_undefined(UNDEFINED_OTHER, NULL);
    bool any;
    if (!iter_begin(r, iterable, &l->it) || !run_turns(r, l, &any))
        return false;
    r->scope = l->scope;
    if (any || !s->loop.otherwise.n)
        return true;
    if (!scope_push(r) || !exec_body(r, &s->loop.otherwise, flow))
        return false;
    r->scope = l->scope;
    return true;
}

bool exec_for(struct rt *r, const struct stmt *s, enum flow *flow)
{
    struct value iterable;
    return eval_expr(r, s->loop.iter, &iterable) && run_loop(r, s, iterable, 0, flow);
}

/* loop(items) in a recursive loop: the loop over those items, as a string. */
bool loop_call(struct rt *r, struct loop *l, struct call *c, struct value *out)
{
    struct capture capture;
    enum flow flow = FLOW_NEXT;
    if (!l->s->loop.recursive)
        return rt_fail(r, "the loop needs the word 'recursive' to be called");
    if (c->n_pos != 1 || c->n_kw)
        return rt_fail(r, "loop() takes one argument");
    if (r->calls >= r->max_depth)
        return rt_too_deep(r);
    struct scope *outer = r->scope;
    rt_capture(r, &capture);
    r->scope = l->scope;
    r->calls++;
    if (!rt_enter(r) || !run_loop(r, l->s, c->pos[0], l->depth0 + 1, &flow))
        return false;
    rt_leave(r);
    r->calls--;
    r->scope = outer;
    const struct str *s = rt_capture_end(r, &capture);
    *out = value_str(s);
    return s != NULL;
}

static bool from_end(struct rt *r, struct loop *l, int64_t less, struct value *out)
{
    int64_t n;
    if (!loop_length(r, l, &n))
        return false;
    *out = value_int(n - less);
    return true;
}

static bool neighbour(struct rt *r, struct loop *l, bool next, struct value *out)
{
    if (next && !peek(r, l))
        return false;
    bool there = next ? l->has_after : l->index0 > 0;
    *out = !there ? value_undefined(UNDEFINED_OTHER, NULL) : next ? l->after : l->before;
    return true;
}

bool loop_attribute(struct rt *r, struct loop *l, const struct str *name, struct value *out)
{
    if (str_is(name, "index"))
        *out = value_int(l->index0 + 1);
    else if (str_is(name, "index0"))
        *out = value_int(l->index0);
    else if (str_is(name, "first"))
        *out = value_bool(l->index0 == 0);
    else if (str_is(name, "depth"))
        *out = value_int(l->depth0 + 1);
    else if (str_is(name, "depth0"))
        *out = value_int(l->depth0);
    else if (str_is(name, "length"))
        return from_end(r, l, 0, out);
    else if (str_is(name, "revindex"))
        return from_end(r, l, l->index0, out);
    else if (str_is(name, "revindex0"))
        return from_end(r, l, l->index0 + 1, out);
    else if (str_is(name, "previtem"))
        return neighbour(r, l, false, out);
    else if (str_is(name, "nextitem"))
        return neighbour(r, l, true, out);
    else if (str_is(name, "last")) {
        if (!peek(r, l))
            return false;
        *out = value_bool(!l->has_after);
    } else
        *out = value_undefined(UNDEFINED_ATTRIBUTE, name);
    return true;
}

static bool loop_cycle(struct rt *r, struct value self, struct call *c, struct value *out)
{
    if (!c->n_pos)
        return rt_fail(r, "cycle() needs items");
    *out = c->pos[(size_t)self.loop->index0 % c->n_pos];
    return true;
}

static bool loop_changed(struct rt *r, struct value self, struct call *c, struct value *out)
{
    struct loop *l = self.loop;
    struct list *now = make_list(r, c->n_pos);
    bool same = l->changed && l->changed->n == c->n_pos;
    if (!now)
        return false;
    for (size_t i = 0; i < c->n_pos; i++)
        now->v[now->n++] = c->pos[i];
    for (size_t i = 0; same && i < c->n_pos; i++)
        if (!value_equal(r, l->changed->v[i], now->v[i], &same))
            return false;
    l->changed = now;
    *out = value_bool(!same);
    return true;
}

const struct function loop_methods[] = {
    {"cycle", NULL, 0, loop_cycle},
    {"changed", NULL, 0, loop_changed},
    {0},
};

bool loop_repr(struct rt *r, struct loop *l, struct str_builder *b)
{
    char text[80];
    int64_t n;
    if (!loop_length(r, l, &n))
        return false;
    snprintf(text, sizeof text, "<LoopContext %lld/%lld>", (long long)l->index0 + 1, (long long)n);
    str_put_data(b, text);
    return true;
}
