/* Fills a tokenizer from the metadata of a GGUF file. The file's strings ("names" here) are
 * the tokens in the byte-level alphabet, where every byte is a printable character; those of
 * control and user-defined tokens are plain text. */
#include "buf.h"
#include "tokenizer.h"
#include "tokenizer_impl.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

static const char TOKENS[] = "tokenizer.ggml.tokens", TYPES[] = "tokenizer.ggml.token_type",
                  MERGES[] = "tokenizer.ggml.merges", PRE[] = "tokenizer.ggml.pre",
                  MODEL[] = "tokenizer.ggml.model";

/* Numbers of the format; 0 is undefined, which we take for normal. */
enum token_type { TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_USER_DEFINED = 4, LAST_TYPE = 6 };

struct loading {
    const struct gguf *g;
    struct tokenizer *t;
    struct gguf_str *names;      /* [n_vocab] in the file */
    bool *whole;                 /* [n_vocab] ordinary tokens that byte pairs can make */
    struct string_table by_name; /* of two equal names the later id */
    struct err *e;
};

/* The byte that a character of the alphabet stands for, or -1. Printable Latin-1 stands for
 * itself; the other bytes follow from U+0100 on, in order. */
static int alphabet_byte(uint32_t c)
{
    if ((c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xFF && c != 0xAD))
        return (int)c;
    if (c < 0x100 || c > 0x143)
        return -1;
    c -= 0x100;
    return c <= 0x20 ? (int)c : c <= 0x42 ? (int)c - 0x21 + 0x7F : 0xAD;
}

/* Writes the bytes that a name stands for; -1 when it is not in the alphabet. */
static int64_t alphabet_decode(struct gguf_str name, char *out)
{
    if (utf8_check(name.data, name.len) < name.len)
        return -1;
    int64_t n = 0;
    for (size_t i = 0; i < name.len;) {
        int byte = alphabet_byte(utf8_decode(name.data, &i));
        if (byte < 0)
            return -1;
        out[n++] = (char)byte;
    }
    return n;
}

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

static bool oom(struct loading *l)
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
    l->whole = calloc(n, sizeof *l->whole);
    l->t->pieces = calloc(n, sizeof *l->t->pieces);
    l->t->kinds = calloc(n, sizeof *l->t->kinds);
    if (!l->names || !l->whole || !l->t->pieces || !l->t->kinds)
        return oom(l);
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
        l->t->kinds[i] = type == TYPE_CONTROL || type == TYPE_UNKNOWN ? SPECIAL_CONTROL
                         : type != TYPE_USER_DEFINED                  ? SPECIAL_NOT
                         : looks_like_marker(l->names[i])             ? SPECIAL_MARKER
                                                                      : SPECIAL_USER;
    }
    return true;
}

/* Names become bytes, which never need more room. A name of an ordinary token that is not in
 * the alphabet stays as it is: text cannot make it, but it can be printed. */
static bool make_pieces(struct loading *l, size_t bytes)
{
    struct tokenizer *t = l->t;
    t->bytes = malloc(bytes + 1);
    if (!t->bytes)
        return oom(l);
    char *at = t->bytes;
    for (int32_t i = 0; i < t->n_vocab; i++) {
        struct gguf_str name = l->names[i];
        int64_t n = t->kinds[i] == SPECIAL_NOT ? alphabet_decode(name, at) : -1;
        l->whole[i] = n > 0;
        if (n < 0)
            memcpy(at, name.data, name.len);
        t->pieces[i] = (struct gguf_str){at, n < 0 ? name.len : (size_t)n};
        at += t->pieces[i].len;
    }
    return true;
}

static bool make_tables(struct loading *l)
{
    struct tokenizer *t = l->t;
    size_t n = (size_t)t->n_vocab;
    if (!string_table_init(&t->texts, t->pieces, n) || !string_table_init(&l->by_name, l->names, n))
        return oom(l);
    for (int32_t i = 0; i < t->n_vocab; i++)
        string_table_add(&l->by_name, i);
    for (int special = 0; special < 2; special++)
        for (int32_t i = 0; i < t->n_vocab; i++)
            if (t->pieces[i].len && (t->kinds[i] != SPECIAL_NOT) == special)
                string_table_add(&t->texts, i);
    t->special = special_tokens_new(t->pieces, t->kinds, n, l->e);
    return t->special != NULL;
}

/* An ordinary token of one byte comes first. A special one serves where there is none: a
 * text must be able to say every character, and one character is no turn marker. */
static void set_byte_tokens(struct loading *l)
{
    struct bpe *bpe = &l->t->bpe;
    for (int ordinary = 0; ordinary < 2; ordinary++)
        for (int32_t i = 0; i < l->t->n_vocab; i++) {
            char byte[2];
            bool is_ordinary = l->t->kinds[i] == SPECIAL_NOT;
            if (l->names[i].len <= 2 && is_ordinary == ordinary &&
                alphabet_decode(l->names[i], byte) == 1)
                bpe->byte_token[(unsigned char)byte[0]] = i;
        }
}

