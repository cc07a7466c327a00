/* POST /apply-template, /v1/completions/render and /v1/chat/completions/render: what a request
 * becomes, without running it. Routers send a request where the longest part of these ids is
 * cached, so the ids, and the refusals, are the ones that generating it would give; only the
 * length is not checked. */
#include "api_state.h"
#include "completions.h"
#include "detokenize.h"

static bool run_apply_template(struct call *c)
{
    json_t *body = call_parse(c);
    if (!body)
        return false;
    struct rendered r = {0};
    bool ok = prompt_render_chat(&c->api->model, body, &r, &c->error) &&
              call_set_reply(
                  c, json_pack("{s:s%}", "prompt", r.text.data ? r.text.data : "", r.text.len));
    rendered_free(&r);
    json_decref(body);
    return ok;
}

static json_t *prompt_json(const struct prompt *p)
{
    return json_pack("{s:o}", "token_ids", token_ids_json(&p->tokens));
}

static bool run_completion(struct call *c)
{
    if (!completions_read(c, false))
        return false;
    json_t *all = json_array();
    for (size_t i = 0; i < c->input.prompts.n; i++)
        if (json_array_append_new(all, prompt_json(&c->input.prompts.items[i])) != 0) {
            json_decref(all);
            return api_fail_memory(&c->error);
        }
    return call_set_reply(c, all);
}

static bool run_chat(struct call *c)
{
    return completions_read(c, true) && call_set_reply(c, prompt_json(&c->input.prompts.items[0]));
}

void apply_template_handle(struct http_request *http, void *api)
{
    call_start_text(api, http, run_apply_template);
}

void completions_render_handle(struct http_request *http, void *api)
{
    call_start_text(api, http, run_completion);
}

void chat_render_handle(struct http_request *http, void *api)
{
    call_start_text(api, http, run_chat);
}
