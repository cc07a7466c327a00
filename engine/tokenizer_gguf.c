/* Fills a tokenizer from the metadata of a GGUF file: what all kinds have in common. */
#include "tokenizer_gguf.h"

#include <stdlib.h>
#include <string.h>

static const char TOKENS[] = "tokenizer.ggml.tokens", TYPES[] = "tokenizer.ggml.token_type",
                  MODEL[] = "tokenizer.ggml.model";

bool tokenizer_load_oom(struct loading *l)
{
    return err_set(l->e, ERR_MEMORY, "out of memory for a vocabulary of %d tokens", l->t->n_vocab);
}

static bool read_names(struct loading *l)
{
    uint64_t n;
    struct gguf_string_iter it = {0};
    if (!gguf_array_len(l->g, TOKENS, GGUF_STRING, &n, l->e) ||
        !gguf_strings(l->g, TOKENS, &it, l->e))
        return false;
    if (n == 0 || n >= INT32_MAX)
        return err_set(l->e, ERR_INVALID, "%s has %llu entries: expected 1 to %d", TOKENS,
                       (unsigned long long)n, INT32_MAX - 1);
    l->types = calloc(n, sizeof *l->types);
    l->whole = calloc(n, sizeof *l->whole);
    if (!tokenizer_alloc(l->t, n, l->e))
        return false;
    if (!l->types || !l->whole)
        return tokenizer_load_oom(l);
    struct gguf_str name;
    for (uint64_t i = 0; i < n && gguf_next_string(&it, &name); i++)
        l->t->names[i] = (struct str){name.data, name.len};
    return true;
}

static bool read_types(struct loading *l)
{
    const void *data;
    uint64_t n;
    if (!gguf_has(l->g, TYPES))
        return err_set(l->e, ERR_INVALID,
                       "%s is absent: it tells control tokens from ordinary ones", TYPES);
    if (!gguf_array(l->g, TYPES, GGUF_I32, &data, &n, l->e))
        return false;
    if (n != (uint64_t)l->t->n_vocab)
        return err_set(l->e, ERR_INVALID, "%s has %llu entries, %s has %d: expected as many", TYPES,
                       (unsigned long long)n, TOKENS, l->t->n_vocab);
    for (int32_t i = 0; i < l->t->n_vocab; i++) {
        int32_t type;
        memcpy(&type, (const char *)data + (size_t)i * 4, 4);
        if (type < 0 || type > LAST_TYPE)
            return err_set(l->e, ERR_INVALID, "%s[%d] is %d: expected 1 to %d", TYPES, i, type,
                           LAST_TYPE);
        l->types[i] = (uint8_t)type;
        l->t->kinds[i] = type == TYPE_CONTROL || type == TYPE_UNKNOWN  ? SPECIAL_CONTROL
                         : type != TYPE_USER_DEFINED                   ? SPECIAL_NOT
                         : tokenizer_looks_like_marker(l->t->names[i]) ? SPECIAL_MARKER
                                                                       : SPECIAL_USER;
    }
    return true;
}

static int64_t say_piece(void *user, int32_t id, char *out)
{
    struct loading *l = user;
    return l->kind->piece(l, id, out);
}

static bool index_tokens(struct loading *l)
{
    size_t n = (size_t)l->t->n_vocab;
    bool *bytes = calloc(n, sizeof *bytes);
    if (!bytes)
        return tokenizer_load_oom(l);
    for (size_t i = 0; i < n; i++)
        bytes[i] = l->types[i] == TYPE_BYTE;
    bool ok = tokenizer_index(l->t, bytes, l->e);
    free(bytes);
    return ok;
}

struct special_tokens *tokenizer_load_special(struct loading *l, enum special_kind least,
                                              enum special_kind most)
{
    size_t n = 0;
    struct tokenizer *t = l->t;
    struct special_token *list = malloc((size_t)t->n_vocab * sizeof *list);
    if (!list) {
        tokenizer_load_oom(l);
        return NULL;
    }
    for (int32_t i = 0; i < t->n_vocab; i++)
        if (t->kinds[i] >= least && t->kinds[i] <= most)
            list[n++] = (struct special_token){t->names[i], i, t->kinds[i], 0};
    struct special_tokens *found = special_tokens_new(list, n, false, l->e);
    free(list);
    return found;
}

bool tokenizer_load_id(struct loading *l, const char *key, int32_t *id)
{
    uint32_t value;
    *id = -1;
    if (!gguf_has(l->g, key))
        return true;
    if (!gguf_u32(l->g, key, &value, l->e))
        return false;
    if (value >= (uint32_t)l->t->n_vocab)
        return err_set(l->e, ERR_INVALID, "%s is %u: the vocabulary has %d tokens", key, value,
                       l->t->n_vocab);
    *id = (int32_t)value;
    return true;
}

static bool read_settings(struct loading *l)
{
    struct tokenizer *t = l->t;
    if (!tokenizer_load_id(l, "tokenizer.ggml.bos_token_id", &t->bos) ||
        !tokenizer_load_id(l, "tokenizer.ggml.eos_token_id", &t->eos) ||
        !gguf_bool_or(l->g, "tokenizer.ggml.add_bos_token", l->kind->adds_bos(l), &t->adds_bos,
                      l->e) ||
        !gguf_bool_or(l->g, "tokenizer.ggml.add_eos_token", false, &t->adds_eos, l->e))
        return false;
    t->adds_bos = t->adds_bos && t->bos >= 0;
    t->adds_eos = t->adds_eos && t->eos >= 0;
    return ((!t->adds_bos || token_list_add(&t->prefix, t->bos)) &&
            (!t->adds_eos || token_list_add(&t->suffix, t->eos))) ||
           tokenizer_load_oom(l);
}

static bool choose_kind(struct loading *l)
{
    static const struct tokenizer_kind *const kinds[] = {&tokenizer_kind_bpe, &tokenizer_kind_spm,
                                                         &tokenizer_kind_gemma4};
    struct gguf_str model;
    if (!gguf_string(l->g, MODEL, &model, l->e))
        return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (gguf_str_is(model, kinds[i]->name)) {
            l->kind = kinds[i];
            return true;
        }
    return err_set(l->e, ERR_UNSUPPORTED,
                   "%s is \"%s\"%s: we know \"gpt2\" (byte-level byte pair encoding), \"llama\" "
                   "(SentencePiece with scores) and \"gemma4\"",
                   MODEL, gguf_show(model).text, gguf_str_is(model, "bert") ? " (WordPiece)" : "");
}

struct tokenizer *tokenizer_open_gguf(const struct gguf *g, struct err *e)
{
    struct loading l = {.g = g, .t = tokenizer_new(e), .e = e};
    bool ok = l.t && choose_kind(&l) && l.kind->start(&l) && read_names(&l) && read_types(&l) &&
              tokenizer_own_names(l.t, e) && tokenizer_make_pieces(l.t, say_piece, &l, e) &&
              index_tokens(&l) && read_settings(&l) && l.kind->finish(&l);
    free(l.types);
    free(l.whole);
    if (ok)
        return l.t;
    tokenizer_free(l.t);
    return NULL;
}
