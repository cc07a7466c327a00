/* pretokenizer.h: splits text into the words that a model encodes one by one.
 *
 * A list of stages: the first splits the text, the next one splits each part on its own, and
 * so on. A stage may also change its parts (spaces to U+2581, a space in front). Filled by one
 * thread, then immutable: any thread may split, each with its own scratch. */
#ifndef TOKEND_PRETOKENIZER_H
#define TOKEND_PRETOKENIZER_H

#include "err.h"
#include "regex.h"

struct pretokenizer;

/* What becomes of what a pattern matches. */
enum split_behavior {
    SPLIT_ISOLATED,             /* a part of its own */
    SPLIT_REMOVED,              /* nothing */
    SPLIT_MERGED_WITH_PREVIOUS, /* the end of the part before it */
    SPLIT_MERGED_WITH_NEXT,     /* the start of the part behind it */
    SPLIT_CONTIGUOUS,           /* one part with the matches beside it */
};

/* What a stage puts before a part. */
enum split_prefix {
    PREFIX_NONE,
    PREFIX_FIRST,  /* its mark, before the part that the text starts with */
    PREFIX_ALWAYS, /* its mark, before every part that does not start with it */
};

struct stage {
    struct regex *regex; /* NULL: parts stay whole. Owned by the pre-tokenizer once added. */
    enum split_behavior behavior;
    bool invert;       /* matches are what lies between matches */
    bool marks_spaces; /* spaces become the mark, before all else */
    char mark[5];      /* terminated */
    enum split_prefix prefix;
};

struct pretokenizer *pretokenizer_new(struct err *e); /* without stages: one word */
/* Takes the stage's regex, also when it fails. */
bool pretokenizer_add(struct pretokenizer *, struct stage, struct err *e);
/* Adds a stage that splits by a pattern of ours (regex.h). */
bool pretokenizer_add_pattern(struct pretokenizer *, const char *pattern, enum split_behavior,
                              struct err *e);
void pretokenizer_free(struct pretokenizer *); /* NULL is fine */

struct split_scratch; /* for one text at a time */
struct split_scratch *split_scratch_new(struct err *e);
void split_scratch_free(struct split_scratch *); /* NULL is fine */

/* Calls `word` for each word of text[n], in order; none is empty. `first`: the text is the start
 * of all text. The text is valid UTF-8. Ends early, and fails, when `word` returns false (which
 * then fills the error). */
typedef bool pretokenizer_word(void *user, const char *word, size_t n);
bool pretokenizer_split(const struct pretokenizer *, struct split_scratch *, const char *text,
                        size_t n, bool first, pretokenizer_word *word, void *user, struct err *e);

/* GPT-2's pattern, which several file formats take as known. */
extern const char pretokenizer_gpt2[];

#endif
