#include "tokenizer.h"

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
    unigram_free(t->unigram);
    free(t->joins);
    pretokenizer_free(t->pre);
    special_tokens_free(t->special_normal);
    normaliser_free(t->normaliser);
    special_tokens_free(t->special);
    string_table_free(&t->by_text);
    token_list_free(&t->prefix);
    token_list_free(&t->suffix);
    free(t->kinds);
    free(t->texts);
    free(t->pieces);
    free(t->names);
    free(t->raw);
    free(t->name_bytes);
    free(t->piece_bytes);
    free(t->raw_bytes);
    free(t);
}

struct encoding {
    const struct tokenizer *t;
    const char *text;
    enum control_rule rule;
    struct bpe_scratch bpe;
    struct unigram_scratch unigram;
    struct special_matches matches, normal_matches;
    struct normal_scratch *normal;
    struct split_scratch *split;
    struct token_list *out;
    struct err *e;
};

static bool open_scratch(struct encoding *x)
{
    return (!x->t->normaliser || (x->normal = normal_scratch_new(x->e))) &&
           (!x->t->pre || (x->split = split_scratch_new(x->e)));
}

static void close_scratch(struct encoding *x)
{
    special_matches_free(&x->matches);
    special_matches_free(&x->normal_matches);
    bpe_scratch_free(&x->bpe);
    unigram_scratch_free(&x->unigram);
    normal_scratch_free(x->normal);
    split_scratch_free(x->split);
}

static bool encode_uncut(struct encoding *x, const char *word, size_t n)
{
    const struct tokenizer *t = x->t;
    return t->unigram ? unigram_encode(t->unigram, word, n, x->rule == CONTROL_SPANS, &x->unigram,
                                       x->out, x->e)
                      : bpe_encode(&t->bpe, word, n, &x->bpe, x->out, x->e);
}

static bool encode_word(void *user, const char *word, size_t n)
{
    struct encoding *x = user;
    const struct joins *joins = x->t->joins;
    x->bpe.after_unknown = x->unigram.after_unknown = false;
    x->unigram.sum = 0;
    if (!joins)
        return encode_uncut(x, word, n);
    for (size_t at = 0, end; at < n; at = end) {
        end = joins_part_end(joins, word, n, at);
        if (!encode_uncut(x, word + at, end - at))
            return false;
    }
    return true;
}

/* Text without special tokens. `first`: all text starts with it. */
static bool encode_plain(struct encoding *x, const char *text, size_t n, bool first)
{
    if (n == 0)
        return true;
    return x->t->pre ? pretokenizer_split(x->t->pre, x->split, text, n, first, encode_word, x, x->e)
                     : encode_word(x, text, n);
}

static bool add_special(struct encoding *x, const struct special_match *m)
{
    return token_list_add(x->out, m->id) ||
           err_set(x->e, ERR_MEMORY, "out of memory for token ids");
}

/* What lies between the special tokens of the text as written. */
static bool encode_part(struct encoding *x, const char *part, size_t n, int where)
{
    const struct tokenizer *t = x->t;
    struct special_matches *m = &x->normal_matches;
    struct str s = {part, n};
    size_t done = 0;
    if (t->normaliser && !normalise(t->normaliser, x->normal, &s, &where, x->e))
        return false;
    if (t->special_normal && !t->whole_text &&
        !special_tokens_find(t->special_normal, s.data, s.len, x->rule, NULL, 0, m, x->e))
        return false;
    for (size_t i = 0; i < m->n; i++) {
        struct special_match at = m->list[i];
        size_t between = at.start > done ? at.start - done : 0;
        if (!encode_plain(x, s.data + done, between, done == 0 && where & TEXT_FIRST) ||
            !add_special(x, &at))
            return false;
        done = at.end;
    }
    return encode_plain(x, s.data + done, s.len - done, done == 0 && where & TEXT_FIRST);
}

/* What lies between special tokens is one run, whatever spans it crosses. */
static bool encode_matched(struct encoding *x, size_t n)
{
    size_t done = 0;
    int first = TEXT_FIRST;
    bool anew = x->t->starts_anew;
    for (size_t i = 0; i <= x->matches.n; i++) {
        const struct special_match *m = i < x->matches.n ? &x->matches.list[i] : NULL;
        size_t end = !m ? n : m->start > done ? m->start : done;
        bool ends = !m || !anew || m->kind == SPECIAL_CONTROL;
        if ((end > done || (anew && first && !ends)) &&
            !encode_part(x, x->text + done, end - done, first | (ends ? TEXT_LAST : 0)))
            return false;
        if (!m)
            break;
        if (!add_special(x, m))
            return false;
        first = anew && ends ? TEXT_FIRST : 0;
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
    struct encoding x = {.t = t, .text = text, .rule = rule, .out = out, .e = e};
    bool ok = open_scratch(&x) &&
              special_tokens_find(t->special, text, n, rule, spans,
                                  rule == CONTROL_SPANS ? n_spans : 0, &x.matches, e) &&
              encode_matched(&x, n);
    if (!ok)
        out->n = before;
    close_scratch(&x);
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
    return string_table_find(&t->by_text, text, n);
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
    return t->adds_space;
}
