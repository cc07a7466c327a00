/* filters_value.c: filters on numbers, sequences and anything. */
#include "attr_path.h"
#include "functions.h"
#include "number.h"
#include "runtime.h"
#include "unicode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static bool filter_default(struct rt *r, struct value in, struct call *c, struct value *out)
{
    bool replaced = in.type == V_UNDEFINED || (arg_truth(c, 1, false) && !value_truth(in));
    *out = in;
    if (!replaced)
        return true;
    if (!arg_given(c, 0))
        return make_data(r, "", out);
    *out = c->arg[0];
    return true;
}

static bool filter_length(struct rt *r, struct value in, struct call *c, struct value *out)
{
    size_t n;
    if (!value_length(r, in, &n))
        return false;
    *out = value_int((int64_t)n);
    return true;
}

static bool filter_first(struct rt *r, struct value in, struct call *c, struct value *out)
{
    struct iter it;
    bool more;
    if (!iter_begin(r, in, &it) || !iter_next(r, &it, out, &more))
        return false;
    if (!more)
        *out = value_undefined(UNDEFINED_OTHER, NULL);
    return true;
}

static bool reversible(struct rt *r, struct value in, const char *who)
{
    if (in.type == V_GENERATOR || !value_iterable(in))
        return rt_fail(r, "%s() needs a sequence, not %s", who, value_type_name(in));
    return true;
}

static bool filter_last(struct rt *r, struct value in, struct call *c, struct value *out)
{
    struct list *l;
    if (!reversible(r, in, "last") || !value_to_list(r, in, &l))
        return false;
    *out = l->n ? l->v[l->n - 1] : value_undefined(UNDEFINED_OTHER, NULL);
    return true;
}

static bool filter_list(struct rt *r, struct value in, struct call *c, struct value *out)
{
    struct list *l;
    if (!value_to_list(r, in, &l))
        return false;
    *out = value_list(l);
    return true;
}

static bool filter_items(struct rt *r, struct value in, struct call *c, struct value *out)
{
    struct list *l = make_list(r, 0);
    struct view *view = rt_alloc(r, sizeof *view);
    if (!l || !view)
        return false;
    if (in.type == V_UNDEFINED)
        return make_generator(r, l, out);
    if (in.type != V_DICT)
        return rt_fail(r, "items() needs a mapping, not %s", value_type_name(in));
    *view = (struct view){in.dict, VIEW_ITEMS};
    return value_to_list(r, (struct value){.type = V_VIEW, .view = view}, &l) &&
           make_generator(r, l, out);
}

/* int(v); *ok = false: it has no integer value. */
static bool as_int(struct rt *r, struct value v, int64_t base, int64_t *out, bool *ok)
{
    double f = 0;
    enum number_result result = NUMBER_BAD;
    if (v.type == V_UNDEFINED)
        return rt_undefined(r, v);
    if (v.type == V_STR) {
        result = number_int(v.s, base, out);
        if (result == NUMBER_BAD && number_float(v.s, &f) == NUMBER_OK)
            result = number_truncate(f, out);
    } else if (v.type == V_FLOAT) {
        result = number_truncate(v.f, out);
    } else if (value_is_integer(v)) {
        *out = value_as_int(v);
        result = NUMBER_OK;
    }
    *ok = result == NUMBER_OK;
    return result != NUMBER_TOO_LARGE || rt_fail(r, "an integer does not fit in 64 bits");
}

static bool filter_int(struct rt *r, struct value in, struct call *c, struct value *out)
{
    int64_t n, base;
    bool ok;
    if (!arg_int(r, c, 1, 10, &base) || !as_int(r, in, base, &n, &ok))
        return false;
    *out = ok ? value_int(n) : arg_given(c, 0) ? c->arg[0] : value_int(0);
    return true;
}

