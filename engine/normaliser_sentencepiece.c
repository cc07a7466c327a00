/* The two ways to apply a SentencePiece character map: SentencePiece's own, and the one of the
 * library that reads tokenizer.json. */
#include <utf8proc.h>

#include "normaliser_impl.h"
#include "utf8.h"

static const char MARK[] = "\xE2\x96\x81"; /* U+2581 */

/* The end of the user-perceived character that starts at s[at]. */
static size_t grapheme_end(struct str s, size_t at)
{
    utf8proc_int32_t state = 0;
    uint32_t c = utf8_decode(s.data, &at);
    while (at < s.len) {
        size_t next = at;
        uint32_t d = utf8_decode(s.data, &next);
        bool ascii = c < 0x80 && d < 0x80 && state == 0;
        if (ascii ? !(c == '\r' && d == '\n')
                  : utf8proc_grapheme_break_stateful((utf8proc_int32_t)c, (utf8proc_int32_t)d,
                                                     &state))
            break;
        c = d;
        at = next;
    }
    return at;
}

enum { SHORT_GRAPHEME = 6 };

/* A short grapheme becomes what its first rule says, whatever else it holds; the characters of
 * others are mapped one by one. That is what the library does. */
void normal_charsmap(const struct normal_step *step, struct str text, struct buf *out)
{
    struct str becomes;
    for (size_t at = 0, end; at < text.len; at = end) {
        end = grapheme_end(text, at);
        if (end - at < SHORT_GRAPHEME &&
            charsmap_shortest(step->charsmap, text.data + at, end - at, &becomes)) {
            buf_add(out, becomes.data, becomes.len);
            continue;
        }
        for (size_t i = at, next; i < end; i = next) {
            next = i + (size_t)utf8_length((unsigned char)text.data[i]);
            if (charsmap_shortest(step->charsmap, text.data + i, next - i, &becomes))
                buf_add(out, becomes.data, becomes.len);
            else
                buf_add(out, text.data + i, next - i);
        }
    }
}

struct walk {
    const struct normal_step *step;
    struct str text;
    size_t at;
    const struct special_matches *protected_;
    size_t i_protected;
};

/* Reads the next characters and what they become. */
static struct str take(struct walk *w)
{
    const struct special_matches *m = w->protected_;
    const char *at = w->text.data + w->at;
    struct str becomes = {at, 0};
    while (w->i_protected < m->n && m->list[w->i_protected].end <= w->at)
        w->i_protected++;
    size_t n = 0;
    if (w->i_protected < m->n && m->list[w->i_protected].start == w->at)
        n = becomes.len = m->list[w->i_protected].end - w->at;
    else if (w->step->charsmap)
        n = charsmap_longest(w->step->charsmap, at, w->text.len - w->at, &becomes);
    if (n == 0) {
        n = (size_t)utf8_length((unsigned char)*at);
        becomes = (struct str){at, n};
    }
    w->at += n;
    return becomes;
}

static void add_space(const struct normal_step *step, struct buf *out)
{
    buf_add(out, step->escape ? MARK : " ", step->escape ? 3 : 1);
}

static void add_escaped(const struct normal_step *step, struct str s, struct buf *out)
{
    for (size_t i = 0; i < s.len;) {
        const char *space = step->escape ? memchr(s.data + i, ' ', s.len - i) : NULL;
        size_t end = space ? (size_t)(space - s.data) : s.len;
        buf_add(out, s.data + i, end - i);
        if (space)
            buf_add(out, MARK, 3);
        i = end + (space != NULL);
    }
}

static void drop_last_spaces(const struct normal_step *step, struct buf *out)
{
    const char *space = step->escape ? MARK : " ";
    size_t n = step->escape ? 3 : 1;
    while (out->len >= n && memcmp(out->data + out->len - n, space, n) == 0)
        out->len -= n;
}

/* Bytes that start here and stay as they are, whatever follows. */
static size_t plain_run(const struct walk *w)
{
    const struct special_matches *m = w->protected_;
    size_t i = w->at, n = w->text.len;
    size_t end = w->i_protected < m->n ? m->list[w->i_protected].start : n;
    if (!w->step->charsmap)
        return 0;
    for (; i < end && charsmap_is_plain(w->step->charsmap, (unsigned char)w->text.data[i]); i++)
        if ((w->step->one_space && w->text.data[i] == ' ') ||
            (i + 1 < n && (unsigned char)w->text.data[i + 1] >= 0x80))
            break;
    return i - w->at;
}

/* Without map and thinning there is nothing to look at but spaces. */
static void add_all(struct walk *w, bool space, struct buf *out)
{
    const struct normal_step *step = w->step;
    if (!step->charsmap && !step->one_space) {
        add_escaped(step, (struct str){w->text.data + w->at, w->text.len - w->at}, out);
        return;
    }
    while (w->at < w->text.len) {
        size_t plain = plain_run(w);
        struct str s = plain ? (struct str){w->text.data + w->at, plain} : take(w);
        w->at += plain;
        while (space && s.len && *s.data == ' ')
            s = (struct str){s.data + 1, s.len - 1};
        add_escaped(step, s, out);
        if (s.len)
            space = step->one_space && s.data[s.len - 1] == ' ';
    }
}

bool normal_sentencepiece(const struct normal_step *step, struct normal_scratch *scratch,
                          struct str text, int where, struct buf *out, struct err *e)
{
    struct walk w = {.step = step, .text = text, .protected_ = &scratch->protected_};
    bool first = where & TEXT_FIRST;
    scratch->protected_.n = 0;
    if (step->protected_ && (step->charsmap || step->one_space) &&
        !special_tokens_find(step->protected_, text.data, text.len, CONTROL_NONE, NULL, 0,
                             &scratch->protected_, e))
        return false;
    while (step->one_space && first && w.at < text.len) {
        struct walk back = w;
        if (!str_is(take(&w), " ")) {
            w = back;
            break;
        }
    }
    if (w.at == text.len && where == (TEXT_FIRST | TEXT_LAST))
        return true; /* nothing, or nothing but spaces */
    if (step->dummy_prefix && !step->as_suffix && first)
        add_space(step, out);
    add_all(&w, step->one_space && first, out);
    if (where & TEXT_LAST && step->one_space)
        drop_last_spaces(step, out);
    if (step->dummy_prefix && step->as_suffix && where & TEXT_LAST)
        add_space(step, out);
    return true;
}
