/* filters_text.c: filters that work on strings. */
#include "attr_path.h"
#include "functions.h"
#include "text_ops.h"
#include "unicode.h"
#include "utf8.h"

#include <string.h>

/* str(in), where a Markup stays one. */
static const struct str *soft(struct rt *r, struct value in)
{
    const struct str *s;
    return value_to_str(r, in, &s) ? s : NULL;
}

static bool finish(const struct str *s, struct value *out)
{
    *out = value_str(s);
    return s != NULL;
}

static bool change_case(struct rt *r, struct value in, enum letter_case to, struct value *out)
{
    const struct str *s = soft(r, in);
    return s && finish(string_case(r, s, to), out);
}

static bool filter_upper(struct rt *r, struct value in, struct call *c, struct value *out)
{
    return change_case(r, in, CASE_UPPER, out);
}

static bool filter_lower(struct rt *r, struct value in, struct call *c, struct value *out)
{
    return change_case(r, in, CASE_LOWER, out);
}

static bool filter_capitalize(struct rt *r, struct value in, struct call *c, struct value *out)
{
    return change_case(r, in, CASE_CAPITALIZE, out);
}

static bool filter_title(struct rt *r, struct value in, struct call *c, struct value *out)
{
    return change_case(r, in, CASE_WORDS, out);
}

static bool filter_trim(struct rt *r, struct value in, struct call *c, struct value *out)
{
    const struct str *s = soft(r, in), *chars = NULL;
    if (!s || (arg_given(c, 0) && c->arg[0].type != V_NONE && !arg_str(r, c, 0, &chars)))
        return false;
    return finish(string_strip(r, s, chars, true, true), out);
}

static bool filter_string(struct rt *r, struct value in, struct call *c, struct value *out)
{
    return finish(soft(r, in), out);
}

/* The same text, taken as Markup or not. */
static bool with_markup(struct rt *r, const struct str *s, bool markup, struct value *out)
{
    struct str *copy = rt_alloc(r, sizeof *copy);
    if (!copy)
        return false;
    *copy = *s;
    copy->grow = NULL;
    copy->markup = markup;
    *out = value_str(copy);
    return true;
}

static bool filter_safe(struct rt *r, struct value in, struct call *c, struct value *out)
{
    const struct str *s = soft(r, in);
    return s && with_markup(r, s, true, out);
}

static bool filter_escape(struct rt *r, struct value in, struct call *c, struct value *out)
{
    const struct str *s = soft(r, in);
    return s && finish(escape_html(r, s), out);
}

static bool filter_forceescape(struct rt *r, struct value in, struct call *c, struct value *out)
{
    const struct str *s = soft(r, in);
    return s && with_markup(r, s, false, out) && finish(escape_html(r, out->s), out);
}

static bool filter_replace(struct rt *r, struct value in, struct call *c, struct value *out)
{
    const struct str *s = soft(r, in), *old = soft(r, c->arg[0]), *with = soft(r, c->arg[1]);
    int64_t count = -1;
    if (!s || !old || !with)
        return false;
    if (arg_given(c, 2) && c->arg[2].type != V_NONE && !arg_int(r, c, 2, -1, &count))
        return false;
    return string_replace(r, s, old, with, count, out);
}

static const struct str *spaces(struct rt *r, int64_t n)
{
    static const struct str space = {.s = " ", .n = 1};
    struct value v;
    return value_arith(r, OP_MUL, value_str(&space), value_int(n), &v) ? v.s : NULL;
}

/* Lines as str.splitlines() makes them after a newline was added at the end. */
static bool lines_of(struct rt *r, const struct str *s, struct list *l)
{
    static const struct str newline = {.s = "\n", .n = 1};
    const struct str *whole = str_concat(&r->arena, s, &newline);
    return whole ? string_splitlines(r, whole, false, l) : rt_no_memory(r);
}

