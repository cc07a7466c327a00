/* inspect.h: all that can be said about a model without running it. */
#ifndef TOKEND_INSPECT_H
#define TOKEND_INSPECT_H

#include "model_file.h"

#include <jansson.h>

/* A JSON object for people and programs: what it is, sizes, tensors, tokenizer, templates, ends,
 * licence, and warnings of known traps. NULL: out of memory. */
json_t *inspect_model(const struct model_file *, const char *named);

/* The same as lines of text. */
void inspect_print(const json_t *);

#endif
