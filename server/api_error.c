#include "api_error.h"

#include "utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A client's text may be anything, and a precision or the buffer may cut a character: what is
 * ill-formed becomes '?', what the buffer cut goes. */
static void make_valid(char *s, size_t cap)
{
    size_t n = strlen(s);
    for (size_t i = utf8_check(s, n); i < n; i += utf8_check(s + i, n - i)) {
        if (n + 1 == cap && n - i < 4) {
            s[i] = '\0';
            return;
        }
        s[i] = '?';
    }
}

bool api_fail(struct api_error *e, int status, const char *code, const char *param, const char *fmt,
              ...)
{
    e->status = status;
    e->code = code;
    e->retry_after_s = status == 429 ? 1 : status == 503 ? 5 : 0;
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    make_valid(e->param, sizeof e->param);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    make_valid(e->msg, sizeof e->msg);
    return false;
}

bool api_fail_memory(struct api_error *e)
{
    api_fail(e, 503, "out_of_memory", NULL, "out of memory for this request");
    e->retry_after_s = 1;
    return false;
}

bool api_fail_err(struct api_error *e, const char *param, const struct err *err)
{
    switch (err->code) {
    case ERR_MEMORY:
        return api_fail_memory(e);
    case ERR_UNSUPPORTED:
        return api_fail(e, 400, "unsupported_parameter", param, "%s", err->msg);
    case ERR_IO:
    case ERR_DEVICE:
        return api_fail(e, 500, "internal_error", param, "%s", err->msg);
    default:
        return api_fail(e, 400, "invalid_value", param, "%s", err->msg);
    }
}

json_t *api_error_json(const struct api_error *e)
{
    char *text = http_error_body(e->status, e->code, e->param[0] ? e->param : NULL, e->msg);
    json_t *o = text ? json_loads(text, 0, NULL) : NULL;
    json_t *error = json_object_get(o, "error");
    free(text);
    if (error && e->n_ctx > 0) {
        json_object_set_new(error, "n_prompt_tokens", json_integer(e->n_prompt_tokens));
        json_object_set_new(error, "n_ctx", json_integer(e->n_ctx));
    }
    return o;
}

void api_error_reply(struct http_request *http, const struct api_error *e)
{
    if (e->n_ctx == 0) {
        http_reply_error(http, e->status, e->code, e->param[0] ? e->param : NULL, e->retry_after_s,
                         "%s", e->msg);
        return;
    }
    json_t *o = api_error_json(e);
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (text)
        http_reply(http, e->status, "application/json", text, strlen(text));
    else
        http_reply_error(http, e->status, e->code, NULL, 0, "%s", e->msg);
    free(text);
}
