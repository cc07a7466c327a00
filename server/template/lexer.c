#include "lexer.h"

#include "unicode.h"

#include <stdio.h>
#include <string.h>

void lexer_begin(struct lexer *lx, const char *src, size_t n)
{
    memset(lx, 0, sizeof *lx);
    lx->src = src;
    lx->n = n;
    lx->line = 1;
}

static int line_at(struct lexer *lx, size_t pos)
{
    for (; lx->counted < pos; lx->counted++)
        lx->line += lx->src[lx->counted] == '\n';
    return lx->line;
}

static bool at(const struct lexer *lx, size_t pos, const char *text)
{
    size_t n = strlen(text);
    return n <= lx->n - pos && memcmp(lx->src + pos, text, n) == 0;
}

static size_t skip_space(const struct lexer *lx, size_t pos)
{
    while (pos < lx->n) {
        uint32_t cp;
        size_t len = unicode_decode(lx->src + pos, lx->n - pos, &cp);
        if (!unicode_is_space(cp))
            break;
        pos += len;
    }
    return pos;
}

/* End of src[from..end) without the space at its end. */
static size_t strip_end(const struct lexer *lx, size_t from, size_t end)
{
    while (end > from) {
        uint32_t cp;
        size_t before = unicode_before(lx->src, end);
        unicode_decode(lx->src + before, end - before, &cp);
        if (!unicode_is_space(cp))
            break;
        end = before;
    }
    return end;
}

static bool is_sign(char c)
{
    return c == '-' || c == '+';
}

/* lstrip_blocks: the space between the start of the line and the tag goes, if there is
 * nothing else. */
static size_t strip_line_start(const struct lexer *lx, size_t from, size_t end)
{
    size_t line = end;
    while (line > from && lx->src[line - 1] != '\n')
        line--;
    bool starts_line = line > from || from == 0 || lx->src[from - 1] == '\n';
    return starts_line && strip_end(lx, line, end) == line ? line : end;
}

static size_t trim_text(const struct lexer *lx, size_t from, size_t end, char sign, bool block)
{
    if (sign == '-')
        return strip_end(lx, from, end);
    return block && sign != '+' ? strip_line_start(lx, from, end) : end;
}

/* A tag `{%sign word sign%}` at pos, as raw and endraw are written. Returns the position after
 * it, or 0. A raw tag keeps the newline behind it; an endraw tag is trimmed as any block. */
static size_t match_word_tag(const struct lexer *lx, size_t pos, const char *word, bool end_tag)
{
    if (!at(lx, pos, "{%"))
        return 0;
    pos += 2;
    if (pos < lx->n && is_sign(lx->src[pos]))
        pos++;
    pos = skip_space(lx, pos);
    if (!at(lx, pos, word))
        return 0;
    pos = skip_space(lx, pos + strlen(word));
    if (at(lx, pos, "-%}"))
        return skip_space(lx, pos + 3);
    if (end_tag && at(lx, pos, "+%}"))
        return pos + 3;
    if (!at(lx, pos, "%}"))
        return 0;
    pos += 2;
    return end_tag && at(lx, pos, "\n") ? pos + 1 : pos;
}

/* After the comment that opens at pos, or 0 if it never ends. */
static size_t skip_comment(const struct lexer *lx, size_t pos)
{
    size_t body = pos + 2;
    if (body < lx->n && is_sign(lx->src[body]))
        body++;
    const char *close = body <= lx->n ? memmem(lx->src + body, lx->n - body, "#}", 2) : NULL;
    if (!close)
        return 0;
    size_t end = (size_t)(close - lx->src);
    char sign = end > body ? lx->src[end - 1] : '\0';
    end += 2;
    if (sign == '-')
        return skip_space(lx, end);
    return sign != '+' && at(lx, end, "\n") ? end + 1 : end;
}

/* The next {%, {{ or {# at or after pos; n if none. */
static size_t find_tag(const struct lexer *lx, size_t pos)
{
    while (pos < lx->n) {
        const char *p = memchr(lx->src + pos, '{', lx->n - pos);
        if (!p)
            break;
        pos = (size_t)(p - lx->src);
        if (pos + 1 < lx->n && strchr("%{#", lx->src[pos + 1]) && lx->src[pos + 1])
            return pos;
        pos++;
    }
    return lx->n;
}

static bool set_token(struct lexer *lx, struct token *t, enum token_kind kind, size_t from,
                      size_t end)
{
    *t = (struct token){kind, lx->src + from, end - from, line_at(lx, from)};
    return true;
}

