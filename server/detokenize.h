/* detokenize.h: token ids as text and as JSON shows single tokens. Any thread. */
#ifndef TOKEND_DETOKENIZE_H
#define TOKEND_DETOKENIZE_H

#include "buf.h"
#include "tokenizer.h"

#include <jansson.h>

/* The bytes of one token; "" without a tokenizer (NULL) or for an id outside it. */
const char *token_bytes(const struct tokenizer *, int32_t id, size_t *len);

/* Appends the characters that this token completes. */
void detokenize_add(struct detokenizer *, const struct tokenizer *, int32_t id, bool skip_special,
                    struct buf *out);
void detokenize_flush(struct detokenizer *, struct buf *out);
/* A whole text's ids. */
void detokenize_all(const struct tokenizer *, const int32_t *ids, size_t n, bool skip_special,
                    struct buf *out);

/* Appends a JSON array of the ids. */
void token_ids_write(const struct token_list *, struct buf *out);
/* How a token is written beside its logprob: its text; "bytes:\xE2\x98" when that is not UTF-8
 * (OpenAI's convention; it keeps two such tokens apart); "token_id:7" when asked or when there
 * is no tokenizer. */
void token_label(const struct tokenizer *, int32_t id, bool as_id, struct buf *out);

#endif
