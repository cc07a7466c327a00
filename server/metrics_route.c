/* GET /metrics: gathers the numbers; metrics.c writes them. */
#include "api_state.h"

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
