/* compare.c: equality, order and membership, as Python's. */
#include "runtime.h"

static bool equal(struct rt *r, struct value a, struct value b, int depth, bool *out);

static bool equal_lists(struct rt *r, const struct list *a, const struct list *b, int depth,
                        bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++)
        if (!rt_charge(r, 1) || !equal(r, a->v[i], b->v[i], depth, out))
            return false;
    return true;
}

static bool equal_dicts(struct rt *r, const struct dict *a, const struct dict *b, int depth,
                        bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) {
        const struct value *other = dict_find(b, a->e[i].key, a->e[i].hash);
        *out = other != NULL;
        if (other && (!rt_charge(r, 1) || !equal(r, a->e[i].value, *other, depth, out)))
            return false;
    }
    return true;
}

static bool equal_ranges(const struct range *a, const struct range *b)
{
    return a->n == b->n && (a->n == 0 || a->start == b->start) && (a->n < 2 || a->step == b->step);
}

static bool equal(struct rt *r, struct value a, struct value b, int depth, bool *out)
{
    if (depth <= 0)
        return rt_too_deep(r);
    if (value_is_number(a) && value_is_number(b)) {
        *out = value_is_integer(a) && value_is_integer(b) ? value_as_int(a) == value_as_int(b)
                                                          : value_as_float(a) == value_as_float(b);
        return true;
    }
    if (a.type != b.type) {
        *out = false;
        return true;
    }
    switch ((enum value_type)a.type) {
    case V_UNDEFINED:
    case V_NONE:
        *out = true;
        return true;
    case V_STR:
        *out = str_eq(a.s, b.s);
        return rt_charge_bytes(r, a.s->n);
    case V_LIST:
    case V_TUPLE:
        return equal_lists(r, a.list, b.list, depth - 1, out);
    case V_DICT:
        return equal_dicts(r, a.dict, b.dict, depth - 1, out);
    case V_RANGE:
        *out = equal_ranges(a.range, b.range);
        return true;
    default:
        *out = value_same(a, b);
        return true;
    }
}

bool value_equal(struct rt *r, struct value a, struct value b, bool *out)
{
    return equal(r, a, b, r->max_depth, out);
}

static const char *const op_text[] = {
    [OP_LT] = "<",
    [OP_LE] = "<=",
    [OP_GT] = ">",
    [OP_GE] = ">=",
};

static bool holds(enum op op, int order)
{
    switch (op) {
    case OP_LT:
        return order < 0;
    case OP_LE:
        return order <= 0;
    case OP_GT:
        return order > 0;
    default:
        return order >= 0;
    }
}

static bool compare_numbers(enum op op, struct value a, struct value b)
{
    if (value_is_integer(a) && value_is_integer(b)) {
        int64_t x = value_as_int(a), y = value_as_int(b);
        return holds(op, (x > y) - (x < y));
    }
    double x = value_as_float(a), y = value_as_float(b);
    return x == x && y == y && holds(op, (x > y) - (x < y));
}

static bool order(struct rt *r, enum op op, struct value a, struct value b, int depth, bool *out);

/* The first difference decides. */
static bool order_lists(struct rt *r, enum op op, const struct list *a, const struct list *b,
                        int depth, bool *out)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        bool same;
        if (!rt_charge(r, 1) || !equal(r, a->v[i], b->v[i], depth, &same))
            return false;
        if (!same)
            return order(r, op, a->v[i], b->v[i], depth, out);
    }
    *out = holds(op, (a->n > b->n) - (a->n < b->n));
    return true;
}

static bool order(struct rt *r, enum op op, struct value a, struct value b, int depth, bool *out)
{
    if (depth <= 0)
        return rt_too_deep(r);
    if (a.type == V_UNDEFINED || b.type == V_UNDEFINED)
        return rt_undefined(r, a.type == V_UNDEFINED ? a : b);
    if (value_is_number(a) && value_is_number(b)) {
        *out = compare_numbers(op, a, b);
        return true;
    }
    if (a.type == V_STR && b.type == V_STR) {
        *out = holds(op, str_cmp(a.s, b.s));
        return rt_charge_bytes(r, a.s->n);
    }
    if (a.type == b.type && (a.type == V_LIST || a.type == V_TUPLE))
        return order_lists(r, op, a.list, b.list, depth - 1, out);
    return rt_fail(r, "'%s' is not supported between '%s' and '%s'", op_text[op],
                   value_type_name(a), value_type_name(b));
}

static bool contains_item(struct rt *r, struct value needle, struct value in, bool *out)
{
    struct iter it;
    struct value item;
    bool more;
    *out = false;
    if (!iter_begin(r, in, &it))
        return false;
    for (;;) {
        if (!rt_charge(r, 1) || !iter_next(r, &it, &item, &more))
            return false;
        if (!more)
            return true;
        if (!value_equal(r, needle, item, out))
            return false;
        if (*out)
            return true;
    }
}

bool value_contains(struct rt *r, struct value needle, struct value in, bool *out)
{
    uint64_t hash;
    if (in.type == V_STR) {
        if (needle.type != V_STR)
            return rt_fail(r, "'in <string>' requires a string on the left, not %s",
                           value_type_name(needle));
        *out = str_find(in.s, 0, needle.s->s, needle.s->n) != SIZE_MAX;
        return rt_charge_bytes(r, in.s->n);
    }
    bool keys = in.type == V_DICT || (in.type == V_VIEW && in.view->kind == VIEW_KEYS);
    if (!keys)
        return contains_item(r, needle, in, out);
    if (!hash_key(r, needle, &hash))
        return rt_fail(r, "unhashable type: '%s'", value_type_name(needle));
    *out = dict_find(in.type == V_DICT ? in.dict : in.view->dict, needle, hash) != NULL;
    return true;
}

bool value_compare(struct rt *r, enum op op, struct value a, struct value b, bool *out)
{
    if (op == OP_EQ || op == OP_NE) {
        if (!value_equal(r, a, b, out))
            return false;
        *out = *out == (op == OP_EQ);
        return true;
    }
    if (op == OP_IN || op == OP_NOT_IN) {
        if (!value_contains(r, a, b, out))
            return false;
        *out = *out == (op == OP_IN);
        return true;
    }
    return order(r, op, a, b, r->max_depth, out);
}
