/* api_error.h: what a client is told when its request cannot be served.
 *
 * Like struct err, but in OpenAI's terms: HTTP status, code and the field to blame. Filled
 * once, by whoever knows most; functions return false so that `return api_fail(...)` ends
 * them. Thread-free: the owner of the struct. Zeroed = no error. */
#ifndef TOKEND_API_ERROR_H
#define TOKEND_API_ERROR_H

#include "err.h"
#include "http.h"

#include <jansson.h>

struct api_error {
    int status;       /* 0: none */
    const char *code; /* static text, or NULL */
    char param[128];  /* "" = none */
    char msg[512];
    int retry_after_s; /* of every 429 and 503, set by api_fail; whoever knows better, after it */
    int64_t n_prompt_tokens, n_ctx; /* of context_length_exceeded; n_ctx = 0: leave both out */
};

bool api_fail(struct api_error *, int status, const char *code, const char *param, const char *fmt,
              ...) __attribute__((format(printf, 5, 6)));
/* 400 invalid_value for the field `param`. */
#define api_bad(e, param, ...) api_fail(e, 400, "invalid_value", param, __VA_ARGS__)
/* 400, 413 or 500 from a failed library call on what the client sent. */
bool api_fail_err(struct api_error *, const char *param, const struct err *);
bool api_fail_memory(struct api_error *);

/* OpenAI's error object; NULL when out of memory. */
json_t *api_error_json(const struct api_error *);
void api_error_reply(struct http_request *, const struct api_error *);

#endif
