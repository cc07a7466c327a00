/* A vocabulary, merges and a text from the input: opening says no or gives a tokenizer that
 * keeps its promises about whatever text. */
#include <stdlib.h>

#include "pretokenizer_gguf.h"
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
static struct str take_string(struct input *in)
{
    size_t n = take(in) & 15;
    n = n < in->left ? n : in->left;
    struct str s = {(const char *)in->at, n};
    in->at += n;
    in->left -= n;
    return s;
}

/* Bits of the input's first byte. Of the byte-level kind: ordinary bytes, types that exist,
 * merges that make their token, a BOS token (with
 * scores: an unknown one). With scores: spaces are thinned, one goes before the text. */
enum { BYTES = 1, TYPES = 2, MERGES = 4, BOS = 8, SCORED = 16, ONE_SPACE = 32, PREFIX = 64 };

static struct tokenizer *take_scored(struct input *in, uint8_t how)
{
    struct vocab_build v = {0};
    if (how & BYTES)
        vocab_bytes(&v);
    for (size_t n = take(in) & 63; n; n--) {
        char name[16 * 3];
        size_t len = 0;
        struct str s = take_string(in);
        for (size_t i = 0; i < s.len; i++) { /* a bar is U+2581 */
            bool mark = s.data[i] == '|';
            memcpy(name + len, mark ? "\xE2\x96\x81" : s.data + i, mark ? 3 : 1);
            len += mark ? 3 : 1;
        }
        float score = (float)(take(in) % 16);
        buf_add(&v.scores, &score, sizeof score);
        v.n_scores++;
        vocab_token_n(&v, name, len, how & TYPES ? take(in) % 7 : T_NORMAL);
    }
    build_bool(&v.file, "tokenizer.ggml.add_space_prefix", how & PREFIX);
    build_bool(&v.file, "tokenizer.ggml.remove_extra_whitespaces", how & ONE_SPACE);
    if (how & BOS)
        build_u32(&v.file, "tokenizer.ggml.unknown_token_id", take(in));
    return vocab_open_scored(&v, NULL);
}

static struct tokenizer *take_tokenizer(struct input *in, uint8_t how)
{
    if (how & SCORED)
        return take_scored(in, how);
    struct vocab_build v = {0};
    size_t n_pre = 0;
    while (pretokenizer_gguf_name(n_pre))
        n_pre++;
    const char *pre = pretokenizer_gguf_name(take(in) % n_pre);
    if (how & BYTES)
        vocab_start(&v);
    for (size_t n = take(in) & 31; n; n--) {
        struct str s = take_string(in);
        vocab_token_n(&v, s.data, s.len, how & TYPES ? take(in) % 7 : take(in));
    }
    for (size_t n = take(in) & 31; n; n--) {
        char merge[20] = {0};
        struct str s = take_string(in);
        memcpy(merge, s.data, s.len);
        if (how & MERGES && strchr(merge + 1, ' ') && s.len > 2)
            vocab_merge(&v, merge);
        else
            vocab_merge_only(&v, merge);
    }
    if (how & BOS)
        build_u32(&v.file, "tokenizer.ggml.bos_token_id", take(in));
    return vocab_open(&v, pre, NULL);
}

static void check_decoded(const struct tokenizer *t, const struct token_list *ids, const char *text,
                          size_t n)
{
    struct detokenizer d = {.at_start = true};
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

/* Decoding gives the text: with scores only where encoding takes and adds nothing, and has no
 * space to write as U+2581, which the vocabulary may lack. */
static bool comes_back(uint8_t how, int rule, const char *text, size_t n)
{
    return !(how & SCORED) || (!(how & (ONE_SPACE | PREFIX)) && rule == CONTROL_NONE &&
                               !memchr(text, ' ', n) && !memmem(text, n, "\xE2\x96\x81", 3));
}

static void check_text(const struct tokenizer *t, uint8_t how, struct input *in)
{
    bool every_byte = has_every_byte(t);
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
            if (rule == CONTROL_NONE && tokenizer_is_control(t, ids.ids[i]) &&
                (how & SCORED ? every_byte : len != 1))
                abort();
        }
        if (ok && every_byte && comes_back(how, rule, (const char *)in->at, n))
            check_decoded(t, &ids, (const char *)in->at, n);
        token_list_free(&ids);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    uint8_t how = take(&in);
    struct tokenizer *t = take_tokenizer(&in, how);
    if (t)
        check_text(t, how, &in);
    tokenizer_free(t);
    return 0;
}
