/* tojson.c: the filter tojson as transformers defines it: json.dumps(x, ensure_ascii=…,
 * indent=…, separators=…, sort_keys=…), nothing escaped for HTML. All of it is data. */
#include "functions.h"
#include "runtime.h"
#include "unicode.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct writer {
    struct rt *r;
    struct str_builder b;
    bool ascii, sort_keys;
    const struct str *indent; /* of one level; NULL: all on one line */
    const char *item_sep, *key_sep;
    size_t n_item_sep, n_key_sep;
};

static void put_unicode(struct writer *w, uint32_t cp)
{
    char text[16];
    if (cp >= 0x10000) {
        cp -= 0x10000;
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD800 + (cp >> 10), 0xDC00 + (cp & 0x3FF));
    } else {
        snprintf(text, sizeof text, "\\u%04x", cp);
    }
    str_put_data(&w->b, text);
}

static bool put_string(struct writer *w, const struct str *s)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    size_t plain = 0;
    str_put_data(&w->b, "\"");
    for (size_t i = 0; i < s->n;) {
        uint32_t cp;
        size_t n = unicode_decode(s->s + i, s->n - i, &cp);
        const char *simple = cp && cp < 0x80 ? strchr(from, (int)cp) : NULL;
        if (simple || cp < 0x20 || (w->ascii && cp >= 0x7F && cp != 0x7F)) {
            str_put(&w->b, s->s + plain, i - plain, false);
            if (simple) {
                char escape[2] = {'\\', to[simple - from]};
                str_put(&w->b, escape, 2, false);
            } else {
                put_unicode(w, cp);
            }
            plain = i + n;
        }
        i += n;
    }
    str_put(&w->b, s->s + plain, s->n - plain, false);
    str_put_data(&w->b, "\"");
    return rt_charge(w->r, s->n / 64);
}

static void put_number(struct writer *w, struct value v)
{
    char text[32];
    if (v.type == V_INT) {
        snprintf(text, sizeof text, "%lld", (long long)v.i);
        str_put_data(&w->b, text);
    } else if (isfinite(v.f)) {
        put_float_repr(v.f, &w->b);
    } else {
        str_put_data(&w->b, isnan(v.f) ? "NaN" : v.f > 0 ? "Infinity" : "-Infinity");
    }
}

static bool put_newline(struct writer *w, int level)
{
    if (!w->indent)
        return true;
    str_put_data(&w->b, "\n");
    for (int i = 0; i < level; i++)
        str_put(&w->b, w->indent->s, w->indent->n, false);
    return rt_charge_bytes(w->r, w->indent->n * (size_t)level);
}

static bool put_separator(struct writer *w, bool first, int level)
{
    if (!first)
        str_put(&w->b, w->item_sep, w->n_item_sep, false);
    return put_newline(w, level);
}

static bool put_value(struct writer *w, struct value v, int level);

static bool put_array(struct writer *w, const struct list *l, int level)
{
    if (l->n == 0) {
        str_put_data(&w->b, "[]");
        return true;
    }
    str_put_data(&w->b, "[");
    for (size_t i = 0; i < l->n; i++)
        if (!put_separator(w, i == 0, level + 1) || !put_value(w, l->v[i], level + 1))
            return false;
    if (!put_newline(w, level))
        return false;
    str_put_data(&w->b, "]");
    return true;
}

static bool put_key(struct writer *w, struct value key)
{
    if (key.type == V_STR)
        return put_string(w, key.s);
    if (key.type != V_NONE && !value_is_number(key))
        return rt_fail(w->r, "tojson: keys must be strings or numbers, not %s",
                       value_type_name(key));
    str_put_data(&w->b, "\"");
    bool ok = put_value(w, key, 0);
    str_put_data(&w->b, "\"");
    return ok;
}

static bool sorted_entries(struct writer *w, const struct dict *d, struct value *out)
{
    static const struct str name = {.s = "sort", .n = 4};
    struct view view = {(struct dict *)d, VIEW_KEYS};
    struct call c = {.who = "tojson"};
    c.arg[1] = value_bool(true); /* case_sensitive */
    c.given = 2;
    return filter_named(&name)->run(w->r, (struct value){.type = V_VIEW, .view = &view}, &c, out);
}

