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

static void write_prompt(const struct prompt *p, struct buf *out)
{
    buf_add_str(out, "{\"token_ids\":");
    token_ids_write(&p->tokens, out);
    buf_add_byte(out, '}');
}

static bool run_completion(struct call *c)
{
    if (!completions_read(c, false))
        return false;
    buf_add_byte(&c->reply, '[');
    for (size_t i = 0; i < c->input.prompts.n; i++) {
        buf_add_str(&c->reply, i ? "," : "");
        write_prompt(&c->input.prompts.items[i], &c->reply);
    }
    buf_add_byte(&c->reply, ']');
    return !c->reply.failed || api_fail_memory(&c->error);
}

static bool run_chat(struct call *c)
{
    if (!completions_read(c, true))
        return false;
    write_prompt(&c->input.prompts.items[0], &c->reply);
    return !c->reply.failed || api_fail_memory(&c->error);
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
