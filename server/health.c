/* GET /health, and what it and the generating routes say of the engine. */
#include "api_state.h"

bool api_healthy(const struct api *api, struct api_error *e)
{
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
    return true;
}

static json_t *well(const struct api *api)
{
    return json_pack("{s:s, s:s}", "status", "ok", "backend", api->info->backend);
}

void health_handle(struct http_request *http, void *arg)
{
    struct api *api = arg;
    struct api_error e = {0};
    if (!api_healthy(api, &e)) {
        api_error_reply(http, &e);
        return;
    }
    api_reply_kept(api, http, &api->health_reply, well);
}
