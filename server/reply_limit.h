/* reply_limit.h: how large a request lets its reply become, known before anything is made.
 *
 * What one small body can multiply is counted: logprobs, ids and echoed text, for each choice.
 * Of a stream only its largest event and what the engine keeps until the end. Any thread. */
#ifndef TOKEND_REPLY_LIMIT_H
#define TOKEND_REPLY_LIMIT_H

#include "api_error.h"
#include "generation.h"

enum { REPLY_MAX_BYTES = 64 << 20 };

/* Whether the reply stays below REPLY_MAX_BYTES; the error names what would. An answer as long as
 * fits (no max_tokens) is bounded by it. */
bool reply_limit_check(struct gen_input *, int max_model_len, struct api_error *e);

#endif
