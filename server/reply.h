/* reply.h: the shapes of OpenAI's completions and chat replies, whole and in chunks
 * (new JSON, or NULL when out of memory).
 *
 * The loop, or a worker while the loop does not touch the generation's choices. */
#ifndef TOKEND_REPLY_H
#define TOKEND_REPLY_H

#include "generation.h"

#include <jansson.h>
#include <stdint.h>

/* Appends the text of the whole reply, choice by choice: no tree of all of it is ever there.
 * Without memory out->failed. */
void reply_whole(struct generation *, struct buf *out);
/* The first chunk of a chat choice: its role. */
json_t *reply_role_chunk(struct generation *, int choice);
/* What is released and not yet sent of a choice, and its finish reason when it has one. */
json_t *reply_chunk(struct generation *, int choice);
/* "choices":[] and the usage. */
json_t *reply_usage_chunk(struct generation *);

/* About how long those take with formatting, in ns: text, ids and logprobs are what counts. */
int64_t reply_whole_cost(const struct generation *);
int64_t reply_chunk_cost(const struct generation *, int choice); /* with the role chunk */

#endif
