/* Mistral's tekken.json: ranks of byte strings, with the special tokens before them. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "tokenizer_ranks.h"

enum { MOST_IDS = 16 << 20, FILLER = 24 };

/* Files without a list of special tokens have these, then numbered ones. */
static const char *const old_specials[] = {"<unk>",
                                           "<s>",
                                           "</s>",
                                           "[INST]",
                                           "[/INST]",
                                           "[AVAILABLE_TOOLS]",
                                           "[/AVAILABLE_TOOLS]",
                                           "[TOOL_RESULTS]",
                                           "[/TOOL_RESULTS]",
                                           "[TOOL_CALLS]",
                                           "[IMG]",
                                           "<pad>",
                                           "[IMG_BREAK]",
                                           "[IMG_END]",
                                           "[PREFIX]",
                                           "[MIDDLE]",
                                           "[SUFFIX]",
                                           "[SYSTEM_PROMPT]",
                                           "[/SYSTEM_PROMPT]",
                                           "[TOOL_CONTENT]"};

struct tekken {
    const json_t *root;
    struct tokenizer *t;
    size_t n_ids, n_specials;
    char *bytes, *at;
    struct err *e;
};

static bool get_count(struct tekken *x, const char *key, size_t most, size_t *out)
{
    const json_t *v = json_object_get(json_object_get(x->root, "config"), key);
    json_int_t n = json_is_integer(v) ? json_integer_value(v) : -1;
    if (n < 0 || (size_t)n > most)
        return err_set(x->e, ERR_INVALID, "config.%s: expected a number up to %zu", key, most);
    *out = (size_t)n;
    return true;
}

static size_t base64_bytes(const json_t *vocab)
{
    size_t i, bytes = 0;
    const json_t *row;
    json_array_foreach(vocab, i, row)
    {
        bytes += json_string_length(json_object_get(row, "token_bytes"));
    }
    return bytes;
}

/* Rows beyond the size that config states are not used. */
static bool read_row(struct tekken *x, size_t i, const json_t *row)
{
    const json_t *bytes = json_object_get(row, "token_bytes");
    const json_t *rank = json_object_get(row, "rank");
    struct str text = {json_string_value(bytes), json_string_length(bytes)};
    json_int_t at = json_integer_value(rank);
    int64_t n = json_is_string(bytes) ? tokenizer_base64(text, x->at) : -1;
    if (n <= 0 || !json_is_integer(rank) || at < 0)
        return err_set(x->e, ERR_INVALID, "vocab[%zu]: expected token_bytes in base64 and a rank",
                       i);
    if ((size_t)at >= x->n_ids - x->n_specials)
        return true;
    struct str *name = &x->t->names[x->n_specials + (size_t)at];
    if (name->len)
        return err_set(x->e, ERR_INVALID, "vocab[%zu]: the rank %lld is there already", i,
                       (long long)at);
    *name = (struct str){x->at, (size_t)n};
    x->at += n;
    return true;
}

static void set_special(struct tekken *x, size_t id, struct str name, bool control)
{
    x->t->names[id] = name;
    x->t->kinds[id] = control ? SPECIAL_CONTROL : SPECIAL_USER;
}

static bool read_specials(struct tekken *x)
{
    size_t i;
    const json_t *row, *list = json_object_get(x->root, "special_tokens");
    json_array_foreach(list, i, row)
    {
        const json_t *text = json_object_get(row, "token_str");
        const json_t *control = json_object_get(row, "is_control");
        json_int_t id = json_integer_value(json_object_get(row, "rank"));
        if (!json_is_string(text) || id < 0 || (size_t)id >= x->n_specials)
            return err_set(x->e, ERR_INVALID,
                           "special_tokens[%zu]: expected token_str and a rank below %zu", i,
                           x->n_specials);
        set_special(x, (size_t)id, (struct str){json_string_value(text), json_string_length(text)},
                    !json_is_false(control));
    }
    for (i = 0; !list && i < sizeof old_specials / sizeof *old_specials && i < x->n_specials; i++)
        set_special(x, i, (struct str){old_specials[i], strlen(old_specials[i])}, true);
    for (i = 0; i < x->n_specials; i++)
        if (x->t->names[i].len == 0) {
            int n = snprintf(x->at, FILLER, "<SPECIAL_%zu>", i);
            set_special(x, i, (struct str){x->at, (size_t)n}, true);
            x->at += n;
        }
    return true;
}

static bool read_all(struct tekken *x)
{
    size_t i;
    const json_t *row, *vocab = json_object_get(x->root, "vocab");
    const json_t *pattern = json_object_get(json_object_get(x->root, "config"), "pattern");
    if (!json_is_string(pattern))
        return err_set(x->e, ERR_INVALID, "config.pattern: expected a string");
    if (!get_count(x, "default_vocab_size", MOST_IDS, &x->n_ids) ||
        !get_count(x, "default_num_special_tokens", x->n_ids, &x->n_specials))
        return false;
    size_t rows = json_array_size(vocab); /* the size may promise more than there is */
    if (rows < x->n_ids - x->n_specials)
        x->n_ids = x->n_specials + rows;
    if (x->n_ids == 0)
        return err_set(x->e, ERR_INVALID, "the vocabulary is empty");
    x->at = x->bytes = malloc(base64_bytes(vocab) + x->n_specials * FILLER + 1);
    if (!x->bytes || !tokenizer_alloc(x->t, x->n_ids, x->e))
        return tokenizer_oom(x->e, x->n_ids);
    json_array_foreach(vocab, i, row)
    {
        if (!read_row(x, i, row))
            return false;
    }
    struct str text = {json_string_value(pattern), json_string_length(pattern)};
    return read_specials(x) && tokenizer_finish_ranks(x->t, text, x->e);
}

struct tokenizer *tokenizer_open_tekken(const json_t *root, struct err *e)
{
    struct tekken x = {.root = root, .t = tokenizer_new(e), .e = e};
    bool ok = x.t && read_all(&x);
    free(x.bytes);
    if (!ok) {
        tokenizer_free(x.t);
        return NULL;
    }
    x.t->bos = tokenizer_find(x.t, "<s>", 3);
    x.t->eos = tokenizer_find(x.t, "</s>", 4);
    return x.t;
}
