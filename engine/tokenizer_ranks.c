#include "tokenizer_ranks.h"

#include <stdlib.h>

static int64_t say_name(void *user, int32_t id, char *out)
{
    (void)user, (void)id, (void)out;
    return -1;
}

static bool make_special(struct tokenizer *t, struct err *e)
{
    size_t n = 0;
    struct special_token *list = malloc((size_t)t->n_vocab * sizeof *list);
    if (!list)
        return tokenizer_oom(e, (size_t)t->n_vocab);
    for (int32_t i = 0; i < t->n_vocab; i++)
        if (t->kinds[i] != SPECIAL_NOT && t->names[i].len)
            list[n++] = (struct special_token){t->names[i], i, t->kinds[i], 0};
    t->special = special_tokens_new(list, n, false, e);
    free(list);
    return t->special != NULL;
}

static bool make_words(struct tokenizer *t, struct str pattern, struct err *e)
{
    struct stage stage = {.behavior = SPLIT_REMOVED, .invert = true};
    t->pre = pretokenizer_new(e);
    return t->pre && (stage.regex = regex_open(pattern, REGEX_RUST, e)) &&
           pretokenizer_add(t->pre, stage, e);
}

static bool add_tokens(struct tokenizer *t, struct err *e)
{
    bool ok = true, *whole = calloc((size_t)t->n_vocab, sizeof *whole);
    if (!whole)
        return tokenizer_oom(e, (size_t)t->n_vocab);
    for (int32_t i = 0; ok && i < t->n_vocab; i++) {
        struct str name = t->names[i];
        whole[i] = t->kinds[i] == SPECIAL_NOT && name.len;
        if (!whole[i])
            continue;
        if (name.len > BPE_LONGEST_TEXT)
            ok = err_set(e, ERR_LIMIT, "token %d has %zu bytes: at most %d", i, name.len,
                         BPE_LONGEST_TEXT);
        else
            bpe_add_text(&t->bpe, i, (uint32_t)i);
        if (ok && name.len == 1)
            t->bpe.byte_token[(unsigned char)*name.data] = i;
    }
    ok = ok && bpe_finish(&t->bpe, whole, true, e);
    free(whole);
    return ok;
}

bool tokenizer_finish_ranks(struct tokenizer *t, struct str pattern, struct err *e)
{
    return tokenizer_own_names(t, e) && tokenizer_make_pieces(t, say_name, NULL, e) &&
           tokenizer_index(t, NULL, e) && make_special(t, e) && make_words(t, pattern, e) &&
           bpe_init(&t->bpe, t->names, (size_t)t->n_vocab, false, e) && bpe_by_text(&t->bpe, e) &&
           add_tokens(t, e);
}
