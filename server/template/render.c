/* render.c: the entry point of rendering, its limits and its output. */
#include "runtime.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_STEPS = 50 * 1000 * 1000,
    DEFAULT_DEPTH = 200,
    FRAMES_PER_DEPTH = 8, /* a macro call is some evaluator frames deep */
    BYTES_PER_STEP = 128,
};
static const size_t default_output = (size_t)64 << 20, default_memory = (size_t)512 << 20;

void rt_set_error(struct rt *r, const char *fmt, ...)
{
    char msg[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    err_set(r->e, ERR_INVALID, "line %d: %s", r->line, msg);
}

bool rt_no_memory(struct rt *r)
{
    if (r->arena.over_limit)
        return err_set(r->e, ERR_LIMIT, "line %d: the template makes values of more than %zu MiB",
                       r->line, r->arena.limit >> 20);
    return err_set(r->e, ERR_MEMORY, "line %d: out of memory", r->line);
}

bool rt_charge(struct rt *r, size_t steps)
{
    if (steps > r->max_steps - r->steps)
        return err_set(r->e, ERR_LIMIT, "line %d: the template takes more than %zu steps", r->line,
                       r->max_steps);
    r->steps += steps;
    return true;
}

bool rt_charge_bytes(struct rt *r, size_t n)
{
    return rt_charge(r, n / BYTES_PER_STEP);
}

void *rt_alloc(struct rt *r, size_t n)
{
    void *p = arena_zalloc(&r->arena, n);
    if (!p)
        rt_no_memory(r);
    return p;
}

bool rt_too_deep(struct rt *r)
{
    return err_set(r->e, ERR_LIMIT, "line %d: nested more than %d deep", r->line, r->max_depth);
}

bool rt_enter(struct rt *r)
{
    if (r->frames >= r->max_frames)
        return rt_too_deep(r);
    r->frames++;
    return true;
}

void rt_leave(struct rt *r)
{
    r->frames--;
}

bool rt_undefined(struct rt *r, struct value v)
{
    const struct str *s = v.s;
    int n = s ? (int)(s->n < 100 ? s->n : 100) : 0;
    const char *name = s ? s->s : "";
    switch ((enum undefined_kind)v.undefined) {
    case UNDEFINED_NAME:
        return rt_fail(r, "'%.*s' is undefined", n, name);
    case UNDEFINED_ATTRIBUTE:
        return rt_fail(r, "the value has no attribute '%.*s'", n, name);
    case UNDEFINED_UNSAFE:
        return rt_fail(r, "'%.*s' is not allowed: it would change its object", n, name);
    case UNDEFINED_OTHER:
        break;
    }
    return s ? rt_fail(r, "%.*s", n, name) : rt_fail(r, "this value is undefined");
}

bool rt_write(struct rt *r, const struct str *s)
{
    if (!r->capturing && s->n > r->max_output - r->out->n)
        return err_set(r->e, ERR_LIMIT, "line %d: the rendering is longer than %zu bytes", r->line,
                       r->max_output);
    str_put_str(r->out, s);
    if (r->out->failed)
        return rt_no_memory(r);
    return rt_charge_bytes(r, s->n);
}

void rt_capture(struct rt *r, struct capture *c)
{
    str_begin(&c->b, &r->arena);
    c->outer = r->out;
    c->outer_capturing = r->capturing;
    r->out = &c->b;
    r->capturing = true;
}

const struct str *rt_capture_end(struct rt *r, struct capture *c)
{
    r->out = c->outer;
    r->capturing = c->outer_capturing;
    const struct str *s = str_end(&c->b);
    if (!s)
        rt_no_memory(r);
    return s;
}

static bool add_span(struct rendered *out, size_t *cap, size_t start, size_t end)
{
    if (out->n_spans == *cap) {
        size_t more = *cap ? *cap * 2 : 16;
        struct text_span *p = realloc(out->template_spans, more * sizeof *p);
        if (!p)
            return false;
        out->template_spans = p;
        *cap = more;
    }
    out->template_spans[out->n_spans++] = (struct text_span){start, end};
    return true;
}

static bool collect_spans(struct rendered *out, const struct str_builder *b)
{
    size_t cap = 0;
    if (!b->origin)
        return b->n == 0 || !b->tmpl || add_span(out, &cap, 0, b->n);
    for (size_t i = 0; i < b->n;) {
        size_t start = i;
        while (i < b->n && b->origin[i] == b->origin[start])
            i++;
        if (b->origin[start] && !add_span(out, &cap, start, i))
            return false;
    }
    return true;
}

static bool deliver(struct rt *r, struct rendered *out, const struct str_builder *b)
{
    buf_add(&out->text, b->s ? b->s : "", b->n);
    if (out->text.failed || !collect_spans(out, b))
        return err_set(r->e, ERR_MEMORY, "line %d: out of memory for the rendered template",
                       r->line);
    return true;
}

static void apply_limits(struct rt *r, const struct template_limits *l)
{
    r->max_output = l->max_output ? l->max_output : default_output;
    r->max_steps = l->max_steps ? l->max_steps : DEFAULT_STEPS;
    r->max_depth = l->max_depth > 0 ? l->max_depth : DEFAULT_DEPTH;
    if (r->max_depth > DEFAULT_DEPTH * 5)
        r->max_depth = DEFAULT_DEPTH * 5; /* what a thread's stack holds */
    r->max_frames = r->max_depth * FRAMES_PER_DEPTH;
    r->arena.limit = l->max_memory ? l->max_memory : default_memory;
}

static bool render(struct rt *r, struct rendered *out)
{
    struct str_builder b;
    size_t n = (size_t)r->t->n_names;
    str_begin(&b, &r->arena);
    r->out = &b;
    r->vars = arena_array(&r->arena, n, sizeof *r->vars);
    r->var_state = rt_alloc(r, n);
    if (!r->vars || !r->var_state)
        return rt_no_memory(r);
    return exec_block(r, &r->t->body) && deliver(r, out, &b);
}

bool template_render(const struct template *t, const struct template_input *in,
                     struct rendered *out, struct err *e)
{
    *out = (struct rendered){0};
    struct rt r = {.t = t, .in = in, .e = e, .seed = hash_seed(), .line = 1};
    apply_limits(&r, &in->limits);
    bool ok = render(&r, out);
    arena_free(&r.arena);
    if (!ok) {
        rendered_free(out);
        out->error_line = r.line;
        out->raised = r.raised;
    }
    return ok;
}

void rendered_free(struct rendered *out)
{
    buf_free(&out->text);
    free(out->template_spans);
    *out = (struct rendered){0};
}
