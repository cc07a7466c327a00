/* template_rig.h: rendering a small template in a test and checking what comes out. */
#ifndef TOKEND_TEMPLATE_RIG_H
#define TOKEND_TEMPLATE_RIG_H

#include "template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

static const char context[] = "{\"x\": {\"y\": {\"z\": \"deep\"}}, \"l\": [1, 2, 3]}";

static inline bool render_with(const char *source, size_t n, const char *json,
                               struct template_limits limits, struct rendered *out, struct err *e)
{
    static const char *const trusted[] = {"bos_token", NULL};
    json_t *c = json_loads(json, JSON_ALLOW_NUL, NULL);
    assert_non_null(c);
    *out = (struct rendered){0};
    *e = (struct err){0};
    struct template *t = template_parse(source, n, e);
    struct template_input in = {.context = c,
                                .trusted = trusted,
                                .now = 1785069296, /* 2026-07-26 12:34:56 UTC */
                                .limits = limits};
    bool ok = t && template_render(t, &in, out, e);
    template_free(t);
    json_decref(c);
    return ok;
}

static inline bool render(const char *source, const char *json, struct rendered *out, struct err *e)
{
    return render_with(source, strlen(source), json, (struct template_limits){0}, out, e);
}

static inline const char *text_of(const struct rendered *out)
{
    return out->text.data ? out->text.data : "";
}

static inline void gives(const char *source, const char *json, const char *want)
{
    struct rendered out;
    struct err e;
    if (!render(source, json, &out, &e))
        fail_msg("%s: %s", source, e.msg);
    if (strcmp(text_of(&out), want) != 0)
        fail_msg("%s\n gives: \"%s\"\n want:  \"%s\"", source, text_of(&out), want);
    rendered_free(&out);
}

static inline void fails_as(const char *source, const char *json, enum err_code code,
                            const char *part)
{
    struct rendered out;
    struct err e;
    if (render(source, json, &out, &e))
        fail_msg("%.200s gives \"%.200s\", not an error", source, text_of(&out));
    assert_contains(e.msg, part);
    assert_int_equal(e.code, code);
    assert_null(out.text.data);
    assert_null(out.template_spans);
}

static inline void fails(const char *source, const char *part)
{
    fails_as(source, context, ERR_INVALID, part);
}

/* The text, with what the template wrote in brackets. */
static inline void mark(const struct rendered *out, char *text, size_t cap)
{
    size_t n = 0, s = 0;
    assert_true(out->text.len + 2 * out->n_spans < cap);
    for (size_t i = 0; i <= out->text.len; i++) {
        if (s < out->n_spans && i == out->template_spans[s].end) {
            text[n++] = ']';
            s++;
        }
        if (s < out->n_spans && i == out->template_spans[s].start)
            text[n++] = '[';
        if (i < out->text.len)
            text[n++] = out->text.data[i];
    }
    text[n] = '\0';
}

static inline void writes(const char *source, const char *json, const char *want)
{
    struct rendered out;
    struct err e;
    char text[2000];
    if (!render(source, json, &out, &e))
        fail_msg("%s: %s", source, e.msg);
    mark(&out, text, sizeof text);
    if (strcmp(text, want) != 0)
        fail_msg("%s\n writes: %s\n want:   %s", source, text, want);
    rendered_free(&out);
}

#endif
