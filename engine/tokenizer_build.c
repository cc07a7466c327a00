/* What the readers of tokenizer files have in common. */
#include <stdlib.h>

#include "buf.h"
#include "tokenizer_impl.h"

bool tokenizer_oom(struct err *e, size_t n_vocab)
{
    return err_set(e, ERR_MEMORY, "out of memory for a vocabulary of %zu tokens", n_vocab);
}

struct tokenizer *tokenizer_new(struct err *e)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        err_set(e, ERR_MEMORY, "out of memory for a tokenizer");
    else
        t->bos = t->eos = t->bpe.unknown = -1;
    return t;
}

bool tokenizer_alloc(struct tokenizer *t, size_t n, struct err *e)
{
    t->n_vocab = (int32_t)n;
    t->names = calloc(n, sizeof *t->names);
    t->pieces = calloc(n, sizeof *t->pieces);
    t->texts = calloc(n, sizeof *t->texts);
    t->kinds = malloc(n);
    if (!t->names || !t->pieces || !t->texts || !t->kinds)
        return tokenizer_oom(e, n);
    memset(t->kinds, SPECIAL_NOT, n);
    for (size_t i = 0; i < n; i++)
        t->names[i].data = "";
    return true;
}

static size_t name_bytes(const struct tokenizer *t)
{
    size_t bytes = 0; /* cannot overflow: the names are in memory */
    for (int32_t i = 0; i < t->n_vocab; i++)
        bytes += t->names[i].len;
    return bytes;
}

bool tokenizer_own_names(struct tokenizer *t, struct err *e)
{
    char *at = t->name_bytes = malloc(name_bytes(t) + 1);
    if (!at)
        return tokenizer_oom(e, (size_t)t->n_vocab);
    for (int32_t i = 0; i < t->n_vocab; i++) {
        memcpy(at, t->names[i].data, t->names[i].len);
        t->names[i].data = at;
        at += t->names[i].len;
    }
    return true;
}

static bool say_all(const struct tokenizer *t, struct str *list, char **bytes, tokenizer_say *say,
                    void *user, struct err *e)
{
    struct buf out = {0};
    for (int32_t i = 0; i < t->n_vocab; i++) {
        struct str name = t->names[i];
        char *at = buf_reserve(&out, name.len * SAY_TIMES + SAY_MORE);
        if (!at) {
            buf_free(&out);
            return tokenizer_oom(e, (size_t)t->n_vocab);
        }
        int64_t n = say(user, i, at);
        if (n < 0)
            memcpy(at, name.data, name.len);
        list[i].len = n < 0 ? name.len : (size_t)n;
        out.len += list[i].len;
    }
    *bytes = out.data;
    size_t at = 0;
    for (int32_t i = 0; i < t->n_vocab; i++) {
        list[i].data = out.data + at;
        at += list[i].len;
    }
    return true;
}

bool tokenizer_make_pieces(struct tokenizer *t, tokenizer_say *say, void *user, struct err *e)
{
    return say_all(t, t->pieces, &t->piece_bytes, say, user, e);
}

bool tokenizer_make_raw(struct tokenizer *t, tokenizer_say *say, void *user, struct err *e)
{
    t->raw = calloc((size_t)t->n_vocab, sizeof *t->raw);
    return t->raw ? say_all(t, t->raw, &t->raw_bytes, say, user, e)
                  : tokenizer_oom(e, (size_t)t->n_vocab);
}

/* Of tokens that read alike a special one is found, and a weak one is not. */
bool tokenizer_index(struct tokenizer *t, const bool *weak, struct err *e)
{
    for (int32_t i = 0; i < t->n_vocab; i++)
        t->texts[i] = t->kinds[i] == SPECIAL_NOT ? t->pieces[i] : t->names[i];
    if (!string_table_init(&t->by_text, t->texts, (size_t)t->n_vocab))
        return tokenizer_oom(e, (size_t)t->n_vocab);
    for (int rank = 0; rank <= 2; rank++)
        for (int32_t i = 0; i < t->n_vocab; i++) {
            int of_this = t->kinds[i] != SPECIAL_NOT ? 2 : !(weak && weak[i]);
            if (t->texts[i].len && of_this == rank)
                string_table_add(&t->by_text, i);
        }
    return true;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int tokenizer_named_byte(struct str name)
{
    if (name.len != 6 || memcmp(name.data, "<0x", 3) != 0 || name.data[5] != '>')
        return -1;
    int high = hex_digit(name.data[3]), low = hex_digit(name.data[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static int base64_digit(unsigned char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

int64_t tokenizer_base64(struct str s, char *out)
{
    uint32_t bits = 0;
    int n_bits = 0;
    int64_t n = 0;
    while (s.len && s.data[s.len - 1] == '=')
        s.len--;
    for (size_t i = 0; i < s.len; i++) {
        int digit = base64_digit((unsigned char)s.data[i]);
        if (digit < 0)
            return -1;
        bits = bits << 6 | (uint32_t)digit;
        n_bits += 6;
        if (n_bits >= 8)
            out[n++] = (char)(bits >> (n_bits -= 8));
    }
    return n;
}

size_t tokenizer_unmark(struct str name, char *out)
{
    static const char MARK[] = "\xE2\x96\x81";
    size_t n = 0;
    for (size_t i = 0; i < name.len;) {
        bool mark = name.len - i >= 3 && memcmp(name.data + i, MARK, 3) == 0;
        out[n++] = mark ? ' ' : name.data[i];
        i += mark ? 3 : 1;
    }
    return n;
}

bool tokenizer_looks_like_marker(struct str name)
{
    return (str_starts(name, "<|") && str_ends(name, "|>")) ||
           (str_starts(name, "<\xEF\xBD\x9C") && str_ends(name, "\xEF\xBD\x9C>"));
}
