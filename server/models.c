/* GET /v1/models and /v1/models/NAME. */
#include "api_state.h"

/* Clients read the serving limit from one of three fields: all mean tokens of one request. */
static json_t *entry(const struct api *api, const char *name)
{
    json_t *o = json_pack("{s:s, s:s, s:I, s:s, s:s, s:n}", "id", name, "object", "model",
                          "created", (json_int_t)api->created, "owned_by", "tokend", "root",
                          api_model_name(api), "parent");
    const struct engine_info *info = api->info;
    if (!o || !info)
        return o;
    json_object_set_new(o, "max_model_len", json_integer(info->max_model_len));
    json_object_set_new(o, "context_length", json_integer(info->max_model_len));
    json_object_set_new(o, "meta",
                        json_pack("{s:i, s:i, s:i, s:I, s:I}", "n_ctx", info->max_model_len,
                                  "n_ctx_train", info->spec.n_ctx_train, "n_vocab",
                                  info->spec.n_vocab, "n_params", (json_int_t)info->spec.n_params,
                                  "size", (json_int_t)info->weight_bytes));
    return o;
}

static json_t *all_models(const struct api *api)
{
    json_t *data = json_array();
    for (int i = 0; i < api->n_names; i++)
        json_array_append_new(data, entry(api, api->names[i]));
    return json_pack("{s:s, s:o}", "object", "list", "data", data);
}

void models_list_handle(struct http_request *http, void *arg)
{
    struct api *api = arg;
    api_reply_kept(api, http, &api->models_reply, all_models);
}

void models_one_handle(struct http_request *http, void *arg)
{
    const struct api *api = arg;
    const char *name = http_path_rest(http);
    struct api_error e = {0};
    if (api_check_name(api, name, &e))
        api_reply_json(http, entry(api, name));
    else
        api_error_reply(http, &e);
}
