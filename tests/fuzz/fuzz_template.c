/* Any bytes as a template: an error with a message, or a rendering whose spans are right and
 * which leaves no byte of the context marked as the template's. The part before the first NUL is
 * the template; the rest, if it is JSON, its context. Run it: tests/fuzz/run.sh template */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "template.h"
#include "template_tail.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char usual[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"\\u0001 a\\u0001b\\n\\u0001\"}, "
    "{\"role\": "
    "\"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\\u0001\", "
    "\"arguments\": {\"x\": 1.5}}}]}], \"tools\": [{\"\\u0001k\": [1, true, \"\\u0001\"]}], "
    "\"add_generation_prompt\": true, \"s\": \"\\u0001 x\\u0001\", \"n\": 3, \"l\": [3, 1, 2], "
    "\"d\": {\"\\u0001\": \"\\u0001\"}, \"bos_token\": \"<s>\"}";

/* U+0001 stands only in the usual context: where the template has none of its own, it may
 * never be inside a span. */
static void check_spans(const struct rendered *out, bool marked)
{
    size_t at = 0;
    for (size_t i = 0; i < out->n_spans; i++) {
        struct text_span s = out->template_spans[i];
        if (s.start >= s.end || s.end > out->text.len || (i && s.start <= at))
            abort();
        at = s.end;
        if (marked && memchr(out->text.data + s.start, 1, s.end - s.start))
            abort();
    }
}

/* Whether the source can make a U+0001 by itself. */
static bool makes_mark(const char *s, size_t n)
{
    return memchr(s, 1, n) || memchr(s, '\\', n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const trusted[] = {"bos_token", NULL};
    const char *source = (const char *)data;
    const char *nul = n ? memchr(source, 0, n) : NULL;
    size_t len = nul ? (size_t)(nul - source) : n;
    json_t *given = nul ? json_loadb(nul + 1, n - len - 1, JSON_ALLOW_NUL, NULL) : NULL;
    json_t *context = json_is_object(given) ? json_incref(given) : json_loads(usual, 0, NULL);
    struct err e = {0};
    struct template *t = template_parse(source, len, &e);
    struct template_input in = {
        .context = context,
        .trusted = trusted,
        .limits = {.max_steps = 200000, .max_memory = 32 << 20, .max_output = 1 << 20}};
    struct rendered out = {0};
    if (!t ? !e.code : !template_render(t, &in, &out, &e) && !e.code)
        abort();
    check_spans(&out, !json_is_object(given) && !makes_mark(source, len));
    if (t && !e.code)
        template_cut_after(&out, json_object_get(context, "messages"), &e);
    rendered_free(&out);
    template_free(t);
    json_decref(context);
    json_decref(given);
    return 0;
}