static bool filter_indent(struct rt *r, struct value in, struct call *c, struct value *out)
{
    int64_t width = 4;
    if (in.type != V_STR)
        return rt_fail(r, "indent() needs a string, not %s", value_type_name(in));
    const struct str *indent = arg_given(c, 0) && c->arg[0].type == V_STR ? c->arg[0].s : NULL;
    if (!indent && !arg_int(r, c, 0, 4, &width))
        return false;
    bool first = arg_truth(c, 1, false), blank = arg_truth(c, 2, false);
    struct list *l = make_list(r, 0);
    if (!l || (!indent && !(indent = spaces(r, width))) || !lines_of(r, in.s, l))
        return false;
    struct str_builder b;
    str_begin(&b, &r->arena);
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            str_put_data(&b, "\n");
        bool put = i == 0 ? first : blank || l->v[i].s->n;
        if (put)
            str_put_str(&b, indent);
        str_put_str(&b, l->v[i].s);
        if (b.failed || !rt_charge_bytes(r, indent->n))
            return b.failed ? rt_no_memory(r) : false;
    }
    return make_str(r, &b, out);
}

static bool filter_wordcount(struct rt *r, struct value in, struct call *c, struct value *out)
{
    const struct str *s = soft(r, in);
    int64_t n = 0;
    bool in_word = false;
    if (!s)
        return false;
    for (size_t i = 0; i < s->n;) {
        uint32_t cp;
        i += unicode_decode(s->s + i, s->n - i, &cp);
        bool word = unicode_is_alnum(cp) || cp == '_';
        n += word && !in_word;
        in_word = word;
    }
    *out = value_int(n);
    return rt_charge(r, s->n / 16);
}

static bool filter_format(struct rt *r, struct value in, struct call *c, struct value *out)
{
    const struct str *s = soft(r, in);
    if (!s)
        return false;
    if (c->n_pos && c->n_kw)
        return rt_fail(r, "format() takes positional or keyword arguments, not both");
    if (c->n_kw) {
        struct dict *d = dict_new(&r->arena);
        if (!d)
            return rt_no_memory(r);
        for (size_t i = 0; i < c->n_kw; i++)
            if (!dict_set(r, d, value_str(c->kw[i].name), c->kw[i].v))
                return false;
        return format_percent(r, s, value_dict(d), out);
    }
    struct list *l = make_list(r, c->n_pos);
    if (!l)
        return false;
    for (size_t i = 0; i < c->n_pos; i++)
        l->v[l->n++] = c->pos[i];
    return format_percent(r, s, value_tuple(l), out);
}

static void put_quoted(const struct str *s, const char *safe, bool plus, struct str_builder *b)
{
    static const char hex[] = "0123456789ABCDEF";
    for (size_t i = 0; i < s->n; i++) {
        unsigned char u = (unsigned char)s->s[i];
        bool plain = (u >= '0' && u <= '9') || (u >= 'a' && u <= 'z') || (u >= 'A' && u <= 'Z') ||
                     (u && strchr("_.-~", u)) || (u && strchr(safe, u));
        char code[3] = {'%', hex[u >> 4], hex[u & 15]};
        if (plain)
            str_put_part(b, s, i, 1);
        else if (u == ' ' && plus)
            str_put_data(b, "+");
        else
            str_put(b, code, 3, false);
    }
}

static bool put_query(struct rt *r, struct value pairs, struct str_builder *b)
{
    struct list *l, *pair;
    if (!value_to_list(r, pairs, &l))
        return false;
    for (size_t i = 0; i < l->n; i++) {
        const struct str *k, *v;
        if (!value_to_list(r, l->v[i], &pair))
            return false;
        if (pair->n != 2)
            return rt_fail(r, "urlencode() needs pairs");
        if (!value_to_str(r, pair->v[0], &k) || !value_to_str(r, pair->v[1], &v))
            return false;
        if (i)
            str_put_data(b, "&");
        put_quoted(k, "", true, b);
        str_put_data(b, "=");
        put_quoted(v, "", true, b);
    }
    return true;
}

static bool filter_urlencode(struct rt *r, struct value in, struct call *c, struct value *out)
{
    struct str_builder b;
    str_begin(&b, &r->arena);
    if (in.type == V_STR || !value_iterable(in)) {
        const struct str *s = soft(r, in);
        if (!s)
            return false;
        put_quoted(s, "/", false, &b);
        return make_str(r, &b, out);
    }
    if (in.type == V_DICT) {
        struct view *view = rt_alloc(r, sizeof *view);
        if (!view)
            return false;
        *view = (struct view){in.dict, VIEW_ITEMS};
        in = (struct value){.type = V_VIEW, .view = view};
    }
    return put_query(r, in, &b) && make_str(r, &b, out);
}

