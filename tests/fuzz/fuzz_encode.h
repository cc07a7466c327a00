/* fuzz_encode.h: what holds of every tokenizer and every text. */
#ifndef TOKEND_FUZZ_ENCODE_H
#define TOKEND_FUZZ_ENCODE_H

#include <stdint.h>
#include <stdlib.h>

#include "buf.h"
#include "tokenizer_impl.h"
#include "utf8.h"

/* Ids exist, and what they decode to is UTF-8. */
static inline void check_ids(const struct tokenizer *t, const struct token_list *ids, bool plain)
{
    struct detokenizer d = {.at_start = true};
    for (size_t i = 0; i < ids->n; i++) {
        struct buf out = {0};
        size_t len;
        if (ids->ids[i] < 0 || ids->ids[i] >= tokenizer_n_vocab(t))
            abort();
        if (plain && t->kinds[ids->ids[i]] == SPECIAL_MARKER)
            abort();
        tokenizer_piece(t, ids->ids[i], &len);
        char *at = buf_reserve(&out, len * 3 + DETOKENIZER_MARGIN);
        size_t n = at ? detokenizer_add(&d, t, ids->ids[i], false, at) : 0;
        if (n > len * 3 + DETOKENIZER_MARGIN || utf8_check(at, n) != n)
            abort();
        buf_free(&out);
    }
}

static inline void check_encoding(const struct tokenizer *t, const char *text, size_t n)
{
    const struct text_span spans[2] = {{0, n / 4}, {n / 4, n / 2}};
    for (int rule = CONTROL_NONE; rule <= CONTROL_SPANS; rule++)
        for (size_t k = 0; k <= 2; k += 2) {
            struct token_list ids = {0};
            if (tokenizer_encode(t, text, n, (enum control_rule)rule, spans, k, &ids, NULL))
                check_ids(t, &ids, rule == CONTROL_SPANS && k == 0);
            else if (ids.n)
                abort();
            token_list_free(&ids);
        }
}

#endif
