#include "normaliser.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "codepoint.h"
#include "normaliser_impl.h"
#include "utf8.h"

enum { MAX_STEPS = 32, MOST_GROWTH = 64 };

struct normaliser {
    struct normal_step steps[MAX_STEPS];
    int n_steps;
};

struct normaliser *normaliser_new(struct err *e)
{
    struct normaliser *n = calloc(1, sizeof *n);
    if (!n)
        err_set(e, ERR_MEMORY, "out of memory for the normaliser");
    return n;
}

void normal_step_free(struct normal_step *s)
{
    regex_close(s->regex);
    free(s->pattern);
    free(s->text);
    charsmap_free(s->charsmap);
}

bool normaliser_add(struct normaliser *n, struct normal_step step, struct err *e)
{
    if (n->n_steps == MAX_STEPS) {
        normal_step_free(&step);
        return err_set(e, ERR_LIMIT, "more than %d normalizers", MAX_STEPS);
    }
    n->steps[n->n_steps++] = step;
    return true;
}

void normaliser_free(struct normaliser *n)
{
    if (!n)
        return;
    for (int i = 0; i < n->n_steps; i++)
        normal_step_free(&n->steps[i]);
    free(n);
}

bool normaliser_is_empty(const struct normaliser *n)
{
    return n->n_steps == 0;
}

struct normal_scratch *normal_scratch_new(struct err *e)
{
    struct normal_scratch *s = calloc(1, sizeof *s);
    if (!s)
        err_set(e, ERR_MEMORY, "out of memory for normalising text");
    else if ((s->match = regex_scratch_new(e)))
        return s;
    free(s);
    return NULL;
}

void normal_scratch_free(struct normal_scratch *s)
{
    if (!s)
        return;
    buf_free(&s->a);
    buf_free(&s->b);
    regex_scratch_free(s->match);
    special_matches_free(&s->protected_);
    free(s->codes);
    free(s);
}

/* Printable Latin-1 stands for itself; the other bytes follow from U+0100 on, in order. */
int alphabet_byte(uint32_t c)
{
    if ((c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xFF && c != 0xAD))
        return (int)c;
    if (c < 0x100 || c > 0x143)
        return -1;
    c -= 0x100;
    return c <= 0x20 ? (int)c : c <= 0x42 ? (int)c - 0x21 + 0x7F : 0xAD;
}

uint32_t alphabet_char(unsigned char byte)
{
    if ((byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD))
        return byte;
    return byte <= 0x20 ? 0x100u + byte : byte == 0xAD ? 0x143 : 0x121u + byte - 0x7F;
}

int64_t alphabet_decode(struct str s, char *out)
{
    if (utf8_check(s.data, s.len) < s.len)
        return -1;
    int64_t n = 0;
    for (size_t i = 0; i < s.len;) {
        int byte = alphabet_byte(utf8_decode(s.data, &i));
        if (byte < 0)
            return -1;
        out[n++] = (char)byte;
    }
    return n;
}

static bool replace_literal(const struct normal_step *step, struct str text, struct buf *out)
{
    size_t at = 0;
    while (at < text.len) {
        const char *found =
            step->n_pattern == 1
                ? memchr(text.data + at, step->pattern[0], text.len - at)
                : memmem(text.data + at, text.len - at, step->pattern, step->n_pattern);
        if (!found)
            break;
        buf_add(out, text.data + at, (size_t)(found - text.data) - at);
        buf_add(out, step->text, step->n_text);
        at = (size_t)(found - text.data) + step->n_pattern;
    }
    buf_add(out, text.data + at, text.len - at);
    return true;
}

/* An empty match puts the text between two characters. */
static bool replace_regex(const struct normal_step *step, struct normal_scratch *s, struct str text,
                          struct buf *out, struct err *e)
{
    size_t done = 0, from = 0, start, end;
    int found = 0;
    while (from <= text.len) {
        found = regex_find(step->regex, s->match, text.data, text.len, from, &start, &end, e);
        if (found <= 0)
            break;
        buf_add(out, text.data + done, start - done);
        buf_add(out, step->text, step->n_text);
        done = from = end;
        if (start == end)
            from += end < text.len ? (size_t)utf8_length((unsigned char)text.data[end]) : 1;
    }
    buf_add(out, text.data + done, text.len - done);
    return found >= 0;
}

static struct str strip(const struct normal_step *step, struct str text)
{
    size_t at = 0, end = text.len;
    for (size_t i = 0; step->left && i < end && codepoint_is_space(utf8_decode(text.data, &i));)
        at = i;
    while (step->right && end > at) {
        size_t start = codepoint_last(text.data, end), i = start;
        if (!codepoint_is_space(utf8_decode(text.data, &i)))
            break;
        end = start;
    }
    return (struct str){text.data + at, end - at};
}

/* What Unicode's NMT rules make of a character; 0: nothing. */
static uint32_t nmt(uint32_t c)
{
    if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
        c == 0x9F)
        return 0;
    bool odd = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
               (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
               c == 0xFEFF || c == 0xFFFD;
    return odd ? ' ' : c;
}

