/* tokenizer_impl.h: what a tokenizer is made of; only for the files that fill or use one.
 *
 * Whatever file it comes from, a tokenizer is one pipeline: special tokens are found in the
 * text as written, what lies between is normalised, special tokens are found in that, what lies
 * between is split into words, and a model makes tokens of each. What is absent is skipped. */
#ifndef TOKEND_TOKENIZER_IMPL_H
#define TOKEND_TOKENIZER_IMPL_H

#include "bpe.h"
#include "joins.h"
#include "normaliser.h"
#include "pretokenizer.h"
#include "special_tokens.h"
#include "unigram.h"

/* What decoding a whole text drops from its start. */
enum text_start {
    START_KEEP,
    START_ONE_SPACE,      /* one space of the text */
    START_SPACE_OF_EACH,  /* one space of each token, while there is no text yet */
    START_SPACES_OF_FIRST /* all spaces of the first token */
};

struct tokenizer {
    int32_t n_vocab;
    struct str *names;  /* [n_vocab] what the file calls them; empty: no such id */
    struct str *pieces; /* [n_vocab] the bytes they stand for */
    struct str *texts;  /* [n_vocab] special tokens' names, other tokens' pieces */
    uint8_t *kinds;     /* [n_vocab] enum special_kind */
    struct str *raw;    /* [n_vocab] names out of the byte-level alphabet; may be NULL */
    char *name_bytes, *piece_bytes, *raw_bytes;
    struct string_table by_text; /* of equal ones a special token is found */

    int32_t bos, eos;
    bool adds_bos, adds_eos;
    struct token_list prefix, suffix; /* what goes around a prompt */

    struct special_tokens *special; /* in the text as written */
    struct normaliser *normaliser;
    struct special_tokens *special_normal; /* in normalised text; */
    bool whole_text;                       /* but the model finds those itself */
    struct pretokenizer *pre;
    struct joins *joins;     /* where a word may be cut */
    struct unigram *unigram; /* the model; NULL: bpe is */
    struct bpe bpe;
    /* SentencePiece: a text starts anew behind each control token, and other special tokens
     * are part of it; else what lies between special tokens stands alone. */
    bool starts_anew;
    enum text_start start;
    bool adds_space;
};

struct tokenizer *tokenizer_new(struct err *e);
/* Room for n tokens without names, none of them special. */
bool tokenizer_alloc(struct tokenizer *, size_t n, struct err *e);
/* Copies the names into memory of the tokenizer's own. */
bool tokenizer_own_names(struct tokenizer *, struct err *e);

/* Writes to out the bytes that a name stands for, at most SAY_TIMES as many as it has and
 * SAY_MORE; returns how many (-1: those of the name). */
enum { SAY_TIMES = 4, SAY_MORE = 64 };
typedef int64_t tokenizer_say(void *user, int32_t id, char *out);
bool tokenizer_make_pieces(struct tokenizer *, tokenizer_say *, void *user, struct err *e);
/* The same for raw. */
bool tokenizer_make_raw(struct tokenizer *, tokenizer_say *, void *user, struct err *e);

/* Fills texts and the table of them; `weak` tokens ([n_vocab] or NULL) give way to others. */
bool tokenizer_index(struct tokenizer *, const bool *weak, struct err *e);

bool tokenizer_oom(struct err *e, size_t n_vocab); /* fails with the words for it */
/* The byte that a token named <0x0A> stands for, or -1. */
int tokenizer_named_byte(struct str name);
/* Decodes base64 to out (s.len * 3 / 4 bytes are enough); -1: it is none. */
int64_t tokenizer_base64(struct str s, char *out);
/* Copies a name with spaces for U+2581; returns the bytes written. */
size_t tokenizer_unmark(struct str name, char *out);
/* Does it look like one of the tokens that mark turns (<|user|>), which some files do not call
 * control tokens? */
bool tokenizer_looks_like_marker(struct str name);

/* Readers, by kind of file (tokenizer_open says which). `bytes` need not outlive the call. */
struct json_t;
/* `config`: what tokenizer_config.json says, or NULL. */
struct tokenizer *tokenizer_open_json(const struct json_t *root, const struct json_t *config,
                                      struct err *e);
/* Takes from tokenizer_config.json which tokens open and close a text. */
bool tokenizer_apply_config(struct tokenizer *, const struct json_t *config, struct err *e);
struct tokenizer *tokenizer_open_tekken(const struct json_t *root, struct err *e);
/* Of `config` only tokens behind the file's pieces. */
struct tokenizer *tokenizer_open_sentencepiece(const void *bytes, size_t n,
                                               const struct json_t *config, struct err *e);
struct tokenizer *tokenizer_open_tiktoken(const void *bytes, size_t n, const char *encoding,
                                          struct err *e);

#endif