static int32_t merge_part(struct loading *l, uint64_t rank, struct gguf_str name)
{
    int32_t id = string_table_find(&l->by_name, name.data, name.len);
    if (id < 0)
        err_set(l->e, ERR_INVALID, "%s[%llu]: \"%s\" is not in the vocabulary", MERGES,
                (unsigned long long)rank, gguf_show(name).text);
    return id;
}

static bool add_merge(struct loading *l, uint64_t rank, struct gguf_str merge, struct buf *both)
{
    const char *space = merge.len > 1 ? memchr(merge.data + 1, ' ', merge.len - 1) : NULL;
    if (!space)
        return err_set(l->e, ERR_INVALID, "%s[%llu] is \"%s\": expected two tokens and a space",
                       MERGES, (unsigned long long)rank, gguf_show(merge).text);
    size_t n_left = (size_t)(space - merge.data);
    struct gguf_str left = {merge.data, n_left}, right = {space + 1, merge.len - n_left - 1};
    buf_clear(both);
    buf_add(both, left.data, left.len);
    buf_add(both, right.data, right.len);
    if (both->failed)
        return oom(l);
    struct gguf_str joined = {both->data, both->len};
    int32_t a = merge_part(l, rank, left), b = a < 0 ? -1 : merge_part(l, rank, right);
    int32_t result = b < 0 ? -1 : merge_part(l, rank, joined);
    if (result < 0)
        return false;
    enum special_kind kind = l->t->kinds[result];
    if (kind == SPECIAL_NOT || kind == SPECIAL_USER) /* text never becomes a control token */
        bpe_add_merge(&l->t->bpe, a, b, result, (uint32_t)rank);
    return true;
}

static bool read_merges(struct loading *l)
{
    uint64_t n, rank = 0;
    struct gguf_string_iter it = {0};
    struct gguf_str merge;
    struct buf both = {0};
    size_t n_vocab = (size_t)l->t->n_vocab;
    if (!gguf_array_len(l->g, MERGES, GGUF_STRING, &n, l->e) ||
        !gguf_strings(l->g, MERGES, &it, l->e) ||
        !bpe_init(&l->t->bpe, l->t->pieces, n_vocab, n, l->e))
        return false;
    set_byte_tokens(l);
    bool ok = true;
    while (ok && gguf_next_string(&it, &merge))
        ok = add_merge(l, rank++, merge, &both);
    buf_free(&both);
    return ok &&
           bpe_finish(&l->t->bpe, l->whole, n_vocab, pretokenizer_ignores_merges(l->t->pre), l->e);
}

/* The id under a key, -1 when there is none. */
static bool read_id(struct loading *l, const char *key, int32_t *id)
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
    bool bos = pretokenizer_adds_bos(t->pre);
    if (!read_id(l, "tokenizer.ggml.bos_token_id", &t->bos) ||
        !read_id(l, "tokenizer.ggml.eos_token_id", &t->eos) ||
        !gguf_bool_or(l->g, "tokenizer.ggml.add_bos_token", bos, &t->adds_bos, l->e) ||
        !gguf_bool_or(l->g, "tokenizer.ggml.add_eos_token", false, &t->adds_eos, l->e))
        return false;
    t->adds_bos = t->adds_bos && t->bos >= 0;
    t->adds_eos = t->adds_eos && t->eos >= 0;
    return true;
}

static bool open_pretokenizer(struct loading *l)
{
    struct gguf_str name;
    if (!gguf_has(l->g, PRE))
        return err_set(l->e, ERR_UNSUPPORTED,
                       "%s is absent: it names the rules that split text into words", PRE);
    if (!gguf_string(l->g, PRE, &name, l->e))
        return false;
    l->t->pre = pretokenizer_open(name, l->e);
    return l->t->pre || err_prefix(l->e, "%s", PRE);
}

static bool check_model(struct loading *l)
{
    struct gguf_str model;
    if (!gguf_string(l->g, MODEL, &model, l->e))
        return false;
    if (model.len == 4 && memcmp(model.data, "gpt2", 4) == 0)
        return true;
    return err_set(l->e, ERR_UNSUPPORTED,
                   "%s is \"%s\": we know \"gpt2\" (byte-level byte pair encoding)", MODEL,
                   gguf_show(model).text);
}

struct tokenizer *tokenizer_open_gguf(const struct gguf *g, struct err *e)
{
    size_t bytes = 0;
    struct loading l = {.g = g, .t = calloc(1, sizeof *l.t), .e = e};
    bool ok = l.t || err_set(e, ERR_MEMORY, "out of memory for a tokenizer");
    ok = ok && check_model(&l) && open_pretokenizer(&l) && read_names(&l, &bytes) &&
         read_types(&l) && make_pieces(&l, bytes) && make_tables(&l) && read_merges(&l) &&
         read_settings(&l);
    string_table_free(&l.by_name);
    free(l.names);
    free(l.whole);
    if (ok)
        return l.t;
    tokenizer_free(l.t);
    return NULL;
}
