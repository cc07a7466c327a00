#include "prompt.h"

#include "detokenize.h"
#include "json_in.h"
#include "messages.h"
#include "template_tail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void prompt_list_free(struct prompt_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        token_list_free(&l->items[i].tokens);
        free(l->items[i].text);
    }
    free(l->items);
    *l = (struct prompt_list){0};
}

bool prompt_has_tokenizer(const struct text_model *m, struct api_error *e)
{
    return m->tokenizer || api_fail(e, 400, "unsupported_parameter", NULL,
                                    "this model's file has no tokenizer: send token ids to "
                                    "/v1/completions");
}

static bool begins_with(const struct token_list *l, const int32_t *ids, size_t n)
{
    return n > 0 && l->n >= n && memcmp(l->ids, ids, n * sizeof *ids) == 0;
}

static bool ends_with(const struct token_list *l, const int32_t *ids, size_t n)
{
    return n > 0 && l->n >= n && memcmp(l->ids + l->n - n, ids, n * sizeof *ids) == 0;
}

/* What the model wants around a prompt, each unless the text itself has it there. */
static bool add_ends(const struct text_model *m, struct token_list *out, struct api_error *e)
{
    size_t n_before, n_behind, n = out->n;
    const int32_t *before = tokenizer_prefix(m->tokenizer, &n_before);
    const int32_t *behind = tokenizer_suffix(m->tokenizer, &n_behind);
    if (begins_with(out, before, n_before))
        n_before = 0;
    if (ends_with(out, behind, n_behind))
        n_behind = 0;
    for (size_t i = 0; i < n_before + n_behind; i++)
        if (!token_list_add(out, i < n_behind ? behind[i] : 0))
            return api_fail_memory(e);
    if (n_before) {
        memmove(out->ids + n_before, out->ids, (n + n_behind) * sizeof *out->ids);
        memcpy(out->ids, before, n_before * sizeof *before);
    }
    return true;
}

bool prompt_encode(const struct text_model *m, const char *text, size_t n, enum control_rule rule,
                   bool special, struct token_list *out, struct api_error *e)
{
    struct err err;
    if (!prompt_has_tokenizer(m, e))
        return false;
    if (!tokenizer_encode(m->tokenizer, text, n, rule, NULL, 0, out, &err))
        return api_fail_err(e, "prompt", &err);
    return !special || add_ends(m, out, e);
}

bool prompt_read_ids(const struct text_model *m, const json_t *array, const char *name,
                     struct token_list *out, struct api_error *e)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        int64_t id;
        char where[64];
        snprintf(where, sizeof where, "%.40s[%zu]", name, i);
        if (!json_in_int(json_array_get(array, i), where, 0, m->n_vocab - 1, &id, e))
            return false;
        if (!token_list_add(out, (int32_t)id))
            return api_fail_memory(e);
    }
    return true;
}

static bool text_prompt(const struct text_model *m, const json_t *v, const struct prompt_options *o,
                        struct prompt *p, struct api_error *e)
{
    size_t n = json_string_length(v);
    if (!prompt_encode(m, json_string_value(v), n, CONTROL_ALL, o->add_special_tokens, &p->tokens,
                       e))
        return false;
    if (!o->keep_text)
        return true;
    p->text = malloc(n + 1);
    if (!p->text)
        return api_fail_memory(e);
    memcpy(p->text, json_string_value(v), n);
    p->n_text = n;
    return true;
}

static bool id_prompt(const struct text_model *m, const json_t *v, const struct prompt_options *o,
                      struct prompt *p, struct api_error *e)
{
    if (!prompt_read_ids(m, v, "prompt", &p->tokens, e))
        return false;
    if (!o->keep_text)
        return true;
    struct buf text = {0};
    detokenize_all(m->tokenizer, p->tokens.ids, p->tokens.n, !o->keep_special, &text);
    if (text.failed) {
        buf_free(&text);
        return api_fail_memory(e);
    }
    p->text = text.data;
    p->n_text = text.len;
    return true;
}

static bool one_prompt(const struct text_model *m, const json_t *v, const struct prompt_options *o,
                       struct prompt_list *out, struct api_error *e)
{
    struct prompt *p = &out->items[out->n++];
    if (!(json_is_string(v) ? text_prompt : id_prompt)(m, v, o, p, e))
        return false;
    return p->tokens.n > 0 ||
           api_bad(e, "prompt", "prompt: it has no tokens; at least one is needed");
}

/* Whether the array is itself one prompt (of ids), or a list of prompts. */
static bool is_id_list(const json_t *v)
{
    return json_is_number(json_array_get(v, 0));
}

