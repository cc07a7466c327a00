#define PCRE2_CODE_UNIT_WIDTH 8
#include "regex.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "regex_translate.h"

struct regex {
    pcre2_code *code;
    /* The same, looking at the clock while it matches; NULL: ours. Alone it would do, at one and a
     * half times the time for all texts; both cost 0.4 ms at start. */
    pcre2_code *watched;
    bool ours;      /* known to cost linear time */
    bool continues; /* asks with \G where the look began, so that looks cannot be cut up */
};

struct regex_scratch {
    pcre2_match_data *match;
    pcre2_match_context *limits;
    double seconds;     /* that all looks may take, so far … */
    double a_byte;      /* … and more for each byte of a further text */
    double began, used; /* wall clock at the first look (0: none yet), processor time then */
    unsigned n_callouts;
};

enum {
    MOST_BYTES = 1 << 16,
    QUICK_LIMIT = 4096, /* of a match that need not be watched … */
    QUICK_STARTS = 8,   /* … and bytes at which it may start: between two looks at the clock */
    MOST_STARTS = 512,  /* … after looks that found nothing */
    CALLOUTS_A_LOOK = 256,
    MOST_HEAP_KIB = 128 << 10, /* of a thread: a hostile pattern's way back into a long text */
};

/* Patterns of models split at 0.01 to 0.1 µs a byte, at 1 and more where PCRE2 cannot make machine
 * code; a hostile one keeps a thread that makes tokens of others' texts, too, not much longer. */
static const double LEAST_SECONDS = 0.25, SECONDS_A_BYTE = 10e-6, MOST_SECONDS = 10;

static pcre2_code *compile_with(const char *pattern, size_t n, uint32_t options, struct err *e)
{
    int code;
    size_t at;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context) {
        err_set(e, ERR_MEMORY, "out of memory for a regular expression");
        return NULL;
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, 100);
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, n, options, &code, &at, context);
    pcre2_compile_context_free(context);
    if (!re) {
        char why[128] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        err_set(e, ERR_UNSUPPORTED, "regular expression \"%.*s\": PCRE2 says at %zu: %s",
                n < 200 ? (int)n : 200, pattern, at, why);
        return NULL;
    }
    pcre2_jit_compile(re, PCRE2_JIT_COMPLETE); /* where it cannot, the interpreter matches */
    return re;
}

static bool compile(struct regex *re, const char *pattern, size_t n, bool literal, struct err *e)
{
    uint32_t options = PCRE2_UTF;
    options |= literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_AUTO_CAPTURE;
    if (re->ours)
        return (re->code = compile_with(pattern, n, options, e)) != NULL;
    return (re->code = compile_with(pattern, n, options | PCRE2_USE_OFFSET_LIMIT, e)) &&
           (re->watched = compile_with(pattern, n, options | PCRE2_AUTO_CALLOUT, e));
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
        re->ours = regex_translate_is_linear(pattern, dialect);
        re->continues = memmem(pattern.data, pattern.len, "\\G", 2) != NULL;
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
    pcre2_code_free(re->watched);
    free(re);
}

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Asking for the processor time is a system call, so that comes last. */
static bool in_time(struct regex_scratch *s)
{
    const double now = seconds_of(CLOCK_MONOTONIC_COARSE);
    if (s->began == 0) {
        s->began = now;
        s->used = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    }
    return now - s->began <= s->seconds ||
           seconds_of(CLOCK_THREAD_CPUTIME_ID) - s->used <= s->seconds;
}

static int on_callout(pcre2_callout_block *block, void *scratch)
{
    struct regex_scratch *s = scratch;
    return ++s->n_callouts % CALLOUTS_A_LOOK || in_time(s) ? 0 : PCRE2_ERROR_CALLOUT;
}

void regex_scratch_limit(struct regex_scratch *s, double seconds)
{
    s->seconds = seconds;
    s->a_byte = 0;
}

