/* tokenizer.h: text to token ids and back.
 *
 * A tokenizer is immutable after opening: any thread may use it at the same time (text
 * workers do). Encoding needs memory linear in the text and n·log n time at worst.
 *
 * Text is not control (promise 9): control tokens (<|im_end|> and the like) are recognised
 * only where the caller says so, by spans of bytes that the chat template itself wrote, or
 * for the whole text. Ordinary text is still split and merged as one run across the border
 * of spans, so that the ids of harmless content equal the reference implementation's. */
#ifndef TOKEND_TOKENIZER_H
#define TOKEND_TOKENIZER_H

#include "err.h"
#include "gguf.h"

struct tokenizer;

/* Bytes [start, end) of a text. Lists of spans ascend and do not overlap. */
struct text_span {
    size_t start, end;
};

struct token_list { /* zeroed = empty; free with token_list_free */
    int32_t *ids;
    size_t n, cap;
};
bool token_list_add(struct token_list *, int32_t id); /* false: out of memory */
void token_list_free(struct token_list *);

enum control_rule {
    CONTROL_NONE,  /* control tokens in the text are plain characters */
    CONTROL_ALL,   /* and here they are control tokens */
    CONTROL_SPANS, /* only those that lie wholly inside one of the spans */
};

/* Opens the tokenizer of a model file. Fails for a kind or pre-tokenizer that we do not
 * know, naming it: never a guess. */
struct tokenizer *tokenizer_open_gguf(const struct gguf *, struct err *e);
/* Opens the tokenizer of a file or of a Hugging Face directory. What a file is, its content
 * says: GGUF, Hugging Face's tokenizer.json, SentencePiece's .model, Mistral's tekken.json, or
 * a rank file of tiktoken's. The last holds neither pattern nor special tokens: `encoding`
 * names them ("cl100k_base", ...; NULL for the other kinds, where a name is an error).
 * In a directory tokenizer.json comes before tokenizer.model and tekken.json, and
 * tokenizer_config.json says which tokens open and close a text. Keeps no file open. */
struct tokenizer *tokenizer_open(const char *path, const char *encoding, struct err *e);
void tokenizer_free(struct tokenizer *); /* NULL is fine */

/* Appends the ids of text[n] to *out. The text must be valid UTF-8 (ERR_INVALID names the
 * byte offset). `spans` is read only under CONTROL_SPANS. Adds no BOS or EOS of its own.
 * On failure *out is as before. Bytes that the vocabulary has no token for give none.
 *
 * A tokenizer with scores (SentencePiece) may put a space before the text and behind each
 * control token in it, where other text follows. */
bool tokenizer_encode(const struct tokenizer *, const char *text, size_t n, enum control_rule,
                      const struct text_span *spans, size_t n_spans, struct token_list *out,
                      struct err *e);

/* Number of ids; every id below is valid in the functions underneath. */
int tokenizer_n_vocab(const struct tokenizer *);
/* The bytes that an id stands for, not terminated (they may be part of a character). Control
 * tokens give their text. Lives as long as the tokenizer. */
const char *tokenizer_piece(const struct tokenizer *, int32_t id, size_t *len);
bool tokenizer_is_control(const struct tokenizer *, int32_t id);
/* The id of a token whose text is exactly `text`, or -1. */
int32_t tokenizer_find(const struct tokenizer *, const char *text, size_t n);

/* What encode's caller may want to add; -1: the model has none. */
int32_t tokenizer_bos(const struct tokenizer *);
int32_t tokenizer_eos(const struct tokenizer *);
bool tokenizer_adds_bos(const struct tokenizer *); /* the model wants BOS before every prompt */
bool tokenizer_adds_eos(const struct tokenizer *);
/* The ids that the model wants before and behind every prompt, of which BOS and EOS are the
 * usual ones (GLM has two in front). Live as long as the tokenizer. */
const int32_t *tokenizer_prefix(const struct tokenizer *, size_t *n);
const int32_t *tokenizer_suffix(const struct tokenizer *, size_t *n);
/* Encoding puts a space before a text, which decoding a whole text has to drop. */
bool tokenizer_adds_space(const struct tokenizer *);

/* Incremental detokeniser: ids in, whole UTF-8 characters out. Bytes of a character that is
 * not complete are held back; bytes that can never become valid come out as U+FFFD (one for
 * each maximal bad run, as Unicode recommends). No memory of its own.
 *
 * Zeroed = new, for ids that go on from others, as a model's answer does from its prompt.
 * {.at_start = true} = new, for the ids of a whole text: where the tokenizer puts a space before
 * every text, one that the first piece shown begins with is dropped. */
struct detokenizer {
    char held[4];
    int n_held;
    bool at_start;
};
enum { DETOKENIZER_MARGIN = 16 };
/* Appends the new text to out, which has room for the piece's bytes * 3 + DETOKENIZER_MARGIN;
 * returns the bytes written. skip_special: control tokens give nothing. */
size_t detokenizer_add(struct detokenizer *, const struct tokenizer *, int32_t id,
                       bool skip_special, char *out);
/* At the end of a text: what is still held, as U+FFFD. Returns bytes written. */
size_t detokenizer_flush(struct detokenizer *, char *out);

#endif
