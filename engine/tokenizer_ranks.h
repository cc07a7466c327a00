/* tokenizer_ranks.h: byte pair encoding by rank, as tiktoken and Mistral's tekken files have it:
 * of neighbouring bytes those merge first whose joined text has the lowest rank. */
#ifndef TOKEND_TOKENIZER_RANKS_H
#define TOKEND_TOKENIZER_RANKS_H

#include "tokenizer_impl.h"

/* Fills the rest of a tokenizer that has names (bytes, for ordinary tokens) and kinds; an
 * ordinary token's rank is its id. `pattern` is in Rust's syntax. */
bool tokenizer_finish_ranks(struct tokenizer *, struct str pattern, struct err *e);

#endif