bool prompts_from_completion(const struct text_model *m, const json_t *body,
                             const struct prompt_options *o, struct prompt_list *out,
                             struct api_error *e)
{
    const json_t *v = field(body, "prompt");
    if (!json_is_string(v) && !json_is_array(v))
        return api_fail(e, 400, v ? "invalid_type" : "missing_field", "prompt",
                        "prompt: expected a string, an array of strings, of token ids or of "
                        "arrays of token ids, got %s",
                        json_in_kind(v));
    if (json_is_array(v) && json_array_size(v) == 0)
        return api_bad(e, "prompt", "prompt: the array is empty");
    bool single = json_is_string(v) || is_id_list(v);
    size_t n = single ? 1 : json_array_size(v);
    if (n > o->max_prompts)
        return api_bad(e, "prompt",
                       "prompt: %zu prompts are more than the %zu that fit one request", n,
                       o->max_prompts);
    out->items = calloc(n, sizeof *out->items);
    if (!out->items)
        return api_fail_memory(e);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = single ? v : json_array_get(v, i);
        if (!json_is_string(item) && !json_is_array(item))
            return api_fail(e, 400, "invalid_type", "prompt",
                            "prompt[%zu]: expected a string or an array of token ids, got %s", i,
                            json_in_kind(item));
        if (!one_prompt(m, item, o, out, e))
            return false;
    }
    return true;
}

static void set_text(json_t *context, const char *name, const char *text, size_t n)
{
    json_t *value = json_stringn(text, n);
    if (value)
        json_object_set_new(context, name, value);
}

/* As the model's files have them, or the tokenizer's. */
static void set_special_texts(json_t *context, const struct text_model *m)
{
    const int32_t ids[N_SPECIAL_TEXTS] = {tokenizer_bos(m->tokenizer), tokenizer_eos(m->tokenizer),
                                          -1, -1};
    for (int i = 0; i < N_SPECIAL_TEXTS; i++) {
        const char *name = special_text_name((enum special_text)i), *piece;
        size_t n;
        if (m->special[i])
            set_text(context, name, m->special[i], strlen(m->special[i]));
        else if (ids[i] >= 0 && (piece = tokenizer_piece(m->tokenizer, ids[i], &n)))
            set_text(context, name, piece, n);
    }
}

static bool add_kwargs(json_t *context, const json_t *kwargs, struct api_error *e)
{
    static const char *const name = "chat_template_kwargs";
    if (!kwargs)
        return true;
    if (!json_is_object(kwargs))
        return api_fail(e, 400, "invalid_type", name, "%s: expected an object, got %s", name,
                        json_in_kind(kwargs));
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)kwargs, key, v)
    {
        if (json_object_get(context, key) || strstr(key, "_token"))
            return api_bad(e, name, "%s: \"%.60s\" is set by the server", name, key);
        json_object_set(context, key, v);
    }
    return true;
}

/* A variable of templates, as in vLLM; the field wins over chat_template_kwargs. */
static bool add_effort(json_t *context, const json_t *body, struct api_error *e)
{
    static const char name[] = "reasoning_effort";
    static const char *const known[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    const char *effort = NULL;
    if (!field_string(body, name, &effort, e))
        return false;
    for (size_t i = 0; effort && i < sizeof known / sizeof *known; i++)
        if (strcmp(effort, known[i]) == 0)
            return json_object_set(context, name, field(body, name)) == 0 || api_fail_memory(e);
    return !effort || api_bad(e, name,
                              "%s: expected none, minimal, low, medium, high, xhigh or max, got "
                              "\"%.40s\"",
                              name, effort);
}

/* How the rendering ends: with the beginning of an answer, or within the last message. */
static bool read_ending(const json_t *body, bool *generation_prompt, bool *go_on,
                        struct api_error *e)
{
    static const char *const name = "continue_final_message";
    *generation_prompt = true;
    *go_on = false;
    if (!field_bool(body, "add_generation_prompt", generation_prompt, e) ||
        !field_bool(body, name, go_on, e))
        return false;
    return !*go_on || !*generation_prompt ||
           api_bad(e, name,
                   "%s goes on with the last message: it needs add_generation_prompt: false", name);
}

/* The template's variables. */
static json_t *make_context(const struct text_model *m, const json_t *body, bool generation_prompt,
                            struct api_error *e)
{
    json_t *messages = messages_normalise(json_object_get(body, "messages"), e);
    if (!messages)
        return NULL;
    json_t *context = json_pack("{s:o, s:n, s:n, s:b}", "messages", messages, "tools", "documents",
                                "add_generation_prompt", generation_prompt);
    if (!context) {
        api_fail_memory(e);
        return NULL;
    }
    set_special_texts(context, m);
    if (!add_kwargs(context, field(body, "chat_template_kwargs"), e) ||
        !add_effort(context, body, e)) {
        json_decref(context);
        return NULL;
    }
    return context;
}

static bool render_with(const struct template *t, const json_t *context, struct rendered *out,
                        struct err *err)
{
    static const char *const trusted[] = {"bos_token", "eos_token", "unk_token", "pad_token", NULL};
    time_t now = time(NULL);
    struct tm tm;
    localtime_r(&now, &tm);
    const struct template_input in = {
        .context = context, .trusted = trusted, .now = now, .utc_offset = (int)tm.tm_gmtoff};
    return template_render(t, &in, out, err);
}

/* One that no template has reason to fail for: texts of the three usual roles, no variables of the
 * client's. */
static bool is_plain(const json_t *context, const json_t *body)
{
    const json_t *message;
    size_t i;
    if (field(body, "chat_template_kwargs") || field(body, "reasoning_effort"))
        return false;
    json_array_foreach(json_object_get(context, "messages"), i, message)
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        if (json_object_size(message) != 2 ||
            !json_string_value(json_object_get(message, "content")) || !role ||
            (strcmp(role, "system") && strcmp(role, "user") && strcmp(role, "assistant")))
            return false;
    }
    return true;
}

