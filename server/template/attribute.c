/* attribute.c: a.b, a[b] and a[b:c], with jinja2's rules for which goes first. */
#include "functions.h"
#include "runtime.h"
#include "unicode.h"
#include "utf8.h"

#include <string.h>

static bool group_attribute(struct value v, const struct str *name, struct value *out)
{
    if (v.type != V_TUPLE || !v.list->group)
        return false;
    bool grouper = str_is(name, "grouper");
    if (!grouper && !str_is(name, "list"))
        return false;
    *out = v.list->v[grouper ? 0 : 1];
    return true;
}

/* What Python's getattr finds; *found = false: nothing. */
static bool python_attribute(struct rt *r, struct value v, const struct str *name,
                             struct value *out, bool *found)
{
    bool unsafe = false;
    const struct function *method = method_named(v, name, &unsafe);
    *found = true;
    if (unsafe) {
        *out = value_undefined(UNDEFINED_UNSAFE, name);
        return true;
    }
    if (method) {
        struct bound *b = rt_alloc(r, sizeof *b);
        if (!b)
            return false;
        *b = (struct bound){v, method};
        *out = (struct value){.type = V_METHOD, .bound = b};
        return true;
    }
    if (v.type == V_LOOP) {
        if (!loop_attribute(r, v.loop, name, out))
            return false;
        *found = out->type != V_UNDEFINED || out->undefined != UNDEFINED_ATTRIBUTE;
        return true;
    }
    if (v.type == V_NAMESPACE) {
        const struct value *known = dict_get_str(r, v.dict, name);
        if (known)
            *out = *known;
        *found = known != NULL;
        return true;
    }
    if (v.type == V_CYCLER && str_is(name, "current")) {
        *out = v.cycler->items->v[v.cycler->at];
        return true;
    }
    if (v.type == V_MACRO && str_is(name, "name")) {
        *out = v.macro->is_caller ? value_none() : value_str(v.macro->sig->name.s);
        return true;
    }
    *found = group_attribute(v, name, out);
    return true;
}

bool get_attribute(struct rt *r, struct value v, const struct str *name, struct value *out)
{
    bool found;
    if (v.type == V_UNDEFINED)
        return rt_undefined(r, v);
    if (!python_attribute(r, v, name, out, &found))
        return false;
    if (found)
        return true;
    const struct value *item = v.type == V_DICT ? dict_get_str(r, v.dict, name) : NULL;
    *out = item ? *item : value_undefined(UNDEFINED_ATTRIBUTE, name);
    return true;
}

/* The character or item at an index that may count from the end; *found: it is there. */
static bool index_item(struct rt *r, struct value v, int64_t i, struct value *out, bool *found)
{
    size_t n, at;
    if (!value_length(r, v, &n))
        return false;
    if (i < 0)
        i += (int64_t)n;
    *found = i >= 0 && (uint64_t)i < n;
    if (!*found)
        return true;
    if (v.type == V_RANGE) {
        *out = value_int(v.range->start + i * v.range->step);
        return true;
    }
    if (v.type != V_STR) {
        *out = v.list->v[i];
        return true;
    }
    if (!rt_charge(r, v.s->n == n ? v.s->n / 1024 : v.s->n / 16))
        return false;
    at = v.s->n == n ? (size_t)i : unicode_offset(v.s->s, v.s->n, (size_t)i);
    const struct str *c = str_part(&r->arena, v.s, at, unicode_offset(v.s->s + at, v.s->n - at, 1));
    *out = value_str(c);
    return c || rt_no_memory(r);
}

static bool is_indexed(struct value v)
{
    return v.type == V_STR || v.type == V_LIST || v.type == V_TUPLE || v.type == V_RANGE;
}

bool get_item(struct rt *r, struct value v, struct value key, struct value *out)
{
    bool found = false;
    uint64_t hash;
    if (v.type == V_UNDEFINED)
        return rt_undefined(r, v);
    if (v.type == V_DICT && hash_key(r, key, &hash)) {
        const struct value *item = dict_find(v.dict, key, hash);
        found = item != NULL;
        if (item)
            *out = *item;
    } else if (is_indexed(v) && value_is_integer(key) &&
               !index_item(r, v, value_as_int(key), out, &found)) {
        return false;
    }
    if (!found && key.type == V_STR && !python_attribute(r, v, key.s, out, &found))
        return false;
    if (!found)
        *out = key.type == V_STR ? value_undefined(UNDEFINED_ATTRIBUTE, key.s)
                                 : value_undefined(UNDEFINED_OTHER, NULL);
    return true;
}