static bool filter_float(struct rt *r, struct value in, struct call *c, struct value *out)
{
    double f;
    if (in.type == V_UNDEFINED)
        return rt_undefined(r, in);
    if (value_is_number(in))
        *out = value_float(value_as_float(in));
    else if (in.type == V_STR && number_float(in.s, &f) == NUMBER_OK)
        *out = value_float(f);
    else
        *out = arg_given(c, 0) ? c->arg[0] : value_float(0);
    return true;
}

static bool needs_number(struct rt *r, const struct call *c, struct value in)
{
    if (in.type == V_UNDEFINED)
        return rt_undefined(r, in);
    return value_is_number(in) ||
           rt_fail(r, "%s() needs a number, not %s", c->who, value_type_name(in));
}

static bool filter_abs(struct rt *r, struct value in, struct call *c, struct value *out)
{
    if (!needs_number(r, c, in))
        return false;
    if (in.type == V_FLOAT) {
        *out = value_float(fabs(in.f));
        return true;
    }
    return value_negate(r, in, value_as_int(in) < 0, out);
}

/* Python's round(): the nearest decimal of the exact binary value, ties to even. */
static double round_common(double f, int64_t digits)
{
    char text[400];
    if (!isfinite(f) || digits > 300)
        return f;
    if (digits < -308)
        return copysign(0, f);
    if (digits < 0) {
        double scale = pow(10, (double)-digits);
        return rint(f / scale) * scale;
    }
    int n = snprintf(text, sizeof text, "%.*f", (int)digits, f);
    return n < (int)sizeof text ? strtod(text, NULL) : f;
}

static bool round_integer(struct rt *r, int64_t n, int64_t digits, struct value *out)
{
    int64_t scale = 1;
    *out = value_int(n);
    if (digits >= 0)
        return true;
    if (digits < -18) {
        *out = value_int(0);
        return true;
    }
    for (int64_t i = 0; i < -digits; i++)
        scale *= 10;
    int64_t rest = n % scale, half = scale / 2, down = n - rest;
    int64_t mag = rest < 0 ? -rest : rest;
    bool up = mag > half || (mag == half && (down / scale) % 2 != 0);
    if (up && __builtin_add_overflow(down, rest < 0 ? -scale : scale, &down))
        return rt_fail(r, "an integer does not fit in 64 bits");
    *out = value_int(down);
    return true;
}

static bool filter_round(struct rt *r, struct value in, struct call *c, struct value *out)
{
    int64_t digits;
    const struct str *method = NULL;
    if (!needs_number(r, c, in) || !arg_int(r, c, 0, 0, &digits) ||
        (arg_given(c, 1) && !arg_str(r, c, 1, &method)))
        return false;
    bool ceiling = method && str_is(method, "ceil"), floored = method && str_is(method, "floor");
    if (method && !ceiling && !floored && !str_is(method, "common"))
        return rt_fail(r, "round() knows the methods common, ceil and floor");
    if (!ceiling && !floored) {
        if (in.type != V_FLOAT)
            return round_integer(r, value_as_int(in), digits, out);
        *out = value_float(round_common(in.f, digits));
        return true;
    }
    double scale = pow(10, (double)digits), f = value_as_float(in) * scale;
    if (!isfinite(f) || scale == 0)
        return rt_fail(r, "round() cannot keep so many digits");
    *out = value_float((ceiling ? ceil(f) : floor(f)) / scale);
    return true;
}

static bool filter_sum(struct rt *r, struct value in, struct call *c, struct value *out)
{
    struct list *l;
    *out = arg_given(c, 1) ? c->arg[1] : value_int(0);
    if (out->type == V_STR)
        return rt_fail(r, "sum() cannot add strings: use join");
    struct value path = arg_given(c, 0) ? c->arg[0] : value_none();
    if (!map_attribute(r, in, path, &l))
        return false;
    for (size_t i = 0; i < l->n; i++)
        if (!value_arith(r, OP_ADD, *out, l->v[i], out))
            return false;
    return true;
}

