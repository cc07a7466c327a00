/* eval.c: expressions. */
#include "functions.h"
#include "runtime.h"

static bool eval_chain(struct rt *r, const struct expr *x, struct value *out)
{
    if (!eval_expr(r, x->items[0], out))
        return false;
    for (size_t i = 1; i < x->n_items; i++) {
        struct value right;
        if (!eval_expr(r, x->items[i], &right))
            return false;
        r->line = x->line;
        if (!value_arith(r, x->ops[i - 1], *out, right, out))
            return false;
    }
    return true;
}

static bool eval_concat(struct rt *r, const struct expr *x, struct value *out)
{
    struct str_builder b;
    str_begin(&b, &r->arena);
    for (size_t i = 0; i < x->n_items; i++) {
        struct value v;
        const struct str *s;
        if (!eval_expr(r, x->items[i], &v) || !value_to_str(r, v, &s) || !rt_charge_bytes(r, s->n))
            return false;
        str_put_str(&b, s);
    }
    return make_str(r, &b, out);
}

static bool eval_and_or(struct rt *r, const struct expr *x, struct value *out)
{
    bool stop_at = x->kind == E_OR;
    for (size_t i = 0; i < x->n_items; i++) {
        if (!eval_expr(r, x->items[i], out))
            return false;
        if (value_truth(*out) == stop_at)
            break;
    }
    return true;
}

static bool eval_compare(struct rt *r, const struct expr *x, struct value *out)
{
    struct value left;
    bool holds = true;
    if (!eval_expr(r, x->items[0], &left))
        return false;
    for (size_t i = 1; i < x->n_items && holds; i++) {
        struct value right;
        if (!eval_expr(r, x->items[i], &right))
            return false;
        r->line = x->line;
        if (!value_compare(r, x->ops[i - 1], left, right, &holds))
            return false;
        left = right;
    }
    *out = value_bool(holds);
    return true;
}

static bool eval_cond(struct rt *r, const struct expr *x, struct value *out)
{
    struct value test;
    if (!eval_expr(r, x->items[0], &test))
        return false;
    const struct expr *taken = value_truth(test) ? x->items[1] : x->items[2];
    if (taken)
        return eval_expr(r, taken, out);
    *out = value_undefined(UNDEFINED_OTHER, NULL);
    return true;
}

static bool eval_list(struct rt *r, const struct expr *x, struct value *out)
{
    struct list *l = make_list(r, x->n_items);
    if (!l)
        return false;
    for (size_t i = 0; i < x->n_items; i++)
        if (!eval_expr(r, x->items[i], &l->v[l->n++]))
            return false;
    *out = x->kind == E_LIST ? value_list(l) : value_tuple(l);
    return true;
}

static bool eval_dict(struct rt *r, const struct expr *x, struct value *out)
{
    struct dict *d = dict_new(&r->arena);
    if (!d)
        return rt_no_memory(r);
    for (size_t i = 0; i + 1 < x->n_items; i += 2) {
        struct value k, v;
        if (!eval_expr(r, x->items[i], &k) || !eval_expr(r, x->items[i + 1], &v) ||
            !dict_set(r, d, k, v))
            return false;
    }
    *out = value_dict(d);
    return true;
}

static bool eval_slice(struct rt *r, const struct expr *x, struct value *out)
{
    struct value object, part[3] = {value_none(), value_none(), value_none()};
    if (!eval_expr(r, x->items[0], &object))
        return false;
    for (int i = 0; i < 3; i++)
        if (x->items[i + 1] && !eval_expr(r, x->items[i + 1], &part[i]))
            return false;
    r->line = x->line;
    return get_slice(r, object, part, out);
}

static bool eval_call(struct rt *r, const struct expr *x, struct value *out)
{
    struct value callee;
    struct call c = {0};
    if (!eval_expr(r, x->items[0], &callee) || !eval_arguments(r, x->args, &c))
        return false;
    r->line = x->line;
    return call_value(r, callee, &c, out);
}

