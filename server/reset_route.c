/* POST /reset_prefix_cache, as vLLM has it: what was computed before is forgotten. */
#include "api_state.h"

void reset_prefix_cache_handle(struct http_request *http, void *arg)
{
    struct api *api = arg;
    struct api_error e = {0};
    if (!api_healthy(api, &e)) {
        api_error_reply(http, &e);
        return;
    }
    engine_reset_prefix_cache(api->engine);
    api_reply_json(http, json_object());
}
