/* tokenizer_json.h: how the files that read Hugging Face's tokenizer.json work together. */
#ifndef TOKEND_TOKENIZER_JSON_H
#define TOKEND_TOKENIZER_JSON_H

#include <jansson.h>

#include "tokenizer_impl.h"

enum { MOST_IDS = 16 << 20 };

/* A token of the file's list "added_tokens". */
struct added_token {
    struct str content;
    int32_t id;
    bool special, normalized;
    uint8_t flags; /* SPECIAL_LSTRIP... */
};

struct json_reading {
    const json_t *root, *config;
    struct tokenizer *t;
    struct str *vocab;   /* [n_ids] names of the model's own tokens; empty: none has the id */
    size_t n_ids, n_own; /* ids of the model, one above the last; how many of them are taken */
    struct string_table by_name; /* of vocab */
    struct added_token *added;
    struct str *added_names; /* [n_added] */
    struct string_table added_by_name;
    size_t n_added, most_added, next_id;
    bool byte_level; /* words are encoded as bytes */
    struct err *e;
};

/* Getters: fail naming the key and what it should be. `where` names the object. */
const char *json_type_of(const json_t *);
bool json_get_str(const json_t *object, const char *where, const char *key, struct str *out,
                  struct err *e);
/* Absent and null give the default. */
bool json_get_bool(const json_t *object, const char *where, const char *key, bool dflt, bool *out,
                   struct err *e);
struct str json_str(const json_t *string);
bool json_is(const json_t *string, const char *text);
/* Calls for `object` itself, or for each member of its list `key` where its type is "Sequence". */
typedef bool json_step(struct json_reading *, const json_t *step, struct str type);
bool json_for_each_step(struct json_reading *, const json_t *object, const char *where,
                        const char *key, json_step *);

bool json_read_normalizer(struct json_reading *);
bool json_read_pre_tokenizer(struct json_reading *);
bool json_read_decoder(struct json_reading *); /* fills the tokenizer's pieces */
bool json_read_post_processor(struct json_reading *);
bool json_read_bpe(struct json_reading *, const json_t *model);
bool json_read_unigram(struct json_reading *, const json_t *model);
bool json_read_config(struct json_reading *);

bool json_read_added(struct json_reading *);
void json_free_added(struct json_reading *);
/* The id of an added token or of the model's own; -1: neither. */
int32_t json_find_id(const struct json_reading *, struct str name);

#endif
