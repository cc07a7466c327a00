/* pretokenizer_gguf.h: the pre-tokenizers that GGUF files name (tokenizer.ggml.pre). Each costs
 * time linear in the text: tests try each with runs of one character. */
#ifndef TOKEND_PRETOKENIZER_GGUF_H
#define TOKEND_PRETOKENIZER_GGUF_H

#include "gguf.h"
#include "pretokenizer.h"

/* What else follows from a name: a word that is a token is it; BOS goes before every prompt
 * unless the file says otherwise. */
enum { PRE_WHOLE_WORDS = 1, PRE_ADD_BOS = 2 };

/* Fails for a name that we do not know, naming it. */
struct pretokenizer *pretokenizer_gguf(struct str name, int *flags, struct err *e);
/* All names, for tests: NULL behind the last. */
const char *pretokenizer_gguf_name(size_t i);

#endif
