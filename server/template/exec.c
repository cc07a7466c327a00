/* exec.c: statements. */
#include "runtime.h"

static bool assign_ns(struct rt *r, const struct expr *x, struct value v)
{
    struct value ns;
    if (!scope_get(r, &x->name, &ns))
        return false;
    if (ns.type != V_NAMESPACE)
        return rt_fail(r, "cannot assign an attribute on a %s: a namespace is needed",
                       value_type_name(ns));
    return dict_set(r, ns.dict, value_str(x->attr), v);
}

static bool assign_tuple(struct rt *r, const struct expr *target, struct value v)
{
    struct list *l;
    if (v.type == V_UNDEFINED)
        return rt_undefined(r, v);
    if (!value_to_list(r, v, &l))
        return false;
    if (l->n != target->n_items)
        return rt_fail(r, "%zu values for %zu names", l->n, target->n_items);
    for (size_t i = 0; i < l->n; i++)
        if (!assign_target(r, target->items[i], l->v[i]))
            return false;
    return true;
}

bool assign_target(struct rt *r, const struct expr *target, struct value v)
{
    r->line = target->line;
    if (target->kind == E_NAME)
        return scope_set(r, target->name.id, v);
    if (target->kind == E_NS_REF)
        return assign_ns(r, target, v);
    return assign_tuple(r, target, v);
}

static bool exec_print(struct rt *r, const struct stmt *s)
{
    struct value v;
    const struct str *text;
    return eval_expr(r, s->set.value, &v) && value_to_str(r, v, &text) && rt_write(r, text);
}

static bool exec_if(struct rt *r, const struct stmt *s, enum flow *flow)
{
    for (size_t i = 0; i < s->branches.n; i++) {
        const struct branch *b = &s->branches.v[i];
        struct value test = value_bool(true);
        if (b->test && !eval_expr(r, b->test, &test))
            return false;
        if (value_truth(test))
            return exec_body(r, &b->body, flow);
    }
    return true;
}

static bool exec_set(struct rt *r, const struct stmt *s)
{
    struct value v;
    return eval_expr(r, s->set.value, &v) && assign_target(r, s->set.target, v);
}

/* What a body writes, as a string. The body has variables of its own. */
static bool exec_captured(struct rt *r, const struct block *body, const struct str **out,
                          enum flow *flow)
{
    struct capture c;
    rt_capture(r, &c);
    if (!scope_push(r) || !exec_body(r, body, flow))
        return false;
    scope_pop(r);
    *out = rt_capture_end(r, &c);
    return *out != NULL;
}

static bool exec_set_block(struct rt *r, const struct stmt *s, enum flow *flow)
{
    const struct str *text;
    if (!exec_captured(r, &s->set.body, &text, flow))
        return false;
    if (*flow != FLOW_NEXT)
        return true;
    struct value v = value_str(text);
    if (s->set.value && !eval_filter(r, s->set.value, text, &v))
        return false;
    return assign_target(r, s->set.target, v);
}

static bool exec_filter(struct rt *r, const struct stmt *s, enum flow *flow)
{
    const struct str *text;
    struct value v;
    if (!exec_captured(r, &s->set.body, &text, flow))
        return false;
    if (*flow != FLOW_NEXT)
        return true;
    return eval_filter(r, s->set.value, text, &v) && value_to_str(r, v, &text) && rt_write(r, text);
}

static bool make_macro(struct rt *r, const struct signature *g, bool is_caller, struct value *out)
{
    struct macro *m = rt_alloc(r, sizeof *m);
    if (!m)
        return false;
    *m = (struct macro){g, r->scope, is_caller};
    for (struct scope *s = r->scope; s && !s->captured; s = s->parent)
        s->captured = true;
    *out = (struct value){.type = V_MACRO, .macro = m};
    return true;
}

static bool exec_macro(struct rt *r, const struct stmt *s)
{
    struct value v;
    return make_macro(r, s->macro, false, &v) && scope_set(r, s->macro->name.id, v);
}

static bool exec_call(struct rt *r, const struct stmt *s)
{
    static const struct str caller = {.s = "caller", .n = 6, .tmpl = true};
    const struct expr *x = s->call.call;
    struct value callee, v;
    const struct str *text;
    struct call c = {0};
    if (!eval_expr(r, x->items[0], &callee) || !eval_arguments(r, x->args, &c) ||
        !make_macro(r, s->call.caller, true, &v))
        return false;
    struct kwarg *kw = arena_array(&r->arena, c.n_kw + 1, sizeof *kw);
    if (!kw)
        return rt_no_memory(r);
    for (size_t i = 0; i < c.n_kw; i++)
        kw[i] = c.kw[i];
    kw[c.n_kw++] = (struct kwarg){&caller, v};
    c.kw = kw;
    return call_value(r, callee, &c, &v) && value_to_str(r, v, &text) && rt_write(r, text);
}

static bool exec_with(struct rt *r, const struct stmt *s, enum flow *flow)
{
    struct value *v = arena_array(&r->arena, s->with.n, sizeof *v);
    if (!v)
        return rt_no_memory(r);
    for (size_t i = 0; i < s->with.n; i++)
        if (!eval_expr(r, s->with.values[i], &v[i]))
            return false;
    if (!scope_push(r))
        return false;
    for (size_t i = 0; i < s->with.n; i++)
        if (!assign_target(r, s->with.targets[i], v[i]))
            return false;
    bool ok = exec_body(r, &s->with.body, flow);
    scope_pop(r);
    return ok;
}

static bool exec_scope(struct rt *r, const struct stmt *s)
{
    if (!scope_push(r) || !exec_block(r, &s->set.body))
        return false;
    scope_pop(r);
    return true;
}

static bool exec_stmt(struct rt *r, const struct stmt *s, enum flow *flow)
{
    r->line = s->line;
    switch ((enum stmt_kind)s->kind) {
    case S_TEXT:
        return rt_charge(r, 1) && rt_write(r, s->text);
    case S_PRINT:
        return exec_print(r, s);
    case S_IF:
        return exec_if(r, s, flow);
    case S_FOR:
        return exec_for(r, s, flow);
    case S_SET:
        return exec_set(r, s);
    case S_SET_BLOCK:
        return exec_set_block(r, s, flow);
    case S_MACRO:
        return exec_macro(r, s);
    case S_CALL:
        return exec_call(r, s);
    case S_FILTER:
        return exec_filter(r, s, flow);
    case S_WITH:
        return exec_with(r, s, flow);
    case S_SCOPE:
        return exec_scope(r, s);
    case S_BREAK:
        *flow = FLOW_BREAK;
        return true;
    case S_CONTINUE:
        *flow = FLOW_CONTINUE;
        return true;
    }
    return true;
}

bool exec_body(struct rt *r, const struct block *b, enum flow *flow)
{
    if (!rt_enter(r))
        return false;
    for (size_t i = 0; i < b->n && *flow == FLOW_NEXT; i++)
        if (!rt_charge(r, 1) || !exec_stmt(r, b->v[i], flow))
            return false;
    rt_leave(r);
    return true;
}

bool exec_block(struct rt *r, const struct block *b)
{
    enum flow flow = FLOW_NEXT;
    return exec_body(r, b, &flow);
}
