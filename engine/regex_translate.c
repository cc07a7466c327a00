#include "regex_translate.h"

#include "utf8.h"

/* As Oniguruma has it: of other numbers, those of Latin-1 are in where \w stands alone. */
#define WORDS "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}"
#define WORD "[" WORDS "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}]"
#define NOT_WORD "[^" WORDS "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}]"
#define HEX "0-9A-Fa-f"

enum { DEPTH = 64 };
static const size_t NO_ATOM = SIZE_MAX;

struct translation {
    struct str p;
    size_t at;
    enum regex_dialect dialect;
    struct buf *out;
    size_t atom;          /* where what a quantifier would repeat starts in out, or NO_ATOM */
    size_t groups[DEPTH]; /* where open groups start in out */
    int depth;
    struct err *e;
};

static bool refuse(struct translation *t, const char *what)
{
    return err_set(t->e, ERR_UNSUPPORTED, "regular expression \"%.*s\": %s at byte %zu",
                   t->p.len < 200 ? (int)t->p.len : 200, t->p.data, what, t->at);
}

static char peek(const struct translation *t, size_t ahead)
{
    return t->at + ahead < t->p.len ? t->p.data[t->at + ahead] : 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_alnum(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool looking_at(const struct translation *t, const char *with)
{
    return str_starts((struct str){t->p.data + t->at, t->p.len - t->at}, with);
}

/* Copies n bytes of the pattern as they are. */
static bool copy(struct translation *t, size_t n)
{
    buf_add(t->out, t->p.data + t->at, n);
    t->at += n;
    return true;
}

static bool put(struct translation *t, const char *text, size_t n_read)
{
    buf_add_str(t->out, text);
    t->at += n_read;
    return true;
}

/* Long names of properties, which PCRE2 knows by short ones. */
static const char *const properties[][2] = {
    {"Letter", "L"},
    {"Lowercase_Letter", "Ll"},
    {"Uppercase_Letter", "Lu"},
    {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Mark", "M"},
    {"Nonspacing_Mark", "Mn"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"Punctuation", "P"},
    {"Symbol", "S"},
    {"Separator", "Z"},
    {"Other", "C"},
    {"Alpha", "Alphabetic"},
    {"Digit", "Nd"},
    {"Punct", "P"},
    {"Upper", "Uppercase"},
    {"Lower", "Lowercase"},
    {"Space", "White_Space"},
};

/* \p{Name}, \P{Name} or \pL */
static bool property(struct translation *t)
{
    if (peek(t, 2) != '{')
        return is_alnum(peek(t, 2)) ? copy(t, 3) : refuse(t, "a property without a name");
    const char *name = t->p.data + t->at + 3;
    const char *end = memchr(name, '}', t->p.len - t->at - 3);
    if (!end)
        return refuse(t, "a property without an end");
    struct str given = {name, (size_t)(end - name)};
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++)
        if (str_is(given, properties[i][0])) {
            buf_addf(t->out, "\\%c{%s}", peek(t, 1), properties[i][1]);
            t->at += given.len + 4;
            return true;
        }
    return copy(t, given.len + 4);
}

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* \xHH, \x{H...} and \uHHHH, \u{H...} */
static bool code_point(struct translation *t)
{
    size_t most = peek(t, 1) == 'x' ? 2 : 4, n = 0;
    bool braces = peek(t, 2) == '{';
    size_t first = braces ? 3 : 2;
    while (is_hex(peek(t, first + n)) && n < (braces ? 6 : most))
        n++;
    if (n == 0 || (braces && peek(t, first + n) != '}') || (!braces && n < most))
        return refuse(t, "a code point that we cannot read");
    buf_addf(t->out, "\\x{%.*s}", (int)n, t->p.data + t->at + first);
    t->at += first + n + braces;
    return true;
}

/* What an escape means on its own and inside a class; NULL: refused there. */
static const struct {
    char c;
    const char *alone, *in_class;
} escapes[] = {
    {'s', "[" REGEX_SPACES "]", REGEX_SPACES},
    {'S', "[^" REGEX_SPACES "]", "\\S"},
    {'d', "\\p{Nd}", "\\p{Nd}"},
    {'D', "\\P{Nd}", "\\P{Nd}"},
    {'w', WORD, WORDS},
    {'W', NOT_WORD, NULL},
    {'b', "(?:(?<=" WORD ")(?!" WORD ")|(?<!" WORD ")(?=" WORD "))", "\\x{8}"},
    {'B', "(?:(?<=" WORD ")(?=" WORD ")|(?<!" WORD ")(?!" WORD "))", NULL},
    {'v', "\\x{B}", "\\x{B}"},
    {'n', "\\n", "\\n"},
    {'r', "\\r", "\\r"},
    {'t', "\\t", "\\t"},
    {'f', "\\f", "\\f"},
    {'a', "\\a", "\\a"},
    {'e', "\\x{1B}", "\\x{1B}"},
    {'A', "\\A", NULL},
    {'z', "\\z", NULL},
};

static bool escape(struct translation *t, bool in_class)
{
    char c = peek(t, 1);
    if (c == 'p' || c == 'P')
        return property(t);
    if (c == 'x' || c == 'u')
        return code_point(t);
    if (t->dialect == REGEX_ONIG && c == 'h')
        return put(t, in_class ? HEX : "[" HEX "]", 2);
    if (t->dialect == REGEX_ONIG && !in_class && (c == 'Z' || c == 'G'))
        return copy(t, 2);
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++)
        if (escapes[i].c == c) {
            const char *means = in_class ? escapes[i].in_class : escapes[i].alone;
            return means ? put(t, means, 2) : refuse(t, "an escape that we do not know");
        }
    if (c == 0 || is_alnum(c))
        return refuse(t, "an escape that we do not know");
    if ((unsigned char)c >= 0x80) /* means itself */
        t->at++;
    return copy(t, (unsigned char)c >= 0x80 ? (size_t)utf8_length((unsigned char)c) : 2);
}

static bool class_item(struct translation *t)
{
    char c = peek(t, 0);
    if (c == '\\')
        return escape(t, true);
    if (looking_at(t, "[:")) {
        const char *name = t->p.data + t->at;
        const char *end = memmem(name, t->p.len - t->at, ":]", 2);
        return end ? copy(t, (size_t)(end - name) + 2) : refuse(t, "a class without an end");
    }
    if (c == '[')
        return refuse(t, "a class inside a class");
    if (looking_at(t, "&&") ||
        (t->dialect == REGEX_RUST && (looking_at(t, "--") || looking_at(t, "~~"))))
        return refuse(t, "an operation on classes");
    return copy(t, 1);
}

static bool class(struct translation *t)
{
    t->atom = t->out->len;
    copy(t, peek(t, 1) == '^' ? 2 : 1);
    if (peek(t, 0) == ']')
        put(t, "\\]", 1);
    while (peek(t, 0) != ']') {
        if (t->at >= t->p.len)
            return refuse(t, "a class without an end");
        if (!class_item(t))
            return false;
    }
    return copy(t, 1);
}

static bool open_group(struct translation *t)
{
    static const char *const known[] = {
        "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"};
    if (t->depth == DEPTH)
        return refuse(t, "groups inside each other too often");
    if (looking_at(t, "(?i)") && (t->at == 0 || t->dialect == REGEX_RUST))
        return copy(t, 4);
    t->groups[t->depth++] = t->out->len;
    t->atom = NO_ATOM;
    if (peek(t, 1) != '?')
        return peek(t, 1) == '*' ? refuse(t, "a verb") : copy(t, 1);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (looking_at(t, known[i]))
            return copy(t, strlen(known[i]));
    return refuse(t, "a kind of group that we do not know");
}

static bool close_group(struct translation *t)
{
    if (t->depth == 0)
        return refuse(t, "a group that ends without a start");
    t->atom = t->groups[--t->depth];
    return copy(t, 1);
}

/* Bytes of the interval {n}, {n,}, {,m} or {n,m} here; 0: a brace that means itself. */
static size_t interval_length(const struct translation *t, bool *open, bool *fixed)
{
    size_t n = 1, digits = 0;
    for (; is_digit(peek(t, n)); n++)
        digits++;
    *open = digits == 0;
    *fixed = peek(t, n) != ',';
    if (!*fixed)
        for (n++; is_digit(peek(t, n)); n++)
            digits++;
    return digits && peek(t, n) == '}' && !(*open && *fixed) ? n + 1 : 0;
}

/* Oniguruma reads X{2}+ as (X{2})+, the others as possessive. */
static bool interval(struct translation *t)
{
    bool open, fixed;
    size_t n = interval_length(t, &open, &fixed);
    if (n == 0)
        return put(t, "\\{", 1);
    if (t->atom == NO_ATOM)
        return refuse(t, "nothing to repeat");
    bool onig = t->dialect == REGEX_ONIG, again = onig && peek(t, n) == '+';
    if (onig && fixed && peek(t, n) == '?')
        return refuse(t, "an interval that we do not know");
    if (again) {
        struct buf *o = t->out;
        if (!buf_reserve(o, 3))
            return true; /* `failed` is seen at the end */
        memmove(o->data + t->atom + 3, o->data + t->atom, o->len - t->atom);
        memcpy(o->data + t->atom, "(?:", 3);
        o->len += 3;
    }
    if (open) {
        put(t, "{0", 1);
        copy(t, n - 1);
    } else {
        copy(t, n);
    }
    return again ? put(t, ")", 0) : true;
}

static bool item(struct translation *t)
{
    char c = peek(t, 0);
    size_t start = t->out->len;
    bool rust = t->dialect == REGEX_RUST;
    switch (c) {
    case '[':
        return class(t);
    case '(':
        return open_group(t);
    case ')':
        return close_group(t);
    case '{':
        return interval(t);
    case '*':
    case '+':
    case '?':
        return copy(t, 1);
    case '|':
        t->atom = NO_ATOM;
        return copy(t, 1);
    case '^':
        return put(t, rust ? "\\A" : "^", 1);
    case '$':
        return put(t, rust ? "\\z" : "$", 1);
    case 0:
        return put(t, "\\x{0}", 1);
    default:
        t->atom = start;
        return c == '\\' ? escape(t, false) : copy(t, (size_t)utf8_length((unsigned char)c));
    }
}

bool regex_translate_is_linear(struct str pattern, enum regex_dialect dialect)
{
    return dialect == REGEX_ONIG && str_is(pattern, "\\s+$");
}

bool regex_translate(struct str pattern, enum regex_dialect dialect, struct buf *out, struct err *e)
{
    struct translation t = {.p = pattern, .dialect = dialect, .out = out, .atom = NO_ATOM, .e = e};
    size_t bad = utf8_check(pattern.data, pattern.len);
    if (bad < pattern.len)
        return err_set(e, ERR_INVALID, "a regular expression is not UTF-8 at byte %zu", bad);
    /* Would cost the square of a run of spaces that does not end a line: look at each run once. */
    if (regex_translate_is_linear(pattern, dialect)) {
        buf_add_str(out, "(?:\\G|(?<![" REGEX_SPACES "]))[" REGEX_SPACES "]+$");
        t.at = pattern.len;
    }
    while (t.at < pattern.len)
        if (!item(&t))
            return false;
    if (t.depth)
        return refuse(&t, "a group without an end");
    return !out->failed || err_set(e, ERR_MEMORY, "out of memory for a regular expression");
}
