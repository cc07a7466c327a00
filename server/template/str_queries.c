/* str_queries.c: Python's string methods that search and classify. */
#include "functions.h"
#include "text_ops.h"
#include "unicode.h"
#include "utf8.h"

#include <string.h>

struct window { /* bytes [from, end) of a string; empty = false: start lies behind the end */
    size_t from, end;
    bool valid;
};

/* The arguments start and end, in characters, from argument 1 on. */
static bool read_window(struct rt *r, const struct str *s, struct call *c, struct window *w)
{
    int64_t n = (int64_t)utf8_count(s->s, s->n), from = 0, end = n;
    bool has_from = arg_given(c, 1) && c->arg[1].type != V_NONE;
    bool has_end = arg_given(c, 2) && c->arg[2].type != V_NONE;
    if ((has_from && !arg_int(r, c, 1, 0, &from)) || (has_end && !arg_int(r, c, 2, n, &end)))
        return false;
    from = from < 0 ? (from < -n ? 0 : from + n) : from;
    end = end < 0 ? (end < -n ? 0 : end + n) : end > n ? n : end;
    w->valid = from <= end && from <= n;
    w->from = w->valid ? unicode_offset(s->s, s->n, (size_t)from) : 0;
    w->end = w->valid ? unicode_offset(s->s, s->n, (size_t)end) : 0;
    return rt_charge_bytes(r, s->n);
}

static bool affix_is(struct rt *r, const struct str *s, struct window w, struct value affix,
                     bool at_start, bool *out)
{
    if (affix.type != V_STR)
        return rt_fail(r, "%s needs a string or a tuple of strings, not %s",
                       at_start ? "startswith()" : "endswith()", value_type_name(affix));
    size_t n = affix.s->n;
    *out = w.valid && n <= w.end - w.from &&
           memcmp(s->s + (at_start ? w.from : w.end - n), affix.s->s, n) == 0;
    return true;
}

static bool has_affix(struct rt *r, struct value self, struct call *c, bool at_start,
                      struct value *out)
{
    struct window w;
    bool has = false;
    struct value affix = c->arg[0];
    if (!read_window(r, self.s, c, &w))
        return false;
    if (affix.type == V_UNDEFINED)
        return rt_undefined(r, affix);
    if (affix.type != V_TUPLE && !affix_is(r, self.s, w, affix, at_start, &has))
        return false;
    for (size_t i = 0; affix.type == V_TUPLE && i < affix.list->n && !has; i++)
        if (!rt_charge(r, 1) || !affix_is(r, self.s, w, affix.list->v[i], at_start, &has))
            return false;
    *out = value_bool(has);
    return true;
}

static bool str_startswith(struct rt *r, struct value self, struct call *c, struct value *out)
{
    return has_affix(r, self, c, true, out);
}

static bool str_endswith(struct rt *r, struct value self, struct call *c, struct value *out)
{
    return has_affix(r, self, c, false, out);
}

/* Index of the first or last hit in characters, -1 if there is none. */
static bool find(struct rt *r, struct value self, struct call *c, bool last, int64_t *out)
{
    struct window w;
    const struct str *s = self.s, *x;
    if (!arg_str(r, c, 0, &x) || !read_window(r, s, c, &w) || !charge_search(r, s, x))
        return false;
    struct str part = {.s = s->s + w.from, .n = w.end - w.from};
    size_t hit = !w.valid ? SIZE_MAX
                 : last   ? str_rfind(&part, part.n, x->s, x->n)
                          : str_find(&part, 0, x->s, x->n);
    *out = hit == SIZE_MAX ? -1 : (int64_t)utf8_count(s->s, w.from + hit);
    return true;
}

static bool position(struct rt *r, struct value self, struct call *c, bool last, bool must,
                     struct value *out)
{
    int64_t at;
    if (!find(r, self, c, last, &at))
        return false;
    *out = value_int(at);
    return at >= 0 || !must || rt_fail(r, "%s(): the text is not found", c->who);
}

static bool str_find_first(struct rt *r, struct value self, struct call *c, struct value *out)
{
    return position(r, self, c, false, false, out);
}

static bool str_find_last(struct rt *r, struct value self, struct call *c, struct value *out)
{
    return position(r, self, c, true, false, out);
}

static bool str_index(struct rt *r, struct value self, struct call *c, struct value *out)
{
    return position(r, self, c, false, true, out);
}

static bool str_rindex(struct rt *r, struct value self, struct call *c, struct value *out)
{
    return position(r, self, c, true, true, out);
}

