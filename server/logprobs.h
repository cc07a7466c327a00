/* logprobs.h: logprobs as OpenAI's two APIs show them. New JSON, or NULL when out of memory. */
#ifndef TOKEND_LOGPROBS_H
#define TOKEND_LOGPROBS_H

#include "generation.h"

#include <jansson.h>

/* Tokens listed … to−1 of a choice, which count as listed from then on. */
json_t *logprobs_chat(struct generation *, int choice, int to);
/* The same for completions; the prompt's tokens come first when echo is asked and the choice
 * has shown nothing yet. */
json_t *logprobs_completion(struct generation *, int choice, int to);

/* The prompt's JSON, which its choices share: the first makes it, whoever comes after the last
 * frees it. */
void logprobs_drop_prompt(struct gen_prompt *);

#endif
