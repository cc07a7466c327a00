/* format_value.c: laying out one value. Digits and padding are data; text keeps its origin. */
#include "format.h"
#include "unicode.h"
#include "utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool put_fill(struct rt *r, const struct format_spec *f, int64_t n, struct str_builder *b)
{
    if (n > FORMAT_MAX_WIDTH)
        return rt_fail(r, "a format's width is limited to %d", FORMAT_MAX_WIDTH);
    for (int64_t i = 0; i < n; i++)
        str_put(b, f->fill, f->n_fill, false);
    return !b->failed || rt_no_memory(r);
}

static int64_t left_fill(char align, int64_t missing)
{
    return align == '<' ? 0 : align == '^' ? missing / 2 : missing;
}

bool format_text(struct rt *r, const struct format_spec *f, const struct str *s,
                 struct str_builder *b)
{
    size_t n = s->n;
    int64_t count = (int64_t)utf8_count(s->s, s->n);
    if (f->precision >= 0 && f->precision < count) {
        n = unicode_offset(s->s, s->n, (size_t)f->precision);
        count = f->precision;
    }
    int64_t missing = f->width > count ? f->width - count : 0;
    int64_t left = left_fill(f->align ? f->align : '<', missing);
    if (!put_fill(r, f, left, b))
        return false;
    str_put_part(b, s, 0, n);
    return put_fill(r, f, missing - left, b) && rt_charge_bytes(r, s->n);
}

static void binary_digits(uint64_t n, char *out)
{
    int bits = 1;
    while (bits < 64 && n >> bits)
        bits++;
    for (int i = 0; i < bits; i++)
        out[i] = (char)('0' + (n >> (bits - 1 - i) & 1));
    out[bits] = '\0';
}

/* Digits of the magnitude; the prefix (0x…) goes to `prefix`. */
static void integer_digits(const struct format_spec *f, uint64_t n, char *out, size_t cap,
                           char prefix[3])
{
    prefix[0] = '\0';
    if (f->type == 'b')
        binary_digits(n, out);
    else
        snprintf(out, cap,
                 f->type == 'x'   ? "%llx"
                 : f->type == 'X' ? "%llX"
                 : f->type == 'o' ? "%llo"
                                  : "%llu",
                 (unsigned long long)n);
    if (f->alternate && f->type && strchr("xXob", f->type)) {
        prefix[0] = '0';
        prefix[1] = f->type;
        prefix[2] = '\0';
    }
}

/* Puts the separator between groups of digits in front of the point. */
static void group_digits(char *digits, size_t cap, const struct format_spec *f)
{
    size_t whole = strspn(digits, "0123456789abcdefABCDEF"), n = strlen(digits);
    bool decimal = !f->type || strchr("dfFeEgGn%", f->type);
    if (decimal)
        whole = strspn(digits, "0123456789");
    size_t size = decimal ? 3 : 4;
    for (size_t at = whole; f->grouping && at > size && n + 2 < cap; n++) {
        at -= size;
        memmove(digits + at + 1, digits + at, n - at + 1);
        digits[at] = f->grouping;
    }
}

/* Python's repr without sign for a float format without a type. */
static void repr_digits(struct rt *r, double magnitude, char *out, size_t cap)
{
    struct str_builder b;
    str_begin(&b, &r->arena);
    put_float_repr(magnitude, &b);
    size_t n = b.failed ? 0 : b.n < cap ? b.n : cap - 1;
    if (n)
        memcpy(out, b.s, n);
    out[n] = '\0';
}

static void float_digits(struct rt *r, const struct format_spec *f, double magnitude, char *out,
                         size_t cap)
{
    char spec[8] = "%.*f";
    double shown = f->type == '%' ? magnitude * 100 : magnitude;
    int precision = f->precision < 0 ? 6 : (int)f->precision;
    if (!f->type && f->precision < 0) {
        repr_digits(r, magnitude, out, cap);
        return;
    }
    char type = !f->type || f->type == 'n' ? 'g' : f->type == '%' ? 'f' : f->type;
    if (type == 'g' && precision == 0)
        precision = 1;
    snprintf(spec, sizeof spec, f->alternate ? "%%#.*%c" : "%%.*%c", type);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    int n = snprintf(out, cap, spec, precision, shown);
#pragma GCC diagnostic pop
    bool bare = !f->type && n > 0 && n + 3 < (int)cap && !strpbrk(out, ".en");
    if (bare)
        strcat(out, ".0");
    if (f->type == '%' && n > 0 && n + 2 < (int)cap)
        strcat(out, "%");
}

static bool put_signed(struct rt *r, const struct format_spec *f, bool minus, const char *prefix,
                       const char *digits, struct str_builder *b)
{
    char sign[2] = {minus ? '-' : f->sign == '+' ? '+' : f->sign == ' ' ? ' ' : '\0', '\0'};
    int64_t n = (int64_t)(strlen(sign) + strlen(prefix) + strlen(digits));
    int64_t missing = f->width > n ? f->width - n : 0;
    char align = f->align ? f->align : f->zero ? '=' : '>';
    struct format_spec zeros = *f;
    if (f->zero && !f->align) {
        zeros.fill = "0";
        zeros.n_fill = 1;
    }
    int64_t left = align == '=' ? 0 : left_fill(align, missing);
    if (!put_fill(r, &zeros, left, b))
        return false;
    str_put_data(b, sign);
    str_put_data(b, prefix);
    if (align == '=' && !put_fill(r, &zeros, missing, b))
        return false;
    str_put_data(b, digits);
    return align == '=' || put_fill(r, &zeros, missing - left, b);
}

bool format_number(struct rt *r, const struct format_spec *f, struct value v, struct str_builder *b)
{
    char digits[1024], prefix[3] = "";
    bool minus;
    if (f->precision > FORMAT_MAX_PRECISION)
        return rt_fail(r, "a format's precision is limited to %d", FORMAT_MAX_PRECISION);
    bool as_float = v.type == V_FLOAT || (f->type && strchr("eEfFgG%", f->type));
    if (as_float) {
        double x = value_as_float(v);
        minus = signbit(x) && !isnan(x);
        float_digits(r, f, fabs(x), digits, sizeof digits);
    } else {
        int64_t n = value_as_int(v);
        minus = n < 0;
        integer_digits(f, minus ? 0 - (uint64_t)n : (uint64_t)n, digits, sizeof digits, prefix);
    }
    group_digits(digits, sizeof digits, f);
    return put_signed(r, f, minus, prefix, digits, b);
}
