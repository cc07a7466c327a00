#include "tokenizer_scored.h"

#include <math.h>
#include <stdlib.h>

struct scored {
    float score;
    int32_t id;
};

/* Best first; then by id, so that of equal texts the last is added last. */
static int compare_scored(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* The tokens that text can make, sorted. */
static bool list_tokens(const struct tokenizer *t, const float *scores, const bool *makes,
                        struct scored *list, int32_t *n, struct err *e)
{
    *n = 0;
    for (int32_t i = 0; i < t->n_vocab; i++) {
        if (!makes[i])
            continue;
        if (isnan(scores[i]))
            return err_set(e, ERR_INVALID, "the score of token %d is not a number", i);
        if (t->names[i].len > BPE_LONGEST_TEXT)
            return err_set(e, ERR_LIMIT, "token %d has %zu bytes: at most %d", i, t->names[i].len,
                           BPE_LONGEST_TEXT);
        list[(*n)++] = (struct scored){scores[i], i};
    }
    qsort(list, (size_t)*n, sizeof *list, compare_scored);
    return true;
}

bool tokenizer_add_scored(struct tokenizer *t, const float *scores, const bool *makes,
                          const bool *unused, struct err *e)
{
    int32_t n;
    struct scored *list = malloc((size_t)t->n_vocab * sizeof *list);
    if (!list)
        return tokenizer_oom(e, (size_t)t->n_vocab);
    bool ok = list_tokens(t, scores, makes, list, &n, e);
    uint32_t rank = 0;
    for (int32_t i = 0; ok && i < n; i++) {
        rank += i > 0 && list[i].score != list[i - 1].score;
        bpe_add_text(&t->bpe, list[i].id, rank);
        joins_note(t->joins, t->names[list[i].id]);
        if (unused[list[i].id])
            ok = bpe_set_unused(&t->bpe, list[i].id, e);
    }
    free(list);
    return ok;
}
