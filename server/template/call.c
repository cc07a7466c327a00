/* call.c: calls of macros, methods and functions. */
#include "functions.h"
#include "runtime.h"

static bool add_kwarg(struct rt *r, struct call *c, size_t cap, const struct str *name,
                      struct value v)
{
    for (size_t i = 0; i < c->n_kw && i < 64; i++)
        if (str_eq(c->kw[i].name, name))
            return rt_fail(r, "the keyword argument '%.*s' is given twice", (int)(name->n % 100),
                           name->s);
    if (c->n_kw < cap)
        c->kw[c->n_kw++] = (struct kwarg){name, v};
    return true;
}

static bool star_args(struct rt *r, const struct expr *star, struct list **out)
{
    struct value v;
    *out = NULL;
    return !star || (eval_expr(r, star, &v) && value_to_list(r, v, out));
}

static bool star_star_args(struct rt *r, const struct expr *x, struct dict **out)
{
    struct value v;
    *out = NULL;
    if (!x)
        return true;
    if (!eval_expr(r, x, &v))
        return false;
    if (v.type != V_DICT)
        return rt_fail(r, "the argument after ** must be a mapping, not %s", value_type_name(v));
    *out = v.dict;
    return true;
}

static bool eval_positional(struct rt *r, const struct arguments *a, struct call *c)
{
    struct list *l = make_list(r, a->n_pos), *star;
    if (!l)
        return false;
    for (size_t i = 0; i < a->n_pos; i++)
        if (!eval_expr(r, a->pos[i], &l->v[l->n++]))
            return false;
    if (!star_args(r, a->star, &star))
        return false;
    for (size_t i = 0; star && i < star->n; i++)
        if (!list_append(r, l, star->v[i]))
            return false;
    c->pos = l->v;
    c->n_pos = l->n;
    return true;
}

bool eval_arguments(struct rt *r, const struct arguments *a, struct call *c)
{
    struct dict *more = NULL;
    if (!eval_positional(r, a, c))
        return false;
    if (!a->n_kw && !a->star_star)
        return true;
    struct value *v = arena_array(&r->arena, a->n_kw, sizeof *v);
    if (!v)
        return rt_no_memory(r);
    for (size_t i = 0; i < a->n_kw; i++)
        if (!eval_expr(r, a->kw[i].value, &v[i]))
            return false;
    if (!star_star_args(r, a->star_star, &more))
        return false;
    size_t cap = a->n_kw + (more ? more->n : 0);
    if (!(c->kw = arena_array(&r->arena, cap, sizeof *c->kw)))
        return rt_no_memory(r);
    for (size_t i = 0; i < a->n_kw; i++)
        if (!add_kwarg(r, c, cap, a->kw[i].name, v[i]))
            return false;
    for (size_t i = 0; more && i < more->n; i++) {
        if (more->e[i].key.type != V_STR)
            return rt_fail(r, "keywords must be strings");
        if (!add_kwarg(r, c, cap, more->e[i].key.s, more->e[i].value))
            return false;
    }
    return true;
}

/* Takes a keyword argument out of the call. */
static bool take_kwarg(struct call *c, const struct str *name, struct value *out)
{
    for (size_t i = 0; i < c->n_kw; i++) {
        if (!str_eq(c->kw[i].name, name))
            continue;
        *out = c->kw[i].v;
        for (; i + 1 < c->n_kw; i++)
            c->kw[i] = c->kw[i + 1];
        c->n_kw--;
        return true;
    }
    return false;
}

static bool bind_params(struct rt *r, const struct signature *g, struct call *c)
{
    static const char missing[] = "a parameter of the macro was not provided";
    for (size_t i = 0; i < g->n_params; i++) {
        struct value v;
        bool given = i < c->n_pos;
        if (given)
            v = c->pos[i];
        else
            given = take_kwarg(c, g->params[i].s, &v);
        if (!given && g->defaults[i] && !eval_expr(r, g->defaults[i], &v))
            return false;
        if (!given && !g->defaults[i]) {
            const struct str *why = str_of(&r->arena, missing, sizeof missing - 1, true);
            if (!why)
                return rt_no_memory(r);
            v = value_undefined(UNDEFINED_OTHER, why);
        }
        if (!scope_set(r, g->params[i].id, v))
            return false;
    }
    return true;
}

