/* format_braces.c: "{}".format(x). */
#include "format.h"
#include "functions.h"
#include "number.h"
#include "text_ops.h"
#include "unicode.h"

#include <string.h>

struct braces {
    struct rt *r;
    const struct str *fmt;
    struct call *c;
    int64_t automatic; /* the next unnumbered field */
    bool numbered;
    int depth; /* fields inside specifications */
    struct str_builder b;
};

static bool field_error(struct braces *f, const char *what)
{
    return rt_fail(f->r, "format(): %s", what);
}

static bool positional(struct braces *f, int64_t i, struct value *out)
{
    if (i < 0 || (uint64_t)i >= f->c->n_pos)
        return field_error(f, "there are fewer arguments than fields");
    *out = f->c->pos[i];
    return true;
}

static bool first_value(struct braces *f, const struct str *name, struct value *out)
{
    int64_t n;
    if (name->n == 0) {
        if (f->numbered)
            return field_error(f, "numbered and unnumbered fields are mixed");
        return positional(f, f->automatic++, out);
    }
    bool digits = name->s[0] >= '0' && name->s[0] <= '9';
    if (digits && number_int(name, 10, &n) == NUMBER_OK) {
        if (f->automatic)
            return field_error(f, "numbered and unnumbered fields are mixed");
        f->numbered = true;
        return positional(f, n, out);
    }
    for (size_t i = 0; i < f->c->n_kw; i++)
        if (str_eq(f->c->kw[i].name, name)) {
            *out = f->c->kw[i].v;
            return true;
        }
    return rt_fail(f->r, "format(): there is no argument '%.*s'",
                   name->n < 100 ? (int)name->n : 100, name->s);
}

/* The .attribute and [item] parts that follow the first name. */
static bool follow(struct braces *f, const struct str *path, size_t i, struct value *v)
{
    while (i < path->n) {
        bool dot = path->s[i] == '.';
        size_t from = ++i;
        while (i < path->n && (dot ? path->s[i] != '.' && path->s[i] != '[' : path->s[i] != ']'))
            i++;
        if (i == from || (!dot && i == path->n))
            return field_error(f, "an attribute or index is empty or not closed");
        const struct str *key = string_part(f->r, path, from, i);
        int64_t n;
        if (!key)
            return false;
        bool number = !dot && number_int(key, 10, &n) == NUMBER_OK;
        if (dot ? !get_attribute(f->r, *v, key, v)
                : !get_item(f->r, *v, number ? value_int(n) : value_str(key), v))
            return false;
        i += !dot;
        if (i < path->n && path->s[i] != '.' && path->s[i] != '[')
            return field_error(f, "only '.' or '[' may follow ']'");
    }
    return true;
}

static bool field_value(struct braces *f, const struct str *path, struct value *out)
{
    size_t n = 0;
    while (n < path->n && path->s[n] != '.' && path->s[n] != '[')
        n++;
    const struct str *name = string_part(f->r, path, 0, n);
    return name && first_value(f, name, out) && follow(f, path, n, out);
}

static size_t read_digits(const struct str *s, size_t i, int64_t *out)
{
    for (; i < s->n && s->s[i] >= '0' && s->s[i] <= '9'; i++)
        if (*out <= FORMAT_MAX_WIDTH)
            *out = *out * 10 + (s->s[i] - '0');
    return i;
}

static bool is_align(char c)
{
    return c == '<' || c == '>' || c == '^' || c == '=';
}

/* [[fill]align][sign][#][0][width][grouping][.precision][type] */
static bool read_spec(struct braces *f, const struct str *s, struct format_spec *out)
{
    size_t i = 0, fill = s->n ? unicode_offset(s->s, s->n, 1) : 0;
    *out = (struct format_spec){.fill = " ", .n_fill = 1, .precision = -1, .sign = '-'};
    if (fill && fill < s->n && is_align(s->s[fill])) {
        out->fill = s->s;
        out->n_fill = fill;
        out->align = s->s[fill];
        i = fill + 1;
    } else if (s->n && is_align(s->s[0])) {
        out->align = s->s[i++];
    }
    if (i < s->n && (s->s[i] == '+' || s->s[i] == '-' || s->s[i] == ' '))
        out->sign = s->s[i++];
    if (i < s->n && s->s[i] == '#') {
        out->alternate = true;
        i++;
    }
    if (i < s->n && s->s[i] == '0') {
        out->zero = true;
        i++;
        if (out->fill != s->s) /* it names no character of its own */
            out->fill = "0";
    }
    i = read_digits(s, i, &out->width);
    if (i < s->n && (s->s[i] == ',' || s->s[i] == '_'))
        out->grouping = s->s[i++];
    if (i < s->n && s->s[i] == '.') {
        out->precision = 0;
        i = read_digits(s, i + 1, &out->precision);
    }
    if (i < s->n)
        out->type = s->s[i++];
    return i == s->n || field_error(f, "a format specification is not understood");
}

