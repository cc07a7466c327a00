/* SentencePiece byte pair encoding from GGUF ("llama"): the score of a token says how early it
 * is made. Names are text with U+2581 for a space; byte tokens are named <0x00> to <0xFF>. */
#include "tokenizer_gguf.h"
#include "tokenizer_scored.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

static const char SCORES[] = "tokenizer.ggml.scores";

/* Adds SentencePiece's normaliser, without a character map, and cuts. */
static bool start(struct loading *l)
{
    struct tokenizer *t = l->t;
    struct normal_step step = {.kind = NORMAL_SENTENCEPIECE, .escape = true};
    t->starts_anew = true;
    t->joins = calloc(1, sizeof *t->joins);
    t->normaliser = normaliser_new(l->e);
    if (!t->joins)
        return err_set(l->e, ERR_MEMORY, "out of memory for a tokenizer");
    if (!t->normaliser ||
        !gguf_bool_or(l->g, "tokenizer.ggml.add_space_prefix", true, &step.dummy_prefix, l->e) ||
        !gguf_bool_or(l->g, "tokenizer.ggml.remove_extra_whitespaces", false, &step.one_space,
                      l->e))
        return false;
    t->adds_space = step.dummy_prefix;
    t->start = step.dummy_prefix ? START_ONE_SPACE : START_KEEP;
    return normaliser_add(t->normaliser, step, l->e);
}

/* Text to be merged holds U+2581 where it had spaces. So a name with a plain space, which some
 * converters write for runs of them, is never met; it can only be printed. */
static int64_t piece(struct loading *l, int32_t id, char *out)
{
    struct str name = l->t->names[id];
    bool plain_space = memchr(name.data, ' ', name.len);
    if (l->t->kinds[id] == SPECIAL_CONTROL)
        return -1;
    if (l->types[id] == TYPE_BYTE) {
        int byte = tokenizer_named_byte(name);
        *out = (char)byte;
        return byte < 0 ? -1 : 1;
    }
    if (plain_space)
        l->t->kinds[id] = SPECIAL_NOT;
    l->whole[id] = l->t->kinds[id] == SPECIAL_NOT && !plain_space && name.len > 0 &&
                   utf8_check(name.data, name.len) == name.len;
    return (int64_t)tokenizer_unmark(name, out);
}

static bool add_tokens(struct loading *l, const void *bytes)
{
    size_t n = (size_t)l->t->n_vocab;
    bool *unused = calloc(n, sizeof *unused);
    float *scores = malloc(n * sizeof *scores); /* which may be unaligned in the file */
    bool ok = (unused && scores) || tokenizer_load_oom(l);
    for (size_t i = 0; ok && i < n; i++)
        unused[i] = l->types[i] == TYPE_UNUSED;
    if (ok) {
        memcpy(scores, bytes, n * sizeof *scores);
        ok = tokenizer_add_scored(l->t, scores, l->whole, unused, l->e) ||
             err_prefix(l->e, "%s", SCORES);
    }
    free(unused);
    free(scores);
    return ok;
}

static bool set_fallback(struct loading *l)
{
    struct bpe *bpe = &l->t->bpe;
    bpe->fuse_unknown = true;
    for (int32_t i = l->t->n_vocab; i-- > 0;) { /* of several the first one counts */
        int byte = l->types[i] == TYPE_BYTE ? tokenizer_named_byte(l->t->names[i]) : -1;
        if (byte >= 0)
            bpe->byte_token[byte] = i;
        if (l->types[i] == TYPE_UNKNOWN)
            bpe->unknown = i;
    }
    int32_t id;
    if (!tokenizer_load_id(l, "tokenizer.ggml.unknown_token_id", &id))
        return false;
    if (id >= 0)
        bpe->unknown = id;
    if (bpe->unknown == l->t->bos || bpe->unknown == l->t->eos)
        bpe->unknown = -1; /* no text may end itself */
    return true;
}

static bool finish(struct loading *l)
{
    const void *scores;
    uint64_t n;
    if (!gguf_has(l->g, SCORES))
        return err_set(l->e, ERR_INVALID, "%s is absent: it says which tokens are made first",
                       SCORES);
    if (!gguf_array(l->g, SCORES, GGUF_F32, &scores, &n, l->e))
        return false;
    if (n != (uint64_t)l->t->n_vocab)
        return err_set(l->e, ERR_INVALID, "%s has %llu entries for %d tokens: expected as many",
                       SCORES, (unsigned long long)n, l->t->n_vocab);
    struct tokenizer *t = l->t;
    t->special = tokenizer_load_special(l, SPECIAL_MARKER, SPECIAL_CONTROL);
    t->special_normal = tokenizer_load_special(l, SPECIAL_USER, SPECIAL_USER);
    return t->special && t->special_normal &&
           bpe_init(&t->bpe, t->names, (size_t)t->n_vocab, true, l->e) &&
           bpe_by_text(&t->bpe, l->e) && add_tokens(l, scores) && set_fallback(l) &&
           bpe_finish(&t->bpe, l->whole, false, l->e);
}

static bool adds_bos(const struct loading *l)
{
    (void)l;
    return true;
}

const struct tokenizer_kind tokenizer_kind_spm = {"llama", start, piece, finish, adds_bos};
