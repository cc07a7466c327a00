/* functions.c: the global functions, and looking up filters and methods by name. */
#include "functions.h"
#include "runtime.h"

#include <string.h>
#include <time.h>

enum { MAX_RANGE = 100000 }; /* items of a range, as in jinja2's sandbox */

static bool fn_range(struct rt *r, struct value self, struct call *c, struct value *out)
{
    int64_t start, stop, step;
    if (!arg_int(r, c, 0, 0, &start) || !arg_int(r, c, 1, 0, &stop) || !arg_int(r, c, 2, 1, &step))
        return false;
    if (!arg_given(c, 1)) {
        stop = start;
        start = 0;
    }
    if (step == 0)
        return rt_fail(r, "range() needs a step that is not zero");
    __int128 span = step > 0 ? (__int128)stop - start : (__int128)start - stop;
    __int128 size = step > 0 ? (__int128)step : -(__int128)step;
    __int128 n = span > 0 ? (span - 1) / size + 1 : 0;
    if (n > MAX_RANGE)
        return rt_fail(r, "range() is limited to %d items", MAX_RANGE);
    struct range *g = rt_alloc(r, sizeof *g);
    if (!g)
        return false;
    *g = (struct range){start, step, (size_t)n};
    *out = (struct value){.type = V_RANGE, .range = g};
    return true;
}

static bool add_pairs(struct rt *r, struct dict *d, struct value from)
{
    struct list *l, *pair;
    if (from.type == V_DICT) {
        for (size_t i = 0; i < from.dict->n; i++)
            if (!rt_charge(r, 1) || !dict_set(r, d, from.dict->e[i].key, from.dict->e[i].value))
                return false;
        return true;
    }
    if (!value_to_list(r, from, &l))
        return false;
    for (size_t i = 0; i < l->n; i++) {
        if (!value_to_list(r, l->v[i], &pair))
            return false;
        if (pair->n != 2)
            return rt_fail(r, "a dict is made of pairs; item %zu has %zu values", i, pair->n);
        if (!dict_set(r, d, pair->v[0], pair->v[1]))
            return false;
    }
    return true;
}

/* dict(mapping or pairs, key=value…), which namespace() takes as well. */
static bool make_dict(struct rt *r, struct call *c, struct dict **out)
{
    struct dict *d = *out = dict_new(&r->arena);
    if (!d)
        return rt_no_memory(r);
    if (c->n_pos > 1)
        return rt_fail(r, "%s() takes at most 1 argument without a name", c->who);
    if (c->n_pos && !add_pairs(r, d, c->pos[0]))
        return false;
    for (size_t i = 0; i < c->n_kw; i++)
        if (!dict_set(r, d, value_str(c->kw[i].name), c->kw[i].v))
            return false;
    return true;
}

static bool fn_dict(struct rt *r, struct value self, struct call *c, struct value *out)
{
    struct dict *d;
    if (!make_dict(r, c, &d))
        return false;
    *out = value_dict(d);
    return true;
}

static bool fn_namespace(struct rt *r, struct value self, struct call *c, struct value *out)
{
    if (!fn_dict(r, self, c, out))
        return false;
    out->type = V_NAMESPACE;
    return true;
}

static bool fn_raise_exception(struct rt *r, struct value self, struct call *c, struct value *out)
{
    const struct str *s;
    if (!value_to_str(r, c->arg[0], &s))
        return false;
    r->raised = true;
    return err_set(r->e, ERR_INVALID, "%.*s", s->n < 4096 ? (int)s->n : 4096, s->s);
}

static bool fn_cycler(struct rt *r, struct value self, struct call *c, struct value *out)
{
    struct cycler *cycler = rt_alloc(r, sizeof *cycler);
    if (!cycler || !(cycler->items = make_list(r, c->n_pos)))
        return false;
    if (!c->n_pos)
        return rt_fail(r, "cycler() needs at least one item");
    for (size_t i = 0; i < c->n_pos; i++)
        cycler->items->v[cycler->items->n++] = c->pos[i];
    *out = (struct value){.type = V_CYCLER, .cycler = cycler};
    return true;
}

static bool cycler_next(struct rt *r, struct value self, struct call *c, struct value *out)
{
    struct cycler *k = self.cycler;
    *out = k->items->v[k->at];
    k->at = (k->at + 1) % k->items->n;
    return true;
}

