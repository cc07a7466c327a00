#include "call.h"

#include "api_state.h"
#include "json_in.h"

#include <stdlib.h>
#include <string.h>

static void call_free(struct call *c)
{
    c->api->n_calls--;
    free(c->body);
    gen_input_free(&c->input);
    json_decref(c->result);
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

void call_start(struct api *api, struct http_request *http, bool (*run)(struct call *),
                void (*done)(struct call *))
{
    struct api_error e = {0};
    size_t n;
    const char *body = http_body(http, &n);
    struct call *c = calloc(1, sizeof *c);
    if (c)
        c->body = malloc(n + 1);
    if (!c || !c->body) {
        free(c);
        api_fail_memory(&e);
        api_error_reply(http, &e);
        return;
    }
    memcpy(c->body, body, n);
    c->body[n] = '\0';
    c->n_body = n;
    http_drop_body(http);
    c->api = api;
    c->http = http;
    c->t_arrival = uv_hrtime();
    c->run = run;
    c->done = done;
    c->work.data = c;
    api->n_calls++;
    http_set_user(http, c, on_client_done);
    if (uv_queue_work(api->loop, &c->work, on_work, on_worked) != 0)
        abort(); /* only for a NULL callback */
}

json_t *call_parse(struct call *c)
{
    json_t *body = json_in_read_object(c->body, c->n_body, &c->error);
    if (body && !api_check_model(c->api, body, &c->error)) {
        json_decref(body);
        return NULL;
    }
    return body;
}

void call_reply_result(struct call *c)
{
    api_reply_json(c->http, c->result);
    c->result = NULL;
}