/* Text up to the next tag; then stands inside that tag. Empty text gives an empty token. */
static bool next_text(struct lexer *lx, struct token *t, struct err *e)
{
    size_t from = lx->pos, tag = find_tag(lx, from);
    if (tag == lx->n) {
        lx->pos = lx->n;
        return set_token(lx, t, T_DATA, from, tag);
    }
    char sign = tag + 2 < lx->n ? lx->src[tag + 2] : '\0';
    size_t end = trim_text(lx, from, tag, sign, lx->src[tag + 1] != '{');
    set_token(lx, t, T_DATA, from, end);
    size_t raw = match_word_tag(lx, tag, "raw", false);
    if (raw) {
        lx->state = LEX_RAW;
        lx->pos = raw;
    } else if (lx->src[tag + 1] == '#') {
        lx->pos = skip_comment(lx, tag);
        if (lx->pos == 0)
            return err_set(e, ERR_INVALID, "line %d: this comment is not closed by '#}'",
                           line_at(lx, tag));
    } else {
        lx->state = lx->src[tag + 1] == '%' ? LEX_BLOCK : LEX_VARIABLE;
        lx->pos = tag;
        lx->at_tag = true;
    }
    return true;
}

static bool next_raw(struct lexer *lx, struct token *t, struct err *e)
{
    size_t from = lx->pos;
    for (size_t tag = from;; tag++) {
        const char *p = tag < lx->n ? memmem(lx->src + tag, lx->n - tag, "{%", 2) : NULL;
        if (!p)
            return err_set(e, ERR_INVALID, "line %d: this raw block is not closed by endraw",
                           line_at(lx, from));
        tag = (size_t)(p - lx->src);
        size_t after = match_word_tag(lx, tag, "endraw", true);
        if (!after)
            continue;
        lx->state = LEX_TEXT;
        lx->pos = after;
        return set_token(lx, t, T_DATA, from, trim_text(lx, from, tag, lx->src[tag + 2], true));
    }
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name_char(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (unsigned char)c >= 0x80;
}

/* (\d+_)*\d+ */
static size_t skip_digits(const struct lexer *lx, size_t pos)
{
    while (pos < lx->n && (is_digit(lx->src[pos]) ||
                           (lx->src[pos] == '_' && pos + 1 < lx->n && is_digit(lx->src[pos + 1]))))
        pos++;
    return pos;
}

static size_t skip_based(const struct lexer *lx, size_t pos, const char *digits)
{
    size_t i = pos + 2;
    while (i < lx->n && (lx->src[i] == '_' || (lx->src[i] && strchr(digits, lx->src[i]))))
        i++;
    return i > pos + 2 ? i : 0;
}

static size_t skip_exponent(const struct lexer *lx, size_t pos)
{
    if (pos >= lx->n || (lx->src[pos] != 'e' && lx->src[pos] != 'E'))
        return pos;
    size_t i = pos + 1;
    if (i < lx->n && is_sign(lx->src[i]))
        i++;
    return i < lx->n && is_digit(lx->src[i]) ? skip_digits(lx, i) : pos;
}

static bool next_number(struct lexer *lx, struct token *t)
{
    size_t from = lx->pos, end = 0;
    if (at(lx, from, "0x") || at(lx, from, "0X"))
        end = skip_based(lx, from, "0123456789abcdefABCDEF");
    else if (at(lx, from, "0o") || at(lx, from, "0O"))
        end = skip_based(lx, from, "01234567");
    else if (at(lx, from, "0b") || at(lx, from, "0B"))
        end = skip_based(lx, from, "01");
    enum token_kind kind = T_INTEGER;
    if (!end) {
        end = skip_digits(lx, from);
        bool after_dot = from > 0 && lx->src[from - 1] == '.'; /* x.0.1 is two integers */
        size_t f = end;
        if (!after_dot && f + 1 < lx->n && lx->src[f] == '.' && is_digit(lx->src[f + 1]))
            f = skip_digits(lx, f + 1);
        if (!after_dot)
            f = skip_exponent(lx, f);
        kind = f > end ? T_FLOAT : T_INTEGER;
        end = f;
    }
    lx->pos = end;
    return set_token(lx, t, kind, from, end);
}

static bool next_string(struct lexer *lx, struct token *t, struct err *e)
{
    size_t from = lx->pos;
    for (size_t i = from + 1; i < lx->n; i++) {
        if (lx->src[i] == '\\') {
            i++;
        } else if (lx->src[i] == lx->src[from]) {
            lx->pos = i + 1;
            return set_token(lx, t, T_STRING, from, i + 1);
        }
    }
    return err_set(e, ERR_INVALID, "line %d: this string is not closed by %c", line_at(lx, from),
                   lx->src[from]);
}

static const struct {
    const char *text;
    enum token_kind kind;
} operators[] = {
    {"//", T_FLOORDIV}, {"**", T_POW},   {"==", T_EQ},      {"!=", T_NE},      {">=", T_GE},
    {"<=", T_LE},       {"+", T_ADD},    {"-", T_SUB},      {"/", T_DIV},      {"*", T_MUL},
    {"%", T_MOD},       {"~", T_TILDE},  {"[", T_LBRACKET}, {"]", T_RBRACKET}, {"(", T_LPAREN},
    {")", T_RPAREN},    {"{", T_LBRACE}, {"}", T_RBRACE},   {">", T_GT},       {"<", T_LT},
    {"=", T_ASSIGN},    {".", T_DOT},    {":", T_COLON},    {"|", T_PIPE},     {",", T_COMMA},
    {";", T_SEMICOLON},
};
enum { N_OPERATORS = sizeof operators / sizeof operators[0] };

/* Keeps the stack of brackets, so that "}}" inside a dict does not end the tag. */
static bool balance(struct lexer *lx, char c, size_t pos, struct err *e)
{
    if (c == '(' || c == '[' || c == '{') {
        if (lx->n_brackets == LEXER_MAX_BRACKETS)
            return err_set(e, ERR_LIMIT, "line %d: brackets are nested more than %d deep",
                           line_at(lx, pos), LEXER_MAX_BRACKETS);
        lx->brackets[lx->n_brackets++] = c == '(' ? ')' : c == '[' ? ']' : '}';
        return true;
    }
    if (c != ')' && c != ']' && c != '}')
        return true;
    if (lx->n_brackets == 0)
        return err_set(e, ERR_INVALID, "line %d: unexpected '%c'", line_at(lx, pos), c);
    char want = lx->brackets[--lx->n_brackets];
    if (want != c)
        return err_set(e, ERR_INVALID, "line %d: unexpected '%c', expected '%c'", line_at(lx, pos),
                       c, want);
    return true;
}

static bool next_operator(struct lexer *lx, struct token *t, struct err *e)
{
    size_t from = lx->pos;
    for (int i = 0; i < N_OPERATORS; i++) {
        if (!at(lx, from, operators[i].text))
            continue;
        if (!balance(lx, lx->src[from], from, e))
            return false;
        lx->pos = from + strlen(operators[i].text);
        return set_token(lx, t, operators[i].kind, from, lx->pos);
    }
    return err_set(e, ERR_INVALID, "line %d: unexpected character '%.*s'", line_at(lx, from),
                   (int)(unicode_offset(lx->src + from, lx->n - from, 1)), lx->src + from);
}

/* The end of the tag at pos, with the space that it takes along; 0 if it is not there. */
static size_t match_end(const struct lexer *lx, size_t pos)
{
    if (lx->n_brackets)
        return 0;
    if (lx->state == LEX_VARIABLE) {
        if (at(lx, pos, "-}}"))
            return skip_space(lx, pos + 3);
        return at(lx, pos, "}}") ? pos + 2 : 0;
    }
    if (at(lx, pos, "-%}"))
        return skip_space(lx, pos + 3);
    if (at(lx, pos, "+%}"))
        return pos + 3;
    if (!at(lx, pos, "%}"))
        return 0;
    return at(lx, pos + 2, "\n") ? pos + 3 : pos + 2;
}

static bool begin_tag(struct lexer *lx, struct token *t)
{
    size_t from = lx->pos;
    lx->at_tag = false;
    lx->pos += 2;
    if (lx->pos < lx->n && is_sign(lx->src[lx->pos]))
        lx->pos++;
    enum token_kind kind = lx->state == LEX_BLOCK ? T_BLOCK_BEGIN : T_VARIABLE_BEGIN;
    return set_token(lx, t, kind, from, lx->pos);
}

static bool next_in_tag(struct lexer *lx, struct token *t, struct err *e)
{
    lx->pos = skip_space(lx, lx->pos);
    size_t from = lx->pos, end = match_end(lx, from);
    if (end) {
        enum token_kind kind = lx->state == LEX_BLOCK ? T_BLOCK_END : T_VARIABLE_END;
        set_token(lx, t, kind, from, from + 2);
        lx->state = LEX_TEXT;
        lx->pos = end;
        return true;
    }
    if (from == lx->n)
        return set_token(lx, t, T_EOF, from, from);
    char c = lx->src[from];
    if (is_digit(c))
        return next_number(lx, t);
    if (c == '\'' || c == '"')
        return next_string(lx, t, e);
    if (!is_name_char(c))
        return next_operator(lx, t, e);
    while (lx->pos < lx->n && is_name_char(lx->src[lx->pos]))
        lx->pos++;
    return set_token(lx, t, T_NAME, from, lx->pos);
}

bool lexer_next(struct lexer *lx, struct token *t, struct err *e)
{
    while (lx->state == LEX_TEXT || lx->state == LEX_RAW) {
        if (lx->state == LEX_TEXT && lx->pos == lx->n)
            return set_token(lx, t, T_EOF, lx->n, lx->n);
        bool ok = lx->state == LEX_RAW ? next_raw(lx, t, e) : next_text(lx, t, e);
        if (!ok)
            return false;
        if (t->n)
            return true;
    }
    return lx->at_tag ? begin_tag(lx, t) : next_in_tag(lx, t, e);
}

const char *token_describe(const struct token *t, char *out, size_t n)
{
    static const char *const names[] = {
        [T_EOF] = "end of the template", [T_DATA] = "text",           [T_BLOCK_BEGIN] = "'{%'",
        [T_BLOCK_END] = "'%}'",          [T_VARIABLE_BEGIN] = "'{{'", [T_VARIABLE_END] = "'}}'",
    };
    if (t->kind <= T_VARIABLE_END)
        return names[t->kind];
    int len = t->n > 40 ? (int)unicode_before(t->p, 41) : (int)t->n;
    snprintf(out, n, "'%.*s'", len, t->p);
    return out;
}
