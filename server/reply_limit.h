/* reply_limit.h: how large a request lets its reply become, known before anything is made.
 *
 * What one small body can multiply is counted: logprobs, ids and echoed text, for each choice.
 * Of a stream only its largest event and what the engine keeps until the end. Any thread. */
#ifndef TOKEND_REPLY_LIMIT_H
#define TOKEND_REPLY_LIMIT_H

#include "api_error.h"
#include "generation.h"

enum {
    REPLY_MAX_BYTES = 64 << 20,
    REPLY_TREE_MAX_BYTES = 128 << 20, /* of the JSON of one answer, before it is text */
};

/* Whether the reply stays below these; the error names what would. An answer as long as
 * fits (no max_tokens) is bounded by it. */
bool reply_limit_check(struct gen_input *, int max_model_len, struct api_error *e);

#endif
