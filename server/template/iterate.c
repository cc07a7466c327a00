/* iterate.c: lengths, walks and new lists. */
#include "runtime.h"
#include "unicode.h"
#include "utf8.h"

bool value_has_length(struct value v)
{
    switch ((enum value_type)v.type) {
    case V_UNDEFINED:
    case V_STR:
    case V_LIST:
    case V_TUPLE:
    case V_DICT:
    case V_RANGE:
    case V_VIEW:
    case V_LOOP:
        return true;
    default:
        return false;
    }
}

bool value_length(struct rt *r, struct value v, size_t *out)
{
    static const struct str length = {.s = "length", .n = 6};
    struct value n;
    switch ((enum value_type)v.type) {
    case V_UNDEFINED:
        *out = 0;
        return true;
    case V_STR:
        *out = utf8_count(v.s->s, v.s->n);
        return rt_charge_bytes(r, v.s->n);
    case V_LIST:
    case V_TUPLE:
        *out = v.list->n;
        return true;
    case V_DICT:
        *out = v.dict->n;
        return true;
    case V_RANGE:
        *out = v.range->n;
        return true;
    case V_VIEW:
        *out = v.view->dict->n;
        return true;
    case V_LOOP:
        if (!loop_attribute(r, v.loop, &length, &n))
            return false;
        *out = (size_t)n.i;
        return true;
    default:
        return rt_fail(r, "object of type '%s' has no length", value_type_name(v));
    }
}

bool value_iterable(struct value v)
{
    return (value_has_length(v) && v.type != V_LOOP) || v.type == V_GENERATOR;
}

bool iter_begin(struct rt *r, struct value v, struct iter *it)
{
    if (!value_iterable(v))
        return rt_fail(r, "'%s' object is not iterable", value_type_name(v));
    *it = (struct iter){.v = v};
    return true;
}

static bool next_char(struct rt *r, struct iter *it, struct value *out, bool *more)
{
    const struct str *s = it->v.s;
    *more = it->at < s->n;
    if (!*more)
        return true;
    size_t n = unicode_offset(s->s + it->at, s->n - it->at, 1);
    struct str *c = str_part(&r->arena, s, it->at, n);
    if (!c)
        return rt_no_memory(r);
    c->markup = false; /* Python walks a Markup as a plain string */
    it->at += n;
    *out = value_str(c);
    return true;
}

static bool entry_tuple(struct rt *r, const struct entry *e, struct value *out)
{
    struct list *l = make_list(r, 2);
    if (!l)
        return false;
    l->v[l->n++] = e->key;
    l->v[l->n++] = e->value;
    *out = value_tuple(l);
    return true;
}

static bool next_entry(struct rt *r, struct iter *it, const struct dict *d, enum view_kind kind,
                       struct value *out, bool *more)
{
    *more = it->i < d->n;
    if (!*more)
        return true;
    const struct entry *e = &d->e[it->i++];
    if (kind == VIEW_ITEMS)
        return entry_tuple(r, e, out);
    *out = kind == VIEW_KEYS ? e->key : e->value;
    return true;
}

static bool next_of(struct list *l, size_t *i, struct value *out, bool *more)
{
    *more = *i < l->n;
    if (*more)
        *out = l->v[(*i)++];
    return true;
}

bool iter_next(struct rt *r, struct iter *it, struct value *out, bool *more)
{
    struct value v = it->v;
    switch ((enum value_type)v.type) {
    case V_STR:
        return next_char(r, it, out, more);
    case V_LIST:
    case V_TUPLE:
        return next_of(v.list, &it->i, out, more);
    case V_GENERATOR:
        return next_of(v.gen->items, &v.gen->at, out, more);
    case V_DICT:
        return next_entry(r, it, v.dict, VIEW_KEYS, out, more);
    case V_VIEW:
        return next_entry(r, it, v.view->dict, v.view->kind, out, more);
    case V_RANGE:
        *more = it->i < v.range->n;
        if (*more)
            *out = value_int(v.range->start + (int64_t)it->i++ * v.range->step);
        return true;
    default:
        *more = false; /* undefined: nothing */
        return true;
    }
}

struct list *make_list(struct rt *r, size_t cap)
{
    struct list *l = list_new(&r->arena, cap);
    if (!l)
        rt_no_memory(r);
    return l;
}

bool list_append(struct rt *r, struct list *l, struct value v)
{
    return list_push(&r->arena, l, v) || rt_no_memory(r);
}

bool value_to_list(struct rt *r, struct value v, struct list **out)
{
    struct iter it;
    struct list *l = make_list(r, 0);
    if (!l || !iter_begin(r, v, &it))
        return false;
    for (;;) {
        struct value item;
        bool more;
        if (!iter_next(r, &it, &item, &more))
            return false;
        if (!more)
            break;
        if (!rt_charge(r, 1) || !list_append(r, l, item))
            return false;
    }
    *out = l;
    return true;
}

bool make_generator(struct rt *r, struct list *items, struct value *out)
{
    struct generator *g = rt_alloc(r, sizeof *g);
    if (!g)
        return false;
    g->items = items;
    *out = (struct value){.type = V_GENERATOR, .gen = g};
    return true;
}

bool make_str(struct rt *r, struct str_builder *b, struct value *out)
{
    const struct str *s = str_end(b);
    if (!s)
        return rt_no_memory(r);
    *out = value_str(s);
    return rt_charge_bytes(r, s->n);
}

bool make_data(struct rt *r, const char *text, struct value *out)
{
    struct str_builder b;
    str_begin(&b, &r->arena);
    str_put_data(&b, text);
    return make_str(r, &b, out);
}

bool hash_key(struct rt *r, struct value key, uint64_t *hash)
{
    enum { MOST = 1 << 20 };
    struct hash_work work = {.depth = r->max_depth, .items = MOST};
    bool ok = value_hash(r->seed, key, &work, hash);
    size_t used = MOST - work.items, left = r->max_steps - r->steps;
    r->steps += used < left ? used : left; /* the next step notices */
    return ok;
}

bool dict_set(struct rt *r, struct dict *d, struct value key, struct value v)
{
    uint64_t hash;
    if (!hash_key(r, key, &hash))
        return rt_fail(r, "unhashable type: '%s'", value_type_name(key));
    return dict_put(&r->arena, d, key, hash, v) || rt_no_memory(r);
}

struct value *dict_get_str(struct rt *r, const struct dict *d, const struct str *key)
{
    uint64_t hash;
    return hash_key(r, value_str(key), &hash) ? dict_find(d, value_str(key), hash) : NULL;
}
