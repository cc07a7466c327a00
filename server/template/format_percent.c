/* format_percent.c: "%s" % x. */
#include "format.h"
#include "functions.h"
#include "number.h"
#include "text_ops.h"
#include "unicode.h"
#include "utf8.h"

#include <string.h>

struct percent {
    struct rt *r;
    const struct str *fmt;
    size_t i; /* the next byte of fmt */
    struct value args;
    size_t next; /* of a tuple's items */
    bool by_key; /* a %(name) was seen */
    struct str_builder b;
};

static bool incomplete(struct percent *p)
{
    return rt_fail(p->r, "incomplete format: '%%' at its end");
}

static bool next_arg(struct percent *p, struct value *out)
{
    bool tuple = p->args.type == V_TUPLE;
    size_t n = tuple ? p->args.list->n : 1;
    if (p->next >= n)
        return rt_fail(p->r, "not enough arguments for the format string");
    *out = tuple ? p->args.list->v[p->next] : p->args;
    p->next++;
    return true;
}

/* %(name): the value comes from a dict. */
static bool keyed_arg(struct percent *p, struct value *out, bool *keyed)
{
    const struct str *f = p->fmt;
    *keyed = p->i < f->n && f->s[p->i] == '(';
    if (!*keyed)
        return true;
    size_t from = ++p->i;
    for (int depth = 1; p->i < f->n; p->i++) {
        depth += f->s[p->i] == '(' ? 1 : f->s[p->i] == ')' ? -1 : 0;
        if (depth == 0)
            break;
    }
    if (p->i == f->n)
        return incomplete(p);
    if (p->args.type != V_DICT)
        return rt_fail(p->r, "the format needs a mapping");
    const struct str *key = string_part(p->r, f, from, p->i++);
    const struct value *v = key ? dict_get_str(p->r, p->args.dict, key) : NULL;
    if (!v)
        return key && rt_fail(p->r, "the format's key is missing in the mapping");
    p->by_key = true;
    *out = *v;
    return true;
}

/* Digits, or '*' for an argument. */
static bool read_count(struct percent *p, int64_t *out)
{
    const struct str *f = p->fmt;
    struct value v;
    if (p->i < f->n && f->s[p->i] == '*') {
        p->i++;
        if (!next_arg(p, &v))
            return false;
        if (!value_is_integer(v))
            return rt_fail(p->r, "* in a format needs an integer");
        *out = value_as_int(v);
        return true;
    }
    for (; p->i < f->n && f->s[p->i] >= '0' && f->s[p->i] <= '9'; p->i++)
        if (*out <= FORMAT_MAX_WIDTH)
            *out = *out * 10 + (f->s[p->i] - '0');
    return true;
}

static bool read_percent_spec(struct percent *p, struct format_spec *s)
{
    const struct str *f = p->fmt;
    bool left = false;
    *s = (struct format_spec){.fill = " ", .n_fill = 1, .precision = -1, .sign = '-'};
    for (; p->i < f->n && f->s[p->i] && strchr("-+ #0", f->s[p->i]); p->i++) {
        char c = f->s[p->i];
        left = left || c == '-';
        s->zero = s->zero || c == '0';
        s->alternate = s->alternate || c == '#';
        if (c == '+' || (c == ' ' && s->sign != '+'))
            s->sign = c;
    }
    if (!read_count(p, &s->width))
        return false;
    if (s->width < 0) {
        left = true;
        s->width = s->width < -FORMAT_MAX_WIDTH ? FORMAT_MAX_WIDTH + 1 : -s->width;
    }
    if (p->i < f->n && f->s[p->i] == '.') {
        p->i++;
        s->precision = 0;
        if (!read_count(p, &s->precision))
            return false;
        if (s->precision < 0)
            s->precision = 0;
    }
    if (left) {
        s->align = '<';
        s->zero = false;
    }
    while (p->i < f->n && f->s[p->i] && strchr("hlL", f->s[p->i]))
        p->i++;
    return p->i < f->n || incomplete(p);
}

