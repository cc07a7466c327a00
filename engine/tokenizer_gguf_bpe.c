/* Byte-level byte pair encoding from GGUF ("gpt2"). The file's strings ("names" here) are the
 * tokens in the byte-level alphabet, where every byte is a printable character; those of
 * control and user-defined tokens are plain text. */
#include "buf.h"
#include "pretokenizer_gguf.h"
#include "tokenizer_gguf.h"

#include <stdlib.h>
#include <string.h>

static const char MERGES[] = "tokenizer.ggml.merges", PRE[] = "tokenizer.ggml.pre";

static bool open_pretokenizer(struct loading *l)
{
    struct gguf_str name;
    if (!gguf_has(l->g, PRE))
        return err_set(l->e, ERR_UNSUPPORTED,
                       "%s is absent: it names the rules that split text into words", PRE);
    if (!gguf_string(l->g, PRE, &name, l->e))
        return false;
    l->t->pre = pretokenizer_gguf((struct str){name.data, name.len}, &l->pre_flags, l->e);
    return l->t->pre || err_prefix(l->e, "%s", PRE);
}

/* A name of an ordinary token that is not in the alphabet stays as it is: text cannot make it,
 * but it can be printed. */
static int64_t piece(struct loading *l, int32_t id, char *out)
{
    int64_t n = l->t->kinds[id] == SPECIAL_NOT ? alphabet_decode(l->t->names[id], out) : -1;
    l->whole[id] = n > 0;
    return n;
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
            if (l->t->names[i].len <= 2 && is_ordinary == ordinary &&
                alphabet_decode(l->t->names[i], byte) == 1)
                bpe->byte_token[(unsigned char)byte[0]] = i;
        }
}

struct merging {
    struct loading *l;
    struct string_table by_name; /* of two equal names the later id */
    struct buf both;
};

static int32_t merge_part(const struct merging *m, uint64_t rank, struct str name)
{
    int32_t id = string_table_find(&m->by_name, name.data, name.len);
    if (id < 0)
        err_set(m->l->e, ERR_INVALID, "%s[%llu]: \"%s\" is not in the vocabulary", MERGES,
                (unsigned long long)rank, gguf_show((struct gguf_str){name.data, name.len}).text);
    return id;
}

static bool add_merge(struct merging *m, uint64_t rank, struct gguf_str merge)
{
    struct loading *l = m->l;
    struct buf *both = &m->both;
    const char *space = merge.len > 1 ? memchr(merge.data + 1, ' ', merge.len - 1) : NULL;
    if (!space)
        return err_set(l->e, ERR_INVALID, "%s[%llu] is \"%s\": expected two tokens and a space",
                       MERGES, (unsigned long long)rank, gguf_show(merge).text);
    size_t n_left = (size_t)(space - merge.data);
    struct str left = {merge.data, n_left}, right = {space + 1, merge.len - n_left - 1};
    buf_clear(both);
    buf_add(both, left.data, left.len);
    buf_add(both, right.data, right.len);
    if (both->failed)
        return tokenizer_load_oom(l);
    struct str joined = {both->data, both->len};
    int32_t a = merge_part(m, rank, left), b = a < 0 ? -1 : merge_part(m, rank, right);
    int32_t result = b < 0 ? -1 : merge_part(m, rank, joined);
    if (result < 0)
        return false;
    enum special_kind kind = l->t->kinds[result];
    if (kind == SPECIAL_NOT || kind == SPECIAL_USER) /* text never becomes a control token */
        bpe_add_merge(&l->t->bpe, a, b, result, (uint32_t)rank);
    return true;
}

static bool add_merges(struct merging *m)
{
    struct loading *l = m->l;
    struct gguf_string_iter it = {0};
    struct gguf_str merge;
    uint64_t rank = 0;
    if (!gguf_strings(l->g, MERGES, &it, l->e))
        return false;
    if (!string_table_init(&m->by_name, l->t->names, (size_t)l->t->n_vocab))
        return tokenizer_load_oom(l);
    for (int32_t i = 0; i < l->t->n_vocab; i++)
        string_table_add(&m->by_name, i);
    while (gguf_next_string(&it, &merge))
        if (!add_merge(m, rank++, merge))
            return false;
    return true;
}

bool tokenizer_load_merges(struct loading *l)
{
    uint64_t n;
    struct merging m = {.l = l};
    if (!gguf_array_len(l->g, MERGES, GGUF_STRING, &n, l->e) || !bpe_by_pairs(&l->t->bpe, n, l->e))
        return false;
    bool ok = add_merges(&m);
    buf_free(&m.both);
    string_table_free(&m.by_name);
    return ok;
}

static bool finish(struct loading *l)
{
    struct tokenizer *t = l->t;
    t->special = tokenizer_load_special(l, SPECIAL_USER, SPECIAL_CONTROL);
    if (!t->special || !bpe_init(&t->bpe, t->pieces, (size_t)t->n_vocab, false, l->e))
        return false;
    set_byte_tokens(l);
    return tokenizer_load_merges(l) &&
           bpe_finish(&t->bpe, l->whole, l->pre_flags & PRE_WHOLE_WORDS, l->e);
}

static bool adds_bos(const struct loading *l)
{
    return l->pre_flags & PRE_ADD_BOS;
}

const struct tokenizer_kind tokenizer_kind_bpe = {"gpt2", open_pretokenizer, piece, finish,
                                                  adds_bos};