static bool put_member(struct writer *w, struct value key, struct value v, bool first, int level)
{
    if (!put_separator(w, first, level) || !put_key(w, key))
        return false;
    str_put(&w->b, w->key_sep, w->n_key_sep, false);
    return put_value(w, v, level);
}

static bool put_sorted(struct writer *w, const struct dict *d, int level)
{
    struct value keys;
    uint64_t hash;
    if (!sorted_entries(w, d, &keys))
        return false;
    for (size_t i = 0; i < keys.list->n; i++) {
        struct value key = keys.list->v[i];
        if (!hash_key(w->r, key, &hash) ||
            !put_member(w, key, *dict_find(d, key, hash), i == 0, level))
            return false;
    }
    return true;
}

static bool put_object(struct writer *w, const struct dict *d, int level)
{
    if (d->n == 0) {
        str_put_data(&w->b, "{}");
        return true;
    }
    str_put_data(&w->b, "{");
    if (w->sort_keys && !put_sorted(w, d, level + 1))
        return false;
    for (size_t i = 0; !w->sort_keys && i < d->n; i++)
        if (!put_member(w, d->e[i].key, d->e[i].value, i == 0, level + 1))
            return false;
    if (!put_newline(w, level))
        return false;
    str_put_data(&w->b, "}");
    return true;
}

static bool put_value(struct writer *w, struct value v, int level)
{
    if (level > w->r->max_depth)
        return rt_too_deep(w->r);
    if (w->b.failed)
        return rt_no_memory(w->r);
    if (!rt_charge(w->r, 1))
        return false;
    switch ((enum value_type)v.type) {
    case V_NONE:
        str_put_data(&w->b, "null");
        return true;
    case V_BOOL:
        str_put_data(&w->b, v.b ? "true" : "false");
        return true;
    case V_INT:
    case V_FLOAT:
        put_number(w, v);
        return true;
    case V_STR:
        return put_string(w, v.s);
    case V_LIST:
    case V_TUPLE:
        return put_array(w, v.list, level);
    case V_DICT:
        return put_object(w, v.dict, level);
    default:
        return rt_fail(w->r, "tojson: a value of type %s is not JSON serializable",
                       value_type_name(v));
    }
}

static bool read_indent(struct writer *w, const struct call *c)
{
    static const struct str space = {.s = " ", .n = 1};
    int64_t n;
    struct value v;
    if (!arg_given(c, 1) || c->arg[1].type == V_NONE)
        return true;
    if (c->arg[1].type == V_STR) {
        w->indent = c->arg[1].s;
    } else {
        if (!arg_int(w->r, c, 1, 0, &n) ||
            !value_arith(w->r, OP_MUL, value_str(&space), value_int(n), &v))
            return false;
        w->indent = v.s;
    }
    w->item_sep = ",";
    w->n_item_sep = 1;
    return true;
}

static bool read_separators(struct writer *w, const struct call *c)
{
    struct list *l;
    if (!arg_given(c, 2) || c->arg[2].type == V_NONE)
        return true;
    if (!value_to_list(w->r, c->arg[2], &l))
        return false;
    if (l->n != 2 || l->v[0].type != V_STR || l->v[1].type != V_STR)
        return rt_fail(w->r, "tojson: separators are two strings");
    w->item_sep = l->v[0].s->s;
    w->n_item_sep = l->v[0].s->n;
    w->key_sep = l->v[1].s->s;
    w->n_key_sep = l->v[1].s->n;
    return true;
}

bool filter_tojson(struct rt *r, struct value in, struct call *c, struct value *out)
{
    struct writer w = {.r = r, .item_sep = ", ", .n_item_sep = 2, .key_sep = ": ", .n_key_sep = 2};
    str_begin(&w.b, &r->arena);
    w.ascii = arg_truth(c, 0, false);
    w.sort_keys = arg_truth(c, 3, false);
    if (!read_indent(&w, c) || !read_separators(&w, c) || !put_value(&w, in, 0))
        return false;
    return make_str(r, &w.b, out);
}
