/* filters_select.c: map, select, reject and their kin; sort, group, unique. */
#include "attr_path.h"
#include "functions.h"
#include "text_ops.h"

#include <string.h>

static bool all_digits(const struct str *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->s[i] < '0' || s->s[i] > '9')
            return false;
    return s->n > 0 && s->n < 10;
}

static struct value path_key(const struct str *part)
{
    int64_t n = 0;
    if (!all_digits(part))
        return value_str(part);
    for (size_t i = 0; i < part->n; i++)
        n = n * 10 + (part->s[i] - '0');
    return value_int(n);
}

bool attribute_path(struct rt *r, struct value item, struct value path,
                    const struct value *otherwise, struct value *out)
{
    static const struct str dot = {.s = ".", .n = 1};
    *out = item;
    if (path.type == V_NONE)
        return true;
    if (path.type != V_STR)
        return get_item(r, item, path, out);
    struct list *parts = make_list(r, 0);
    if (!parts || !string_split(r, path.s, &dot, -1, false, parts))
        return false;
    for (size_t i = 0; i < parts->n; i++) {
        if (!get_item(r, *out, path_key(parts->v[i].s), out))
            return false;
        if (otherwise && out->type == V_UNDEFINED)
            *out = *otherwise;
    }
    return true;
}

bool map_attribute(struct rt *r, struct value items, struct value path, struct list **out)
{
    if (!value_to_list(r, items, out))
        return false;
    for (size_t i = 0; i < (*out)->n; i++)
        if (!attribute_path(r, (*out)->v[i], path, NULL, &(*out)->v[i]))
            return false;
    return true;
}

/* The arguments after the first `skip`. */
static struct call rest_of(const struct call *c, size_t skip, const char *who)
{
    struct call rest = {.who = who, .kw = c->kw, .n_kw = c->n_kw};
    if (c->n_pos > skip) {
        rest.pos = c->pos + skip;
        rest.n_pos = c->n_pos - skip;
    }
    return rest;
}

static bool filter_arg_name(struct rt *r, const struct call *c, size_t i, const struct str **out)
{
    if (c->n_pos <= i)
        return rt_fail(r, "%s() needs an argument", c->who);
    if (c->pos[i].type != V_STR)
        return rt_fail(r, "%s() needs a name, not %s", c->who, value_type_name(c->pos[i]));
    *out = c->pos[i].s;
    return true;
}

static bool is_kw(const struct kwarg *k, const char *name)
{
    return str_is(k->name, name);
}

static bool map_by_attribute(struct rt *r, struct value in, struct call *c, struct value *out)
{
    struct value path = value_none(), otherwise;
    bool has_default = false;
    struct list *l;
    for (size_t i = 0; i < c->n_kw; i++) {
        if (is_kw(&c->kw[i], "attribute")) {
            path = c->kw[i].v;
        } else if (is_kw(&c->kw[i], "default")) {
            otherwise = c->kw[i].v;
            has_default = otherwise.type != V_NONE;
        } else {
            return rt_fail(r, "map() has no argument '%.*s'", (int)(c->kw[i].name->n & 63),
                           c->kw[i].name->s);
        }
    }
    if (!value_to_list(r, in, &l))
        return false;
    for (size_t i = 0; i < l->n; i++)
        if (!attribute_path(r, l->v[i], path, has_default ? &otherwise : NULL, &l->v[i]))
            return false;
    return make_generator(r, l, out);
}

/* Applies a filter that is named by a string. */
static bool apply_filter(struct rt *r, const struct filter *f, struct value in,
                         const struct call *args, struct value *out)
{
    struct call c = *args;
    if (f->params && !args_bind(r, &c, f->params, f->min))
        return false;
    return f->run(r, in, &c, out);
}

/* jinja2 does not look at the arguments, nor walk, where the input is false (none, too). */
static bool nothing(struct rt *r, struct value *out)
{
    struct list *l = make_list(r, 0);
    return l && make_generator(r, l, out);
}

