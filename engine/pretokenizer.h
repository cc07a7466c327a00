/* pretokenizer.h: splits text into the words that byte pair encoding works on.
 *
 * A pre-tokenizer has a name (tokenizer.ggml.pre) and one or more patterns. The first splits
 * the text into its matches and what lies between them; the next one splits each of these
 * parts on its own, and so on. Costs time linear in the text for every pattern here: tests
 * try each with runs of one character.
 *
 * Immutable after opening: any thread may split at the same time. */
#ifndef TOKEND_PRETOKENIZER_H
#define TOKEND_PRETOKENIZER_H

#include "err.h"
#include "gguf.h"

struct pretokenizer;

/* Fails for a name that we do not know, naming it. */
struct pretokenizer *pretokenizer_open(struct gguf_str name, struct err *e);
void pretokenizer_free(struct pretokenizer *); /* NULL is fine */

/* What else follows from the name: */
bool pretokenizer_ignores_merges(const struct pretokenizer *); /* a word that is a token is it */
bool pretokenizer_adds_bos(const struct pretokenizer *);       /* unless the file says otherwise */

/* Calls `word` for each word of text[n], in order; together they are the text. The text is
 * valid UTF-8. Ends early, and fails, when `word` returns false (which then fills the error). */
typedef bool pretokenizer_word(void *user, const char *word, size_t n);
bool pretokenizer_split(const struct pretokenizer *, const char *text, size_t n,
                        pretokenizer_word *word, void *user, struct err *e);

/* All names, for tests: NULL behind the last. */
const char *pretokenizer_name(size_t i);

#endif
