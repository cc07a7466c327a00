/* template_tests.c: what stands after `is`. */
#include "functions.h"
#include "runtime.h"
#include "unicode.h"

#define TEST(name, expr)                                                                           \
    static bool name(struct rt *r, struct value in, struct call *c, bool *out)                     \
    {                                                                                              \
        *out = (expr);                                                                             \
        return true;                                                                               \
    }

TEST(is_defined, in.type != V_UNDEFINED)
TEST(is_undefined, in.type == V_UNDEFINED)
TEST(is_none, in.type == V_NONE)
TEST(is_boolean, in.type == V_BOOL)
TEST(is_true, in.type == V_BOOL && in.b)
TEST(is_false, in.type == V_BOOL && !in.b)
TEST(is_integer, in.type == V_INT)
TEST(is_float, in.type == V_FLOAT)
TEST(is_number, value_is_number(in))
TEST(is_string, in.type == V_STR)
TEST(is_mapping, in.type == V_DICT)
TEST(is_iterable, value_iterable(in) || in.type == V_LOOP)
TEST(is_escaped, in.type == V_STR && in.s->markup)
TEST(is_sameas, value_same(in, c->arg[0]))
TEST(is_filter, in.type == V_STR && filter_named(in.s))
TEST(is_test, in.type == V_STR && test_named(in.s))
#undef TEST

static bool is_sequence(struct rt *r, struct value in, struct call *c, bool *out)
{
    switch ((enum value_type)in.type) {
    case V_UNDEFINED: /* jinja2's Undefined has a length, 0 */
    case V_STR:
    case V_LIST:
    case V_TUPLE:
    case V_DICT:
    case V_RANGE:
        *out = true;
        break;
    default:
        *out = false;
    }
    return true;
}

static bool is_callable(struct rt *r, struct value in, struct call *c, bool *out)
{
    switch ((enum value_type)in.type) {
    case V_UNDEFINED: /* jinja2's Undefined has a __call__ that fails */
    case V_MACRO:
    case V_FUNCTION:
    case V_METHOD:
    case V_LOOP:
    case V_JOINER:
        *out = true;
        break;
    default:
        *out = false;
    }
    return true;
}

/* islower() or isupper() of str(in). */
static bool has_case(struct rt *r, struct value in, bool (*wanted)(uint32_t),
                     bool (*other)(uint32_t), bool *out)
{
    const struct str *s;
    bool any = false;
    if (!value_to_str(r, in, &s))
        return false;
    *out = true;
    for (size_t i = 0; i < s->n && *out;) {
        uint32_t cp;
        i += unicode_decode(s->s + i, s->n - i, &cp);
        any = any || wanted(cp);
        *out = !other(cp) && !unicode_is_titlecase(cp);
    }
    *out = *out && any;
    return rt_charge(r, s->n / 16);
}

static bool is_lower(struct rt *r, struct value in, struct call *c, bool *out)
{
    return has_case(r, in, unicode_is_lower, unicode_is_upper, out);
}

static bool is_upper(struct rt *r, struct value in, struct call *c, bool *out)
{
    return has_case(r, in, unicode_is_upper, unicode_is_lower, out);
}

static bool remainder_is(struct rt *r, struct value in, struct value by, int64_t wanted, bool *out)
{
    struct value rest;
    if (!value_arith(r, OP_MOD, in, by, &rest))
        return false;
    return value_equal(r, rest, value_int(wanted), out);
}

static bool is_odd(struct rt *r, struct value in, struct call *c, bool *out)
{
    return remainder_is(r, in, value_int(2), 1, out);
}

static bool is_even(struct rt *r, struct value in, struct call *c, bool *out)
{
    return remainder_is(r, in, value_int(2), 0, out);
}

static bool is_divisible(struct rt *r, struct value in, struct call *c, bool *out)
{
    return remainder_is(r, in, c->arg[0], 0, out);
}

#define COMPARISON(name, op)                                                                       \
    static bool name(struct rt *r, struct value in, struct call *c, bool *out)                     \
    {                                                                                              \
        return value_compare(r, op, in, c->arg[0], out);                                           \
    }

COMPARISON(is_eq, OP_EQ)
COMPARISON(is_ne, OP_NE)
COMPARISON(is_lt, OP_LT)
COMPARISON(is_le, OP_LE)
COMPARISON(is_gt, OP_GT)
COMPARISON(is_ge, OP_GE)
COMPARISON(is_in, OP_IN)
#undef COMPARISON

static const struct test tests[] = {
    {"defined", "", 0, is_defined},
    {"undefined", "", 0, is_undefined},
    {"none", "", 0, is_none},
    {"boolean", "", 0, is_boolean},
    {"true", "", 0, is_true},
    {"false", "", 0, is_false},
    {"integer", "", 0, is_integer},
    {"float", "", 0, is_float},
    {"number", "", 0, is_number},
    {"string", "", 0, is_string},
    {"mapping", "", 0, is_mapping},
    {"iterable", "", 0, is_iterable},
    {"sequence", "", 0, is_sequence},
    {"callable", "", 0, is_callable},
    {"escaped", "", 0, is_escaped},
    {"filter", "", 0, is_filter},
    {"test", "", 0, is_test},
    {"sameas", "other", 1, is_sameas},
    {"lower", "", 0, is_lower},
    {"upper", "", 0, is_upper},
    {"odd", "", 0, is_odd},
    {"even", "", 0, is_even},
    {"divisibleby", "num", 1, is_divisible},
    {"in", "seq", 1, is_in},
    {"==", "other", 1, is_eq},
    {"eq", "other", 1, is_eq},
    {"equalto", "other", 1, is_eq},
    {"!=", "other", 1, is_ne},
    {"ne", "other", 1, is_ne},
    {"<", "other", 1, is_lt},
    {"lt", "other", 1, is_lt},
    {"lessthan", "other", 1, is_lt},
    {"<=", "other", 1, is_le},
    {"le", "other", 1, is_le},
    {">", "other", 1, is_gt},
    {"gt", "other", 1, is_gt},
    {"greaterthan", "other", 1, is_gt},
    {">=", "other", 1, is_ge},
    {"ge", "other", 1, is_ge},
    {0},
};

const struct test *test_named(const struct str *name)
{
    for (const struct test *t = tests; t->name; t++)
        if (str_is(name, t->name))
            return t;
    return NULL;
}
