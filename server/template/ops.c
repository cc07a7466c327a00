/* ops.c: arithmetic, as Python's, on 64-bit integers. */
#include "functions.h"
#include "runtime.h"

#include <math.h>
#include <string.h>

static bool overflow(struct rt *r)
{
    return rt_fail(r, "an integer result does not fit in 64 bits");
}

static bool zero_division(struct rt *r)
{
    return rt_fail(r, "division by zero");
}

static int64_t floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static bool int_pow(struct rt *r, int64_t a, int64_t b, struct value *out)
{
    int64_t result = 1;
    bool over = false;
    if (b < 0) {
        if (a == 0)
            return zero_division(r);
        *out = value_float(pow((double)a, (double)b));
        return true;
    }
    for (; b > 0 && !over; b >>= 1) {
        if (b & 1)
            over = __builtin_mul_overflow(result, a, &result);
        if (b > 1 && !over)
            over = __builtin_mul_overflow(a, a, &a);
    }
    *out = value_int(result);
    return !over || overflow(r);
}

static bool int_arith(struct rt *r, enum op op, int64_t a, int64_t b, struct value *out)
{
    int64_t n = 0;
    bool over = false;
    if (op == OP_POW)
        return int_pow(r, a, b, out);
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
        return zero_division(r);
    switch (op) {
    case OP_ADD:
        over = __builtin_add_overflow(a, b, &n);
        break;
    case OP_SUB:
        over = __builtin_sub_overflow(a, b, &n);
        break;
    case OP_MUL:
        over = __builtin_mul_overflow(a, b, &n);
        break;
    case OP_DIV:
        *out = value_float((double)a / (double)b);
        return true;
    case OP_FLOORDIV:
        over = b == -1 && a == INT64_MIN;
        n = over ? 0 : floor_div(a, b);
        break;
    default: /* OP_MOD */
        n = b == -1 ? 0 : a - floor_div(a, b) * b;
        break;
    }
    *out = value_int(n);
    return !over || overflow(r);
}

static double float_mod(double a, double b)
{
    double m = fmod(a, b);
    if (m != 0)
        return (b < 0) != (m < 0) ? m + b : m;
    return copysign(0, b);
}

static double float_floor_div(double a, double b)
{
    double m = fmod(a, b), q = (a - m) / b;
    if (m != 0 && (b < 0) != (m < 0))
        q -= 1;
    return q != 0 ? (q - floor(q) > 0.5 ? floor(q) + 1 : floor(q)) : copysign(0, a / b);
}

static bool float_pow(struct rt *r, double a, double b, struct value *out)
{
    if (a == 0 && b < 0)
        return zero_division(r);
    if (a < 0 && b != floor(b) && isfinite(b))
        return rt_fail(r, "a negative number to a fractional power is complex");
    double p = pow(a, b);
    if (isinf(p) && isfinite(a) && isfinite(b))
        return rt_fail(r, "a power is too large for a float");
    *out = value_float(p);
    return true;
}

static bool float_arith(struct rt *r, enum op op, double a, double b, struct value *out)
{
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
        return zero_division(r);
    switch (op) {
    case OP_ADD:
        *out = value_float(a + b);
        return true;
    case OP_SUB:
        *out = value_float(a - b);
        return true;
    case OP_MUL:
        *out = value_float(a * b);
        return true;
    case OP_DIV:
        *out = value_float(a / b);
        return true;
    case OP_FLOORDIV:
        *out = value_float(float_floor_div(a, b));
        return true;
    case OP_MOD:
        *out = value_float(float_mod(a, b));
        return true;
    default:
        return float_pow(r, a, b, out);
    }
}

const struct str *escape_html(struct rt *r, const struct str *s)
{
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    static const char chars[] = "&<>'\"";
    if (s->markup)
        return s;
    struct str_builder b;
    str_begin(&b, &r->arena);
    for (size_t i = 0; i < s->n; i++) {
        const char *c = s->s[i] ? strchr(chars, s->s[i]) : NULL;
        if (c)
            str_put(&b, names[c - chars], strlen(names[c - chars]), str_tmpl_at(s, i));
        else
            str_put_part(&b, s, i, 1);
    }
    struct str *e = str_end(&b);
    if (!e || !rt_charge_bytes(r, s->n)) {
        if (!e)
            rt_no_memory(r);
        return NULL;
    }
    e->markup = true;
    return e;
}

static bool add_strings(struct rt *r, const struct str *a, const struct str *b, struct value *out)
{
    bool markup = a->markup || b->markup;
    if (markup && (!(a = escape_html(r, a)) || !(b = escape_html(r, b))))
        return false;
    struct str *s = str_concat(&r->arena, a, b);
    if (!s)
        return rt_no_memory(r);
    s->markup = markup;
    *out = value_str(s);
    return rt_charge_bytes(r, b->n);
}

