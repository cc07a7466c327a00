#include "call.h"

#include "api_state.h"
#include "json_in.h"

#include <stdlib.h>
#include <string.h>

static void call_free(struct call *c)
{
    c->api->n_calls--;
    c->api->n_sequences -= c->n_sequences;
    c->api->body_bytes -= c->n_body;
    free(c->body);
    free(c->reply);
    gen_input_free(&c->input);
    free(c);
}

static void on_work(uv_work_t *work)
{
    struct call *c = work->data;
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

void call_start(struct api *api, struct http_request *http, int n_sequences,
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
        return;
    }
    c->run = run;
    c->done = done;
    c->n_sequences = n_sequences;
    api->n_sequences += n_sequences;
    http_set_user(http, c, on_client_done);
    if (uv_queue_work(api->loop, &c->work, on_work, on_worked) != 0)
        abort(); /* only for a NULL callback */
}

void call_start_text(struct api *api, struct http_request *http, bool (*run)(struct call *))
{
    struct api_error e = {0};
    if (api->engine)
        call_start(api, http, 0, run, call_send_reply);
    else if (!api_healthy(api, &e))
        api_error_reply(http, &e);
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
    c->reply = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    return c->reply || api_fail_memory(&c->error);
}

void call_send_reply(struct call *c)
{
    http_reply(c->http, 200, "application/json", c->reply, strlen(c->reply));
}
