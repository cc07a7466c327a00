/* Fills a tokenizer from the metadata of a GGUF file: what all kinds have in common. */
#include "tokenizer_gguf.h"

#include <stdlib.h>
#include <string.h>

static const char TOKENS[] = "tokenizer.ggml.tokens", TYPES[] = "tokenizer.ggml.token_type",
                  MODEL[] = "tokenizer.ggml.model";

static bool starts_with(struct gguf_str s, const char *with)
{
    return s.len >= strlen(with) && memcmp(s.data, with, strlen(with)) == 0;
}

static bool ends_with(struct gguf_str s, const char *with)
{
    size_t n = strlen(with);
    return s.len >= n && memcmp(s.data + s.len - n, with, n) == 0;
}

/* Some models mark turns with tokens that their files call user-defined (DeepSeek, Command). */
static bool looks_like_marker(struct gguf_str name)
{
    return (starts_with(name, "<|") && ends_with(name, "|>")) ||
           (starts_with(name, "<\xEF\xBD\x9C") && ends_with(name, "\xEF\xBD\x9C>"));
}

bool tokenizer_load_oom(struct loading *l)
{
    return err_set(l->e, ERR_MEMORY, "out of memory for a vocabulary of %d tokens", l->t->n_vocab);
}

static bool read_names(struct loading *l, size_t *bytes)
{
    uint64_t n;
    struct gguf_string_iter it = {0};
    if (!gguf_array_len(l->g, TOKENS, GGUF_STRING, &n, l->e) ||
        !gguf_strings(l->g, TOKENS, &it, l->e))
        return false;
    if (n == 0 || n >= INT32_MAX)
        return err_set(l->e, ERR_INVALID, "%s has %llu entries: expected 1 to %d", TOKENS,
                       (unsigned long long)n, INT32_MAX - 1);
    l->t->n_vocab = (int32_t)n;
    l->names = calloc(n, sizeof *l->names);
    l->types = calloc(n, sizeof *l->types);
    l->whole = calloc(n, sizeof *l->whole);
    l->t->pieces = calloc(n, sizeof *l->t->pieces);
    l->t->kinds = calloc(n, sizeof *l->t->kinds);
    if (!l->names || !l->types || !l->whole || !l->t->pieces || !l->t->kinds)
        return tokenizer_load_oom(l);
    *bytes = 0;
    for (uint64_t i = 0; i < n && gguf_next_string(&it, &l->names[i]); i++)
        *bytes += l->names[i].len;
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
        l->t->kinds[i] = type == TYPE_CONTROL || type == TYPE_UNKNOWN ? SPECIAL_CONTROL
                         : type != TYPE_USER_DEFINED                  ? SPECIAL_NOT
                         : looks_like_marker(l->names[i])             ? SPECIAL_MARKER
                                                                      : SPECIAL_USER;
    }
    return true;
}

/* Names become bytes, which never need more room. */
static bool make_pieces(struct loading *l, size_t bytes)
{
    struct tokenizer *t = l->t;
    t->bytes = malloc(bytes + 1);
    if (!t->bytes)
        return tokenizer_load_oom(l);
    char *at = t->bytes;
    for (int32_t i = 0; i < t->n_vocab; i++) {
        struct gguf_str name = l->names[i];
        int64_t n = l->kind->piece(l, i, at);
        if (n < 0)
            memcpy(at, name.data, name.len);
        t->pieces[i] = (struct gguf_str){at, n < 0 ? name.len : (size_t)n};
        at += t->pieces[i].len;
    }
    return true;
}

/* Of tokens that read alike a special one is found, and one that only stands for a byte is not. */
static int precedence(const struct loading *l, int32_t id)
{
    return l->t->kinds[id] != SPECIAL_NOT ? 2 : l->types[id] != TYPE_BYTE;
}

static bool make_tables(struct loading *l)
{
    struct tokenizer *t = l->t;
    size_t n = (size_t)t->n_vocab;
    if (!string_table_init(&t->texts, t->pieces, n))
        return tokenizer_load_oom(l);
    for (int p = 0; p <= 2; p++)
        for (int32_t i = 0; i < t->n_vocab; i++)
            if (t->pieces[i].len && precedence(l, i) == p)
                string_table_add(&t->texts, i);
    t->special = special_tokens_new(t->pieces, t->kinds, n, l->e);
    return t->special != NULL;
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
    static const struct tokenizer_kind *const kinds[] = {&tokenizer_kind_bpe, &tokenizer_kind_spm};
    struct gguf_str model;
    if (!gguf_string(l->g, MODEL, &model, l->e))
        return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (model.len == strlen(kinds[i]->name) &&
            memcmp(model.data, kinds[i]->name, model.len) == 0) {
            l->kind = kinds[i];
            return true;
        }
    return err_set(l->e, ERR_UNSUPPORTED,
                   "%s is \"%s\": we know \"gpt2\" (byte-level byte pair encoding) and \"llama\" "
                   "(SentencePiece with scores)",
                   MODEL, gguf_show(model).text);
}

struct tokenizer *tokenizer_open_gguf(const struct gguf *g, struct err *e)
{
    size_t bytes = 0;
    struct loading l = {.g = g, .t = calloc(1, sizeof *l.t), .e = e};
    bool ok = l.t || err_set(e, ERR_MEMORY, "out of memory for a tokenizer");
    ok = ok && choose_kind(&l) && l.kind->start(&l) && read_names(&l, &bytes) && read_types(&l) &&
         make_pieces(&l, bytes) && make_tables(&l) && read_settings(&l) && l.kind->finish(&l);
    free(l.names);
    free(l.types);
    free(l.whole);
    if (ok)
        return l.t;
    tokenizer_free(l.t);
    return NULL;
}
