/* Gemma 4's byte pair encoding from GGUF ("gemma4"): merges by pairs, as the byte-level kind,
 * but of characters, with U+2581 for spaces and byte tokens for characters that are none. */
#include <stdlib.h>

#include "tokenizer_gguf.h"
#include "utf8.h"

static bool start(struct loading *l)
{
    struct tokenizer *t = l->t;
    struct normal_step step = {.kind = NORMAL_SENTENCEPIECE, .escape = true};
    t->joins = calloc(1, sizeof *t->joins);
    t->normaliser = normaliser_new(l->e);
    if (!t->joins)
        return err_set(l->e, ERR_MEMORY, "out of memory for a tokenizer");
    return t->normaliser && normaliser_add(t->normaliser, step, l->e);
}

static int64_t piece(struct loading *l, int32_t id, char *out)
{
    struct str name = l->t->names[id];
    int byte = tokenizer_named_byte(name);
    if (l->t->kinds[id] == SPECIAL_CONTROL)
        return -1;
    if (byte >= 0) {
        *out = (char)byte;
        return 1;
    }
    l->whole[id] = l->t->kinds[id] == SPECIAL_NOT && name.len > 0 &&
                   utf8_check(name.data, name.len) == name.len;
    return (int64_t)tokenizer_unmark(name, out);
}

static bool finish(struct loading *l)
{
    struct tokenizer *t = l->t;
    t->special = tokenizer_load_special(l, SPECIAL_USER, SPECIAL_CONTROL);
    if (!t->special || !bpe_init(&t->bpe, t->names, (size_t)t->n_vocab, true, l->e))
        return false;
    t->bpe.fuse_unknown = true;
    if (!tokenizer_load_id(l, "tokenizer.ggml.unknown_token_id", &t->bpe.unknown))
        return false;
    for (int32_t i = t->n_vocab; i-- > 0;) {
        int byte = tokenizer_named_byte(t->names[i]);
        if (byte >= 0)
            t->bpe.byte_token[byte] = i;
        if (!l->whole[i])
            continue;
        joins_note(t->joins, t->names[i]);
        if ((size_t)utf8_char(t->names[i].data, t->names[i].len) == t->names[i].len)
            bpe_add_character(&t->bpe, i);
    }
    return tokenizer_load_merges(l) && bpe_finish(&t->bpe, l->whole, false, l->e);
}

static bool adds_bos(const struct loading *l)
{
    (void)l;
    return true;
}

const struct tokenizer_kind tokenizer_kind_gemma4 = {"gemma4", start, piece, finish, adds_bos};
