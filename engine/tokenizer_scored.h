/* tokenizer_scored.h: SentencePiece's byte pair encoding, whatever file it comes from. */
#ifndef TOKEND_TOKENIZER_SCORED_H
#define TOKEND_TOKENIZER_SCORED_H

#include "tokenizer_impl.h"

/* Lets the bpe of the tokenizer, which is begun by text and characters, make the tokens for which
 * makes[id] is set, best score first; those with unused[id] on the way only. Notes joins. */
bool tokenizer_add_scored(struct tokenizer *, const float *scores, const bool *makes,
                          const bool *unused, struct err *e);

#endif
