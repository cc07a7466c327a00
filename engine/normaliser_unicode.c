/* Unicode's normal forms: utf8proc's data, with orders of marks sorted so that a long run of
 * them costs n·log n. */
#include <stdlib.h>
#include <utf8proc.h>

#include "normaliser_impl.h"
#include "utf8.h"

enum {
    MOST_OF_ONE = 32,   /* characters that one decomposes to; Unicode's longest has 18 */
    PIECE_CODES = 4096, /* then a piece ends where it may */
    FEW = 16,
};

struct piece {
    struct normal_scratch *s;
    size_t n;
    bool failed;
};

static int class_of(int32_t c)
{
    return utf8proc_get_property(c)->combining_class;
}

/* Characters that begin anew: nothing before them changes with them. The list is not complete,
 * and need not be. */
static bool begins(uint32_t c)
{
    return c < 0x80 || (c >= 0x3041 && c <= 0x3096) || (c >= 0x30A1 && c <= 0x30FA) ||
           (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0xAC00 && c <= 0xD7A3) ||
           (c >= 0xFB50 && c <= 0xFDFF) || (c >= 0x1F300 && c <= 0x1FAFF) ||
           (c >= 0x20000 && c <= 0x2FFFF);
}

static bool room(struct piece *p, size_t more)
{
    if (p->n + more <= p->s->cap_codes)
        return true;
    size_t cap = (p->n + more) * 2;
    int32_t *codes = realloc(p->s->codes, cap * sizeof *codes);
    if (!codes)
        return false;
    p->s->codes = codes;
    p->s->cap_codes = cap;
    return true;
}

static void decompose(struct piece *p, uint32_t c, bool compatible)
{
    int boundary = 0;
    int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
    if (!room(p, MOST_OF_ONE)) {
        p->failed = true;
        return;
    }
    int32_t *at = p->s->codes + p->n;
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)c, at, MOST_OF_ONE,
                                                 (utf8proc_option_t)options, &boundary);
    if (n < 0 || n > MOST_OF_ONE) {
        at[0] = (int32_t)c;
        n = 1;
    }
    p->n += (size_t)n;
}

static void sort_few(int32_t *c, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        int32_t x = c[i];
        size_t k = i;
        for (; k > 0 && class_of(c[k - 1]) > class_of(x); k--)
            c[k] = c[k - 1];
        c[k] = x;
    }
}

/* By class, of which there are 256, keeping the order within one. */
static bool sort_many(int32_t *c, size_t n)
{
    size_t start[257] = {0};
    int32_t *sorted = malloc(n * sizeof *sorted);
    if (!sorted)
        return false;
    for (size_t i = 0; i < n; i++)
        start[class_of(c[i]) + 1]++;
    for (int k = 0; k < 256; k++)
        start[k + 1] += start[k];
    for (size_t i = 0; i < n; i++)
        sorted[start[class_of(c[i])]++] = c[i];
    memcpy(c, sorted, n * sizeof *sorted);
    free(sorted);
    return true;
}

/* Puts the marks of each run of them in order. */
static void order_marks(struct piece *p)
{
    int32_t *c = p->s->codes;
    for (size_t i = 0, end; i < p->n; i = end + 1) {
        for (end = i; end < p->n && class_of(c[end]) != 0;)
            end++;
        if (end - i > FEW)
            p->failed = p->failed || !sort_many(c + i, end - i);
        else
            sort_few(c + i, end - i);
    }
}

static void write_piece(struct piece *p, bool compose, struct buf *out)
{
    order_marks(p);
    if (compose)
        p->n = (size_t)utf8proc_normalize_utf32(
            p->s->codes, (utf8proc_ssize_t)p->n,
            (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    char *at = p->failed ? NULL : buf_reserve(out, p->n * 4);
    if (!at) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < p->n; i++)
        at += utf8proc_encode_char(p->s->codes[i], (utf8proc_uint8_t *)at);
    out->len = (size_t)(at - out->data);
    p->n = 0;
}

static size_t ascii_end(struct str s, size_t at)
{
    for (; s.len - at >= 8; at += 8) {
        uint64_t word;
        memcpy(&word, s.data + at, 8);
        if (word & 0x8080808080808080u)
            break;
    }
    while (at < s.len && (unsigned char)s.data[at] < 0x80)
        at++;
    return at;
}

/* ASCII stays, but for a last character that a mark behind it may change. */
void normal_unicode(const struct normal_step *step, struct normal_scratch *s, struct str text,
                    struct buf *out)
{
    struct piece p = {.s = s};
    for (size_t at = 0; at < text.len;) {
        size_t end = ascii_end(text, at);
        bool last = end == text.len;
        size_t plain = last || end == at ? end : end - 1;
        buf_add(out, text.data + at, plain - at);
        if (last)
            break;
        if (plain < end)
            decompose(&p, (unsigned char)text.data[plain], step->compatible);
        for (at = end; at < text.len && (unsigned char)text.data[at] >= 0x80;) {
            size_t next = at;
            uint32_t c = utf8_decode(text.data, &next);
            if (p.n > PIECE_CODES && begins(c))
                write_piece(&p, step->compose, out);
            decompose(&p, c, step->compatible);
            at = next;
        }
        write_piece(&p, step->compose, out);
    }
}
