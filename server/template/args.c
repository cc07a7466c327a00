/* args.c: distributing arguments over parameters. */
#include "runtime.h"

#include <string.h>

static size_t param_length(const char *p)
{
    return strcspn(p, ",");
}

static int param_count(const char *params)
{
    int n = *params ? 1 : 0;
    for (; *params; params++)
        n += *params == ',';
    return n;
}

static int param_index(const char *params, const struct str *name)
{
    for (int i = 0; *params; i++) {
        size_t n = param_length(params);
        if (n == name->n && memcmp(params, name->s, n) == 0)
            return i;
        params += n + (params[n] == ',');
    }
    return -1;
}

static bool missing(struct rt *r, const struct call *c, const char *params, int i)
{
    for (; i > 0; i--)
        params += param_length(params) + 1;
    return rt_fail(r, "%s() needs the argument '%.*s'", c->who, (int)param_length(params), params);
}

static bool bind_keywords(struct rt *r, struct call *c, const char *params)
{
    for (size_t k = 0; k < c->n_kw; k++) {
        const struct str *name = c->kw[k].name;
        int n = name->n < 100 ? (int)name->n : 100, i = param_index(params, name);
        if (i < 0)
            return rt_fail(r, "%s() has no argument '%.*s'", c->who, n, name->s);
        if (arg_given(c, i))
            return rt_fail(r, "%s() has two values for its argument '%.*s'", c->who, n, name->s);
        c->arg[i] = c->kw[k].v;
        c->given |= 1u << i;
    }
    return true;
}

bool args_bind(struct rt *r, struct call *c, const char *params, int min)
{
    int n = param_count(params);
    c->given = 0;
    if (c->n_pos > (size_t)n)
        return rt_fail(r, "%s() takes at most %d arguments, %zu are given", c->who, n, c->n_pos);
    for (size_t i = 0; i < c->n_pos; i++) {
        c->arg[i] = c->pos[i];
        c->given |= 1u << i;
    }
    if (!bind_keywords(r, c, params))
        return false;
    for (int i = 0; i < min; i++)
        if (!arg_given(c, i))
            return missing(r, c, params, i);
    return true;
}

bool arg_int(struct rt *r, const struct call *c, int i, int64_t otherwise, int64_t *out)
{
    *out = otherwise;
    if (!arg_given(c, i))
        return true;
    if (c->arg[i].type == V_UNDEFINED)
        return rt_undefined(r, c->arg[i]);
    if (!value_is_integer(c->arg[i]))
        return rt_fail(r, "%s() needs an integer, not %s", c->who, value_type_name(c->arg[i]));
    *out = value_as_int(c->arg[i]);
    return true;
}

bool arg_str(struct rt *r, const struct call *c, int i, const struct str **out)
{
    if (c->arg[i].type == V_UNDEFINED)
        return rt_undefined(r, c->arg[i]);
    if (c->arg[i].type != V_STR)
        return rt_fail(r, "%s() needs a string, not %s", c->who, value_type_name(c->arg[i]));
    *out = c->arg[i].s;
    return true;
}

bool arg_truth(const struct call *c, int i, bool otherwise)
{
    return arg_given(c, i) ? value_truth(c->arg[i]) : otherwise;
}
