#include "text_ops.h"

#include "unicode.h"

#include <string.h>

static bool is_cased(uint32_t cp)
{
    return unicode_is_lower(cp) || unicode_is_upper(cp) || unicode_is_titlecase(cp);
}

/* Whether the capital sigma at s[i..] ends a word, where its small form is another letter. */
static bool is_final_sigma(const struct str *s, size_t i)
{
    uint32_t cp;
    bool before = false;
    for (size_t at = i; at > 0 && i - at < 64;) {
        at = unicode_before(s->s, at);
        unicode_decode(s->s + at, s->n - at, &cp);
        if (unicode_is_case_ignorable(cp))
            continue;
        before = is_cased(cp);
        break;
    }
    for (size_t at = i + 2; before && at < s->n && at - i < 64;) {
        at += unicode_decode(s->s + at, s->n - at, &cp);
        if (!unicode_is_case_ignorable(cp))
            return !is_cased(cp);
    }
    return before;
}

static int lower_char(const struct str *s, size_t i, uint32_t cp, uint32_t out[3])
{
    if (cp == 0x3A3 && is_final_sigma(s, i)) {
        out[0] = 0x3C2;
        return 1;
    }
    return unicode_map_case(cp, UNICODE_LOWER, out);
}

static int fold_char(uint32_t cp, uint32_t out[3])
{
    bool eszett = cp == 0xDF || cp == 0x1E9E;
    out[0] = eszett ? 's' : 0x3C3;
    out[1] = 's';
    if (eszett || cp == 0x3C2)
        return 1 + eszett;
    return unicode_map_case(cp, UNICODE_LOWER, out);
}

static bool separates_words(uint32_t cp)
{
    return unicode_is_space(cp) || (cp < 0x80 && cp && strchr("-({[<", (int)cp));
}

/* state: whether the last character belongs to a word that has begun. */
static int map_char(const struct str *s, size_t i, uint32_t cp, enum letter_case to, bool *state,
                    uint32_t out[3])
{
    bool begun = *state;
    switch (to) {
    case CASE_UPPER:
        return unicode_map_case(cp, UNICODE_UPPER, out);
    case CASE_LOWER:
        return lower_char(s, i, cp, out);
    case CASE_FOLD:
        return fold_char(cp, out);
    case CASE_SWAP:
        return unicode_is_upper(cp) ? lower_char(s, i, cp, out)
                                    : unicode_map_case(cp, UNICODE_UPPER, out);
    case CASE_CAPITALIZE:
        *state = true;
        return begun ? lower_char(s, i, cp, out) : unicode_map_case(cp, UNICODE_TITLE, out);
    case CASE_TITLE:
        *state = is_cased(cp);
        return begun ? lower_char(s, i, cp, out) : unicode_map_case(cp, UNICODE_TITLE, out);
    case CASE_WORDS:
        *state = !separates_words(cp);
        return begun ? lower_char(s, i, cp, out) : unicode_map_case(cp, UNICODE_UPPER, out);
    }
    return 0;
}

const struct str *string_case(struct rt *r, const struct str *s, enum letter_case to)
{
    struct str_builder b;
    bool state = false;
    str_begin(&b, &r->arena);
    for (size_t i = 0; i < s->n;) {
        uint32_t cp, mapped[3];
        char bytes[4];
        size_t n = unicode_decode(s->s + i, s->n - i, &cp);
        int k = map_char(s, i, cp, to, &state, mapped);
        for (int j = 0; j < k; j++)
            str_put(&b, bytes, unicode_encode(mapped[j], bytes), str_tmpl_at(s, i));
        i += n;
    }
    struct str *out = str_end(&b);
    if (!out) {
        rt_no_memory(r);
        return NULL;
    }
    out->markup = s->markup;
    return rt_charge(r, s->n / 16) ? out : NULL;
}

const struct str *string_part(struct rt *r, const struct str *s, size_t from, size_t end)
{
    const struct str *p = str_part(&r->arena, s, from, end - from);
    if (!p)
        rt_no_memory(r);
    return p;
}

static bool strips(const struct str *s, size_t at, size_t n, const struct str *chars)
{
    uint32_t cp;
    if (chars)
        return str_find(chars, 0, s->s + at, n) != SIZE_MAX;
    unicode_decode(s->s + at, n, &cp);
    return unicode_is_space(cp);
}

const struct str *string_strip(struct rt *r, const struct str *s, const struct str *chars,
                               bool left, bool right)
{
    size_t from = 0, end = s->n;
    while (left && from < end) {
        size_t n = unicode_offset(s->s + from, end - from, 1);
        if (!strips(s, from, n, chars))
            break;
        from += n;
    }
    while (right && end > from) {
        size_t at = unicode_before(s->s, end);
        if (!strips(s, at, end - at, chars))
            break;
        end = at;
    }
    size_t cost = chars ? chars->n / 64 + 1 : 1;
    return rt_charge(r, (s->n - (end - from)) / 16 * cost) ? string_part(r, s, from, end) : NULL;
}

/* An empty pattern matches before every character and at the end. */
static void replace_empty(const struct str *s, const struct str *with, int64_t count,
                          struct str_builder *b)
{
    for (size_t at = 0; !b->failed; count -= count > 0) {
        if (count != 0)
            str_put_str(b, with);
        if (at == s->n)
            break;
        size_t n = unicode_offset(s->s + at, s->n - at, 1);
        str_put_part(b, s, at, n);
        at += n;
    }
}

