/* normaliser.h: what becomes of text before it is split and encoded.
 *
 * A list of steps, each on the whole of what the step before it left. Every step costs time
 * linear in the text. Filled by one thread, then immutable: any thread may normalise, each with
 * its own scratch. */
#ifndef TOKEND_NORMALISER_H
#define TOKEND_NORMALISER_H

#include "charsmap.h"
#include "regex.h"
#include "special_tokens.h"

enum normal_kind {
    NORMAL_UNICODE, /* NFC, NFD, NFKC, NFKD */
    NORMAL_LOWERCASE,
    NORMAL_PREPEND,       /* `text` in front, unless there is nothing */
    NORMAL_REPLACE,       /* `pattern`, or what `regex` matches, becomes `text` */
    NORMAL_STRIP,         /* white space at the ends */
    NORMAL_STRIP_ACCENTS, /* marks */
    NORMAL_NMT,           /* control characters go, odd spaces become plain */
    NORMAL_CHARSMAP,      /* as tokenizer.json's library applies one */
    NORMAL_BYTE_LEVEL,    /* bytes become characters of GPT-2's alphabet */
    NORMAL_SENTENCEPIECE, /* all that SentencePiece does, in one */
};

struct normal_step {
    enum normal_kind kind;
    bool compose, compatible; /* UNICODE */
    bool left, right;         /* STRIP */
    struct regex *regex;      /* REPLACE; owned by the normaliser, like all below */
    char *pattern, *text;     /* REPLACE; PREPEND */
    size_t n_pattern, n_text;
    struct charsmap *charsmap; /* CHARSMAP; SENTENCEPIECE, NULL: none */

    /* SENTENCEPIECE */
    bool dummy_prefix;                       /* a space more at the start of a text, */
    bool as_suffix;                          /* or instead at its end */
    bool one_space;                          /* runs of spaces are one, and none is at the ends */
    bool escape;                             /* spaces become U+2581 */
    const struct special_tokens *protected_; /* not mapped; NULL: none. Not owned. */
};

struct normaliser;
struct normaliser *normaliser_new(struct err *e);
/* Takes what the step owns, also when it fails. */
bool normaliser_add(struct normaliser *, struct normal_step, struct err *e);
void normaliser_free(struct normaliser *); /* NULL is fine */
void normal_step_free(struct normal_step *);
bool normaliser_is_empty(const struct normaliser *);

struct normal_scratch; /* for one text at a time */
struct normal_scratch *normal_scratch_new(struct err *e);
void normal_scratch_free(struct normal_scratch *); /* NULL is fine */

/* Where in a text something lies: at its start, at its end. */
enum { TEXT_FIRST = 1, TEXT_LAST = 2 };
/* Normalises *text, valid UTF-8, which lies at *where. It then points to the scratch, or to what
 * it pointed to. *where loses TEXT_FIRST when its first characters went. */
bool normalise(const struct normaliser *, struct normal_scratch *, struct str *text, int *where,
               struct err *e);

/* The character that stands for a byte in GPT-2's alphabet, and back: -1 when c is none. */
uint32_t alphabet_char(unsigned char byte);
int alphabet_byte(uint32_t c);
/* Writes the bytes that a string in the alphabet stands for, s.len at most; -1 when some
 * character is not in it. */
int64_t alphabet_decode(struct str s, char *out);

#endif
