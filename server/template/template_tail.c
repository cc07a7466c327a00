#include "template_tail.h"

#include "text_ops.h"
#include "unicode.h"

#include <string.h>

/* The text of a message's content: itself, or its last text part. */
static const json_t *final_text(const json_t *content)
{
    if (json_is_string(content))
        return content;
    for (size_t i = json_array_size(content); i > 0; i--) {
        const json_t *text = json_object_get(json_array_get(content, i - 1), "text");
        if (json_is_string(text))
            return text;
    }
    return NULL;
}

static size_t space_before(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint32_t cp;
        size_t len = unicode_decode(s + i, n - i, &cp);
        if (!unicode_is_space(cp))
            break;
        i += len;
    }
    return i;
}

static size_t without_space_behind(const char *s, size_t n)
{
    while (n > 0) {
        uint32_t cp;
        size_t at = unicode_before(s, n);
        unicode_decode(s + at, n - at, &cp);
        if (!unicode_is_space(cp))
            break;
        n = at;
    }
    return n;
}

/* Offset of the last `needle` (k > 0), n if there is none. memmem from the left, each time a little
 * further, would be quadratic for hostile text: the last one is looked for in halves. */
static size_t find_last(const char *s, size_t n, const char *needle, size_t k)
{
    size_t found = n, at = 0;
    for (const char *p; at + k <= n && (p = memmem(s + at, n - at, needle, k)); at = found + k)
        found = (size_t)(p - s);
    if (found == n)
        return n;
    /* Occurrences may overlap the one found; a later one starts within it. */
    const char *limit = s + n - k;
    for (const char *p = s + found + 1; p <= limit && p < s + found + k; p++)
        if (memcmp(p, needle, k) == 0)
            found = (size_t)(p - s);
    return found;
}

static void cut(struct rendered *out, size_t n)
{
    out->text.len = n;
    if (out->text.data)
        out->text.data[n] = '\0';
    while (out->n_spans && out->template_spans[out->n_spans - 1].start >= n)
        out->n_spans--;
    if (out->n_spans && out->template_spans[out->n_spans - 1].end > n)
        out->template_spans[out->n_spans - 1].end = n;
}

bool template_cut_after(struct rendered *out, const json_t *messages, struct err *e)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const json_t *text = final_text(json_object_get(last, "content"));
    if (!text)
        return err_set(e, ERR_INVALID, "the last message has no text to continue");
    const char *s = json_string_value(text);
    size_t n = json_string_length(text), from = space_before(s, n);
    size_t core = without_space_behind(s + from, n - from);
    if (core == 0) /* it ends where the prompt does: nothing is behind it */
        return true;
    size_t at = find_last(out->text.data ? out->text.data : "", out->text.len, s + from, core);
    if (at == out->text.len)
        return err_set(e, ERR_INVALID,
                       "the template did not write the last message's text, which is to be "
                       "continued");
    bool whole =
        out->text.len - at >= n - from && memcmp(out->text.data + at, s + from, n - from) == 0;
    cut(out, at + (whole ? n - from : core));
    return true;
}