bool string_replace(struct rt *r, const struct str *s, const struct str *old,
                    const struct str *with, int64_t count, struct value *out)
{
    struct str_builder b;
    str_begin(&b, &r->arena);
    if (old->n == 0 && count != 0) {
        replace_empty(s, with, count, &b);
        return make_str(r, &b, out);
    }
    size_t at = 0;
    for (; count != 0 && !b.failed; count--) {
        size_t hit = str_find(s, at, old->s, old->n);
        if (hit == SIZE_MAX)
            break;
        str_put_part(&b, s, at, hit - at);
        str_put_str(&b, with);
        at = hit + old->n;
        if (!rt_charge(r, 1 + old->n / 256))
            return false;
    }
    str_put_part(&b, s, at, s->n - at);
    return rt_charge_bytes(r, s->n) && make_str(r, &b, out);
}

bool push_part(struct rt *r, struct list *l, const struct str *s, size_t from, size_t end)
{
    const struct str *p = string_part(r, s, from, end);
    return p && rt_charge(r, 1) && list_append(r, l, value_str(p));
}

bool charge_search(struct rt *r, const struct str *text, const struct str *needle)
{
    size_t n = needle->n < text->n ? needle->n : text->n;
    return rt_charge(r, text->n / 32 + text->n / 4096 * (n + 1));
}

static void reverse(struct list *l)
{
    for (size_t i = 0, j = l->n; i + 1 < j; i++) {
        struct value v = l->v[i];
        l->v[i] = l->v[--j];
        l->v[j] = v;
    }
}

static size_t skip(const struct str *s, size_t at, bool space)
{
    while (at < s->n) {
        uint32_t cp;
        size_t n = unicode_decode(s->s + at, s->n - at, &cp);
        if (unicode_is_space(cp) != space)
            break;
        at += n;
    }
    return at;
}

static size_t skip_back(const struct str *s, size_t end, bool space)
{
    while (end > 0) {
        uint32_t cp;
        size_t at = unicode_before(s->s, end);
        unicode_decode(s->s + at, end - at, &cp);
        if (unicode_is_space(cp) != space)
            break;
        end = at;
    }
    return end;
}

static bool split_space(struct rt *r, const struct str *s, int64_t limit, struct list *out)
{
    for (size_t at = skip(s, 0, true); at < s->n; limit--) {
        size_t end = limit == 0 ? s->n : skip(s, at, false);
        if (!push_part(r, out, s, at, end))
            return false;
        at = skip(s, end, true);
    }
    return true;
}

static bool rsplit_space(struct rt *r, const struct str *s, int64_t limit, struct list *out)
{
    for (size_t end = skip_back(s, s->n, true); end > 0; limit--) {
        size_t at = limit == 0 ? 0 : skip_back(s, end, false);
        if (!push_part(r, out, s, at, end))
            return false;
        end = skip_back(s, at, true);
    }
    reverse(out);
    return true;
}

static bool split_at(struct rt *r, const struct str *s, const struct str *sep, int64_t limit,
                     struct list *out)
{
    size_t at = 0;
    for (; limit != 0; limit--) {
        size_t hit = str_find(s, at, sep->s, sep->n);
        if (hit == SIZE_MAX)
            break;
        if (!push_part(r, out, s, at, hit) || !rt_charge_bytes(r, sep->n))
            return false;
        at = hit + sep->n;
    }
    return push_part(r, out, s, at, s->n);
}

static bool rsplit_at(struct rt *r, const struct str *s, const struct str *sep, int64_t limit,
                      struct list *out)
{
    size_t end = s->n;
    if (!charge_search(r, s, sep))
        return false;
    for (; limit != 0; limit--) {
        size_t hit = str_rfind(s, end, sep->s, sep->n);
        if (hit == SIZE_MAX)
            break;
        if (!push_part(r, out, s, hit + sep->n, end))
            return false;
        end = hit;
    }
    if (!push_part(r, out, s, 0, end))
        return false;
    reverse(out);
    return true;
}

bool string_split(struct rt *r, const struct str *s, const struct str *sep, int64_t limit,
                  bool from_right, struct list *out)
{
    if (!rt_charge_bytes(r, s->n))
        return false;
    if (!sep)
        return from_right ? rsplit_space(r, s, limit, out) : split_space(r, s, limit, out);
    if (sep->n == 0)
        return rt_fail(r, "split() needs a separator that is not empty");
    return from_right ? rsplit_at(r, s, sep, limit, out) : split_at(r, s, sep, limit, out);
}

bool string_splitlines(struct rt *r, const struct str *s, bool keep_ends, struct list *out)
{
    size_t from = 0;
    for (size_t i = 0; i < s->n;) {
        uint32_t cp;
        size_t end = i;
        i += unicode_decode(s->s + i, s->n - i, &cp);
        if (!unicode_is_linebreak(cp))
            continue;
        if (cp == '\r' && i < s->n && s->s[i] == '\n')
            i++;
        if (!push_part(r, out, s, from, keep_ends ? i : end))
            return false;
        from = i;
    }
    return from == s->n || push_part(r, out, s, from, s->n);
}

bool string_join(struct rt *r, const struct str *sep, struct value items, bool strict,
                 struct value *out)
{
    struct iter it;
    struct str_builder b;
    struct value v;
    bool more;
    if (!iter_begin(r, items, &it))
        return false;
    str_begin(&b, &r->arena);
    for (size_t n = 0;; n++) {
        const struct str *s;
        if (!rt_charge(r, 1) || !iter_next(r, &it, &v, &more))
            return false;
        if (!more)
            break;
        if (strict && v.type != V_STR)
            return rt_fail(r, "join() needs strings, item %zu is %s", n, value_type_name(v));
        if (!value_to_str(r, v, &s))
            return false;
        if (n)
            str_put_str(&b, sep);
        str_put_str(&b, s);
        if (b.failed)
            return rt_no_memory(r);
    }
    return make_str(r, &b, out);
}