static bool filter_map(struct rt *r, struct value in, struct call *c, struct value *out)
{
    const struct str *name;
    struct list *l;
    if (!value_truth(in))
        return nothing(r, out);
    if (c->n_pos == 0)
        return c->n_kw ? map_by_attribute(r, in, c, out)
                       : rt_fail(r, "map() needs a filter or an attribute");
    if (!filter_arg_name(r, c, 0, &name))
        return false;
    const struct filter *f = filter_named(name);
    if (!f)
        return rt_fail(r, "there is no filter named '%.*s'", (int)(name->n & 63), name->s);
    struct call rest = rest_of(c, 1, f->name);
    if (!rt_enter(r) || !value_to_list(r, in, &l))
        return false;
    for (size_t i = 0; i < l->n; i++)
        if (!apply_filter(r, f, l->v[i], &rest, &l->v[i]))
            return false;
    rt_leave(r);
    return make_generator(r, l, out);
}

struct picker {              /* which items a select or reject keeps */
    struct value path;       /* none: the item itself is tested */
    const struct test *test; /* NULL: truth */
    struct call args;
    bool keep;
};

static bool picks(struct rt *r, struct picker *p, struct value item, bool *out)
{
    struct value v;
    if (!rt_charge(r, 1) || !attribute_path(r, item, p->path, NULL, &v))
        return false;
    *out = value_truth(v);
    struct call c = p->args;
    if (p->test &&
        (!args_bind(r, &c, p->test->params, p->test->min) || !p->test->run(r, v, &c, out)))
        return false;
    *out = *out == p->keep;
    return true;
}

static bool pick(struct rt *r, struct value in, struct call *c, bool keep, bool by_attribute,
                 struct value *out)
{
    struct picker p = {.path = value_none(), .keep = keep};
    size_t at = by_attribute;
    const struct str *name;
    struct list *all, *some = make_list(r, 0);
    if (!value_truth(in))
        return nothing(r, out);
    if (by_attribute && c->n_pos == 0)
        return rt_fail(r, "%s() needs an attribute", c->who);
    if (by_attribute)
        p.path = c->pos[0];
    if (c->n_pos > at) {
        if (!filter_arg_name(r, c, at, &name))
            return false;
        if (!(p.test = test_named(name)))
            return rt_fail(r, "there is no test named '%.*s'", (int)(name->n & 63), name->s);
        p.args = rest_of(c, at + 1, p.test->name);
    }
    if (!some || !value_to_list(r, in, &all))
        return false;
    for (size_t i = 0; i < all->n; i++) {
        bool kept;
        if (!picks(r, &p, all->v[i], &kept) || (kept && !list_append(r, some, all->v[i])))
            return false;
    }
    return make_generator(r, some, out);
}

static bool filter_select(struct rt *r, struct value in, struct call *c, struct value *out)
{
    return pick(r, in, c, true, false, out);
}

static bool filter_reject(struct rt *r, struct value in, struct call *c, struct value *out)
{
    return pick(r, in, c, false, false, out);
}

static bool filter_selectattr(struct rt *r, struct value in, struct call *c, struct value *out)
{
    return pick(r, in, c, true, true, out);
}

static bool filter_rejectattr(struct rt *r, struct value in, struct call *c, struct value *out)
{
    return pick(r, in, c, false, true, out);
}

struct keyed { /* an item and what it is sorted by */
    struct value item;
    struct value *keys;
};

struct sorting {
    struct keyed *v, *scratch;
    size_t n, n_keys;
    bool reverse;
    bool direct; /* one key, compared with < alone; else as Python's lists of keys, == first */
};

/* Whether b goes before a. */
static bool goes_before(struct rt *r, const struct sorting *s, const struct keyed *b,
                        const struct keyed *a, bool *out)
{
    if (s->direct)
        return value_compare(r, OP_LT, s->reverse ? *a->keys : *b->keys,
                             s->reverse ? *b->keys : *a->keys, out);
    for (size_t k = 0; k < s->n_keys; k++) {
        struct value x = s->reverse ? a->keys[k] : b->keys[k];
        struct value y = s->reverse ? b->keys[k] : a->keys[k];
        bool same;
        if (!value_equal(r, x, y, &same))
            return false;
        if (!same)
            return value_compare(r, OP_LT, x, y, out);
    }
    *out = false;
    return true;
}

static bool merge(struct rt *r, struct sorting *s, size_t from, size_t mid, size_t end)
{
    size_t i = from, j = mid;
    for (size_t k = from; k < end; k++) {
        bool right = i == mid;
        if (i < mid && j < end &&
            (!rt_charge(r, 1) || !goes_before(r, s, &s->v[j], &s->v[i], &right)))
            return false;
        s->scratch[k] = right ? s->v[j++] : s->v[i++];
    }
    memcpy(s->v + from, s->scratch + from, (end - from) * sizeof *s->v);
    return true;
}

