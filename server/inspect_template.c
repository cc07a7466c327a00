#include "inspect_template.h"

#include "template.h"

#include <string.h>
#include <time.h>

/* Words that no template writes. */
#define SYSTEM_WORD "qvsystemqv"
#define USER_WORD "qvuserqv"
#define ANSWER_WORD "qvanswerqv"
#define TOOL_WORD "qvtoolqv"

struct trial {
    const struct template *template;
    const struct chat_templates *texts;
    struct rendered out;
    bool names_line; /* where raise_exception was called, too */
    struct err why;
};

/* json_pack's o: the reference is taken. */
static bool try_with(struct trial *t, json_t *messages, json_t *tools)
{
    static const char *const trusted[] = {"bos_token", "eos_token", "unk_token", "pad_token", NULL};
    json_t *context =
        json_pack("{s:o, s:o, s:n, s:b}", "messages", messages, "tools",
                  tools ? tools : json_null(), "documents", "add_generation_prompt", 1);
    for (int i = 0; i < N_SPECIAL_TEXTS; i++)
        if (t->texts->special[i])
            json_object_set_new(context, special_text_name((enum special_text)i),
                                json_string(t->texts->special[i]));
    const struct template_input in = {.context = context, .trusted = trusted, .now = time(NULL)};
    rendered_free(&t->out);
    t->out = (struct rendered){0};
    bool ok = context && template_render(t->template, &in, &t->out, &t->why);
    if (!context)
        err_set(&t->why, ERR_MEMORY, "out of memory");
    else if (!ok && t->names_line)
        template_name_line(&t->out, &t->why);
    json_decref(context);
    return ok;
}

static bool wrote(struct trial *t, const char *word)
{
    return t->out.text.data && memmem(t->out.text.data, t->out.text.len, word, strlen(word));
}

static json_t *message(const char *role, const char *text)
{
    return json_pack("{s:s, s:s}", "role", role, "content", text);
}

static json_t *a_tool(void)
{
    return json_pack("[{s:s, s:{s:s, s:s, s:{s:s, s:{s:{s:s, s:s}}, s:[s]}}}]", "type", "function",
                     "function", "name", TOOL_WORD, "description", "Looks something up.",
                     "parameters", "type", "object", "properties", "key", "type", "string",
                     "description", "what to look up", "required", "key");
}

/* The first control token behind the earlier answer. */
static int32_t find_end(struct trial *t, const struct tokenizer *tok)
{
    struct token_list ids = {0};
    int32_t end = -1;
    json_t *messages = json_pack("[o, o, o]", message("user", USER_WORD),
                                 message("assistant", ANSWER_WORD), message("user", USER_WORD));
    if (!try_with(t, messages, NULL) || !wrote(t, ANSWER_WORD))
        return -1;
    const char *at = memmem(t->out.text.data, t->out.text.len, ANSWER_WORD, strlen(ANSWER_WORD));
    at += strlen(ANSWER_WORD);
    if (tokenizer_encode(tok, at, t->out.text.len - (size_t)(at - t->out.text.data), CONTROL_ALL,
                         NULL, 0, &ids, NULL))
        for (size_t i = 0; i < ids.n && end < 0; i++)
            if (tokenizer_is_control(tok, ids.ids[i]))
                end = ids.ids[i];
    token_list_free(&ids);
    return end;
}

void template_try(const struct chat_template *c, const struct chat_templates *texts,
                  const struct tokenizer *tok, struct template_facts *f)
{
    struct trial t = {.texts = texts, .names_line = true};
    struct template *parsed = template_parse(c->text, c->len, &f->why);
    f->parses = parsed;
    f->end = -1;
    if (!parsed)
        return;
    t.template = parsed;
    f->renders =
        try_with(&t, json_pack("[o]", message("user", USER_WORD)), NULL) && wrote(&t, USER_WORD);
    if (!f->renders)
        f->why = t.why;
    f->system_role =
        try_with(&t,
                 json_pack("[o, o]", message("system", SYSTEM_WORD), message("user", USER_WORD)),
                 NULL) &&
        wrote(&t, SYSTEM_WORD);
    f->tools = try_with(&t, json_pack("[o]", message("user", USER_WORD)), a_tool()) &&
               wrote(&t, TOOL_WORD);
    if (tok)
        f->end = find_end(&t, tok);
    rendered_free(&t.out);
    template_free(parsed);
}

bool template_answers(const struct template *parsed, const struct chat_templates *texts,
                      bool *raised, struct err *why)
{
    struct trial t = {.template = parsed, .texts = texts};
    const bool ok = try_with(&t, json_pack("[o]", message("user", USER_WORD)), NULL);
    *why = t.why;
    *raised = t.out.raised;
    rendered_free(&t.out);
    return ok;
}
