/* GET /version. */
#include "api_state.h"

void version_handle(struct http_request *http, void *arg)
{
    api_reply_json(http, json_pack("{s:s}", "version", TOKEND_VERSION));
}
