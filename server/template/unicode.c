#include "unicode.h"

size_t unicode_decode(const char *p, size_t n, uint32_t *cp)
{
    const unsigned char *u = (const unsigned char *)p;
    if (u[0] < 0x80 || n < 2) {
        *cp = u[0];
        return 1;
    }
    if (u[0] < 0xE0 || n < 3) {
        *cp = (uint32_t)(u[0] & 0x1F) << 6 | (u[1] & 0x3F);
        return 2;
    }
    if (u[0] < 0xF0 || n < 4) {
        *cp = (uint32_t)(u[0] & 0x0F) << 12 | (uint32_t)(u[1] & 0x3F) << 6 | (u[2] & 0x3F);
        return 3;
    }
    *cp = (uint32_t)(u[0] & 0x07) << 18 | (uint32_t)(u[1] & 0x3F) << 12 |
          (uint32_t)(u[2] & 0x3F) << 6 | (u[3] & 0x3F);
    return 4;
}

size_t unicode_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

size_t unicode_offset(const char *p, size_t n, size_t i)
{
    size_t at = 0;
    for (; i > 0 && at < n; i--) {
        at++;
        while (at < n && ((unsigned char)p[at] & 0xC0) == 0x80)
            at++;
    }
    return at;
}

size_t unicode_before(const char *p, size_t end)
{
    size_t at = end - 1;
    while (at > 0 && ((unsigned char)p[at] & 0xC0) == 0x80)
        at--;
    return at;
}

static bool in_runs(const struct unicode_run *runs, size_t n, uint32_t cp)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (cp > runs[mid].last)
            lo = mid + 1;
        else if (cp < runs[mid].first)
            hi = mid;
        else
            return (cp - runs[mid].first) % runs[mid].stride == 0;
    }
    return false;
}

bool unicode_is_space(uint32_t cp)
{
    if (cp < 0x80)
        return cp == ' ' || (cp >= 9 && cp <= 13) || (cp >= 0x1C && cp <= 0x1F);
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

bool unicode_is_linebreak(uint32_t cp)
{
    return (cp >= 10 && cp <= 13) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

bool unicode_is_printable(uint32_t cp)
{
    return !in_runs(unicode_unprintable, unicode_unprintable_n, cp);
}

bool unicode_is_alpha(uint32_t cp)
{
    return in_runs(unicode_alpha, unicode_alpha_n, cp);
}

bool unicode_is_numeric(uint32_t cp)
{
    return in_runs(unicode_numeric, unicode_numeric_n, cp);
}

bool unicode_is_digit(uint32_t cp)
{
    return in_runs(unicode_digit, unicode_digit_n, cp);
}

bool unicode_is_decimal(uint32_t cp)
{
    return in_runs(unicode_decimal, unicode_decimal_n, cp);
}

bool unicode_is_lower(uint32_t cp)
{
    return in_runs(unicode_lower, unicode_lower_n, cp);
}

bool unicode_is_upper(uint32_t cp)
{
    return in_runs(unicode_upper, unicode_upper_n, cp);
}

bool unicode_is_titlecase(uint32_t cp)
{
    return in_runs(unicode_titlecase, unicode_titlecase_n, cp);
}

bool unicode_is_case_ignorable(uint32_t cp)
{
    return in_runs(unicode_case_ignorable, unicode_case_ignorable_n, cp);
}

bool unicode_is_alnum(uint32_t cp)
{
    return unicode_is_alpha(cp) || unicode_is_decimal(cp) || unicode_is_digit(cp) ||
           unicode_is_numeric(cp);
}

static int map_special(const struct unicode_special *t, size_t n, uint32_t cp, uint32_t out[3])
{
    for (size_t i = 0; i < n && t[i].from <= cp; i++) {
        if (t[i].from != cp)
            continue;
        int k = 0;
        for (; k < 3 && t[i].to[k]; k++)
            out[k] = t[i].to[k];
        return k;
    }
    return 0;
}

static uint32_t map_single(const struct unicode_map *t, size_t n, uint32_t cp)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (cp > t[mid].last)
            lo = mid + 1;
        else if (cp < t[mid].first)
            hi = mid;
        else if ((cp - t[mid].first) % t[mid].stride == 0)
            return (uint32_t)((int64_t)cp + t[mid].delta);
        else
            return cp;
    }
    return cp;
}

int unicode_map_case(uint32_t cp, enum unicode_case to, uint32_t out[3])
{
    static const struct {
        const struct unicode_map *map;
        const size_t *n;
        const struct unicode_special *special;
        const size_t *special_n;
    } tables[] = {
        {unicode_to_upper, &unicode_to_upper_n, unicode_to_upper_special,
         &unicode_to_upper_special_n},
        {unicode_to_lower, &unicode_to_lower_n, unicode_to_lower_special,
         &unicode_to_lower_special_n},
        {unicode_to_title, &unicode_to_title_n, unicode_to_title_special,
         &unicode_to_title_special_n},
    };
    int k = cp < 0x80 ? 0 : map_special(tables[to].special, *tables[to].special_n, cp, out);
    if (k)
        return k;
    out[0] = map_single(tables[to].map, *tables[to].n, cp);
    return 1;
}
