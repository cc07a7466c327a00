#include "call.h"

#include "api_state.h"
#include "json_in.h"
#include "json_out.h"
#include "text_pool.h"

#include <stdlib.h>
#include <string.h>

static void call_free(struct call *c)
{
    c->api->n_calls--;
    c->api->n_sequences -= c->n_sequences;
    c->api->body_bytes -= c->n_body;
    free(c->body);
    buf_free(&c->reply);
    gen_input_free(&c->input);
    free(c);
}

static void on_work(uv_work_t *work)
{
    struct call *c = work->data;
    text_pool_enter();
    if (!c->run(c) && c->error.status == 0)
        api_fail_memory(&c->error);
}

static void on_worked(uv_work_t *work, int status)
{
    struct call *c = work->data;
    struct http_request *http = c->http;
    if (!http) {
        call_free(c);
        return;
    }
    http_set_user(http, NULL, NULL);
    if (status != 0)
        api_fail(&c->error, 503, "draining", NULL, "the server is shutting down");
    if (c->error.status)
        api_error_reply(http, &c->error);
    else
        c->done(c);
    call_free(c);
}

static void on_client_done(struct http_request *http, void *user, bool gone)
{
    struct call *c = user;
    c->http = NULL;
}

static struct call *call_new(struct api *api, struct http_request *http)
{
    struct call *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->body = http_take_body(http, &c->n_body);
    if (!c->body) {
        free(c);
        return NULL;
    }
    c->api = api;
    c->http = http;
    c->t_arrival = uv_hrtime();
    c->work.data = c;
    api->n_calls++;
    api->body_bytes += c->n_body;
    return c;
}

struct call *call_start(struct api *api, struct http_request *http, int n_sequences,
                        bool (*run)(struct call *), void (*done)(struct call *))
{
    struct api_error e = {0};
    size_t n;
    http_body(http, &n);
    struct call *c = NULL;
    if (n <= API_MAX_BODY_BYTES - api->body_bytes)
        c = call_new(api, http);
    if (!c) {
        api_fail_memory(&e);
        api_error_reply(http, &e);
        return NULL;
    }
    c->run = run;
    c->done = done;
    c->n_sequences = n_sequences;
    api->n_sequences += n_sequences;
    http_set_user(http, c, on_client_done);
    if (uv_queue_work(api->loop, &c->work, on_work, on_worked) != 0)
        abort(); /* only for a NULL callback */
    return c;
}

/* Far more than the bytes of any prompt that fits, JSON's own included. */
static size_t most_text(const struct api *api)
{
    size_t n = (size_t)api->model.max_model_len * CALL_TEXT_PER_TOKEN;
    return n > CALL_MIN_TEXT ? n : CALL_MIN_TEXT;
}

void call_start_text(struct api *api, struct http_request *http, bool (*run)(struct call *))
{
    struct api_error e = {0};
    size_t n;
    http_body(http, &n);
    if (!api->engine)
        api_healthy(api, &e);
    else if (n > most_text(api))
        api_fail(&e, 413, "request_too_large", NULL,
                 "The body has %zu bytes; at most %zu are taken here, for a context of %d tokens.",
                 n, most_text(api), api->model.max_model_len);
    if (e.status)
        api_error_reply(http, &e);
    else
        call_start(api, http, 0, run, call_send_reply);
}

json_t *call_parse(struct call *c)
{
    json_t *body = json_in_read_object(c->body, c->n_body, &c->error);
    free(c->body);
    c->body = NULL;
    if (body && !api_check_model(c->api, body, &c->error)) {
        json_decref(body);
        return NULL;
    }
    return body;
}

bool call_set_reply(struct call *c, json_t *o)
{
    json_write(&c->reply, o);
    return !c->reply.failed || api_fail_memory(&c->error);
}

void call_send_reply(struct call *c)
{
    http_reply_owned(c->http, 200, "application/json", c->reply.data, c->reply.len);
    c->reply = (struct buf){0};
}
