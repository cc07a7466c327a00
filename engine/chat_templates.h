/* chat_templates.h: the chat templates that come with a model, by name, and the texts of the
 * special tokens that they use. */
#ifndef TOKEND_CHAT_TEMPLATES_H
#define TOKEND_CHAT_TEMPLATES_H

#include <stddef.h>

#include "err.h"
#include "gguf.h"

enum special_text { SPECIAL_BOS, SPECIAL_EOS, SPECIAL_UNK, SPECIAL_PAD, N_SPECIAL_TEXTS };

struct chat_template {
    char *name; /* "default", "tool_use" ... */
    char *text;
    size_t len;
};

struct chat_templates { /* zeroed = empty */
    struct chat_template *at;
    size_t n;
    char *special[N_SPECIAL_TEXTS]; /* NULL: the model's files do not say */
};

/* The template's variable of a special token: "bos_token" */
const char *special_text_name(enum special_text);

/* Of a GGUF file: tokenizer.chat_template, and tokenizer.chat_template.NAME. */
bool chat_templates_read_gguf(struct chat_templates *, const struct gguf *, struct err *e);
/* Of a Hugging Face directory, as transformers finds them: chat_template.jinja and
 * additional_chat_templates/NAME.jinja, else chat_template.json, else tokenizer_config.json's.
 * False: a file of these is broken; what the others have is there all the same. */
bool chat_templates_read_dir(struct chat_templates *, const char *dir, struct err *e);
void chat_templates_free(struct chat_templates *);

/* NULL: none of this name. */
const struct chat_template *chat_templates_find(const struct chat_templates *, const char *name);

#endif
