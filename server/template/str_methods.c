/* str_methods.c: Python's string methods that change, cut or join text. */
#include "functions.h"
#include "text_ops.h"
#include "unicode.h"
#include "utf8.h"

#include <string.h>

static bool finish(const struct str *s, struct value *out)
{
    *out = value_str(s);
    return s != NULL;
}

#define CASE_METHOD(name, to)                                                                      \
    static bool name(struct rt *r, struct value self, struct call *c, struct value *out)           \
    {                                                                                              \
        return finish(string_case(r, self.s, to), out);                                            \
    }

CASE_METHOD(str_upper, CASE_UPPER)
CASE_METHOD(str_lower, CASE_LOWER)
CASE_METHOD(str_casefold, CASE_FOLD)
CASE_METHOD(str_title, CASE_TITLE)
CASE_METHOD(str_capitalize, CASE_CAPITALIZE)
CASE_METHOD(str_swapcase, CASE_SWAP)
#undef CASE_METHOD

/* A string argument that may be left out or none. */
static bool optional_str(struct rt *r, struct call *c, int i, const struct str **out)
{
    *out = NULL;
    return !arg_given(c, i) || c->arg[i].type == V_NONE || arg_str(r, c, i, out);
}

static bool strip(struct rt *r, struct value self, struct call *c, bool left, bool right,
                  struct value *out)
{
    const struct str *chars;
    return optional_str(r, c, 0, &chars) &&
           finish(string_strip(r, self.s, chars, left, right), out);
}

static bool str_strip(struct rt *r, struct value self, struct call *c, struct value *out)
{
    return strip(r, self, c, true, true, out);
}

static bool str_lstrip(struct rt *r, struct value self, struct call *c, struct value *out)
{
    return strip(r, self, c, true, false, out);
}

static bool str_rstrip(struct rt *r, struct value self, struct call *c, struct value *out)
{
    return strip(r, self, c, false, true, out);
}

static bool split(struct rt *r, struct value self, struct call *c, bool right, struct value *out)
{
    const struct str *sep;
    int64_t limit;
    struct list *l = make_list(r, 0);
    if (!l || !optional_str(r, c, 0, &sep) || !arg_int(r, c, 1, -1, &limit) ||
        !string_split(r, self.s, sep, limit, right, l))
        return false;
    *out = value_list(l);
    return true;
}

static bool str_split(struct rt *r, struct value self, struct call *c, struct value *out)
{
    return split(r, self, c, false, out);
}

static bool str_rsplit(struct rt *r, struct value self, struct call *c, struct value *out)
{
    return split(r, self, c, true, out);
}

static bool str_splitlines(struct rt *r, struct value self, struct call *c, struct value *out)
{
    struct list *l = make_list(r, 0);
    if (!l || !rt_charge(r, self.s->n / 16) ||
        !string_splitlines(r, self.s, arg_truth(c, 0, false), l))
        return false;
    *out = value_list(l);
    return true;
}

static bool str_replace(struct rt *r, struct value self, struct call *c, struct value *out)
{
    const struct str *s = self.s, *old, *with;
    int64_t count;
    if (!arg_str(r, c, 0, &old) || !arg_str(r, c, 1, &with) || !arg_int(r, c, 2, -1, &count))
        return false;
    if (s->markup && !(with = escape_html(r, with)))
        return false;
    if (!string_replace(r, s, old, with, count, out))
        return false;
    ((struct str *)out->s)->markup = s->markup;
    return true;
}

static bool str_join(struct rt *r, struct value self, struct call *c, struct value *out)
{
    struct value items = c->arg[0];
    if (self.s->markup) { /* Markup escapes what it joins */
        struct list *l;
        if (!value_to_list(r, items, &l))
            return false;
        for (size_t i = 0; i < l->n; i++) {
            const struct str *s;
            if (!value_to_str(r, l->v[i], &s) || !(s = escape_html(r, s)))
                return false;
            l->v[i] = value_str(s);
        }
        items = value_list(l);
    }
    if (!string_join(r, self.s, items, true, out))
        return false;
    ((struct str *)out->s)->markup = self.s->markup;
    return true;
}

static bool part_tuple(struct rt *r, const struct str *s, const size_t cut[4], struct value *out)
{
    struct list *l = make_list(r, 3);
    if (!l)
        return false;
    for (int i = 0; i < 3; i++)
        if (!push_part(r, l, s, cut[i], cut[i + 1]))
            return false;
    *out = value_tuple(l);
    return true;
}

static bool partition(struct rt *r, struct value self, struct call *c, bool right,
                      struct value *out)
{
    const struct str *s = self.s, *sep;
    if (!arg_str(r, c, 0, &sep) || !charge_search(r, s, sep))
        return false;
    if (sep->n == 0)
        return rt_fail(r, "%s() needs a separator that is not empty", c->who);
    size_t hit = right ? str_rfind(s, s->n, sep->s, sep->n) : str_find(s, 0, sep->s, sep->n);
    if (hit != SIZE_MAX)
        return part_tuple(r, s, (size_t[4]){0, hit, hit + sep->n, s->n}, out);
    size_t middle = right ? 0 : s->n;
    return part_tuple(r, s, (size_t[4]){0, middle, middle, s->n}, out);
}

static bool str_partition(struct rt *r, struct value self, struct call *c, struct value *out)
{
    return partition(r, self, c, false, out);
}

static bool str_rpartition(struct rt *r, struct value self, struct call *c, struct value *out)
{
    return partition(r, self, c, true, out);
}

static bool str_removeprefix(struct rt *r, struct value self, struct call *c, struct value *out)
{
    const struct str *s = self.s, *x;
    if (!arg_str(r, c, 0, &x))
        return false;
    bool has = x->n <= s->n && memcmp(s->s, x->s, x->n) == 0;
    return finish(string_part(r, s, has ? x->n : 0, s->n), out);
}

