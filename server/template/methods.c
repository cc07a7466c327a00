/* methods.c: methods of dicts and sequences. */
#include "functions.h"
#include "runtime.h"

static bool dict_get(struct rt *r, struct value self, struct call *c, struct value *out)
{
    uint64_t hash;
    if (!hash_key(r, c->arg[0], &hash))
        return rt_fail(r, "unhashable type: '%s'", value_type_name(c->arg[0]));
    const struct value *item = dict_find(self.dict, c->arg[0], hash);
    *out = item ? *item : arg_given(c, 1) ? c->arg[1] : value_none();
    return true;
}

static bool make_view(struct rt *r, struct value self, enum view_kind kind, struct value *out)
{
    struct view *v = rt_alloc(r, sizeof *v);
    if (!v)
        return false;
    *v = (struct view){self.dict, kind};
    *out = (struct value){.type = V_VIEW, .view = v};
    return true;
}

static bool dict_keys(struct rt *r, struct value self, struct call *c, struct value *out)
{
    return make_view(r, self, VIEW_KEYS, out);
}

static bool dict_values(struct rt *r, struct value self, struct call *c, struct value *out)
{
    return make_view(r, self, VIEW_VALUES, out);
}

static bool dict_items(struct rt *r, struct value self, struct call *c, struct value *out)
{
    return make_view(r, self, VIEW_ITEMS, out);
}

/* A template cannot change a dict or list, so the copy may be the thing itself. */
static bool copy_self(struct rt *r, struct value self, struct call *c, struct value *out)
{
    *out = self;
    return true;
}

const struct function dict_methods[] = {
    {"get", "key,default", 1, dict_get}, {"keys", "", 0, dict_keys}, {"values", "", 0, dict_values},
    {"items", "", 0, dict_items},        {"copy", "", 0, copy_self}, {0},
};

static bool list_count(struct rt *r, struct value self, struct call *c, struct value *out)
{
    struct list *l;
    int64_t n = 0;
    if (!value_to_list(r, self, &l))
        return false;
    for (size_t i = 0; i < l->n; i++) {
        bool same;
        if (!value_equal(r, l->v[i], c->arg[0], &same))
            return false;
        n += same;
    }
    *out = value_int(n);
    return true;
}

static bool list_index(struct rt *r, struct value self, struct call *c, struct value *out)
{
    struct list *l;
    int64_t from, end;
    if (!value_to_list(r, self, &l) || !arg_int(r, c, 1, 0, &from) ||
        !arg_int(r, c, 2, (int64_t)l->n, &end))
        return false;
    int64_t n = (int64_t)l->n;
    from = from < 0 ? (from < -n ? 0 : from + n) : from;
    end = end < 0 ? end + n : end;
    for (int64_t i = from; i < end && i < n; i++) {
        bool same;
        if (!value_equal(r, l->v[i], c->arg[0], &same))
            return false;
        if (same) {
            *out = value_int(i);
            return true;
        }
    }
    return rt_fail(r, "index(): the value is not in the list");
}

const struct function list_methods[] = {
    {"count", "value", 1, list_count},
    {"index", "value,start,stop", 1, list_index},
    {"copy", "", 0, copy_self},
    {0},
};