/* Whether it fails for a plain message, too. */
static bool always_fails(const struct text_model *m, const struct template *t)
{
    struct rendered out = {0};
    struct err err = {0};
    json_t *context =
        json_pack("{s:[{s:s, s:s}], s:n, s:n, s:b}", "messages", "role", "user", "content", "Hello",
                  "tools", "documents", "add_generation_prompt", 1);
    set_special_texts(context, m);
    const bool fails = context && !render_with(t, context, &out, &err) && err.code == ERR_INVALID &&
                       !out.raised;
    rendered_free(&out);
    json_decref(context);
    return fails;
}

/* What a template raises is about the request, and so is what exceeds its limits; another failure
 * is the operator's matter, unless the request has what the template may not know. */
static bool is_templates_fault(const struct text_model *m, const struct template *t,
                               const json_t *context, const json_t *body,
                               const struct rendered *failed, const struct err *why)
{
    return why->code == ERR_INVALID && !failed->raised &&
           (is_plain(context, body) || always_fails(m, t));
}

static bool render(const struct text_model *m, const json_t *context, const json_t *body,
                   struct rendered *out, struct api_error *e)
{
    const bool tools = json_is_array(json_object_get(context, "tools"));
    const struct template *t = tools && m->tool_template ? m->tool_template : m->template;
    struct err err;
    if (render_with(t, context, out, &err))
        return true;
    const bool fault = is_templates_fault(m, t, context, body, out, &err);
    template_name_line(out, &err);
    err_prefix(&err, "the chat template failed");
    return fault ? api_fail(e, 500, "chat_template_error", NULL, "%s", err.msg)
                 : api_fail_err(e, "messages", &err);
}

static bool encode_rendered(const struct text_model *m, const struct rendered *r, bool special,
                            struct token_list *out, struct api_error *e)
{
    struct err err;
    if (!tokenizer_encode(m->tokenizer, r->text.data ? r->text.data : "", r->text.len,
                          CONTROL_SPANS, r->template_spans, r->n_spans, out, &err))
        return api_fail_err(e, "messages", &err);
    if (special && !add_ends(m, out, e))
        return false;
    return out->n > 0 ||
           api_bad(e, "messages", "messages: the chat template made no tokens of them");
}

bool prompt_render_chat(const struct text_model *m, const json_t *body, struct rendered *out,
                        struct api_error *e)
{
    if (!prompt_has_tokenizer(m, e))
        return false;
    if (!m->template)
        return api_fail(e, 400, "unsupported_parameter", "messages",
                        "this model has no chat template: use /v1/completions, or start the "
                        "server with --chat-template FILE");
    bool generation_prompt, go_on;
    if (!read_ending(body, &generation_prompt, &go_on, e))
        return false;
    json_t *context = make_context(m, body, generation_prompt, e);
    if (!context)
        return false;
    struct err err;
    bool ok = render(m, context, body, out, e);
    if (ok && go_on && !template_cut_after(out, json_object_get(context, "messages"), &err))
        ok = api_fail_err(e, "continue_final_message", &err);
    json_decref(context);
    return ok;
}

bool prompt_from_chat(const struct text_model *m, const json_t *body, struct token_list *out,
                      struct api_error *e)
{
    struct rendered r = {0};
    bool special = false; /* templates write them */
    bool ok = field_bool(body, "add_special_tokens", &special, e) &&
              prompt_render_chat(m, body, &r, e) && encode_rendered(m, &r, special, out, e);
    rendered_free(&r);
    return ok;
}
