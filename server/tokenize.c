/* POST /tokenize and /detokenize. */
#include "api_state.h"
#include "call.h"
#include "detokenize.h"
#include "json_in.h"

enum { MAX_DETOKENIZED = 8 << 20 };

/* vLLM's clients send `prompt` (special tokens added by default), llama.cpp's `content`
 * (`add_special`, off by default). As with both servers, control tokens in the text are recognised
 * unless `parse_special` is false. */
static bool encode_text(struct call *c, const json_t *body, struct token_list *out)
{
    bool parse_special = true;
    const json_t *text = field(body, "prompt");
    bool special = text != NULL;
    if (!text)
        text = field(body, "content");
    if (!text)
        return api_fail(&c->error, 400, "missing_field", "prompt",
                        "expected one of the fields prompt, content and messages");
    if (!json_is_string(text))
        return api_fail(&c->error, 400, "invalid_type", special ? "prompt" : "content",
                        "%s: expected a string, got %s", special ? "prompt" : "content",
                        json_in_kind(text));
    return field_bool(body, "add_special", &special, &c->error) &&
           field_bool(body, "add_special_tokens", &special, &c->error) &&
           field_bool(body, "parse_special", &parse_special, &c->error) &&
           prompt_encode(&c->api->model, json_string_value(text), json_string_length(text),
                         parse_special ? CONTROL_ALL : CONTROL_NONE, special, out, &c->error);
}

static bool run_tokenize(struct call *c)
{
    json_t *body = call_parse(c);
    if (!body)
        return false;
    struct token_list ids = {0};
    bool ok = field(body, "messages") ? prompt_from_chat(&c->api->model, body, &ids, &c->error)
                                      : encode_text(c, body, &ids);
    if (ok) {
        buf_addf(&c->reply, "{\"count\":%zu,\"max_model_len\":%d,\"tokens\":", ids.n,
                 c->api->model.max_model_len);
        token_ids_write(&ids, &c->reply);
        buf_add_byte(&c->reply, '}');
        ok = !c->reply.failed || api_fail_memory(&c->error);
    }
    token_list_free(&ids);
    json_decref(body);
    return ok;
}

/* Tokens can be long: a body of ids is bounded by what it says. */
static bool check_length(struct call *c, const struct token_list *ids)
{
    size_t n, sum = 0;
    for (size_t i = 0; i < ids->n; i++) {
        token_bytes(c->api->model.tokenizer, ids->ids[i], &n);
        sum += n;
    }
    return sum <= MAX_DETOKENIZED ||
           api_fail(&c->error, 413, "request_too_large", "tokens",
                    "tokens: their text has %zu bytes, at most %d are sent", sum, MAX_DETOKENIZED);
}

static bool run_detokenize(struct call *c)
{
    json_t *body = call_parse(c);
    if (!body)
        return false;
    struct token_list ids = {0};
    struct buf text = {0};
    const json_t *tokens = field(body, "tokens");
    bool ok =
        json_is_array(tokens)
            ? prompt_read_ids(&c->api->model, tokens, "tokens", &ids, &c->error)
            : api_fail(&c->error, 400, tokens ? "invalid_type" : "missing_field", "tokens",
                       "tokens: expected an array of token ids, got %s", json_in_kind(tokens));
    ok = ok && prompt_has_tokenizer(&c->api->model, &c->error) && check_length(c, &ids);
    if (ok) {
        detokenize_all(c->api->model.tokenizer, ids.ids, ids.n, false, &text);
        const char *s = text.len ? text.data : "";
        ok = !text.failed && call_set_reply(c, json_pack("{s:s%, s:s%}", "prompt", s, text.len,
                                                         "content", s, text.len));
    }
    buf_free(&text);
    token_list_free(&ids);
    json_decref(body);
    return ok;
}

void tokenize_handle(struct http_request *http, void *api)
{
    call_start_text(api, http, run_tokenize);
}

void detokenize_handle(struct http_request *http, void *api)
{
    call_start_text(api, http, run_detokenize);
}
