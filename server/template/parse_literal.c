/* parse_literal.c: strings with their escapes, and numbers. */
#include "parser.h"
#include "unicode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* "\x41" and the like. Appends the character of `digits` hex digits (or up to 3 octal). */
static bool put_code(struct parser *p, struct str_builder *b, const struct token *t, uint32_t cp)
{
    char out[4];
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000))
        return parse_fail(p, t->line, "a string names U+%04X, which is not a character", cp);
    str_put(b, out, unicode_encode(cp, out), true);
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool read_hex(struct parser *p, const struct token *t, size_t *i, int digits, uint32_t *cp)
{
    *cp = 0;
    for (int k = 0; k < digits; k++, (*i)++) {
        int h = *i + 1 < t->n ? hex_digit(t->p[*i]) : -1;
        if (h < 0)
            return parse_fail(p, t->line, "a \\x, \\u or \\U in a string needs %d hex digits",
                              digits);
        *cp = *cp << 4 | (uint32_t)h;
    }
    return true;
}

/* Two \u escapes may write one character as a surrogate pair. */
static bool join_surrogates(struct parser *p, const struct token *t, size_t *i, uint32_t *cp)
{
    if (*cp < 0xD800 || *cp > 0xDBFF || *i + 6 >= t->n || memcmp(t->p + *i, "\\u", 2) != 0)
        return true;
    size_t j = *i + 2;
    uint32_t low;
    if (!read_hex(p, t, &j, 4, &low))
        return false;
    if (low >= 0xDC00 && low <= 0xDFFF) {
        *cp = 0x10000 + ((*cp - 0xD800) << 10) + (low - 0xDC00);
        *i = j;
    }
    return true;
}

/* The escape whose letter is at t->p[*i]; leaves *i after it. */
static bool unescape(struct parser *p, struct str_builder *b, const struct token *t, size_t *i)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = t->p[(*i)++];
    const char *simple = c ? strchr(from, c) : NULL;
    uint32_t cp = 0;
    if (simple) {
        str_put(b, &to[simple - from], 1, true);
        return true;
    }
    if (c == '\n')
        return true;
    if (c == 'x' || c == 'u' || c == 'U') {
        int digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        return read_hex(p, t, i, digits, &cp) && join_surrogates(p, t, i, &cp) &&
               put_code(p, b, t, cp);
    }
    if (c >= '0' && c <= '7') {
        (*i)--;
        for (int k = 0; k < 3 && *i + 1 < t->n && t->p[*i] >= '0' && t->p[*i] <= '7'; k++)
            cp = cp * 8 + (uint32_t)(t->p[(*i)++] - '0');
        return put_code(p, b, t, cp);
    }
    if (c == 'N')
        return parse_fail(p, t->line,
                          "\\N{…} in strings is not supported; write \\u with the "
                          "character's code");
    str_put(b, "\\", 1, true);
    (*i)--;
    return true;
}

static bool put_string(struct parser *p, struct str_builder *b, const struct token *t)
{
    for (size_t i = 1; i + 1 < t->n;) {
        const char *slash = memchr(t->p + i, '\\', t->n - 1 - i);
        size_t end = slash ? (size_t)(slash - t->p) : t->n - 1;
        str_put(b, t->p + i, end - i, true);
        i = end;
        if (!slash)
            break;
        i++;
        if (!unescape(p, b, t, &i))
            return false;
    }
    return true;
}

struct expr *parse_string(struct parser *p)
{
    struct str_builder b;
    int line = p->cur.line;
    str_begin(&b, &p->t->arena);
    while (p->cur.kind == T_STRING)
        if (!put_string(p, &b, &p->cur) || !parse_advance(p))
            return NULL;
    struct str *s = str_end(&b);
    if (!s) {
        parse_set_error(p, line, "out of memory");
        return NULL;
    }
    s->tmpl = true;
    return parse_constant(p, line, value_str(s));
}

struct expr *parse_number(struct parser *p)
{
    char digits[128];
    size_t n = 0;
    struct token t = p->cur;
    for (size_t i = 0; i < t.n && n + 1 < sizeof digits; i++)
        if (t.p[i] != '_')
            digits[n++] = t.p[i];
    digits[n] = '\0';
    struct value v;
    errno = 0;
    if (n + 1 == sizeof digits) {
        errno = ERANGE;
    } else if (t.kind == T_FLOAT) {
        v = value_float(strtod(digits, NULL));
        errno = 0;
    } else {
        int base = digits[0] != '0' || n < 2 ? 10
                   : (digits[1] | 32) == 'x' ? 16
                   : (digits[1] | 32) == 'o' ? 8
                   : (digits[1] | 32) == 'b' ? 2
                                             : 10;
        v = value_int(strtoll(digits + (base == 10 ? 0 : 2), NULL, base));
    }
    if (errno == ERANGE) {
        parse_set_error(p, t.line, "the number %.40s is too large", digits);
        return NULL;
    }
    return parse_advance(p) ? parse_constant(p, t.line, v) : NULL;
}
