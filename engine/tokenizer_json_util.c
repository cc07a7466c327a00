#include "tokenizer_json.h"

const char *json_type_of(const json_t *v)
{
    if (!v)
        return "absent";
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_NULL:
        return "null";
    default:
        return "a boolean";
    }
}

struct str json_str(const json_t *string)
{
    return (struct str){json_string_value(string), json_string_length(string)};
}

bool json_is(const json_t *string, const char *text)
{
    return json_is_string(string) && str_is(json_str(string), text);
}

bool json_get_str(const json_t *object, const char *where, const char *key, struct str *out,
                  struct err *e)
{
    const json_t *v = json_object_get(object, key);
    if (!json_is_string(v))
        return err_set(e, ERR_INVALID, "%s.%s is %s: expected a string", where, key,
                       json_type_of(v));
    *out = json_str(v);
    return true;
}

bool json_get_bool(const json_t *object, const char *where, const char *key, bool dflt, bool *out,
                   struct err *e)
{
    const json_t *v = json_object_get(object, key);
    *out = json_is_boolean(v) ? json_is_true(v) : dflt;
    return !v || json_is_boolean(v) || json_is_null(v) ||
           err_set(e, ERR_INVALID, "%s.%s is %s: expected true or false", where, key,
                   json_type_of(v));
}

enum { MOST_STEPS = 64, DEEPEST = 8 };

static bool each_step(struct json_reading *r, const json_t *object, const char *where,
                      const char *key, json_step *step, int depth)
{
    struct str type;
    size_t i;
    const json_t *member, *list = json_object_get(object, key);
    if (!json_is_object(object))
        return err_set(r->e, ERR_INVALID, "%s is %s: expected an object", where,
                       json_type_of(object));
    if (!json_get_str(object, where, "type", &type, r->e))
        return false;
    if (!str_is(type, "Sequence"))
        return step(r, object, type);
    if (!json_is_array(list) || json_array_size(list) > MOST_STEPS)
        return err_set(r->e, ERR_INVALID, "%s.%s is %s: expected a list of %d at most", where, key,
                       json_type_of(list), MOST_STEPS);
    if (depth == DEEPEST)
        return err_set(r->e, ERR_LIMIT, "%s: sequences inside each other too often", where);
    json_array_foreach(list, i, member)
    {
        if (!each_step(r, member, where, key, step, depth + 1))
            return false;
    }
    return true;
}

bool json_for_each_step(struct json_reading *r, const json_t *object, const char *where,
                        const char *key, json_step *step)
{
    if (!object || json_is_null(object))
        return true;
    return each_step(r, object, where, key, step, 0);
}
