#include "messages.h"

#include "buf.h"
#include "json_in.h"

#include <stdio.h>
#include <string.h>

static const char *known_role(const char *role)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool", "function"};
    if (strcmp(role, "developer") == 0)
        return "system";
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(role, roles[i]) == 0)
            return roles[i];
    return NULL;
}

/* The text of one content part, borrowed; NULL and *e when it is no text. */
static const json_t *part_text(const json_t *part, const char *where, struct api_error *e)
{
    if (json_is_string(part))
        return part;
    const json_t *type = json_object_get(part, "type");
    if (!json_is_string(type)) {
        api_bad(e, where, "%s: expected an object with a \"type\"", where);
        return NULL;
    }
    bool refusal = strcmp(json_string_value(type), "refusal") == 0;
    if (!refusal && strcmp(json_string_value(type), "text") != 0) {
        api_fail(e, 400, "unsupported_parameter", where,
                 "%s: content of type \"%.60s\" is not supported; this model reads text only",
                 where, json_string_value(type));
        return NULL;
    }
    const json_t *text = json_object_get(part, refusal ? "refusal" : "text");
    if (!json_is_string(text)) {
        api_bad(e, where, "%s: expected a string in \"%s\"", where, refusal ? "refusal" : "text");
        return NULL;
    }
    return text;
}

static json_t *join_parts(const json_t *parts, size_t message, struct api_error *e)
{
    struct buf all = {0};
    json_t *out = NULL;
    for (size_t i = 0; i < json_array_size(parts); i++) {
        char where[64];
        snprintf(where, sizeof where, "messages[%zu].content[%zu]", message, i);
        const json_t *text = part_text(json_array_get(parts, i), where, e);
        if (!text)
            goto end;
        buf_add(&all, json_string_value(text), json_string_length(text));
    }
    out = all.failed ? NULL : json_stringn(all.len ? all.data : "", all.len);
    if (!out)
        api_fail_memory(e);
end:
    buf_free(&all);
    return out;
}

static json_t *content_of(const json_t *message, size_t i, struct api_error *e)
{
    json_t *c = field(message, "content");
    if (!c)
        return json_string("");
    if (json_is_string(c))
        return json_incref(c);
    if (json_is_array(c))
        return join_parts(c, i, e);
    char where[64];
    snprintf(where, sizeof where, "messages[%zu].content", i);
    api_fail(e, 400, "invalid_type", where,
             "%s: expected a string, an array of parts or null, got %s", where, json_in_kind(c));
    return NULL;
}

/* Templates print arguments as JSON themselves: give them the object, not its text. */
static json_t *parsed_arguments(json_t *arguments)
{
    struct api_error ignored = {0};
    if (!json_is_string(arguments))
        return json_incref(arguments);
    if (json_string_length(arguments) == 0)
        return json_object();
    json_t *v = json_in_read(json_string_value(arguments), json_string_length(arguments), &ignored);
    if (json_is_object(v))
        return v;
    json_decref(v);
    return json_incref(arguments);
}

static json_t *tool_call(json_t *call, size_t message, size_t i, struct api_error *e)
{
    json_t *function = json_object_get(call, "function");
    if (!json_is_object(function) || !json_is_string(json_object_get(function, "name"))) {
        char where[64];
        snprintf(where, sizeof where, "messages[%zu].tool_calls[%zu]", message, i);
        api_bad(e, where, "%s: expected an object with function.name", where);
        return NULL;
    }
    json_t *c = json_copy(call), *f = json_copy(function);
    json_t *arguments = json_object_get(function, "arguments");
    if (f && arguments)
        json_object_set_new(f, "arguments", parsed_arguments(arguments));
    if (!c || json_object_set_new(c, "function", f) < 0) {
        json_decref(c);
        api_fail_memory(e);
        return NULL;
    }
    return c;
}

static bool set_tool_calls(json_t *message, size_t i, struct api_error *e)
{
    json_t *calls = json_object_get(message, "tool_calls");
    if (!calls)
        return true;
    char where[64];
    snprintf(where, sizeof where, "messages[%zu].tool_calls", i);
    if (!json_is_array(calls))
        return api_fail(e, 400, "invalid_type", where, "%s: expected an array, got %s", where,
                        json_in_kind(calls));
    if (json_array_size(calls) == 0) {
        json_object_del(message, "tool_calls");
        return true;
    }
    json_t *out = json_array();
    for (size_t k = 0; k < json_array_size(calls); k++) {
        json_t *c = tool_call(json_array_get(calls, k), i, k, e);
        if (!c) {
            json_decref(out);
            return false;
        }
        json_array_append_new(out, c);
    }
    return json_object_set_new(message, "tool_calls", out) == 0 || api_fail_memory(e);
}

static json_t *without_nulls(const json_t *message)
{
    json_t *out = json_object();
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)message, key, v) if (!json_is_null(v))
        json_object_set(out, key, v);
    return out;
}

static json_t *normalise(const json_t *m, size_t i, struct api_error *e)
{
    char where[64];
    snprintf(where, sizeof where, "messages[%zu]", i);
    if (!json_is_object(m)) {
        api_fail(e, 400, "invalid_type", where, "%s: expected an object, got %s", where,
                 json_in_kind(m));
        return NULL;
    }
    const json_t *role = field(m, "role");
    const char *name = json_is_string(role) ? known_role(json_string_value(role)) : NULL;
    if (!name) {
        snprintf(where, sizeof where, "messages[%zu].role", i);
        api_bad(e, where,
                "%s: expected system, developer, user, assistant, tool or function, got %s%.60s",
                where, json_is_string(role) ? "" : json_in_kind(role),
                json_is_string(role) ? json_string_value(role) : "");
        return NULL;
    }
    json_t *content = content_of(m, i, e);
    if (!content)
        return NULL;
    json_t *out = without_nulls(m);
    if (json_object_set_new(out, "role", json_string(name)) < 0 ||
        json_object_set_new(out, "content", content) < 0)
        api_fail_memory(e);
    else if (set_tool_calls(out, i, e))
        return out;
    json_decref(out);
    return NULL;
}

json_t *messages_normalise(const json_t *messages, struct api_error *e)
{
    if (!json_is_array(messages)) {
        api_fail(e, 400, messages ? "invalid_type" : "missing_field", "messages",
                 "messages: expected an array of messages, got %s", json_in_kind(messages));
        return NULL;
    }
    if (json_array_size(messages) == 0) {
        api_bad(e, "messages", "messages: expected at least one message, got none");
        return NULL;
    }
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *m = normalise(json_array_get(messages, i), i, e);
        if (!m || json_array_append_new(out, m) < 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}