static bool str_removesuffix(struct rt *r, struct value self, struct call *c, struct value *out)
{
    const struct str *s = self.s, *x;
    if (!arg_str(r, c, 0, &x))
        return false;
    bool has = x->n <= s->n && memcmp(s->s + s->n - x->n, x->s, x->n) == 0;
    return finish(string_part(r, s, 0, has ? s->n - x->n : s->n), out);
}

static bool repeat_fill(struct rt *r, const struct str *fill, int64_t n, const struct str **out)
{
    struct value v;
    if (!value_arith(r, OP_MUL, value_str(fill), value_int(n), &v))
        return false;
    *out = v.s;
    return true;
}

/* left, self and right, where the two sides are `fill` repeated. */
static bool pad(struct rt *r, struct value self, struct call *c, int64_t left, int64_t right,
                struct value *out)
{
    static const struct str space = {.s = " ", .n = 1};
    const struct str *fill = &space, *a, *z;
    struct str_builder b;
    if (arg_given(c, 1) && !arg_str(r, c, 1, &fill))
        return false;
    if (utf8_count(fill->s, fill->n) != 1)
        return rt_fail(r, "%s() fills with one character", c->who);
    if (!repeat_fill(r, fill, left, &a) || !repeat_fill(r, fill, right, &z))
        return false;
    str_begin(&b, &r->arena);
    str_put_str(&b, a);
    str_put_str(&b, self.s);
    str_put_str(&b, z);
    return make_str(r, &b, out);
}

static bool missing_width(struct rt *r, struct value self, struct call *c, int64_t *width,
                          int64_t *missing)
{
    if (!arg_int(r, c, 0, 0, width))
        return false;
    int64_t n = (int64_t)utf8_count(self.s->s, self.s->n);
    *missing = *width > n ? *width - n : 0;
    return true;
}

static bool str_center(struct rt *r, struct value self, struct call *c, struct value *out)
{
    int64_t width, n;
    if (!missing_width(r, self, c, &width, &n))
        return false;
    int64_t left = n / 2 + (n & width & 1);
    return pad(r, self, c, left, n - left, out);
}

static bool str_ljust(struct rt *r, struct value self, struct call *c, struct value *out)
{
    int64_t width, n;
    return missing_width(r, self, c, &width, &n) && pad(r, self, c, 0, n, out);
}

static bool str_rjust(struct rt *r, struct value self, struct call *c, struct value *out)
{
    int64_t width, n;
    return missing_width(r, self, c, &width, &n) && pad(r, self, c, n, 0, out);
}

static bool str_zfill(struct rt *r, struct value self, struct call *c, struct value *out)
{
    static const struct str zero = {.s = "0", .n = 1};
    const struct str *s = self.s, *zeros;
    struct str_builder b;
    int64_t width, n;
    if (!missing_width(r, self, c, &width, &n) || !repeat_fill(r, &zero, n, &zeros))
        return false;
    size_t sign = s->n && (s->s[0] == '-' || s->s[0] == '+');
    str_begin(&b, &r->arena);
    str_put_part(&b, s, 0, sign);
    str_put_str(&b, zeros);
    str_put_part(&b, s, sign, s->n - sign);
    return make_str(r, &b, out);
}

static bool str_expandtabs(struct rt *r, struct value self, struct call *c, struct value *out)
{
    static const struct str space = {.s = " ", .n = 1};
    const struct str *s = self.s, *gap;
    struct str_builder b;
    int64_t size, column = 0;
    if (!arg_int(r, c, 0, 8, &size))
        return false;
    str_begin(&b, &r->arena);
    for (size_t i = 0; i < s->n && !b.failed; i++) {
        if (s->s[i] != '\t') {
            str_put_part(&b, s, i, 1);
            bool starts = ((unsigned char)s->s[i] & 0xC0) != 0x80;
            column = s->s[i] == '\n' || s->s[i] == '\r' ? 0 : column + starts;
            continue;
        }
        int64_t n = size > 0 ? size - column % size : 0;
        if (!repeat_fill(r, &space, n, &gap))
            return false;
        str_put_str(&b, gap);
        column += n;
    }
    return rt_charge(r, s->n / 16) && make_str(r, &b, out);
}

static bool str_format(struct rt *r, struct value self, struct call *c, struct value *out)
{
    return format_braces(r, self.s, c, out);
}

const struct function str_methods[] = {
    {"upper", "", 0, str_upper},
    {"lower", "", 0, str_lower},
    {"casefold", "", 0, str_casefold},
    {"title", "", 0, str_title},
    {"capitalize", "", 0, str_capitalize},
    {"swapcase", "", 0, str_swapcase},
    {"strip", "chars", 0, str_strip},
    {"lstrip", "chars", 0, str_lstrip},
    {"rstrip", "chars", 0, str_rstrip},
    {"split", "sep,maxsplit", 0, str_split},
    {"rsplit", "sep,maxsplit", 0, str_rsplit},
    {"splitlines", "keepends", 0, str_splitlines},
    {"replace", "old,new,count", 2, str_replace},
    {"join", "iterable", 1, str_join},
    {"partition", "sep", 1, str_partition},
    {"rpartition", "sep", 1, str_rpartition},
    {"removeprefix", "prefix", 1, str_removeprefix},
    {"removesuffix", "suffix", 1, str_removesuffix},
    {"center", "width,fillchar", 1, str_center},
    {"ljust", "width,fillchar", 1, str_ljust},
    {"rjust", "width,fillchar", 1, str_rjust},
    {"zfill", "width", 1, str_zfill},
    {"expandtabs", "tabsize", 0, str_expandtabs},
    {"format", NULL, 0, str_format},
    {0},
};