struct slice { /* n items from start, each step further */
    int64_t start, step;
    size_t n;
};

static int64_t clamp(int64_t i, int64_t n, int64_t low, int64_t high)
{
    if (i < 0)
        i = i < -n ? -1 : i + n;
    return i < low ? low : i > high ? high : i;
}

static bool slice_of(struct rt *r, const struct value part[3], size_t length, struct slice *out)
{
    for (int i = 0; i < 3; i++) {
        if (part[i].type == V_UNDEFINED)
            return rt_undefined(r, part[i]);
        if (part[i].type != V_NONE && !value_is_integer(part[i]))
            return rt_fail(r, "slice indices must be integers or none, not %s",
                           value_type_name(part[i]));
    }
    int64_t n = (int64_t)length, step = part[2].type == V_NONE ? 1 : value_as_int(part[2]);
    if (step == 0)
        return rt_fail(r, "the step of a slice cannot be zero");
    if (step < -n - 1)
        step = -n - 1; /* beyond the length all steps are alike */
    if (step > n + 1)
        step = n + 1;
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    int64_t start = part[0].type == V_NONE ? (step < 0 ? high : low)
                                           : clamp(value_as_int(part[0]), n, low, high);
    int64_t stop = part[1].type == V_NONE ? (step < 0 ? low : high)
                                          : clamp(value_as_int(part[1]), n, low, high);
    int64_t span = step < 0 ? start - stop : stop - start, size = step < 0 ? -step : step;
    *out = (struct slice){start, step, span > 0 ? (size_t)((span - 1) / size + 1) : 0};
    return true;
}

static bool slice_string(struct rt *r, const struct str *s, struct slice c, struct value *out)
{
    size_t count = utf8_count(s->s, s->n);
    if (!rt_charge(r, count == s->n ? s->n / 1024 : s->n / 16))
        return false;
    if (c.step == 1) {
        size_t from = count == s->n ? (size_t)c.start : unicode_offset(s->s, s->n, (size_t)c.start);
        size_t n = count == s->n ? c.n : unicode_offset(s->s + from, s->n - from, c.n);
        const struct str *part = str_part(&r->arena, s, from, n);
        *out = value_str(part);
        return part || rt_no_memory(r);
    }
    size_t *at = arena_array(&r->arena, count + 1, sizeof *at);
    if (!at)
        return rt_no_memory(r);
    for (size_t i = 0, pos = 0; i <= count; i++) {
        at[i] = pos;
        if (i < count)
            pos += unicode_offset(s->s + pos, s->n - pos, 1);
    }
    struct str_builder b;
    str_begin(&b, &r->arena);
    for (size_t k = 0; k < c.n; k++) {
        size_t i = (size_t)(c.start + (int64_t)k * c.step);
        str_put_part(&b, s, at[i], at[i + 1] - at[i]);
    }
    if (!make_str(r, &b, out))
        return false;
    ((struct str *)out->s)->markup = s->markup;
    return true;
}

static bool slice_range(struct rt *r, const struct range *g, struct slice c, struct value *out)
{
    struct range *part = rt_alloc(r, sizeof *part);
    if (!part)
        return false;
    *part = (struct range){g->start + c.start * g->step, g->step * c.step, c.n};
    *out = (struct value){.type = V_RANGE, .range = part};
    return true;
}

bool get_slice(struct rt *r, struct value v, const struct value part[3], struct value *out)
{
    size_t n;
    struct slice c = {0};
    if (v.type == V_UNDEFINED)
        return rt_undefined(r, v);
    if (!is_indexed(v))
        return rt_fail(r, "'%s' object cannot be sliced", value_type_name(v));
    if (!value_length(r, v, &n) || !slice_of(r, part, n, &c))
        return false;
    if (v.type == V_STR)
        return slice_string(r, v.s, c, out);
    if (v.type == V_RANGE)
        return slice_range(r, v.range, c, out);
    struct list *l = make_list(r, c.n);
    if (!l || !rt_charge(r, c.n / 8))
        return false;
    for (size_t k = 0; k < c.n; k++)
        l->v[l->n++] = v.list->v[c.start + (int64_t)k * c.step];
    *out = v;
    out->list = l;
    return true;
}