struct regex_scratch *regex_scratch_new(struct err *e)
{
    struct regex_scratch *s = calloc(1, sizeof *s);
    if (s) {
        s->match = pcre2_match_data_create(1, NULL);
        s->limits = pcre2_match_context_create(NULL);
        if (s->match && s->limits) {
            pcre2_set_depth_limit(s->limits, UINT32_MAX);
            pcre2_set_heap_limit(s->limits, MOST_HEAP_KIB);
            pcre2_set_callout(s->limits, on_callout, s);
            s->seconds = LEAST_SECONDS;
            s->a_byte = SECONDS_A_BYTE;
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

static int match(const pcre2_code *code, struct regex_scratch *s, const char *text, size_t n,
                 size_t at)
{
    int rc = pcre2_match(code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, s->match, s->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->match,
                         s->limits);
    return rc;
}

/* The next character's first byte at or behind `at`. */
static size_t whole(const char *text, size_t n, size_t at)
{
    while (at < n && ((unsigned char)text[at] & 0xC0) == 0x80)
        at++;
    return at;
}

static int find_watched(const struct regex *re, struct regex_scratch *s, const char *text, size_t n,
                        size_t at)
{
    pcre2_set_match_limit(s->limits, UINT32_MAX);
    return match(re->watched, s, text, n, at);
}

/* Some starts at a time, with a limit that words stay far below; what exceeds it is watched. */
static int find_in_time(const struct regex *re, struct regex_scratch *s, const char *text, size_t n,
                        size_t at)
{
    int rc;
    size_t starts = QUICK_STARTS;
    if (re->continues)
        return in_time(s) ? find_watched(re, s, text, n, at) : PCRE2_ERROR_CALLOUT;
    pcre2_set_match_limit(s->limits, QUICK_LIMIT);
    do {
        pcre2_set_offset_limit(s->limits, at + starts);
        rc = in_time(s) ? match(re->code, s, text, n, at) : PCRE2_ERROR_CALLOUT;
        if (rc == PCRE2_ERROR_NOMATCH) {
            at = whole(text, n, at + starts + 1);
            /* ever more: the interpreter looks for the next start beyond the limit, each time */
            starts = starts < MOST_STARTS ? 2 * starts : starts;
        }
    } while (rc == PCRE2_ERROR_NOMATCH && at <= n);
    pcre2_set_offset_limit(s->limits, PCRE2_UNSET);
    return rc == PCRE2_ERROR_MATCHLIMIT ? find_watched(re, s, text, n, at) : rc;
}

static void allow_for(struct regex_scratch *s, size_t n)
{
    const double more = s->seconds + (double)n * s->a_byte;
    s->seconds = more < MOST_SECONDS ? more : MOST_SECONDS;
}

int regex_find(const struct regex *re, struct regex_scratch *s, const char *text, size_t n,
               size_t at, size_t *start, size_t *end, struct err *e)
{
    if (at == 0)
        allow_for(s, n);
    /* PCRE2's limit does not know how long a text is, and our patterns need none. */
    pcre2_set_match_limit(s->limits, UINT32_MAX);
    const int rc = re->ours ? match(re->code, s, text, n, at) : find_in_time(re, s, text, n, at);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc == PCRE2_ERROR_CALLOUT) {
        err_set(e, ERR_LIMIT,
                "the model's pattern for splitting text into words takes more than %g seconds for "
                "this text",
                s->seconds);
        return -1;
    }
    if (rc == PCRE2_ERROR_HEAPLIMIT) {
        err_set(e, ERR_LIMIT,
                "the model's pattern for splitting text into words takes more than %d MiB for "
                "this text",
                MOST_HEAP_KIB >> 10);
        return -1;
    }
    if (rc < 0) {
        err_set(e, ERR_LIMIT, "PCRE2 error %d while splitting text into words", rc);
        return -1;
    }
    const size_t *ovector = pcre2_get_ovector_pointer(s->match);
    *start = ovector[0];
    *end = ovector[1];
    return 1;
}
