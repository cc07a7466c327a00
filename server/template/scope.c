/* scope.c: variables, and where their values come from in the end: the context. */
#include "functions.h"
#include "runtime.h"

#include <string.h>

struct scope *scope_push(struct rt *r)
{
    struct scope *s = rt_alloc(r, sizeof *s);
    if (!s)
        return NULL;
    s->parent = r->scope;
    r->scope = s;
    return s;
}

void scope_pop(struct rt *r)
{
    r->scope = r->scope->parent;
}

static struct binding *find(struct scope *s, int id)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->b[i].id == id)
            return &s->b[i];
    return NULL;
}

bool scope_set(struct rt *r, int id, struct value v)
{
    struct scope *s = r->scope;
    if (!s) {
        r->vars[id] = v;
        r->var_state[id] = VAR_SET;
        return true;
    }
    struct binding *b = find(s, id);
    if (b) {
        b->v = v;
        return true;
    }
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 4;
        b = arena_grow(&r->arena, s->b, s->cap * sizeof *b, cap * sizeof *b);
        if (!b)
            return rt_no_memory(r);
        s->b = b;
        s->cap = cap;
    }
    s->b[s->n++] = (struct binding){id, v};
    return true;
}

static bool is_trusted(const struct rt *r, const char *name)
{
    for (const char *const *t = r->in->trusted; t && *t; t++)
        if (strcmp(*t, name) == 0)
            return true;
    return false;
}

/* A role that is one of the usual words is as good as written by the template, which spells
 * control tokens with it ('<|' ~ message.role ~ '|>'). Any other role is data. */
static bool is_role_word(const char *key, const json_t *j)
{
    static const char *const words[] = {"system", "user",     "assistant", "tool",
                                        "model",  "function", "developer", "ipython"};
    if (strcmp(key, "role") != 0 || !json_is_string(j))
        return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(json_string_value(j), words[i]) == 0 &&
            json_string_length(j) == strlen(words[i]))
            return true;
    return false;
}

struct conversion {
    bool trusted, messages; /* messages: this is the list of messages */
    int depth;
};

static bool convert(struct rt *r, const json_t *j, struct conversion c, struct value *out);

static bool convert_array(struct rt *r, const json_t *j, struct conversion c, struct value *out)
{
    size_t n = json_array_size(j);
    struct list *l = make_list(r, n);
    if (!l || !rt_charge(r, n))
        return false;
    c.depth++;
    for (size_t i = 0; i < n; i++)
        if (!convert(r, json_array_get(j, i), c, &l->v[l->n++]))
            return false;
    *out = value_list(l);
    return true;
}

static bool convert_member(struct rt *r, struct dict *d, const char *key, const json_t *j,
                           struct conversion c)
{
    struct value v;
    const struct str *k = str_of(&r->arena, key, strlen(key), c.trusted);
    if (!k)
        return rt_no_memory(r);
    if (c.messages && c.depth == 1 && is_role_word(key, j))
        c.trusted = true;
    c.depth++;
    return rt_charge(r, 1) && convert(r, j, c, &v) && dict_set(r, d, value_str(k), v);
}

static bool convert_object(struct rt *r, const json_t *json, struct conversion c, struct value *out)
{
    json_t *j = (json_t *)json; /* jansson's iterators are not const; nothing is changed */
    struct dict *d = dict_new(&r->arena);
    if (!d)
        return rt_no_memory(r);
    for (void *it = json_object_iter(j); it; it = json_object_iter_next(j, it))
        if (!convert_member(r, d, json_object_iter_key(it), json_object_iter_value(it), c))
            return false;
    *out = value_dict(d);
    return true;
}

static bool convert(struct rt *r, const json_t *j, struct conversion c, struct value *out)
{
    const struct str *s;
    if (c.depth > r->max_depth)
        return rt_too_deep(r);
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        return convert_object(r, j, c, out);
    case JSON_ARRAY:
        return convert_array(r, j, c, out);
    case JSON_STRING:
        s = str_of(&r->arena, json_string_value(j), json_string_length(j), c.trusted);
        *out = value_str(s);
        return s || rt_no_memory(r);
    case JSON_INTEGER:
        *out = value_int(json_integer_value(j));
        return true;
    case JSON_REAL:
        *out = value_float(json_real_value(j));
        return true;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = value_bool(json_is_true(j));
        return true;
    case JSON_NULL:
        break;
    }
    *out = value_none();
    return true;
}

static bool from_context(struct rt *r, const struct name *name, struct value *out, bool *found)
{
    char key[256];
    *found = false;
    if (!r->in->context || name->s->n >= sizeof key)
        return true;
    memcpy(key, name->s->s, name->s->n);
    key[name->s->n] = '\0';
    const json_t *j = json_object_get(r->in->context, key);
    if (!j)
        return true;
    *found = true;
    struct conversion c = {.trusted = is_trusted(r, key), .messages = strcmp(key, "messages") == 0};
    return convert(r, j, c, out);
}

/* A name that no block has set: the template's own, the context's, or a global function. */
static bool get_outermost(struct rt *r, const struct name *name, struct value *out)
{
    bool found;
    if (r->var_state[name->id] == VAR_UNKNOWN) {
        if (!from_context(r, name, &r->vars[name->id], &found))
            return false;
        r->var_state[name->id] = found ? VAR_SET : VAR_ABSENT;
    }
    if (r->var_state[name->id] == VAR_SET) {
        *out = r->vars[name->id];
        return true;
    }
    const struct function *f = global_named(name->s);
    if (f)
        *out = (struct value){.type = V_FUNCTION, .function = f};
    else
        *out = value_undefined(UNDEFINED_NAME, name->s);
    return true;
}

bool scope_get(struct rt *r, const struct name *name, struct value *out)
{
    for (struct scope *s = r->scope; s; s = s->parent) {
        const struct binding *b = find(s, name->id);
        if (b) {
            *out = b->v;
            return true;
        }
    }
    return get_outermost(r, name, out);
}
