#include "tokenizer.h"

#include "buf.h"
#include "tokenizer_impl.h"
#include "utf8.h"

#include <stdlib.h>

bool token_list_add(struct token_list *l, int32_t id)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        int32_t *ids = cap > SIZE_MAX / sizeof *ids ? NULL : realloc(l->ids, cap * sizeof *ids);
        if (!ids)
            return false;
        l->ids = ids;
        l->cap = cap;
    }
    l->ids[l->n++] = id;
    return true;
}

void token_list_free(struct token_list *l)
{
    free(l->ids);
    *l = (struct token_list){0};
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    bpe_free(&t->bpe);
    free(t->spm);
    pretokenizer_free(t->pre);
    special_tokens_free(t->special);
    string_table_free(&t->texts);
    token_list_free(&t->prefix);
    token_list_free(&t->suffix);
    free(t->kinds);
    free(t->pieces);
    free(t->bytes);
    free(t);
}

struct encoding {
    const struct tokenizer *t;
    const char *text;
    struct bpe_scratch scratch;
    struct special_matches matches;
    struct buf normal; /* what SentencePiece makes of a part of the text */
    struct token_list *out;
    struct err *e;
};

static bool encode_word(void *user, const char *word, size_t n)
{
    struct encoding *x = user;
    return bpe_encode(&x->t->bpe, word, n, &x->scratch, x->out, x->e);
}

/* `where` tells whether the part starts and ends what lies between control tokens. */
static bool encode_part(struct encoding *x, const char *part, size_t n, int where)
{
    const struct spm *spm = x->t->spm;
    if (!spm)
        return n == 0 || pretokenizer_split(x->t->pre, part, n, encode_word, x, x->e);
    spm_normalise(spm, part, n, where, &x->normal);
    if (x->normal.failed)
        return err_set(x->e, ERR_MEMORY, "out of memory for a text of %zu bytes", n);
    const char *s = x->normal.data;
    for (size_t at = 0, end; at < x->normal.len; at = end) {
        end = spm_part_end(spm, s, x->normal.len, at);
        if (!encode_word(x, s + at, end - at))
            return false;
    }
    return true;
}

/* What lies between special tokens is one run, whatever spans it crosses. For SentencePiece a
 * text starts anew behind each control token; user-defined ones are part of a text. */
static bool encode_matched(struct encoding *x, size_t n)
{
    size_t done = 0;
    int first = SPM_FIRST;
    for (size_t i = 0; i <= x->matches.n; i++) {
        const struct special_match *m = i < x->matches.n ? &x->matches.list[i] : NULL;
        size_t end = m ? m->start : n;
        bool ends = !m || x->t->kinds[m->id] == SPECIAL_CONTROL;
        if ((end > done || (first && !ends)) &&
            !encode_part(x, x->text + done, end - done, first | (ends ? SPM_LAST : 0)))
            return false;
        if (!m)
            break;
        if (!token_list_add(x->out, m->id))
            return err_set(x->e, ERR_MEMORY, "out of memory for token ids");
        x->scratch.after_unknown = false;
        first = ends ? SPM_FIRST : 0;
        done = m->end;
    }
    return true;
}

bool tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, enum control_rule rule,
                      const struct text_span *spans, size_t n_spans, struct token_list *out,
                      struct err *e)
{
    if (n > INT32_MAX)
        return err_set(e, ERR_LIMIT, "a text of %zu bytes: at most %d", n, INT32_MAX);
    size_t bad = utf8_check(text, n);
    if (bad < n)
        return err_set(e, ERR_INVALID, "text is not valid UTF-8 at byte %zu", bad);
    size_t before = out->n;
    struct encoding x = {.t = t, .text = text, .out = out, .e = e};
    bool ok = special_tokens_find(t->special, text, n, rule, spans,
                                  rule == CONTROL_SPANS ? n_spans : 0, &x.matches, e) &&
              encode_matched(&x, n);
    if (!ok)
        out->n = before;
    special_matches_free(&x.matches);
    bpe_scratch_free(&x.scratch);
    buf_free(&x.normal);
    return ok;
}

int tokenizer_n_vocab(const struct tokenizer *t)
{
    return t->n_vocab;
}

const char *tokenizer_piece(const struct tokenizer *t, int32_t id, size_t *len)
{
    *len = t->pieces[id].len;
    return t->pieces[id].data;
}

bool tokenizer_is_control(const struct tokenizer *t, int32_t id)
{
    return t->kinds[id] == SPECIAL_CONTROL;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t n)
{
    return string_table_find(&t->texts, text, n);
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

bool tokenizer_adds_bos(const struct tokenizer *t)
{
    return t->adds_bos;
}

bool tokenizer_adds_eos(const struct tokenizer *t)
{
    return t->adds_eos;
}

const int32_t *tokenizer_prefix(const struct tokenizer *t, size_t *n)
{
    *n = t->prefix.n;
    return t->prefix.ids;
}

const int32_t *tokenizer_suffix(const struct tokenizer *t, size_t *n)
{
    *n = t->suffix.n;
    return t->suffix.ids;
}

bool tokenizer_adds_space(const struct tokenizer *t)
{
    return t->spm && t->spm->add_prefix;
}
