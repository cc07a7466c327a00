#include "hf_config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gguf.h"

json_t *json_file_read(const char *path, size_t max_bytes, struct err *e)
{
    struct file_map map;
    json_error_t why;
    if (access(path, F_OK) != 0 && errno == ENOENT) {
        err_set(e, ERR_NOT_FOUND, "%s does not exist", file_map_shown(path).text);
        return NULL;
    }
    if (!file_map_open(&map, path, "a JSON file", e))
        return NULL;
    json_t *json = NULL;
    if (map.size > max_bytes)
        err_set(e, ERR_LIMIT, "%s has %" PRIu64 " bytes, at most %zu are read",
                file_map_shown(path).text, map.size, max_bytes);
    else if (!(json = json_loadb((const char *)map.bytes, (size_t)map.size, 0, &why)))
        err_set(e, ERR_INVALID, "%s is no valid JSON: %s (line %d)", file_map_shown(path).text,
                hf_show(why.text).text, why.line);
    file_map_close(&map);
    if (json && !json_is_object(json)) {
        err_set(e, ERR_INVALID, "%s is no JSON object", file_map_shown(path).text);
        json_decref(json);
        json = NULL;
    }
    return json;
}

struct hf_shown hf_show(const char *text)
{
    struct hf_shown s;
    snprintf(s.text, sizeof s.text, "%s", gguf_show((struct gguf_str){text, strlen(text)}).text);
    return s;
}

struct hf_shown hf_show_value(const json_t *v)
{
    struct hf_shown s;
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII |
                                       JSON_REAL_PRECISION(9))
                   : NULL;
    snprintf(s.text, sizeof s.text, "%.76s%s", text ? text : "nothing",
             text && strlen(text) > 76 ? "..." : "");
    free(text);
    return s;
}

bool hf_err(const struct hf_config *c, enum err_code code, const char *fmt, ...)
{
    char msg[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(msg, sizeof msg, fmt, args);
    va_end(args);
    return err_set(c->e, code, "%s: %s", c->path.text, msg);
}

const json_t *hf_get(const json_t *in, const char *key)
{
    const json_t *v = json_object_get(in, key);
    return v && !json_is_null(v) ? v : NULL;
}

bool hf_is_null(const json_t *in, const char *key)
{
    return json_is_null(json_object_get(in, key));
}

bool hf_int(const struct hf_config *c, const json_t *in, const char *key, int64_t min, int64_t max,
            int64_t dflt, int *out)
{
    const json_t *v = hf_get(in, key);
    int64_t n = v && json_is_integer(v) ? json_integer_value(v) : dflt;
    if (v && json_is_real(v) && trunc(json_real_value(v)) == json_real_value(v) &&
        fabs(json_real_value(v)) < 1e15)
        n = (int64_t)json_real_value(v); /* 1024.0 */
    else if (v && !json_is_integer(v))
        return hf_err(c, ERR_INVALID, "%s is %s, expected a whole number", key,
                      hf_show_value(v).text);
    if (n < min || n > max)
        return v ? hf_err(c, ERR_INVALID, "%s is %" PRId64 ", expected %" PRId64 " to %" PRId64,
                          key, n, min, max)
                 : hf_err(c, ERR_INVALID, "%s is missing", key);
    *out = (int)n;
    return true;
}

bool hf_num(const struct hf_config *c, const json_t *in, const char *key, double min, double max,
            double dflt, double *out)
{
    const json_t *v = hf_get(in, key);
    const double n = v ? json_number_value(v) : dflt;
    if (v && !json_is_number(v))
        return hf_err(c, ERR_INVALID, "%s is %s, expected a number", key, hf_show_value(v).text);
    if (!(n >= min && n <= max))
        return v ? hf_err(c, ERR_INVALID, "%s is %g, expected %g to %g", key, n, min, max)
                 : hf_err(c, ERR_INVALID, "%s is missing", key);
    *out = n;
    return true;
}

bool hf_bool(const struct hf_config *c, const json_t *in, const char *key, bool dflt, bool *out)
{
    const json_t *v = hf_get(in, key);
    if (v && !json_is_boolean(v))
        return hf_err(c, ERR_INVALID, "%s is %s, expected true or false", key,
                      hf_show_value(v).text);
    *out = v ? json_is_true(v) : dflt;
    return true;
}

bool hf_text(const struct hf_config *c, const json_t *in, const char *key, const char *dflt,
             const char **out)
{
    const json_t *v = hf_get(in, key);
    if (v && !json_is_string(v))
        return hf_err(c, ERR_INVALID, "%s is %s, expected a string", key, hf_show_value(v).text);
    *out = v ? json_string_value(v) : dflt;
    return true;
}

bool hf_numbers(const struct hf_config *c, const json_t *in, const char *key, int n, double min,
                double max, float *out)
{
    const json_t *v = hf_get(in, key);
    if (!json_is_array(v) || json_array_size(v) != (size_t)n)
        return hf_err(c, ERR_INVALID, "%s is %s, expected a list of %d numbers", key,
                      hf_show_value(v).text, n);
    for (int i = 0; i < n; i++) {
        const json_t *x = json_array_get(v, (size_t)i);
        if (!json_is_number(x) || !(json_number_value(x) >= min && json_number_value(x) <= max))
            return hf_err(c, ERR_INVALID, "number %d of %s is %s, expected %g to %g", i, key,
                          hf_show_value(x).text, min, max);
        out[i] = (float)json_number_value(x);
    }
    return true;
}
