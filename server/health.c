/* GET /health and /metrics. */
#include "api_state.h"

#include <string.h>

bool api_healthy(const struct api *api, struct api_error *e)
{
    e->retry_after_s = 5;
    if (!api->engine)
        return api_fail(e, 503, "model_loading", NULL, "the model is still loading");
    struct engine_stats s;
    engine_get_stats(api->engine, &s);
    if (s.dead)
        return api_fail(e, 503, "engine_dead", NULL,
                        "the engine has failed and runs nothing any more; restart the server");
    if (s.heartbeat_age > api->stall_limit_s)
        return api_fail(e, 503, "engine_stalled", NULL,
                        "the engine has not been heard of for %.1f s", s.heartbeat_age);
    if (api->draining)
        return api_fail(e, 503, "draining", NULL,
                        "the server is shutting down and takes no new requests");
    e->retry_after_s = 0;
    return true;
}

void health_handle(struct http_request *http, void *arg)
{
    const struct api *api = arg;
    struct api_error e = {0};
    if (!api_healthy(api, &e)) {
        api_error_reply(http, &e);
        return;
    }
    api_reply_json(http, json_pack("{s:s, s:s}", "status", "ok", "backend", api->info->backend));
}

void metrics_handle(struct http_request *http, void *arg)
{
    struct api *api = arg;
    struct engine_stats stats = {0};
    struct http_stats hs = {0};
    if (api->engine)
        engine_get_stats(api->engine, &stats);
    if (api->http)
        http_get_stats(api->http, &hs);
    metrics_steps(&api->metrics, &stats);
    struct metrics_view v = {
        .model = api_model_name(api), .info = api->info, .stats = &stats, .http = &hs};
    struct buf out = {0};
    metrics_format(&out, &api->metrics, &v);
    if (out.failed)
        api_reply_json(http, NULL);
    else
        http_reply(http, 200, "text/plain; version=0.0.4; charset=utf-8", out.data, out.len);
    buf_free(&out);
}
