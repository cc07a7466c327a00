#include "pretokenizer.h"

#include <stdlib.h>

#include "buf.h"

enum { MAX_STAGES = 16 };

struct pretokenizer {
    struct stage stages[MAX_STAGES];
    int n_stages;
};

struct split_scratch {
    struct regex_scratch *match;  /* read before the next stage writes it */
    struct buf parts[MAX_STAGES]; /* what a stage made of its part */
};

struct pretokenizer *pretokenizer_new(struct err *e)
{
    struct pretokenizer *p = calloc(1, sizeof *p);
    if (!p)
        err_set(e, ERR_MEMORY, "out of memory for the pre-tokenizer");
    return p;
}

bool pretokenizer_add(struct pretokenizer *p, struct stage stage, struct err *e)
{
    if (p->n_stages == MAX_STAGES) {
        regex_close(stage.regex);
        return err_set(e, ERR_LIMIT, "more than %d pre-tokenizers", MAX_STAGES);
    }
    p->stages[p->n_stages++] = stage;
    return true;
}

bool pretokenizer_add_pattern(struct pretokenizer *p, const char *pattern,
                              enum split_behavior behavior, struct err *e)
{
    struct regex *re = regex_open((struct str){pattern, strlen(pattern)}, REGEX_PCRE, e);
    return re && pretokenizer_add(p, (struct stage){.regex = re, .behavior = behavior}, e);
}

void pretokenizer_free(struct pretokenizer *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n_stages; i++)
        regex_close(p->stages[i].regex);
    free(p);
}

struct split_scratch *split_scratch_new(struct err *e)
{
    struct split_scratch *s = calloc(1, sizeof *s);
    if (!s)
        err_set(e, ERR_MEMORY, "out of memory for splitting text");
    else if ((s->match = regex_scratch_new(e)))
        return s;
    free(s);
    return NULL;
}

void split_scratch_free(struct split_scratch *s)
{
    if (!s)
        return;
    regex_scratch_free(s->match);
    for (int i = 0; i < MAX_STAGES; i++)
        buf_free(&s->parts[i]);
    free(s);
}

struct split {
    const struct pretokenizer *p;
    struct split_scratch *scratch;
    pretokenizer_word *word;
    void *user;
    struct err *e;
};

static bool split_stage(const struct split *s, int k, const char *text, size_t n, bool first);

/* A part of a stage's text: a match, or what lies between two. */
struct part {
    size_t start, end;
    bool is_match;
};

struct parts {
    const struct split *s;
    int k;
    const char *text;
    bool first;
    struct part held; /* the last one, when what follows may still join it */
    bool holds, after_match;
};

static bool emit(struct parts *x, struct part p)
{
    return split_stage(x->s, x->k + 1, x->text + p.start, p.end - p.start,
                       x->first && p.start == 0);
}

static bool joins_held(struct parts *x, struct part p, enum split_behavior behavior)
{
    bool after_match = x->after_match;
    x->after_match = p.is_match;
    if (!x->holds)
        return false;
    switch (behavior) {
    case SPLIT_MERGED_WITH_PREVIOUS:
        return p.is_match && !after_match;
    case SPLIT_MERGED_WITH_NEXT:
        return !p.is_match && after_match;
    case SPLIT_CONTIGUOUS:
        return p.is_match == after_match;
    default:
        return false;
    }
}

static bool add_part(struct parts *x, struct part p)
{
    const struct stage *stage = &x->s->p->stages[x->k];
    p.is_match = p.is_match != stage->invert;
    if (stage->behavior == SPLIT_ISOLATED)
        return emit(x, p);
    if (stage->behavior == SPLIT_REMOVED)
        return p.is_match || emit(x, p);
    if (joins_held(x, p, stage->behavior)) {
        x->held.end = p.end;
        return true;
    }
    struct part held = x->held;
    bool held_one = x->holds;
    x->held = p;
    x->holds = true;
    return !held_one || emit(x, held);
}

/* Bytes to go on by behind an empty match. */
static size_t next_character(const char *text, size_t n, size_t at)
{
    do
        at++;
    while (at < n && ((unsigned char)text[at] & 0xC0) == 0x80);
    return at;
}

static bool split_text(struct parts *x, const struct regex *re, size_t n)
{
    size_t done = 0, from = 0;
    while (from <= n) {
        size_t start = n, end = n;
        int found = regex_find(re, x->s->scratch->match, x->text, n, from, &start, &end, x->s->e);
        if (found < 0)
            return false;
        if (found == 0)
            break;
        if (start == end && end == done && done > 0 && from == done) { /* right behind a match */
            from = next_character(x->text, n, from);
            continue;
        }
        if ((start > done && !add_part(x, (struct part){done, start, false})) ||
            !add_part(x, (struct part){start, end, true}))
            return false;
        done = end;
        from = end > start ? end : next_character(x->text, n, end);
    }
    return (done == n || add_part(x, (struct part){done, n, false})) &&
           (!x->holds || emit(x, x->held));
}

static void mark_spaces(struct buf *out, const char *text, size_t n, const char *mark)
{
    for (size_t i = 0; i < n;) {
        const char *space = memchr(text + i, ' ', n - i);
        size_t end = space ? (size_t)(space - text) : n;
        buf_add(out, text + i, end - i);
        if (space)
            buf_add_str(out, mark);
        i = end + 1;
    }
}

/* What the stage makes of its part before it splits it. */
static bool change_part(const struct split *s, int k, struct str *text, bool first)
{
    const struct stage *stage = &s->p->stages[k];
    struct buf *out = &s->scratch->parts[k];
    bool spaces = stage->marks_spaces && memchr(text->data, ' ', text->len);
    bool starts = str_starts(*text, stage->mark) || (spaces && text->data[0] == ' ');
    bool prefix =
        !starts && (stage->prefix == PREFIX_ALWAYS || (stage->prefix == PREFIX_FIRST && first));
    if (!spaces && !prefix)
        return true;
    buf_clear(out);
    if (prefix)
        buf_add_str(out, stage->mark);
    if (spaces)
        mark_spaces(out, text->data, text->len, stage->mark);
    else
        buf_add(out, text->data, text->len);
    if (out->failed)
        return err_set(s->e, ERR_MEMORY, "out of memory for splitting text");
    *text = (struct str){out->data, out->len};
    return true;
}

/* Depth is the number of stages. */
static bool split_stage(const struct split *s, int k, const char *text, size_t n, bool first)
{
    if (n == 0)
        return true;
    if (k == s->p->n_stages)
        return s->word(s->user, text, n);
    struct str part = {text, n};
    if (!change_part(s, k, &part, first))
        return false;
    if (!s->p->stages[k].regex)
        return split_stage(s, k + 1, part.data, part.len, first);
    struct parts x = {.s = s, .k = k, .text = part.data, .first = first};
    return split_text(&x, s->p->stages[k].regex, part.len);
}

bool pretokenizer_split(const struct pretokenizer *p, struct split_scratch *scratch,
                        const char *text, size_t n, bool first, pretokenizer_word *word, void *user,
                        struct err *e)
{
    struct split s = {.p = p, .scratch = scratch, .word = word, .user = user, .e = e};
    return split_stage(&s, 0, text, n, first);
}