static bool merge_sort(struct rt *r, struct sorting *s)
{
    for (size_t width = 1; width < s->n; width *= 2)
        for (size_t from = 0; from + width < s->n; from += 2 * width) {
            size_t end = s->n - from < 2 * width ? s->n : from + 2 * width;
            if (!merge(r, s, from, from + width, end))
                return false;
        }
    return true;
}

static bool fold_case(struct rt *r, bool case_sensitive, struct value *v)
{
    if (case_sensitive || v->type != V_STR)
        return true;
    const struct str *s = string_case(r, v->s, CASE_LOWER);
    *v = value_str(s);
    return s != NULL;
}

struct order {                     /* how a sort goes */
    const struct list *paths;      /* attributes to sort by; none: the item itself */
    const struct value *otherwise; /* for an attribute that is undefined; may be NULL */
    bool case_sensitive, reverse, direct;
};

static bool find_keys(struct rt *r, const struct order *o, struct keyed *k)
{
    k->keys = arena_array(&r->arena, o->paths->n, sizeof *k->keys);
    if (!k->keys)
        return rt_no_memory(r);
    for (size_t i = 0; i < o->paths->n; i++)
        if (!attribute_path(r, k->item, o->paths->v[i], o->otherwise, &k->keys[i]) ||
            !fold_case(r, o->case_sensitive, &k->keys[i]))
            return false;
    return true;
}

static bool sort_list(struct rt *r, struct list *items, const struct order *o)
{
    struct sorting s = {
        .n = items->n, .n_keys = o->paths->n, .reverse = o->reverse, .direct = o->direct};
    s.v = arena_array(&r->arena, s.n, sizeof *s.v);
    s.scratch = arena_array(&r->arena, s.n, sizeof *s.v);
    if (!s.v || !s.scratch)
        return rt_no_memory(r);
    for (size_t i = 0; i < s.n; i++) {
        s.v[i].item = items->v[i];
        if (!find_keys(r, o, &s.v[i]))
            return false;
    }
    if (!merge_sort(r, &s))
        return false;
    for (size_t i = 0; i < s.n; i++)
        items->v[i] = s.v[i].item;
    return true;
}

/* "age,name" is two paths; anything else is one. */
static bool sort_paths(struct rt *r, struct value attribute, struct list **out)
{
    static const struct str comma = {.s = ",", .n = 1};
    if (!(*out = make_list(r, 0)))
        return false;
    if (attribute.type == V_STR)
        return string_split(r, attribute.s, &comma, -1, false, *out);
    return list_append(r, *out, attribute);
}

static bool filter_sort(struct rt *r, struct value in, struct call *c, struct value *out)
{
    struct list *l, *paths;
    struct value attribute = arg_given(c, 2) ? c->arg[2] : value_none();
    if (!value_to_list(r, in, &l) || !sort_paths(r, attribute, &paths))
        return false;
    struct order o = {.paths = paths,
                      .case_sensitive = arg_truth(c, 1, false),
                      .reverse = arg_truth(c, 0, false)};
    if (!sort_list(r, l, &o))
        return false;
    *out = value_list(l);
    return true;
}

static bool filter_dictsort(struct rt *r, struct value in, struct call *c, struct value *out)
{
    struct list *l, *paths;
    int64_t by = 0;
    if (in.type != V_DICT)
        return in.type == V_UNDEFINED
                   ? rt_undefined(r, in)
                   : rt_fail(r, "dictsort() needs a dict, not %s", value_type_name(in));
    if (arg_given(c, 1)) {
        bool key = c->arg[1].type == V_STR && str_is(c->arg[1].s, "key");
        if (!key && !(c->arg[1].type == V_STR && str_is(c->arg[1].s, "value")))
            return rt_fail(r, "dictsort() sorts by 'key' or 'value'");
        by = !key;
    }
    struct view view = {in.dict, VIEW_ITEMS};
    if (!value_to_list(r, (struct value){.type = V_VIEW, .view = &view}, &l) ||
        !sort_paths(r, value_int(by), &paths))
        return false;
    struct order o = {.paths = paths,
                      .case_sensitive = arg_truth(c, 0, false),
                      .reverse = arg_truth(c, 2, false),
                      .direct = true};
    if (!sort_list(r, l, &o))
        return false;
    *out = value_list(l);
    return true;
}

