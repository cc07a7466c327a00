#include "sse.h"

#include <string.h>

/* Length of a line separator of Unicode at s, or 0; *escape is its JSON form. */
static size_t separator(const char *s, size_t n, const char **escape)
{
    if (n >= 2 && memcmp(s, "\xC2\x85", 2) == 0) {
        *escape = "\\u0085";
        return 2;
    }
    if (n >= 3 && memcmp(s, "\xE2\x80", 2) == 0 && ((unsigned char)s[2] & 0xFE) == 0xA8) {
        *escape = (unsigned char)s[2] == 0xA8 ? "\\u2028" : "\\u2029";
        return 3;
    }
    return 0;
}

static void append_escaped(struct buf *out, const char *s, size_t n)
{
    size_t from = 0;
    for (size_t i = 0; i < n;) {
        const char *escape;
        size_t len = (unsigned char)s[i] < 0x80 ? 0 : separator(s + i, n - i, &escape);
        if (len == 0) {
            i++;
            continue;
        }
        buf_add(out, s + from, i - from);
        buf_add_str(out, escape);
        i += len;
        from = i;
    }
    buf_add(out, s + from, n - from);
}

static int append_json(const char *text, size_t n, void *arg)
{
    struct buf *out = arg;
    append_escaped(out, text, n);
    return out->failed ? -1 : 0;
}

bool sse_add(struct buf *out, json_t *event)
{
    buf_add_str(out, "data: ");
    /* jansson hands over whole characters: runs between escapes. */
    bool ok = event && json_dump_callback(event, append_json, out, JSON_COMPACT) == 0;
    json_decref(event);
    buf_add_str(out, "\n\n");
    return ok && !out->failed;
}

bool sse_add_done(struct buf *out)
{
    buf_add_str(out, "data: [DONE]\n\n");
    return !out->failed;
}