static bool reverse_string(struct rt *r, const struct str *s, struct value *out)
{
    struct str_builder b;
    str_begin(&b, &r->arena);
    for (size_t end = s->n; end > 0;) {
        size_t at = unicode_before(s->s, end);
        str_put_part(&b, s, at, end - at);
        end = at;
    }
    return rt_charge(r, s->n / 16) && make_str(r, &b, out);
}

static bool filter_reverse(struct rt *r, struct value in, struct call *c, struct value *out)
{
    struct list *l;
    if (in.type == V_STR)
        return reverse_string(r, in.s, out);
    if (!value_to_list(r, in, &l))
        return false;
    for (size_t i = 0, j = l->n; i + 1 < j; i++) {
        struct value v = l->v[i];
        l->v[i] = l->v[--j];
        l->v[j] = v;
    }
    if (in.type != V_GENERATOR)
        return make_generator(r, l, out);
    *out = value_list(l);
    return true;
}

static bool list_part(struct rt *r, const struct list *l, size_t from, size_t n, struct list **out)
{
    struct list *part = *out = make_list(r, n + 1);
    for (size_t i = 0; part && i < n; i++)
        part->v[part->n++] = l->v[from + i];
    return part != NULL;
}

static bool filter_batch(struct rt *r, struct value in, struct call *c, struct value *out)
{
    struct list *l, *rows = make_list(r, 0), *row;
    int64_t size;
    if (!rows || !arg_int(r, c, 0, 1, &size) || !value_to_list(r, in, &l))
        return false;
    size_t n = size > 0 && (uint64_t)size < l->n ? (size_t)size : l->n + 1;
    if (size <= 0) /* jinja2: a size that is never reached by counting from 1 */
        n = size == 0 ? 1 : l->n + 1;
    for (size_t from = 0; from < l->n; from += n) {
        size_t k = l->n - from < n ? l->n - from : n;
        if (!list_part(r, l, from, k, &row) || !list_append(r, rows, value_list(row)))
            return false;
        bool fill = arg_given(c, 1) && c->arg[1].type != V_NONE;
        for (int64_t i = (int64_t)k; fill && i < size; i++)
            if (!rt_charge(r, 1) || !list_append(r, row, c->arg[1]))
                return false;
    }
    return make_generator(r, rows, out);
}

static bool filter_slice(struct rt *r, struct value in, struct call *c, struct value *out)
{
    struct list *l, *rows = make_list(r, 0), *row;
    int64_t slices;
    if (!rows || !arg_int(r, c, 0, 1, &slices) || !value_to_list(r, in, &l))
        return false;
    if (slices == 0)
        return rt_fail(r, "slice() needs a number of slices that is not zero");
    size_t from = 0;
    for (int64_t i = 0; i < slices; i++) {
        size_t extra = (size_t)i < l->n % (size_t)slices;
        size_t n = l->n / (size_t)slices + extra;
        if (!rt_charge(r, 1) || !list_part(r, l, from, n, &row) ||
            !list_append(r, rows, value_list(row)))
            return false;
        if (arg_given(c, 1) && c->arg[1].type != V_NONE && !extra &&
            !list_append(r, row, c->arg[1]))
            return false;
        from += n;
    }
    return make_generator(r, rows, out);
}

const struct filter value_filters[] = {
    {"default", "default_value,boolean", 0, filter_default},
    {"d", "default_value,boolean", 0, filter_default},
    {"length", "", 0, filter_length},
    {"count", "", 0, filter_length},
    {"first", "", 0, filter_first},
    {"last", "", 0, filter_last},
    {"list", "", 0, filter_list},
    {"items", "", 0, filter_items},
    {"int", "default,base", 0, filter_int},
    {"float", "default", 0, filter_float},
    {"abs", "", 0, filter_abs},
    {"round", "precision,method", 0, filter_round},
    {"sum", "attribute,start", 0, filter_sum},
    {"reverse", "", 0, filter_reverse},
    {"batch", "linecount,fill_with", 1, filter_batch},
    {"slice", "slices,fill_with", 1, filter_slice},
    {"tojson", "ensure_ascii,indent,separators,sort_keys", 0, filter_tojson},
    {0},
};
