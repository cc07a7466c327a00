#include "detokenize.h"

#include "utf8.h"

const char *token_bytes(const struct tokenizer *t, int32_t id, size_t *len)
{
    *len = 0;
    if (!t || id < 0 || id >= tokenizer_n_vocab(t))
        return "";
    return tokenizer_piece(t, id, len);
}

void detokenize_add(struct detokenizer *d, const struct tokenizer *t, int32_t id, bool skip_special,
                    struct buf *out)
{
    if (!t || id < 0 || id >= tokenizer_n_vocab(t))
        return;
    size_t len;
    tokenizer_piece(t, id, &len);
    char *room = buf_reserve(out, len * 3 + DETOKENIZER_MARGIN);
    if (!room)
        return;
    out->len += detokenizer_add(d, t, id, skip_special, room);
    out->data[out->len] = '\0';
}

void detokenize_flush(struct detokenizer *d, struct buf *out)
{
    char *room = buf_reserve(out, DETOKENIZER_MARGIN);
    if (!room)
        return;
    out->len += detokenizer_flush(d, room);
    out->data[out->len] = '\0';
}

void detokenize_all(const struct tokenizer *t, const int32_t *ids, size_t n, bool skip_special,
                    struct buf *out)
{
    struct detokenizer d = {.at_start = true};
    for (size_t i = 0; i < n; i++)
        detokenize_add(&d, t, ids[i], skip_special, out);
    detokenize_flush(&d, out);
}

void token_ids_write(const struct token_list *l, struct buf *out)
{
    buf_add_byte(out, '[');
    for (size_t i = 0; i < l->n; i++)
        buf_addf(out, i ? ",%d" : "%d", (int)l->ids[i]);
    buf_add_byte(out, ']');
}

void token_label(const struct tokenizer *t, int32_t id, bool as_id, struct buf *out)
{
    size_t n;
    const char *bytes = token_bytes(t, id, &n);
    if (as_id || !t || id >= tokenizer_n_vocab(t)) {
        buf_addf(out, "token_id:%d", (int)id);
        return;
    }
    if (utf8_check(bytes, n) == n) {
        buf_add(out, bytes, n);
        return;
    }
    buf_add_str(out, "bytes:");
    for (size_t i = 0; i < n; i++)
        buf_addf(out, "\\x%02x", (unsigned char)bytes[i]);
}
