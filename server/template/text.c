/* text.c: values as Python prints them. */
#include "functions.h"
#include "runtime.h"
#include "unicode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The fewest digits that read back as f: "digits" without a point, and the exponent of the
 * first one. */
static int shortest(double f, char digits[32])
{
    char text[40];
    int exponent = 0;
    for (int precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, f);
        if (strtod(text, NULL) == f)
            break;
    }
    size_t n = 0;
    char *p = text;
    for (; *p && *p != 'e'; p++)
        if (*p >= '0' && *p <= '9')
            digits[n++] = *p;
    if (*p == 'e')
        exponent = atoi(p + 1);
    digits[n] = '\0';
    return exponent;
}

static void put_zeros(struct str_builder *b, int n)
{
    for (; n > 0; n--)
        str_put_data(b, "0");
}

void put_float_repr(double f, struct str_builder *b)
{
    char digits[32], text[16];
    if (isnan(f) || isinf(f)) {
        str_put_data(b, isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    if (signbit(f)) {
        str_put_data(b, "-");
        f = -f;
    }
    int exponent = shortest(f, digits), n = (int)strlen(digits);
    if (exponent < -4 || exponent >= 16) {
        str_put(b, digits, 1, false);
        if (n > 1)
            str_put_data(b, ".");
        str_put_data(b, digits + 1);
        snprintf(text, sizeof text, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        str_put_data(b, text);
    } else if (exponent < 0) {
        str_put_data(b, "0.");
        put_zeros(b, -exponent - 1);
        str_put_data(b, digits);
    } else {
        int whole = exponent + 1 < n ? exponent + 1 : n;
        str_put(b, digits, (size_t)whole, false);
        put_zeros(b, exponent + 1 - n);
        str_put_data(b, ".");
        str_put_data(b, whole < n ? digits + whole : "0");
    }
}

static void put_escaped(struct str_builder *b, uint32_t cp, const char *bytes, size_t n, char quote)
{
    char text[16];
    const char *simple = cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : cp == '\t' ? "\\t" : NULL;
    if (simple) {
        str_put_data(b, simple);
    } else if (cp == '\\' || cp == (unsigned char)quote) {
        str_put_data(b, "\\");
        str_put(b, bytes, n, false);
    } else if (unicode_is_printable(cp)) {
        str_put(b, bytes, n, false);
    } else {
        snprintf(text, sizeof text,
                 cp < 0x100     ? "\\x%02x"
                 : cp < 0x10000 ? "\\u%04x"
                                : "\\U%08x",
                 cp);
        str_put_data(b, text);
    }
}

static void put_str_repr(struct str_builder *b, const struct str *s)
{
    bool single = memchr(s->s, '\'', s->n) != NULL, twice = memchr(s->s, '"', s->n) != NULL;
    char quote = single && !twice ? '"' : '\'';
    str_put(b, &quote, 1, false);
    for (size_t i = 0; i < s->n;) {
        uint32_t cp;
        size_t n = unicode_decode(s->s + i, s->n - i, &cp);
        put_escaped(b, cp, s->s + i, n, quote);
        i += n;
    }
    str_put(b, &quote, 1, false);
}

static bool put_items(struct rt *r, struct value v, int depth, struct str_builder *b)
{
    bool tuple = v.type == V_TUPLE;
    str_put_data(b, tuple ? "(" : "[");
    for (size_t i = 0; i < v.list->n; i++) {
        if (i)
            str_put_data(b, ", ");
        if (!rt_charge(r, 1) || !value_put_repr(r, v.list->v[i], depth - 1, b))
            return false;
    }
    str_put_data(b, tuple ? (v.list->n == 1 ? ",)" : ")") : "]");
    return true;
}

static bool put_dict(struct rt *r, const struct dict *d, int depth, struct str_builder *b)
{
    str_put_data(b, "{");
    for (size_t i = 0; i < d->n; i++) {
        if (i)
            str_put_data(b, ", ");
        if (!rt_charge(r, 1) || !value_put_repr(r, d->e[i].key, depth - 1, b))
            return false;
        str_put_data(b, ": ");
        if (!value_put_repr(r, d->e[i].value, depth - 1, b))
            return false;
    }
    str_put_data(b, "}");
    return true;
}

static bool put_view(struct rt *r, struct value v, int depth, struct str_builder *b)
{
    struct list *l;
    if (!value_to_list(r, v, &l))
        return false;
    str_put_data(b, value_type_name(v));
    str_put_data(b, "(");
    if (!put_items(r, value_list(l), depth - 1, b))
        return false;
    str_put_data(b, ")");
    return true;
}

static void put_range(const struct range *g, struct str_builder *b)
{
    char text[100];
    long long stop = (long long)(g->start + (int64_t)g->n * g->step);
    int n = snprintf(text, sizeof text, "range(%lld, %lld", (long long)g->start, stop);
    if (g->step != 1)
        snprintf(text + n, sizeof text - (size_t)n, ", %lld", (long long)g->step);
    str_put_data(b, text);
    str_put_data(b, ")");
}

static bool put_macro(const struct macro *m, struct str_builder *b)
{
    if (m->is_caller) {
        str_put_data(b, "<Macro anonymous>");
        return true;
    }
    str_put_data(b, "<Macro '");
    str_put(b, m->sig->name.s->s, m->sig->name.s->n, false);
    str_put_data(b, "'>");
    return true;
}

static bool put_object(struct value v, struct str_builder *b)
{
    str_put_data(b, "<");
    str_put_data(b, value_type_name(v));
    str_put_data(b, " object>");
    return true;
}

bool value_put_repr(struct rt *r, struct value v, int depth, struct str_builder *b)
{
    char text[32];
    if (depth <= 0)
        return rt_too_deep(r);
    if (b->failed)
        return rt_no_memory(r);
    switch ((enum value_type)v.type) {
    case V_UNDEFINED:
        str_put_data(b, "Undefined");
        return true;
    case V_NONE:
        str_put_data(b, "None");
        return true;
    case V_BOOL:
        str_put_data(b, v.b ? "True" : "False");
        return true;
    case V_INT:
        snprintf(text, sizeof text, "%lld", (long long)v.i);
        str_put_data(b, text);
        return true;
    case V_FLOAT:
        put_float_repr(v.f, b);
        return true;
    case V_STR:
        if (v.s->markup)
            str_put_data(b, "Markup(");
        put_str_repr(b, v.s);
        if (v.s->markup)
            str_put_data(b, ")");
        return rt_charge_bytes(r, v.s->n);
    case V_LIST:
    case V_TUPLE:
        return put_items(r, v, depth, b);
    case V_DICT:
        return put_dict(r, v.dict, depth, b);
    case V_NAMESPACE:
        str_put_data(b, "<Namespace ");
        if (!put_dict(r, v.dict, depth, b))
            return false;
        str_put_data(b, ">");
        return true;
    case V_VIEW:
        return put_view(r, v, depth, b);
    case V_RANGE:
        put_range(v.range, b);
        return true;
    case V_MACRO:
        return put_macro(v.macro, b);
    case V_LOOP:
        return loop_repr(r, v.loop, b);
    default:
        return put_object(v, b);
    }
}

bool value_to_str(struct rt *r, struct value v, const struct str **out)
{
    static const struct str empty = {.s = "", .tmpl = true};
    struct value s;
    struct str_builder b;
    if (v.type == V_STR || v.type == V_UNDEFINED) {
        *out = v.type == V_STR ? v.s : &empty;
        return true;
    }
    str_begin(&b, &r->arena);
    if (!value_put_repr(r, v, r->max_depth, &b) || !make_str(r, &b, &s))
        return false;
    *out = s.s;
    return true;
}