static bool str_count(struct rt *r, struct value self, struct call *c, struct value *out)
{
    struct window w;
    const struct str *s = self.s, *x;
    int64_t n = 0;
    if (!arg_str(r, c, 0, &x) || !read_window(r, s, c, &w))
        return false;
    struct str part = {.s = s->s + w.from, .n = w.end - w.from};
    if (x->n == 0)
        n = w.valid ? (int64_t)utf8_count(part.s, part.n) + 1 : 0;
    for (size_t at = 0; w.valid && x->n; n++) {
        size_t hit = str_find(&part, at, x->s, x->n);
        if (hit == SIZE_MAX)
            break;
        if (!rt_charge(r, 1 + x->n / 256))
            return false;
        at = hit + x->n;
    }
    *out = value_int(n);
    return true;
}

/* Whether the string is not empty and all of its characters have the property. */
static bool all_are(struct rt *r, const struct str *s, bool (*property)(uint32_t),
                    struct value *out)
{
    bool all = s->n > 0;
    for (size_t i = 0; i < s->n && all;) {
        uint32_t cp;
        i += unicode_decode(s->s + i, s->n - i, &cp);
        all = property(cp);
    }
    *out = value_bool(all);
    return rt_charge(r, s->n / 16);
}

#define ALL_ARE(name, property)                                                                    \
    static bool name(struct rt *r, struct value self, struct call *c, struct value *out)           \
    {                                                                                              \
        return all_are(r, self.s, property, out);                                                  \
    }

ALL_ARE(str_isdigit, unicode_is_digit)
ALL_ARE(str_isdecimal, unicode_is_decimal)
ALL_ARE(str_isnumeric, unicode_is_numeric)
ALL_ARE(str_isalpha, unicode_is_alpha)
ALL_ARE(str_isalnum, unicode_is_alnum)
ALL_ARE(str_isspace, unicode_is_space)
#undef ALL_ARE

static bool is_ascii(uint32_t cp)
{
    return cp < 0x80;
}

/* Properties that the empty string has. */
static bool all_or_empty(struct rt *r, const struct str *s, bool (*property)(uint32_t),
                         struct value *out)
{
    if (!all_are(r, s, property, out))
        return false;
    out->b = out->b || s->n == 0;
    return true;
}

static bool str_isascii(struct rt *r, struct value self, struct call *c, struct value *out)
{
    return all_or_empty(r, self.s, is_ascii, out);
}

static bool str_isprintable(struct rt *r, struct value self, struct call *c, struct value *out)
{
    return all_or_empty(r, self.s, unicode_is_printable, out);
}

/* islower() and isupper() are the tests of the same meaning. */
static bool by_test(struct rt *r, struct value self, const char *name, size_t n, struct value *out)
{
    struct str s = {.s = name, .n = n};
    struct call c = {.who = name};
    bool holds;
    if (!test_named(&s)->run(r, self, &c, &holds))
        return false;
    *out = value_bool(holds);
    return rt_charge(r, self.s->n / 2);
}

static bool str_islower(struct rt *r, struct value self, struct call *c, struct value *out)
{
    return by_test(r, self, "lower", 5, out);
}

static bool str_isupper(struct rt *r, struct value self, struct call *c, struct value *out)
{
    return by_test(r, self, "upper", 5, out);
}

static bool str_istitle(struct rt *r, struct value self, struct call *c, struct value *out)
{
    const struct str *s = self.s;
    bool cased = false, any = false, ok = true;
    for (size_t i = 0; i < s->n && ok;) {
        uint32_t cp;
        i += unicode_decode(s->s + i, s->n - i, &cp);
        bool upper = unicode_is_upper(cp) || unicode_is_titlecase(cp);
        bool lower = unicode_is_lower(cp);
        ok = upper ? !cased : lower ? cased : true;
        cased = upper || lower;
        any = any || cased;
    }
    *out = value_bool(ok && any);
    return rt_charge(r, s->n / 16);
}

const struct function str_more_methods[] = {
    {"startswith", "prefix,start,end", 1, str_startswith},
    {"endswith", "suffix,start,end", 1, str_endswith},
    {"find", "sub,start,end", 1, str_find_first},
    {"rfind", "sub,start,end", 1, str_find_last},
    {"index", "sub,start,end", 1, str_index},
    {"rindex", "sub,start,end", 1, str_rindex},
    {"count", "sub,start,end", 1, str_count},
    {"isdigit", "", 0, str_isdigit},
    {"isdecimal", "", 0, str_isdecimal},
    {"isnumeric", "", 0, str_isnumeric},
    {"isalpha", "", 0, str_isalpha},
    {"isalnum", "", 0, str_isalnum},
    {"isspace", "", 0, str_isspace},
    {"isascii", "", 0, str_isascii},
    {"isprintable", "", 0, str_isprintable},
    {"islower", "", 0, str_islower},
    {"isupper", "", 0, str_isupper},
    {"istitle", "", 0, str_istitle},
    {0},
};
