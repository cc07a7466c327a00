/* A vocabulary, merges and a text from the input: opening says no or gives a tokenizer that
 * keeps its promises about whatever text. */
#include <stdlib.h>

#include "pretokenizer.h"
#include "utf8.h"
#include "vocab_build.h"

struct input {
    const uint8_t *at;
    size_t left;
};

static uint8_t take(struct input *in)
{
    if (!in->left)
        return 0;
    in->left--;
    return *in->at++;
}

/* A short string of the input. */
static struct gguf_str take_string(struct input *in)
{
    size_t n = take(in) & 15;
    n = n < in->left ? n : in->left;
    struct gguf_str s = {(const char *)in->at, n};
    in->at += n;
    in->left -= n;
    return s;
}

static struct tokenizer *take_tokenizer(struct input *in)
{
    struct vocab_build v = {0};
    uint8_t how = take(in);
    size_t n_pre = 0;
    while (pretokenizer_name(n_pre))
        n_pre++;
    const char *pre = pretokenizer_name(take(in) % n_pre);
    if (how & 1)
        vocab_start(&v);
    for (size_t n = take(in) & 31; n; n--) {
        struct gguf_str s = take_string(in);
        vocab_token_n(&v, s.data, s.len, how & 2 ? take(in) % 7 : take(in));
    }
    for (size_t n = take(in) & 31; n; n--) {
        char merge[20] = {0};
        struct gguf_str s = take_string(in);
        memcpy(merge, s.data, s.len);
        if (how & 4 && strchr(merge + 1, ' ') && s.len > 2)
            vocab_merge(&v, merge);
        else
            vocab_merge_only(&v, merge);
    }
    if (how & 8)
        build_u32(&v.file, "tokenizer.ggml.bos_token_id", take(in));
    return vocab_open(&v, pre, NULL);
}

static void check_decoded(const struct tokenizer *t, const struct token_list *ids, const char *text,
                          size_t n)
{
    struct detokenizer d = {0};
    struct buf out = {0};
    for (size_t i = 0; i < ids->n; i++) {
        size_t len;
        tokenizer_piece(t, ids->ids[i], &len);
        char *at = buf_reserve(&out, len * 3 + DETOKENIZER_MARGIN);
        size_t added = detokenizer_add(&d, t, ids->ids[i], false, at);
        if (utf8_check(at, added) != added)
            abort();
        out.len += added;
    }
    out.len += detokenizer_flush(&d, buf_reserve(&out, DETOKENIZER_MARGIN));
    if (out.len != n || (n && memcmp(out.data, text, n) != 0))
        abort();
    buf_free(&out);
}

static bool has_every_byte(const struct tokenizer *t)
{
    for (int32_t i = 0; i < 256; i++) {
        size_t n;
        if (i >= tokenizer_n_vocab(t) || *tokenizer_piece(t, i, &n) != (char)i || n != 1)
            return false;
    }
    return true;
}

static void check_text(const struct tokenizer *t, struct input *in)
{
    size_t a = take(in), b = take(in), n = in->left;
    struct text_span spans[2] = {{a, a + b / 2}, {a + b / 2, a + b}};
    for (int rule = CONTROL_NONE; rule <= CONTROL_SPANS; rule++) {
        struct token_list ids = {0};
        bool ok = tokenizer_encode(t, (const char *)in->at, n, (enum control_rule)rule, spans, 2,
                                   &ids, NULL);
        if (ok != (utf8_check((const char *)in->at, n) == n))
            abort();
        for (size_t i = 0; i < ids.n; i++) {
            if (ids.ids[i] < 0 || ids.ids[i] >= tokenizer_n_vocab(t))
                abort();
            size_t len;
            tokenizer_piece(t, ids.ids[i], &len);
            if (rule == CONTROL_NONE && tokenizer_is_control(t, ids.ids[i]) && len != 1)
                abort();
        }
        if (ok && has_every_byte(t))
            check_decoded(t, &ids, (const char *)in->at, n);
        token_list_free(&ids);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    struct tokenizer *t = take_tokenizer(&in);
    if (t)
        check_text(t, &in);
    tokenizer_free(t);
    return 0;
}
