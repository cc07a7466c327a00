/* parser.c: the token stream and memory of the parser, and the entry point. */
#include "parser.h"

#include "template.h"
#include "utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_SOURCE = 4 << 20,             /* bytes of a template; real ones have up to 30 KiB */
    MAX_TREE = 1 << 30,               /* bytes of its tree */
    MAX_NEST = 2 * TEMPLATE_MAX_NEST, /* an expression counts twice */
};

void parse_set_error(struct parser *p, int line, const char *fmt, ...)
{
    char msg[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    err_set(p->e, ERR_INVALID, "line %d: %s", line, msg);
}

static bool no_memory(struct parser *p)
{
    if (p->t->arena.over_limit)
        return err_set(p->e, ERR_LIMIT, "the template needs more than %d MiB when parsed",
                       MAX_TREE >> 20);
    return err_set(p->e, ERR_MEMORY, "out of memory while parsing the template");
}

void *parse_alloc(struct parser *p, size_t n)
{
    void *m = arena_zalloc(&p->t->arena, n);
    if (!m)
        no_memory(p);
    return m;
}

bool parse_room(struct parser *p, void *items, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return true;
    void *old;
    memcpy(&old, items, sizeof old);
    size_t more = *cap ? *cap * 2 : 4;
    void *m = arena_grow(&p->t->arena, old, *cap * size, more * size);
    if (!m)
        return no_memory(p);
    memset((char *)m + *cap * size, 0, (more - *cap) * size);
    memcpy(items, &m, sizeof m);
    *cap = more;
    return true;
}

bool parse_enter(struct parser *p)
{
    if (p->nest >= MAX_NEST)
        return err_set(p->e, ERR_LIMIT, "line %d: nested more than %d deep", p->cur.line,
                       TEMPLATE_MAX_NEST);
    p->nest++;
    return true;
}

void parse_leave(struct parser *p)
{
    p->nest--;
}

bool parse_advance(struct parser *p)
{
    p->cur = p->next;
    return p->cur.kind == T_EOF || lexer_next(&p->lx, &p->next, p->e);
}

bool parse_is_name(const struct token *t, const char *word)
{
    size_t n = strlen(word);
    return t->kind == T_NAME && t->n == n && memcmp(t->p, word, n) == 0;
}

bool parse_take_name(struct parser *p, const char *word, bool *taken)
{
    *taken = parse_is_name(&p->cur, word);
    return !*taken || parse_advance(p);
}

bool parse_take(struct parser *p, enum token_kind kind, bool *taken)
{
    *taken = p->cur.kind == kind;
    return !*taken || parse_advance(p);
}

bool parse_expect(struct parser *p, enum token_kind kind, const char *what)
{
    char got[64];
    if (p->cur.kind != kind)
        return parse_fail(p, p->cur.line, "expected %s, got %s", what,
                          token_describe(&p->cur, got, sizeof got));
    return parse_advance(p);
}

static bool add_name(struct parser *p, const struct str *s, struct name *out)
{
    struct template *t = p->t;
    struct value key = value_str(s);
    uint64_t hash = hash_bytes(p->seed, s->s, s->n);
    const struct value *known = dict_find(&p->ids, key, hash);
    out->s = s;
    if (known) {
        out->id = (int)known->i;
        out->s = t->names[out->id];
        return true;
    }
    size_t cap = (size_t)t->n_names;
    bool full = cap == 0 || (cap >= 4 && (cap & (cap - 1)) == 0);
    if (full && !parse_room(p, &t->names, cap, &cap, sizeof *t->names))
        return false;
    out->id = t->n_names;
    if (!dict_put(&t->arena, &p->ids, key, hash, value_int(out->id)))
        return no_memory(p);
    t->names[t->n_names++] = s;
    return true;
}

bool parse_intern(struct parser *p, const struct token *t, struct name *out)
{
    struct str *s = str_of(&p->t->arena, t->p, t->n, true);
    return s ? add_name(p, s, out) : no_memory(p);
}

bool parse_ident(struct parser *p, struct name *out)
{
    char got[64];
    if (p->cur.kind != T_NAME)
        return parse_fail(p, p->cur.line, "expected a name, got %s",
                          token_describe(&p->cur, got, sizeof got));
    return parse_intern(p, &p->cur, out) && parse_advance(p);
}

static bool intern_word(struct parser *p, const char *word, int *id)
{
    struct name name = {0};
    struct token t = {.kind = T_NAME, .p = word, .n = strlen(word)};
    if (!parse_intern(p, &t, &name))
        return false;
    *id = name.id;
    return true;
}

/* The source with newlines as \n and without the last one, as jinja2 reads it. */
static char *normalise(struct template *t, const char *source, size_t *n)
{
    char *out = arena_alloc(&t->arena, *n);
    size_t k = 0;
    for (size_t i = 0; out && i < *n; i++) {
        if (source[i] == '\r' && i + 1 < *n && source[i + 1] == '\n')
            continue;
        out[k++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (k && out[k - 1] == '\n')
        k--;
    *n = k;
    return out;
}

static bool parse_all(struct parser *p, const char *source, size_t n)
{
    struct template *t = p->t;
    char *text = normalise(t, source, &n);
    if (!text)
        return no_memory(p);
    lexer_begin(&p->lx, text, n);
    if (!intern_word(p, "loop", &t->loop_id) || !intern_word(p, "caller", &t->caller_id) ||
        !intern_word(p, "varargs", &t->varargs_id) || !intern_word(p, "kwargs", &t->kwargs_id))
        return false;
    if (!lexer_next(&p->lx, &p->next, p->e) || !parse_advance(p))
        return false;
    return parse_template_body(p, &t->body);
}

struct template *template_parse(const char *source, size_t n, struct err *e)
{
    size_t bad = n <= MAX_SOURCE ? utf8_check(source, n) : n;
    if (n > MAX_SOURCE) {
        err_set(e, ERR_LIMIT, "the template has %zu bytes; at most %d are read", n, MAX_SOURCE);
        return NULL;
    }
    if (bad < n) {
        err_set(e, ERR_INVALID, "the template is not UTF-8 at byte %zu", bad);
        return NULL;
    }
    struct template *t = calloc(1, sizeof *t);
    struct parser *p = calloc(1, sizeof *p);
    bool ok = t && p;
    if (ok) {
        t->arena.limit = MAX_TREE;
        *p = (struct parser){.t = t, .e = e, .seed = hash_seed()};
        ok = parse_all(p, source, n);
    } else {
        err_set(e, ERR_MEMORY, "out of memory while parsing the template");
    }
    free(p);
    if (ok)
        return t;
    template_free(t);
    return NULL;
}

void template_free(struct template *t)
{
    if (!t)
        return;
    arena_free(&t->arena);
    free(t);
}
