/* inspect_template.h: what a chat template can do, found out by trying. */
#ifndef TOKEND_INSPECT_TEMPLATE_H
#define TOKEND_INSPECT_TEMPLATE_H

#include "chat_templates.h"
#include "tokenizer.h"

#include <jansson.h>

struct template_facts {
    bool parses, renders;
    bool system_role; /* text of a system message is in the prompt */
    bool tools;       /* so is the name of a tool */
    int32_t end;      /* the control token behind an earlier answer, or -1 */
    struct err why;   /* of parses or renders false */
};

/* tokenizer NULL: `end` is not found. */
void template_try(const struct chat_template *, const struct chat_templates *,
                  const struct tokenizer *, struct template_facts *out);

/* Renders a chat of one message. False and *why, with the line unless the template itself raised
 * it (*raised). */
struct template;
bool template_answers(const struct template *, const struct chat_templates *, bool *raised,
                      struct err *why);

#endif