static bool put_field(struct braces *f, struct value v, char conversion, const struct str *spec)
{
    struct format_spec s;
    const struct str *text;
    if (!read_spec(f, spec, &s))
        return false;
    if (conversion == 'r' || conversion == 'a') {
        struct str_builder repr;
        str_begin(&repr, &f->r->arena);
        if (!value_put_repr(f->r, v, f->r->max_depth, &repr) || !make_str(f->r, &repr, &v))
            return false;
    }
    bool number = !conversion && value_is_number(v) && (v.type != V_BOOL || spec->n);
    if (number) {
        bool known = !s.type || strchr(v.type == V_FLOAT ? "eEfFgGn%" : "bdoxXneEfFgG%", s.type);
        return known ? format_number(f->r, &s, v, &f->b)
                     : field_error(f, "this format code does not suit a number");
    }
    if ((s.type && s.type != 's') || s.align == '=' || s.sign != '-' || s.grouping)
        return field_error(f, "this format code does not suit text");
    if (v.type != V_STR && v.type != V_UNDEFINED && spec->n && !conversion)
        return rt_fail(f->r, "format(): a %s takes no format specification", value_type_name(v));
    if (s.zero && !s.align) {
        s.fill = "0";
        s.align = '<';
    }
    if (!value_to_str(f->r, v, &text) || (f->fmt->markup && !(text = escape_html(f->r, text))))
        return false;
    return format_text(f->r, &s, text, &f->b);
}

static bool put_braces(struct braces *f, const struct str *fmt);

/* A specification may have fields of its own: {:{width}}. */
static bool expand_spec(struct braces *f, const struct str *spec, const struct str **out)
{
    *out = spec;
    if (!memchr(spec->s, '{', spec->n))
        return true;
    if (f->depth >= 1)
        return field_error(f, "fields are nested too deeply");
    struct braces inner = *f;
    struct value v;
    inner.depth++;
    str_begin(&inner.b, &f->r->arena);
    if (!put_braces(&inner, spec) || !make_str(f->r, &inner.b, &v))
        return false;
    f->automatic = inner.automatic;
    f->numbered = inner.numbered;
    *out = v.s;
    return true;
}

/* Byte after the field that starts at `from` (behind its brace), where its '}' stands. */
static bool field_end(struct braces *f, const struct str *fmt, size_t from, size_t *end)
{
    int depth = 1;
    for (*end = from; *end < fmt->n; (*end)++) {
        depth += fmt->s[*end] == '{' ? 1 : fmt->s[*end] == '}' ? -1 : 0;
        if (depth == 0)
            return true;
    }
    return field_error(f, "a '{' is not closed");
}

static bool put_replacement(struct braces *f, const struct str *fmt, size_t from, size_t end)
{
    char conversion = '\0';
    size_t path_end = from;
    while (path_end < end && fmt->s[path_end] != '!' && fmt->s[path_end] != ':')
        path_end += fmt->s[path_end] == '[' && memchr(fmt->s + path_end, ']', end - path_end)
                        ? (size_t)((char *)memchr(fmt->s + path_end, ']', end - path_end) -
                                   (fmt->s + path_end))
                        : 1;
    size_t at = path_end;
    if (at + 1 < end && fmt->s[at] == '!') {
        conversion = fmt->s[at + 1];
        at += 2;
        if (!strchr("rsa", conversion) || !conversion || (at < end && fmt->s[at] != ':'))
            return field_error(f, "a conversion is !r, !s or !a");
    }
    size_t spec_from = at < end ? at + 1 : end;
    const struct str *path = string_part(f->r, fmt, from, path_end);
    const struct str *spec = path ? string_part(f->r, fmt, spec_from, end) : NULL;
    struct value v;
    return spec && field_value(f, path, &v) && expand_spec(f, spec, &spec) &&
           put_field(f, v, conversion, spec);
}

static bool put_braces(struct braces *f, const struct str *fmt)
{
    size_t plain = 0;
    for (size_t i = 0; i < fmt->n;) {
        char c = fmt->s[i];
        if (c != '{' && c != '}') {
            i++;
            continue;
        }
        bool twice = i + 1 < fmt->n && fmt->s[i + 1] == c;
        str_put_part(&f->b, fmt, plain, i - plain + twice);
        if (!twice && c == '}')
            return field_error(f, "a single '}' stands in the text");
        size_t end = i + 1;
        if (!twice && (!rt_charge(f->r, 1) || !field_end(f, fmt, i + 1, &end) ||
                       !put_replacement(f, fmt, i + 1, end)))
            return false;
        i = plain = end + 1;
    }
    str_put_part(&f->b, fmt, plain, fmt->n - plain);
    return rt_charge_bytes(f->r, fmt->n);
}

bool format_braces(struct rt *r, const struct str *fmt, struct call *c, struct value *out)
{
    struct braces f = {.r = r, .fmt = fmt, .c = c};
    str_begin(&f.b, &r->arena);
    if (!put_braces(&f, fmt) || !make_str(r, &f.b, out))
        return false;
    ((struct str *)out->s)->markup = fmt->markup;
    return true;
}
