#include "json_out.h"

void json_add(json_t **array, json_t *item)
{
    if (json_array_append_new(*array, item) == 0)
        return;
    json_decref(*array);
    *array = NULL;
}

json_t *json_with(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) == 0)
        return object;
    json_decref(object);
    return NULL;
}

static int append(const char *text, size_t n, void *arg)
{
    buf_add(arg, text, n);
    return ((struct buf *)arg)->failed ? -1 : 0;
}

void json_write(struct buf *out, json_t *value)
{
    out->failed |= !value || json_dump_callback(value, append, out, JSON_COMPACT) != 0;
    json_decref(value);
}