/* What a step that looks at single characters puts to out (room for 8 bytes); returns how much. */
static int map_character(const struct normal_step *step, uint32_t c, char *out)
{
    switch (step->kind) {
    case NORMAL_LOWERCASE:
        if (c == 0x130) { /* the only one that becomes two */
            memcpy(out, "i\xCC\x87", 3);
            return 3;
        }
        return codepoint_put(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
    case NORMAL_STRIP_ACCENTS:
        return codepoint_is_mark(c) ? 0 : codepoint_put(out, c);
    default:
        return c && !nmt(c) ? 0 : codepoint_put(out, nmt(c));
    }
}

static void map_characters(const struct normal_step *step, struct str text, struct buf *out)
{
    for (size_t i = 0; i < text.len;) {
        char *at = buf_reserve(out, 8);
        if (!at)
            return;
        out->len += (size_t)map_character(step, utf8_decode(text.data, &i), at);
    }
}

static void to_alphabet(struct str text, struct buf *out)
{
    char *at = buf_reserve(out, text.len * 2);
    if (!at)
        return;
    for (size_t i = 0; i < text.len; i++)
        at += codepoint_put(at, alphabet_char((unsigned char)text.data[i]));
    out->len = (size_t)(at - out->data);
}

static bool has_pattern(const struct normal_step *step, struct str text)
{
    return memmem(text.data, text.len, step->pattern, step->n_pattern) != NULL;
}

static bool is_ascii(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.data[i] >= 0x80)
            return false;
    return true;
}

/* Steps that would write what they read are left out. */
static bool changes_nothing(const struct normal_step *step, struct str text)
{
    switch (step->kind) {
    case NORMAL_UNICODE:
    case NORMAL_STRIP_ACCENTS:
        return is_ascii(text);
    case NORMAL_PREPEND:
        return text.len == 0;
    case NORMAL_REPLACE:
        return !step->regex && !has_pattern(step, text);
    default:
        return false;
    }
}

static bool run(const struct normal_step *step, struct normal_scratch *s, struct str text,
                int where, struct buf *out, struct err *e)
{
    switch (step->kind) {
    case NORMAL_UNICODE:
        normal_unicode(step, s, text, out);
        return true;
    case NORMAL_PREPEND:
        buf_add(out, step->text, step->n_text);
        buf_add(out, text.data, text.len);
        return true;
    case NORMAL_REPLACE:
        return step->regex ? replace_regex(step, s, text, out, e)
                           : replace_literal(step, text, out);
    case NORMAL_CHARSMAP:
        normal_charsmap(step, text, out);
        return true;
    case NORMAL_BYTE_LEVEL:
        to_alphabet(text, out);
        return true;
    case NORMAL_SENTENCEPIECE:
        return normal_sentencepiece(step, s, text, where, out, e);
    default:
        map_characters(step, text, out);
        return true;
    }
}

/* Does nothing come of the first character? What follows is then not the start of a text. */
static bool drops_first(const struct normal_step *step, struct normal_scratch *s, struct str text)
{
    size_t i = 0, start, end;
    char out[8];
    if (text.len == 0)
        return false;
    if (step->kind == NORMAL_STRIP_ACCENTS || step->kind == NORMAL_NMT)
        return map_character(step, utf8_decode(text.data, &i), out) == 0;
    if (step->kind != NORMAL_REPLACE || step->n_text)
        return false;
    if (!step->regex)
        return str_starts(text, step->pattern);
    return regex_find(step->regex, s->match, text.data, text.len, 0, &start, &end, NULL) > 0 &&
           start == 0 && end > 0;
}

bool normalise(const struct normaliser *n, struct normal_scratch *s, struct str *text, int *where,
               struct err *e)
{
    size_t n_in = text->len, most = n_in * MOST_GROWTH + 4096;
    struct buf *out = &s->a; /* never what the text lies in */
    for (int i = 0; i < n->n_steps; i++) {
        const struct normal_step *step = &n->steps[i];
        if (step->kind == NORMAL_STRIP) {
            struct str kept = strip(step, *text);
            if (kept.data != text->data)
                *where &= ~TEXT_FIRST;
            *text = kept;
            continue;
        }
        if (changes_nothing(step, *text))
            continue;
        if (*where & TEXT_FIRST && drops_first(step, s, *text))
            *where &= ~TEXT_FIRST;
        buf_clear(out);
        if (!run(step, s, *text, *where, out, e))
            return false;
        if (out->failed)
            return err_set(e, ERR_MEMORY, "out of memory for normalising %zu bytes", text->len);
        if (out->len > most)
            return err_set(e, ERR_LIMIT, "normalising would make %zu bytes of %zu", out->len, n_in);
        *text = (struct str){out->data ? out->data : "", out->len};
        out = out == &s->a ? &s->b : &s->a;
    }
    return true;
}