static bool cut_words(struct rt *r, const struct str *s, size_t length, const struct str *end,
                      bool kill_words, struct value *out)
{
    struct str_builder b;
    size_t cut = unicode_offset(s->s, s->n, length);
    size_t space = kill_words ? SIZE_MAX : str_rfind(s, cut, " ", 1);
    str_begin(&b, &r->arena);
    str_put_part(&b, s, 0, space == SIZE_MAX ? cut : space);
    str_put_str(&b, end);
    return make_str(r, &b, out);
}

static bool filter_truncate(struct rt *r, struct value in, struct call *c, struct value *out)
{
    static const struct str dots = {.s = "...", .n = 3};
    int64_t length, leeway = 5;
    size_t n;
    const struct str *end = &dots;
    if (!value_length(r, in, &n) || !arg_int(r, c, 0, 255, &length) ||
        (arg_given(c, 2) && !arg_str(r, c, 2, &end)) ||
        (arg_given(c, 3) && c->arg[3].type != V_NONE && !arg_int(r, c, 3, 5, &leeway)))
        return false;
    int64_t n_end = (int64_t)utf8_count(end->s, end->n);
    if (length < n_end || leeway < 0)
        return rt_fail(r, "truncate() needs a length of at least %lld", (long long)n_end);
    *out = in;
    if (leeway > INT64_MAX - length || (int64_t)n <= length + leeway)
        return true;
    if (in.type != V_STR)
        return rt_fail(r, "truncate() needs a string, not %s", value_type_name(in));
    return cut_words(r, in.s, (size_t)(length - n_end), end, arg_truth(c, 1, false), out);
}

static bool filter_center(struct rt *r, struct value in, struct call *c, struct value *out)
{
    int64_t width;
    const struct str *s = soft(r, in);
    if (!s || !arg_int(r, c, 0, 80, &width))
        return false;
    int64_t pad = width - (int64_t)utf8_count(s->s, s->n), left = pad / 2 + (pad & width & 1);
    const struct str *a = spaces(r, pad > 0 ? left : 0), *z = spaces(r, pad > 0 ? pad - left : 0);
    struct str_builder b;
    if (!a || !z)
        return false;
    str_begin(&b, &r->arena);
    str_put_str(&b, a);
    str_put_str(&b, s);
    str_put_str(&b, z);
    return make_str(r, &b, out);
}

static bool filter_join(struct rt *r, struct value in, struct call *c, struct value *out)
{
    static const struct str empty = {.s = ""};
    const struct str *sep = &empty;
    if (arg_given(c, 0) && !value_to_str(r, c->arg[0], &sep))
        return false;
    if (arg_given(c, 1) && c->arg[1].type != V_NONE) {
        struct list *l;
        if (!map_attribute(r, in, c->arg[1], &l))
            return false;
        in = value_list(l);
    }
    return string_join(r, sep, in, false, out);
}

const struct filter text_filters[] = {
    {"upper", "", 0, filter_upper},
    {"lower", "", 0, filter_lower},
    {"capitalize", "", 0, filter_capitalize},
    {"title", "", 0, filter_title},
    {"trim", "chars", 0, filter_trim},
    {"string", "", 0, filter_string},
    {"safe", "", 0, filter_safe},
    {"escape", "", 0, filter_escape},
    {"e", "", 0, filter_escape},
    {"forceescape", "", 0, filter_forceescape},
    {"replace", "old,new,count", 2, filter_replace},
    {"indent", "width,first,blank", 0, filter_indent},
    {"wordcount", "", 0, filter_wordcount},
    {"format", NULL, 0, filter_format},
    {"urlencode", "", 0, filter_urlencode},
    {"truncate", "length,killwords,end,leeway", 0, filter_truncate},
    {"center", "width", 0, filter_center},
    {"join", "d,attribute", 0, filter_join},
    {0},
};