static bool percent_text(struct percent *p, struct format_spec *s, char type, struct value v)
{
    struct str_builder repr;
    const struct str *text;
    s->align = s->align ? s->align : '>';
    s->zero = false;
    if (type == 's') {
        if (!value_to_str(p->r, v, &text) || (p->fmt->markup && !(text = escape_html(p->r, text))))
            return false;
        return format_text(p->r, s, text, &p->b);
    }
    str_begin(&repr, &p->r->arena);
    if (!value_put_repr(p->r, v, p->r->max_depth, &repr) || !make_str(p->r, &repr, &v))
        return false;
    return format_text(p->r, s, v.s, &p->b);
}

static bool percent_char(struct percent *p, struct format_spec *s, struct value v)
{
    char bytes[4];
    struct str one = {.s = bytes};
    s->align = s->align ? s->align : '>';
    if (v.type == V_STR && utf8_count(v.s->s, v.s->n) == 1)
        return format_text(p->r, s, v.s, &p->b);
    if (!value_is_integer(v) || value_as_int(v) < 0 || value_as_int(v) > 0x10FFFF ||
        (value_as_int(v) >= 0xD800 && value_as_int(v) < 0xE000))
        return rt_fail(p->r, "%%c needs a character");
    one.n = unicode_encode((uint32_t)value_as_int(v), bytes);
    return format_text(p->r, s, &one, &p->b);
}

static bool percent_number(struct percent *p, struct format_spec *s, char type, struct value v)
{
    int64_t n;
    if (v.type == V_UNDEFINED)
        return rt_undefined(p->r, v);
    if (!value_is_number(v))
        return rt_fail(p->r, "%%%c needs a number, not %s", type, value_type_name(v));
    s->type = type == 'i' || type == 'u' ? 'd' : type;
    bool integral = strchr("dxXo", s->type) != NULL;
    if (integral && v.type == V_FLOAT) {
        if (s->type != 'd')
            return rt_fail(p->r, "%%%c needs an integer, not float", type);
        if (number_truncate(v.f, &n) != NUMBER_OK)
            return rt_fail(p->r, "a float has no 64-bit integer value");
        v = value_int(n);
    }
    if (!integral)
        return format_number(p->r, s, v, &p->b);
    int64_t digits = s->precision;
    s->precision = -1;
    if (digits > s->width && !s->align) { /* %.5d: at least five digits */
        s->zero = true;
        s->width = digits + (value_as_int(v) < 0 || s->sign != '-');
    }
    return format_number(p->r, s, v, &p->b);
}

static bool percent_item(struct percent *p)
{
    struct format_spec s;
    struct value v;
    bool keyed;
    if (!keyed_arg(p, &v, &keyed) || !read_percent_spec(p, &s))
        return false;
    char type = p->fmt->s[p->i++];
    if (type == '%') {
        str_put_part(&p->b, p->fmt, p->i - 1, 1);
        return true;
    }
    if (!type || !strchr("sracdiuxXoeEfFgG", type))
        return rt_fail(p->r, "unsupported format character '%c'", type > ' ' ? type : '?');
    if (!keyed && !next_arg(p, &v))
        return false;
    if (strchr("sra", type))
        return percent_text(p, &s, type, v);
    return type == 'c' ? percent_char(p, &s, v) : percent_number(p, &s, type, v);
}

bool format_percent(struct rt *r, const struct str *fmt, struct value arg, struct value *out)
{
    struct percent p = {.r = r, .fmt = fmt, .args = arg};
    str_begin(&p.b, &r->arena);
    while (p.i < fmt->n) {
        const char *c = memchr(fmt->s + p.i, '%', fmt->n - p.i);
        size_t end = c ? (size_t)(c - fmt->s) : fmt->n;
        str_put_part(&p.b, fmt, p.i, end - p.i);
        p.i = end;
        if (!c)
            break;
        if (++p.i == fmt->n)
            return incomplete(&p);
        if (!rt_charge(r, 1) || !percent_item(&p))
            return false;
    }
    bool mapping = arg.type == V_DICT || arg.type == V_LIST || arg.type == V_UNDEFINED;
    size_t given = arg.type == V_TUPLE ? arg.list->n : mapping || p.by_key ? 0 : 1;
    if (p.next < given)
        return rt_fail(r, "not all arguments are used by the format string");
    if (!make_str(r, &p.b, out))
        return false;
    ((struct str *)out->s)->markup = fmt->markup;
    return true;
}