static bool cycler_reset(struct rt *r, struct value self, struct call *c, struct value *out)
{
    self.cycler->at = 0;
    *out = value_none();
    return true;
}

static bool fn_joiner(struct rt *r, struct value self, struct call *c, struct value *out)
{
    struct joiner *j = rt_alloc(r, sizeof *j);
    if (!j || !make_data(r, ", ", &j->separator))
        return false;
    if (arg_given(c, 0))
        j->separator = c->arg[0];
    *out = (struct value){.type = V_JOINER, .joiner = j};
    return true;
}

/* One conversion of strftime, with glibc's flags but without widths; returns its length. */
static size_t put_time(const char *p, size_t n, const struct tm *tm, struct str_builder *b)
{
    char spec[5] = "%", text[128];
    size_t i = 1;
    if (i < n && p[i] && strchr("-_0^#", p[i]))
        spec[1] = p[i++];
    if (i == n || !p[i] || !strchr("aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYzZ%", p[i])) {
        str_put(b, p, 1, false);
        return 1;
    }
    spec[strlen(spec)] = p[i++];
    str_put(b, text, strftime(text, sizeof text, spec, tm), false);
    return i;
}

static bool fn_strftime_now(struct rt *r, struct value self, struct call *c, struct value *out)
{
    const struct str *s;
    struct tm tm;
    struct str_builder b;
    time_t now = (time_t)(r->in->now + r->in->utc_offset);
    if (!arg_str(r, c, 0, &s))
        return false;
    if (!gmtime_r(&now, &tm))
        return rt_fail(r, "the time cannot be represented");
    tm.tm_zone = "";
    tm.tm_gmtoff = r->in->utc_offset;
    str_begin(&b, &r->arena);
    for (size_t i = 0; i < s->n && !b.failed;) {
        const char *p = memchr(s->s + i, '%', s->n - i);
        size_t end = p ? (size_t)(p - s->s) : s->n;
        str_put_part(&b, s, i, end - i);
        i = end;
        if (p)
            i += put_time(p, s->n - i, &tm, &b);
    }
    return rt_charge(r, s->n) && make_str(r, &b, out);
}

static const struct function globals[] = {
    {"range", "start,stop,step", 1, fn_range},
    {"dict", NULL, 0, fn_dict},
    {"namespace", NULL, 0, fn_namespace},
    {"raise_exception", "message", 1, fn_raise_exception},
    {"strftime_now", "format", 1, fn_strftime_now},
    {"cycler", NULL, 0, fn_cycler},
    {"joiner", "sep", 0, fn_joiner},
    {0},
};

const struct function cycler_methods[] = {
    {"next", "", 0, cycler_next},
    {"reset", "", 0, cycler_reset},
    {0},
};

static const struct function *find(const struct function *f, const struct str *name)
{
    for (; f->name; f++)
        if (str_is(name, f->name))
            return f;
    return NULL;
}

const struct function *global_named(const struct str *name)
{
    return find(globals, name);
}

const struct filter *filter_named(const struct str *name)
{
    static const struct filter *const tables[] = {text_filters, select_filters, value_filters};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        for (const struct filter *f = tables[i]; f->name; f++)
            if (str_is(name, f->name))
                return f;
    return NULL;
}

static bool is_one_of(const struct str *name, const char *const *words)
{
    for (; *words; words++)
        if (str_is(name, *words))
            return true;
    return false;
}

const struct function *method_named(struct value self, const struct str *name, bool *unsafe)
{
    static const char *const of_list[] = {"append", "clear",  "pop",    "reverse", "insert",
                                          "sort",   "extend", "remove", NULL};
    static const char *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    const struct function *f;
    *unsafe = false;
    switch ((enum value_type)self.type) {
    case V_STR:
        f = find(str_methods, name);
        return f ? f : find(str_more_methods, name);
    case V_LIST:
        *unsafe = is_one_of(name, of_list);
        return find(list_methods, name);
    case V_TUPLE:
    case V_RANGE:
        return str_is(name, "copy") ? NULL : find(list_methods, name);
    case V_DICT:
        *unsafe = is_one_of(name, of_dict);
        return find(dict_methods, name);
    case V_CYCLER:
        return find(cycler_methods, name);
    case V_LOOP:
        return find(loop_methods, name);
    default:
        return NULL;
    }
}
