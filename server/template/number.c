#include "number.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is_space(char c)
{
    return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
}

/* The text without outer space and without the underscores that stand between digits; false:
 * empty, too long, or an underscore elsewhere. */
static bool tidy(const struct str *s, char *out, size_t cap)
{
    size_t from = 0, end = s->n, k = 0;
    while (from < end && is_space(s->s[from]))
        from++;
    while (end > from && is_space(s->s[end - 1]))
        end--;
    for (size_t i = from; i < end; i++) {
        char c = s->s[i];
        if (c == '_') {
            if (i == from || i + 1 == end || !isalnum((unsigned char)s->s[i - 1]) ||
                !isalnum((unsigned char)s->s[i + 1]))
                return false;
            continue;
        }
        if (k + 1 == cap || c == '\0')
            return false;
        out[k++] = c;
    }
    out[k] = '\0';
    return k > 0;
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 32);
    return c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
}

/* Skips the prefix 0x, 0o or 0b if the base allows it; may choose the base. */
static const char *skip_prefix(const char *p, int64_t *base)
{
    int of_prefix = 0;
    if (p[0] == '0' && p[1])
        of_prefix = (p[1] | 32) == 'x' ? 16 : (p[1] | 32) == 'o' ? 8 : (p[1] | 32) == 'b' ? 2 : 0;
    if (of_prefix && (*base == 0 || *base == of_prefix)) {
        *base = of_prefix;
        return p + 2;
    }
    if (*base == 0)
        *base = 10;
    return p;
}

enum number_result number_int(const struct str *s, int64_t base, int64_t *out)
{
    char text[512];
    bool over = false;
    if (!tidy(s, text, sizeof text) || (base != 0 && (base < 2 || base > 36)))
        return NUMBER_BAD;
    bool minus = text[0] == '-';
    const char *p = skip_prefix(text + (minus || text[0] == '+'), &base);
    if (!*p)
        return NUMBER_BAD;
    *out = 0;
    for (; *p; p++) {
        int d = digit_of(*p);
        if (d >= base)
            return NUMBER_BAD;
        over = over || __builtin_mul_overflow(*out, base, out) ||
               __builtin_sub_overflow(*out, (int64_t)d, out);
    }
    if (!minus && !over) /* collected as a negative number, which reaches further */
        over = __builtin_sub_overflow((int64_t)0, *out, out);
    return over ? NUMBER_TOO_LARGE : NUMBER_OK;
}

enum number_result number_float(const struct str *s, double *out)
{
    static const char *const words[] = {"inf", "infinity", "nan"};
    char text[512], *end;
    if (!tidy(s, text, sizeof text))
        return NUMBER_BAD;
    const char *p = text + (text[0] == '-' || text[0] == '+');
    bool word = false;
    for (size_t i = 0; i < 3; i++)
        word = word || strcasecmp(p, words[i]) == 0;
    if (!word && strspn(p, "0123456789.eE+-") != strlen(p))
        return NUMBER_BAD;
    *out = strtod(text, &end);
    return *end || end == text ? NUMBER_BAD : NUMBER_OK;
}

enum number_result number_truncate(double f, int64_t *out)
{
    if (isnan(f) || isinf(f))
        return NUMBER_BAD;
    if (f < -9223372036854775808.0 || f >= 9223372036854775808.0)
        return NUMBER_TOO_LARGE;
    *out = (int64_t)f;
    return NUMBER_OK;
}
