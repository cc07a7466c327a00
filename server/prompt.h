/* prompt.h: from a request's body to token ids.
 *
 * Raw prompts of /v1/completions are the client's own template: control tokens in them are
 * recognised. In chat only what the template wrote can be control (promise 9). The ids that the
 * model wants around a prompt (BOS, EOS, ...) are added where the text does not have them already:
 * to raw prompts unless add_special_tokens is false, to chats only where it is true. Any thread. */
#ifndef TOKEND_PROMPT_H
#define TOKEND_PROMPT_H

#include "api_error.h"
#include "chat_templates.h"
#include "template.h"
#include "tokenizer.h"

/* What texts are made with. Immutable; shared with the text workers. */
struct text_model {
    const struct tokenizer *tokenizer;    /* NULL: the model file has none; ids only */
    const struct template *template;      /* NULL: no chat template */
    const struct template *tool_template; /* of requests with tools; NULL: the same */
    const char *special[N_SPECIAL_TEXTS]; /* for templates; NULL: as the tokenizer says */
    int n_vocab;
    int max_model_len;
};

struct prompt {
    struct token_list tokens;
    char *text; /* the prompt as echo shows it, or NULL */
    size_t n_text;
};

struct prompt_list { /* zeroed = empty; free with prompt_list_free */
    struct prompt *items;
    size_t n;
};
void prompt_list_free(struct prompt_list *);

struct prompt_options {
    bool add_special_tokens, keep_text, keep_special;
    size_t max_prompts;
};

/* The field `prompt`: a string, strings, ids, or lists of ids. */
bool prompts_from_completion(const struct text_model *, const json_t *body,
                             const struct prompt_options *, struct prompt_list *out,
                             struct api_error *e);
/* The field `messages` through the chat template; then as ids (with the body's add_special_tokens).
 */
bool prompt_render_chat(const struct text_model *, const json_t *body, struct rendered *out,
                        struct api_error *e);
bool prompt_from_chat(const struct text_model *, const json_t *body, struct token_list *out,
                      struct api_error *e);

bool prompt_has_tokenizer(const struct text_model *, struct api_error *e);
/* Encodes a text; special: with the ids that the model wants around it. */
bool prompt_encode(const struct text_model *, const char *text, size_t n, enum control_rule,
                   bool special, struct token_list *out, struct api_error *e);
/* Reads an array of ids, each checked. `name` is the field. */
bool prompt_read_ids(const struct text_model *, const json_t *array, const char *name,
                     struct token_list *out, struct api_error *e);

#endif
