#include "json_in.h"

#include "buf.h"
#include "utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* End of the string whose opening quote is at i: the index behind its closing quote, or n. */
static size_t skip_string(const char *s, size_t n, size_t i)
{
    for (i++; i < n; i++) {
        if (s[i] == '\\')
            i++;
        else if (s[i] == '"')
            return i + 1;
    }
    return n;
}

/* Bounds the parser's depth and memory without believing that the text is JSON. */
static bool within_limits(const char *s, size_t n, const char *what, struct api_error *e)
{
    size_t containers = 0, values = 1;
    int depth = 0;
    for (size_t i = 0; i < n;) {
        char c = s[i];
        if (c == '"') {
            i = skip_string(s, n, i);
            continue;
        }
        if (c == '[' || c == '{') {
            containers++;
            if (++depth > JSON_IN_MAX_DEPTH)
                return api_fail(e, 400, "invalid_json", NULL,
                                "%s is nested deeper than %d levels at byte %zu", what,
                                JSON_IN_MAX_DEPTH, i);
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        } else if (c == ',') {
            values++;
        }
        i++;
    }
    if (containers > JSON_IN_MAX_CONTAINERS || values > JSON_IN_MAX_VALUES)
        return api_fail(e, 400, "invalid_json", NULL,
                        "%s has %zu arrays and objects and about %zu values; at most "
                        "%d and %d are taken",
                        what, containers, values, JSON_IN_MAX_CONTAINERS, JSON_IN_MAX_VALUES);
    return true;
}

/* Where in the document one stands: of each open container, the key or the index. */
struct path {
    struct step {
        bool object;
        size_t index, key, key_len; /* the key's bytes in the text, without quotes */
    } steps[JSON_IN_MAX_DEPTH];
    int depth;
};

static void path_walk(struct path *p, const char *s, size_t end)
{
    size_t key = 0, key_len = 0;
    for (size_t i = 0; i < end;) {
        char c = s[i];
        struct step *top = p->depth ? &p->steps[p->depth - 1] : NULL;
        if (c == '"') {
            size_t next = skip_string(s, end, i);
            key = i + 1;
            key_len = next > i + 1 ? next - i - 2 : 0;
            i = next;
            continue;
        }
        if ((c == '[' || c == '{') && p->depth < JSON_IN_MAX_DEPTH)
            p->steps[p->depth++] = (struct step){.object = c == '{'};
        else if ((c == ']' || c == '}') && top)
            p->depth--;
        else if (c == ':' && top)
            top->key = key, top->key_len = key_len;
        else if (c == ',' && top)
            top->index++;
        i++;
    }
}

/* "logit_bias.5" or "prompt[3]": the value that ends before `end`. */
static void path_at(const char *s, size_t end, struct buf *out)
{
    struct path p = {0};
    path_walk(&p, s, end);
    for (int i = 0; i < p.depth; i++) {
        const struct step *t = &p.steps[i];
        if (!t->object) {
            buf_addf(out, "[%zu]", t->index);
            continue;
        }
        if (out->len)
            buf_add_byte(out, '.');
        buf_add(out, s + t->key, t->key_len < 64 ? t->key_len : 64);
    }
    if (out->data && !out->failed)
        utf8_trim(out->data);
}

static bool fail_parse(const char *text, size_t n, const char *what, const json_error_t *je,
                       struct api_error *e)
{
    size_t at = je->position > 0 ? (size_t)je->position : 0;
    if (json_error_code(je) != json_error_numeric_overflow)
        return api_fail(e, 400, "invalid_json", NULL,
                        "%s is not valid JSON: %s (line %d, byte %zu)", what, je->text, je->line,
                        at);
    struct buf path = {0};
    path_at(text, at < n ? at : n, &path);
    const char *name = path.data && path.len ? path.data : "body";
    api_bad(e, name, "%s: the number at byte %zu is too large for any type", name, at);
    buf_free(&path);
    return false;
}

