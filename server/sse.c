#include "sse.h"

#include <string.h>

static int append(const char *text, size_t n, void *arg)
{
    struct buf *out = arg;
    buf_add(out, text, n);
    return out->failed ? -1 : 0;
}

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

bool sse_format(struct buf *out, const json_t *event)
{
    append("data: ", 6, out);
    /* jansson hands over whole characters: runs between escapes. */
    if (json_dump_callback(event, append_json, out, JSON_COMPACT) != 0)
        return false;
    buf_add_str(out, "\n\n");
    return !out->failed;
}

bool sse_write(struct http_request *http, json_t *event, struct buf *scratch)
{
    buf_clear(scratch);
    bool ok = event && sse_format(scratch, event);
    json_decref(event);
    return ok && http_stream_write(http, scratch->data, scratch->len);
}

void sse_end(struct http_request *http)
{
    static const char done[] = "data: [DONE]\n\n";
    http_stream_write(http, done, sizeof done - 1);
    http_stream_end(http);
}