static bool unknown(struct rt *r, const char *what, const struct expr *x)
{
    int n = x->name.s->n < 100 ? (int)x->name.s->n : 100;
    r->line = x->line;
    return rt_fail(r, "there is no %s named '%.*s'", what, n, x->name.s->s);
}

bool eval_filter(struct rt *r, const struct expr *x, const struct str *block, struct value *out)
{
    struct value in;
    struct call c = {0};
    if (!x->items[0])
        in = value_str(block);
    else if (x->items[0]->kind == E_FILTER && block ? !eval_filter(r, x->items[0], block, &in)
                                                    : !eval_expr(r, x->items[0], &in))
        return false;
    if (!x->filter)
        return unknown(r, "filter", x);
    c.who = x->filter->name;
    if (x->args && !eval_arguments(r, x->args, &c))
        return false;
    r->line = x->line;
    if (x->filter->params && !args_bind(r, &c, x->filter->params, x->filter->min))
        return false;
    return x->filter->run(r, in, &c, out);
}

static bool eval_test(struct rt *r, const struct expr *x, struct value *out)
{
    struct value in;
    bool holds;
    struct call c = {0};
    if (!eval_expr(r, x->items[0], &in))
        return false;
    if (!x->test)
        return unknown(r, "test", x);
    c.who = x->test->name;
    if (x->args && !eval_arguments(r, x->args, &c))
        return false;
    r->line = x->line;
    if (!args_bind(r, &c, x->test->params, x->test->min) || !x->test->run(r, in, &c, &holds))
        return false;
    *out = value_bool(holds);
    return true;
}

static bool eval_access(struct rt *r, const struct expr *x, struct value *out)
{
    struct value object, key;
    if (!eval_expr(r, x->items[0], &object))
        return false;
    if (x->kind == E_ITEM && !eval_expr(r, x->items[1], &key))
        return false;
    r->line = x->line;
    return x->kind == E_ITEM ? get_item(r, object, key, out)
                             : get_attribute(r, object, x->name.s, out);
}

static bool eval_unary(struct rt *r, const struct expr *x, struct value *out)
{
    struct value v;
    if (!eval_expr(r, x->items[0], &v))
        return false;
    if (x->kind == E_NOT) {
        *out = value_bool(!value_truth(v));
        return true;
    }
    r->line = x->line;
    return value_negate(r, v, x->kind == E_NEG, out);
}

static bool eval_kind(struct rt *r, const struct expr *x, struct value *out)
{
    switch ((enum expr_kind)x->kind) {
    case E_CONST:
        *out = x->constant;
        return true;
    case E_NAME:
        return scope_get(r, &x->name, out);
    case E_NOT:
    case E_NEG:
    case E_POS:
        return eval_unary(r, x, out);
    case E_CHAIN:
        return eval_chain(r, x, out);
    case E_CONCAT:
        return eval_concat(r, x, out);
    case E_AND:
    case E_OR:
        return eval_and_or(r, x, out);
    case E_COMPARE:
        return eval_compare(r, x, out);
    case E_COND:
        return eval_cond(r, x, out);
    case E_ATTR:
    case E_ITEM:
        return eval_access(r, x, out);
    case E_SLICE:
        return eval_slice(r, x, out);
    case E_CALL:
        return eval_call(r, x, out);
    case E_FILTER:
        return eval_filter(r, x, NULL, out);
    case E_TEST:
        return eval_test(r, x, out);
    case E_LIST:
    case E_TUPLE:
        return eval_list(r, x, out);
    case E_DICT:
        return eval_dict(r, x, out);
    case E_NS_REF:
        break;
    }
    return rt_fail(r, "this can only be assigned to");
}

bool eval_expr(struct rt *r, const struct expr *x, struct value *out)
{
    r->line = x->line;
    if (!rt_charge(r, 1) || !rt_enter(r))
        return false;
    bool ok = eval_kind(r, x, out);
    rt_leave(r);
    return ok;
}