static json_t *read_json(const char *text, size_t n, const char *what, struct api_error *e)
{
    size_t bad = utf8_check(text, n);
    if (bad < n) {
        api_fail(e, 400, "invalid_json", NULL, "%s is not valid UTF-8: byte 0x%02X at offset %zu",
                 what, (unsigned char)text[bad], bad);
        return NULL;
    }
    if (!within_limits(text, n, what, e))
        return NULL;
    json_error_t je;
    json_t *v = json_loadb(text, n, JSON_ALLOW_NUL, &je);
    if (!v)
        fail_parse(text, n, what, &je, e);
    return v;
}

json_t *json_in_read(const char *text, size_t n, struct api_error *e)
{
    return read_json(text, n, "the body", e);
}

json_t *json_in_read_file(const char *text, size_t n, const char *path, struct api_error *e)
{
    json_t *v = read_json(text, n, path, e);
    if (v && !json_is_object(v)) {
        api_fail(e, 400, "invalid_json", NULL, "%s must be a JSON object, not %s", path,
                 json_in_kind(v));
        json_decref(v);
        return NULL;
    }
    return v;
}

json_t *json_in_read_object(const char *text, size_t n, struct api_error *e)
{
    return json_in_read_file(text, n, "the body", e);
}

const char *json_in_kind(const json_t *v)
{
    static const char *const names[] = {"an object", "an array", "a string", "an integer",
                                        "a number",  "true",     "false",    "null"};
    return v ? names[json_typeof(v)] : "nothing";
}

json_t *field(const json_t *object, const char *name)
{
    json_t *v = json_object_get(object, name);
    return v && !json_is_null(v) ? v : NULL;
}

static bool wrong_type(const json_t *v, const char *name, const char *want, struct api_error *e)
{
    return api_fail(e, 400, "invalid_type", name, "%s: expected %s, got %s", name, want,
                    json_in_kind(v));
}

bool field_bool(const json_t *object, const char *name, bool *out, struct api_error *e)
{
    const json_t *v = field(object, name);
    if (!v)
        return true;
    if (!json_is_boolean(v))
        return wrong_type(v, name, "true or false", e);
    *out = json_is_true(v);
    return true;
}

bool json_in_int(const json_t *v, const char *name, int64_t min, int64_t max, int64_t *out,
                 struct api_error *e)
{
    if (!json_is_number(v))
        return wrong_type(v, name, "an integer", e);
    double d = json_number_value(v);
    if (json_is_real(v) && (d != floor(d) || fabs(d) > 9007199254740992.0))
        return api_bad(e, name, "%s: expected an integer, got %.17g", name, d);
    int64_t i = json_is_real(v) ? (int64_t)d : json_integer_value(v);
    if (i < min || i > max)
        return api_bad(e, name, "%s: expected an integer from %lld to %lld, got %lld", name,
                       (long long)min, (long long)max, (long long)i);
    *out = i;
    return true;
}

bool field_int(const json_t *object, const char *name, int64_t min, int64_t max, int64_t *out,
               struct api_error *e)
{
    const json_t *v = field(object, name);
    return !v || json_in_int(v, name, min, max, out, e);
}

bool field_number(const json_t *object, const char *name, double min, double max, double *out,
                  struct api_error *e)
{
    const json_t *v = field(object, name);
    if (!v)
        return true;
    if (!json_is_number(v))
        return wrong_type(v, name, "a number", e);
    double d = json_number_value(v);
    if (!(d >= min && d <= max))
        return api_bad(e, name, "%s: expected a number from %g to %g, got %.17g", name, min, max,
                       d);
    *out = d;
    return true;
}

bool field_string(const json_t *object, const char *name, const char **out, struct api_error *e)
{
    const json_t *v = field(object, name);
    if (!v)
        return true;
    if (!json_is_string(v))
        return wrong_type(v, name, "a string", e);
    *out = json_string_value(v);
    return true;
}