static bool bind_caller(struct rt *r, struct call *c)
{
    static const struct str caller = {.s = "caller", .n = 6, .tmpl = true};
    static const struct str why = {.s = "no caller defined", .n = 17, .tmpl = true};
    struct value v;
    if (!take_kwarg(c, &caller, &v) || v.type == V_NONE)
        v = value_undefined(UNDEFINED_OTHER, &why);
    return scope_set(r, r->t->caller_id, v);
}

static bool bind_varargs(struct rt *r, const struct signature *g, struct call *c)
{
    struct list *l = make_list(r, 0);
    if (!l)
        return false;
    for (size_t i = g->n_params; i < c->n_pos; i++)
        if (!list_append(r, l, c->pos[i]))
            return false;
    return scope_set(r, r->t->varargs_id, value_tuple(l));
}

static bool bind_kwargs(struct rt *r, struct call *c)
{
    struct dict *d = dict_new(&r->arena);
    if (!d)
        return rt_no_memory(r);
    for (size_t i = 0; i < c->n_kw; i++)
        if (!dict_set(r, d, value_str(c->kw[i].name), c->kw[i].v))
            return false;
    return scope_set(r, r->t->kwargs_id, value_dict(d));
}

static const char *macro_name(const struct macro *m, int *n)
{
    const struct str *s = m->is_caller ? NULL : m->sig->name.s;
    *n = !s ? 6 : s->n < 100 ? (int)s->n : 100;
    return s ? s->s : "caller";
}

static bool bind_rest(struct rt *r, const struct macro *m, struct call *c)
{
    const struct signature *g = m->sig;
    int n;
    const char *name = macro_name(m, &n);
    if (g->uses_caller && !bind_caller(r, c))
        return false;
    if (!g->uses_kwargs && c->n_kw)
        return rt_fail(r, "macro '%.*s' takes no keyword argument '%.*s'", n, name,
                       c->kw[0].name->n < 100 ? (int)c->kw[0].name->n : 100, c->kw[0].name->s);
    if (!g->uses_varargs && c->n_pos > g->n_params)
        return rt_fail(r, "macro '%.*s' takes not more than %zu argument(s)", n, name, g->n_params);
    return (!g->uses_kwargs || bind_kwargs(r, c)) && (!g->uses_varargs || bind_varargs(r, g, c));
}

static bool run_macro(struct rt *r, const struct macro *m, struct call *c, struct value *out)
{
    struct capture capture;
    rt_capture(r, &capture);
    if (!bind_params(r, m->sig, c) || !bind_rest(r, m, c) || !exec_block(r, &m->sig->body))
        return false;
    const struct str *s = rt_capture_end(r, &capture);
    *out = value_str(s);
    return s != NULL;
}

bool call_macro(struct rt *r, const struct macro *m, struct call *c, struct value *out)
{
    if (r->calls >= r->max_depth)
        return rt_too_deep(r);
    struct scope *outer = r->scope;
    r->scope = m->scope;
    if (!rt_enter(r) || !scope_push(r))
        return false;
    r->calls++;
    bool ok = run_macro(r, m, c, out);
    r->calls--;
    rt_leave(r);
    r->scope = outer;
    return ok;
}

static bool run_function(struct rt *r, const struct function *f, struct value self, struct call *c,
                         struct value *out)
{
    c->who = f->name;
    if (f->params && !args_bind(r, c, f->params, f->min))
        return false;
    return f->run(r, self, c, out);
}

bool call_value(struct rt *r, struct value callee, struct call *c, struct value *out)
{
    switch ((enum value_type)callee.type) {
    case V_MACRO:
        return call_macro(r, callee.macro, c, out);
    case V_FUNCTION:
        return run_function(r, callee.function, value_undefined(UNDEFINED_OTHER, NULL), c, out);
    case V_METHOD:
        return run_function(r, callee.bound->method, callee.bound->self, c, out);
    case V_LOOP:
        return loop_call(r, callee.loop, c, out);
    case V_JOINER:
        *out = callee.joiner->separator;
        if (!callee.joiner->used) {
            callee.joiner->used = true;
            return make_data(r, "", out);
        }
        return true;
    case V_UNDEFINED:
        return rt_undefined(r, callee);
    default:
        return rt_fail(r, "'%s' object is not callable", value_type_name(callee));
    }
}