static bool filter_unique(struct rt *r, struct value in, struct call *c, struct value *out)
{
    struct list *all, *some = make_list(r, 0);
    struct dict *seen = dict_new(&r->arena);
    struct value path = arg_given(c, 1) ? c->arg[1] : value_none();
    if (!seen)
        return rt_no_memory(r);
    if (!some || !value_to_list(r, in, &all))
        return false;
    for (size_t i = 0; i < all->n; i++) {
        struct value key;
        size_t before = seen->n;
        if (!attribute_path(r, all->v[i], path, NULL, &key) ||
            !fold_case(r, arg_truth(c, 0, false), &key) || !dict_set(r, seen, key, value_none()))
            return false;
        if (seen->n > before && !list_append(r, some, all->v[i]))
            return false;
    }
    return make_generator(r, some, out);
}

static bool add_group(struct rt *r, struct list *groups, struct value key, struct list *items)
{
    struct list *t = make_list(r, 2);
    if (!t)
        return false;
    t->v[t->n++] = key;
    t->v[t->n++] = value_list(items);
    t->group = true;
    return list_append(r, groups, value_tuple(t));
}

static bool filter_groupby(struct rt *r, struct value in, struct call *c, struct value *out)
{
    struct list *all, *paths = make_list(r, 1), *groups = make_list(r, 0), *items = NULL;
    struct value path = c->arg[0], last = value_none();
    const struct value *otherwise = arg_given(c, 1) && c->arg[1].type != V_NONE ? &c->arg[1] : NULL;
    bool case_sensitive = arg_truth(c, 2, false);
    struct order o = {paths, otherwise, case_sensitive, .direct = true};
    if (!paths || !groups || !list_append(r, paths, path) || !value_to_list(r, in, &all) ||
        !sort_list(r, all, &o))
        return false;
    for (size_t i = 0; i < all->n; i++) {
        struct value key, shown;
        bool same = false;
        if (!attribute_path(r, all->v[i], path, otherwise, &shown))
            return false;
        key = shown;
        if (!fold_case(r, case_sensitive, &key) || (items && !value_equal(r, key, last, &same)))
            return false;
        if (!same && (!(items = make_list(r, 0)) || !add_group(r, groups, shown, items)))
            return false;
        last = key;
        if (!list_append(r, items, all->v[i]))
            return false;
    }
    *out = value_list(groups);
    return true;
}

static bool extreme(struct rt *r, struct value in, struct call *c, enum op op, struct value *out)
{
    struct list *l;
    struct value path = arg_given(c, 1) ? c->arg[1] : value_none(), best = value_none();
    if (!value_to_list(r, in, &l))
        return false;
    *out = value_undefined(UNDEFINED_OTHER, NULL);
    for (size_t i = 0; i < l->n; i++) {
        struct value key;
        bool better = i == 0;
        if (!attribute_path(r, l->v[i], path, NULL, &key) ||
            !fold_case(r, arg_truth(c, 0, false), &key) ||
            (i && !value_compare(r, op, key, best, &better)))
            return false;
        if (better) {
            best = key;
            *out = l->v[i];
        }
    }
    return true;
}

static bool filter_min(struct rt *r, struct value in, struct call *c, struct value *out)
{
    return extreme(r, in, c, OP_LT, out);
}

static bool filter_max(struct rt *r, struct value in, struct call *c, struct value *out)
{
    return extreme(r, in, c, OP_GT, out);
}

const struct filter select_filters[] = {
    {"map", NULL, 0, filter_map},
    {"select", NULL, 0, filter_select},
    {"reject", NULL, 0, filter_reject},
    {"selectattr", NULL, 0, filter_selectattr},
    {"rejectattr", NULL, 0, filter_rejectattr},
    {"sort", "reverse,case_sensitive,attribute", 0, filter_sort},
    {"dictsort", "case_sensitive,by,reverse", 0, filter_dictsort},
    {"unique", "case_sensitive,attribute", 0, filter_unique},
    {"groupby", "attribute,default,case_sensitive", 1, filter_groupby},
    {"min", "case_sensitive,attribute", 0, filter_min},
    {"max", "case_sensitive,attribute", 0, filter_max},
    {0},
};
