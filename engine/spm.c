#include "spm.h"

#include "utf8.h"

#include <string.h>

static const char MARK[] = "\xE2\x96\x81"; /* U+2581 */

/* Where the next U+2581 is; n when there is none. */
static size_t find_mark(const char *s, size_t n, size_t at)
{
    while (at < n) {
        const char *lead = memchr(s + at, MARK[0], n - at);
        if (!lead)
            break;
        at = (size_t)(lead - s);
        if (n - at >= 3 && memcmp(lead, MARK, 3) == 0)
            return at;
        at++;
    }
    return n;
}

size_t spm_spaces(struct gguf_str s, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len;) {
        size_t mark = find_mark(s.data, s.len, i);
        memcpy(out + n, s.data + i, mark - i);
        n += mark - i;
        if (mark < s.len)
            out[n++] = ' ';
        i = mark + 3;
    }
    return n;
}

void spm_note_token(struct spm *m, struct gguf_str text)
{
    for (size_t i = 0; i + 1 < text.len; i++) {
        unsigned char a = (unsigned char)text.data[i], b = (unsigned char)text.data[i + 1];
        if ((b & 0xC0) != 0x80)
            m->joins[a][b / 8] |= (uint8_t)(1 << b % 8);
    }
}

/* s[n] without the spaces that follow another, or the start of the text. Returns its length. */
static size_t drop_spaces(char *s, size_t n, int where)
{
    size_t kept = 0;
    bool space = where & SPM_FIRST;
    for (size_t i = 0; i < n; i++) {
        if (s[i] != ' ' || !space)
            s[kept++] = s[i];
        space = s[i] == ' ';
    }
    if (where & SPM_LAST && kept && s[kept - 1] == ' ')
        kept--;
    return kept;
}

void spm_normalise(const struct spm *m, const char *text, size_t n, int where, struct buf *out)
{
    buf_clear(out);
    char *at = buf_reserve(out, n + 1);
    if (!at)
        return;
    bool prefix = m->add_prefix && where & SPM_FIRST;
    at[0] = ' ';
    size_t len = spm_spaces((struct gguf_str){text, n}, at + prefix);
    if (m->one_space)
        len = drop_spaces(at + prefix, len, where);
    if (m->one_space && len == 0 && where == (SPM_FIRST | SPM_LAST))
        prefix = false; /* the whole text was spaces */
    out->len = len + prefix;
}

size_t spm_part_end(const struct spm *m, const char *text, size_t n, size_t at)
{
    for (size_t i = at + 1; i < n; i++) {
        unsigned char a = (unsigned char)text[i - 1], b = (unsigned char)text[i];
        if ((b & 0xC0) != 0x80 && !(m->joins[a][b / 8] >> b % 8 & 1))
            return i;
    }
    return n;
}
