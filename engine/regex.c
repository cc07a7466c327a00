#define PCRE2_CODE_UNIT_WIDTH 8
#include "regex.h"

#include <pcre2.h>
#include <stdlib.h>

#include "regex_translate.h"

struct regex {
    pcre2_code *code;
    bool ours; /* known to cost linear time */
};

struct regex_scratch {
    pcre2_match_data *match;
    pcre2_match_context *limits;
};

enum { MOST_BYTES = 1 << 16, MATCH_LIMIT = 20 << 20 };

static bool compile(struct regex *re, const char *pattern, size_t n, bool literal, struct err *e)
{
    int code;
    size_t at;
    uint32_t options = PCRE2_UTF;
    options |= literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_AUTO_CAPTURE;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context)
        return err_set(e, ERR_MEMORY, "out of memory for a regular expression");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, 100);
    re->code = pcre2_compile((PCRE2_SPTR)pattern, n, options, &code, &at, context);
    pcre2_compile_context_free(context);
    if (!re->code) {
        char why[128] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        return err_set(e, ERR_UNSUPPORTED, "regular expression \"%.*s\": PCRE2 says at %zu: %s",
                       n < 200 ? (int)n : 200, pattern, at, why);
    }
    pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE); /* where it cannot, the interpreter matches */
    return true;
}

struct regex *regex_open(struct str pattern, enum regex_dialect dialect, struct err *e)
{
    struct buf text = {0};
    struct regex *re = calloc(1, sizeof *re);
    bool ok = re || err_set(e, ERR_MEMORY, "out of memory for a regular expression");
    if (ok && pattern.len > MOST_BYTES)
        ok = err_set(e, ERR_LIMIT, "a regular expression of %zu bytes: at most %d", pattern.len,
                     MOST_BYTES);
    if (ok && (dialect == REGEX_PCRE || dialect == REGEX_PLAIN)) {
        re->ours = true;
        ok = compile(re, pattern.data, pattern.len, dialect == REGEX_PLAIN, e);
    } else if (ok) {
        ok = regex_translate(pattern, dialect, &text, e) &&
             compile(re, text.data ? text.data : "", text.len, false, e);
    }
    buf_free(&text);
    if (ok)
        return re;
    regex_close(re);
    return NULL;
}

void regex_close(struct regex *re)
{
    if (!re)
        return;
    pcre2_code_free(re->code);
    free(re);
}

struct regex_scratch *regex_scratch_new(struct err *e)
{
    struct regex_scratch *s = calloc(1, sizeof *s);
    if (s) {
        s->match = pcre2_match_data_create(1, NULL);
        s->limits = pcre2_match_context_create(NULL);
        if (s->match && s->limits) {
            pcre2_set_depth_limit(s->limits, UINT32_MAX);
            pcre2_set_heap_limit(s->limits, 1 << 20); /* KiB: a gigabyte */
            return s;
        }
    }
    regex_scratch_free(s);
    err_set(e, ERR_MEMORY, "out of memory for splitting text");
    return NULL;
}

void regex_scratch_free(struct regex_scratch *s)
{
    if (!s)
        return;
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->limits);
    free(s);
}

int regex_find(const struct regex *re, struct regex_scratch *s, const char *text, size_t n,
               size_t at, size_t *start, size_t *end, struct err *e)
{
    /* Our own patterns cost linear time, and PCRE2's limit does not know how long a text is. */
    size_t limit = re->ours ? UINT32_MAX : MATCH_LIMIT + 16 * n;
    pcre2_set_match_limit(s->limits, limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit);
    int rc =
        pcre2_match(re->code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, s->match, s->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(re->code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         s->match, s->limits);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc < 0) {
        err_set(e, ERR_LIMIT, "PCRE2 error %d while splitting text into words", rc);
        return -1;
    }
    size_t *ovector = pcre2_get_ovector_pointer(s->match);
    *start = ovector[0];
    *end = ovector[1];
    return 1;
}