static bool repeat_string(struct rt *r, const struct str *s, int64_t times, struct value *out)
{
    struct str_builder b;
    str_begin(&b, &r->arena);
    if (times <= 0 || s->n == 0)
        return make_str(r, &b, out);
    if ((uint64_t)times > r->arena.limit / s->n) {
        r->arena.over_limit = true;
        return rt_no_memory(r);
    }
    /* A block of many copies first, so that the rest is few large ones. */
    int64_t block = s->n < 4096 ? (int64_t)(4096 / s->n) : 1;
    if (block > times)
        block = times;
    for (int64_t i = 0; i < block; i++)
        str_put_str(&b, s);
    struct str *unit = str_end(&b);
    if (!unit)
        return rt_no_memory(r);
    str_begin(&b, &r->arena);
    for (int64_t i = 0; i < times / block && !b.failed; i++)
        str_put_str(&b, unit);
    str_put_part(&b, unit, 0, (size_t)(times % block) * s->n);
    return make_str(r, &b, out);
}

static bool repeat_list(struct rt *r, struct value v, int64_t times, struct value *out)
{
    struct list *l = make_list(r, 0);
    *out = v;
    if (!l)
        return false;
    out->list = l;
    for (int64_t k = 0; k < times && v.list->n; k++) {
        if (!rt_charge(r, v.list->n))
            return false;
        for (size_t i = 0; i < v.list->n; i++)
            if (!list_append(r, l, v.list->v[i]))
                return false;
    }
    return true;
}

static bool add_lists(struct rt *r, struct value a, struct value b, struct value *out)
{
    struct list *l = make_list(r, a.list->n + b.list->n);
    if (!l || !rt_charge(r, (a.list->n + b.list->n) / 8))
        return false;
    for (size_t i = 0; i < a.list->n; i++)
        l->v[l->n++] = a.list->v[i];
    for (size_t i = 0; i < b.list->n; i++)
        l->v[l->n++] = b.list->v[i];
    *out = a;
    out->list = l;
    return true;
}

static bool is_sequence(struct value v)
{
    return v.type == V_STR || v.type == V_LIST || v.type == V_TUPLE;
}

static bool repeat(struct rt *r, struct value a, struct value b, struct value *out)
{
    struct value what = is_sequence(a) ? a : b;
    int64_t times = value_as_int(is_sequence(a) ? b : a);
    if (what.type != V_STR)
        return repeat_list(r, what, times, out);
    return repeat_string(r, what.s, times, out);
}

bool value_arith(struct rt *r, enum op op, struct value a, struct value b, struct value *out)
{
    static const char *const text[] = {"+", "-", "*", "/", "//", "%", "**"};
    if (op == OP_MOD && a.type == V_STR)
        return format_percent(r, a.s, b, out);
    if (a.type == V_UNDEFINED || b.type == V_UNDEFINED)
        return rt_undefined(r, a.type == V_UNDEFINED ? a : b);
    if (value_is_integer(a) && value_is_integer(b))
        return int_arith(r, op, value_as_int(a), value_as_int(b), out);
    if (value_is_number(a) && value_is_number(b))
        return float_arith(r, op, value_as_float(a), value_as_float(b), out);
    if (op == OP_ADD && a.type == V_STR && b.type == V_STR)
        return add_strings(r, a.s, b.s, out);
    if (op == OP_ADD && a.type == b.type && (a.type == V_LIST || a.type == V_TUPLE))
        return add_lists(r, a, b, out);
    if (op == OP_MUL &&
        ((is_sequence(a) && value_is_integer(b)) || (is_sequence(b) && value_is_integer(a))))
        return repeat(r, a, b, out);
    return rt_fail(r, "unsupported operand types for %s: '%s' and '%s'", text[op],
                   value_type_name(a), value_type_name(b));
}

bool value_negate(struct rt *r, struct value a, bool minus, struct value *out)
{
    if (a.type == V_UNDEFINED)
        return rt_undefined(r, a);
    if (a.type == V_FLOAT) {
        *out = value_float(minus ? -a.f : a.f);
        return true;
    }
    if (!value_is_integer(a))
        return rt_fail(r, "bad operand type for unary %c: '%s'", minus ? '-' : '+',
                       value_type_name(a));
    int64_t n = value_as_int(a);
    if (minus && n == INT64_MIN)
        return overflow(r);
    *out = value_int(minus ? -n : n);
    return true;
}
