/* parse_stmt.c: tags and the text between them. */
#include "parser.h"

#include <string.h>

static struct stmt *new_stmt(struct parser *p, enum stmt_kind kind, int line)
{
    struct stmt *s = parse_alloc(p, sizeof *s);
    if (s) {
        s->kind = (uint8_t)kind;
        s->line = line;
    }
    return s;
}

/* Whether the tag at the current token is one of the words that end a block. */
static bool at_end_word(const struct parser *p, const char *const *ends)
{
    if (p->cur.kind != T_BLOCK_BEGIN)
        return false;
    for (; *ends; ends++)
        if (parse_is_name(&p->next, *ends))
            return true;
    return false;
}

static struct stmt *parse_tag(struct parser *p);

static struct stmt *parse_piece(struct parser *p)
{
    struct stmt *s;
    if (p->cur.kind == T_DATA) {
        s = new_stmt(p, S_TEXT, p->cur.line);
        if (!s)
            return NULL;
        s->text = str_of(&p->t->arena, p->cur.p, p->cur.n, true);
        return s->text && parse_advance(p) ? s : NULL;
    }
    if (p->cur.kind == T_VARIABLE_BEGIN) {
        s = new_stmt(p, S_PRINT, p->cur.line);
        if (!s || !parse_advance(p) || !(s->set.value = parse_tuple(p, true, NULL)))
            return NULL;
        return parse_expect(p, T_VARIABLE_END, "'}}'") ? s : NULL;
    }
    if (!parse_advance(p)) /* {% */
        return NULL;
    return parse_tag(p);
}

/* Statements up to a tag that starts with one of `ends`, which becomes the current token
 * (its name). No ends: up to the end of the template. */
static bool parse_until(struct parser *p, struct block *out, const char *const *ends, int opened)
{
    size_t cap = 0;
    if (!parse_enter(p))
        return false;
    while (p->cur.kind != T_EOF && !(ends && at_end_word(p, ends))) {
        struct stmt *s = parse_piece(p);
        if (!s || !parse_room(p, &out->v, out->n, &cap, sizeof *out->v))
            return false;
        out->v[out->n++] = s;
    }
    parse_leave(p);
    if (!ends)
        return true;
    if (p->cur.kind == T_EOF)
        return parse_fail(p, opened, "this block is not closed: %s is missing at the end", ends[0]);
    return parse_advance(p);
}

/* The body of a block, after the words of its opening tag. */
static bool parse_body(struct parser *p, struct block *out, const char *const *ends, int opened)
{
    bool colon;
    return parse_take(p, T_COLON, &colon) && parse_expect(p, T_BLOCK_END, "'%}'") &&
           parse_until(p, out, ends, opened);
}

/* The same, and the tag that ends it, which has one word. */
static bool parse_whole_body(struct parser *p, struct block *out, const char *end, int opened)
{
    const char *const ends[] = {end, NULL};
    return parse_body(p, out, ends, opened) && parse_advance(p) &&
           parse_expect(p, T_BLOCK_END, "'%}'");
}

static struct stmt *parse_if(struct parser *p, int line)
{
    static const char *const ends[] = {"endif", "elif", "else", NULL};
    struct stmt *s = new_stmt(p, S_IF, line);
    size_t cap = 0;
    bool more = s != NULL, is_else = false;
    while (more) {
        if (!parse_room(p, &s->branches.v, s->branches.n, &cap, sizeof *s->branches.v))
            return NULL;
        struct branch *b = &s->branches.v[s->branches.n++];
        if (is_else)
            return parse_whole_body(p, &b->body, "endif", line) ? s : NULL;
        if (!(b->test = parse_tuple(p, false, NULL)) || !parse_body(p, &b->body, ends, line))
            return NULL;
        is_else = parse_is_name(&p->cur, "else");
        more = !parse_is_name(&p->cur, "endif");
        if (!parse_advance(p))
            return NULL;
    }
    return s && parse_expect(p, T_BLOCK_END, "'%}'") ? s : NULL;
}

static struct stmt *parse_for(struct parser *p, int line)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    struct stmt *s = new_stmt(p, S_FOR, line);
    bool taken;
    if (!s || !(s->loop.target = parse_target(p, false, "in")) || !parse_take_name(p, "in", &taken))
        return NULL;
    if (!taken) {
        parse_set_error(p, p->cur.line, "expected 'in' after the names of a for loop");
        return NULL;
    }
    if (!(s->loop.iter = parse_tuple(p, false, "recursive")) || !parse_take_name(p, "if", &taken))
        return NULL;
    if (taken && !(s->loop.filter = parse_expression(p)))
        return NULL;
    if (!parse_take_name(p, "recursive", &s->loop.recursive) ||
        !parse_body(p, &s->loop.body, ends, line))
        return NULL;
    bool has_else = parse_is_name(&p->cur, "else");
    if (!parse_advance(p))
        return NULL;
    if (has_else)
        return parse_whole_body(p, &s->loop.otherwise, "endfor", line) ? s : NULL;
    return parse_expect(p, T_BLOCK_END, "'%}'") ? s : NULL;
}

static struct stmt *parse_set(struct parser *p, int line)
{
    bool taken;
    struct stmt *s = new_stmt(p, S_SET, line);
    if (!s || !(s->set.target = parse_target(p, true, NULL)) || !parse_take(p, T_ASSIGN, &taken))
        return NULL;
    if (taken) {
        s->set.value = parse_tuple(p, true, NULL);
        return s->set.value && parse_expect(p, T_BLOCK_END, "'%}'") ? s : NULL;
    }
    s->kind = S_SET_BLOCK;
    if (!parse_take(p, T_PIPE, &taken))
        return NULL;
    if (taken && !(s->set.value = parse_filter(p, NULL)))
        return NULL;
    return parse_whole_body(p, &s->set.body, "endset", line) ? s : NULL;
}

static bool parse_signature(struct parser *p, struct signature *g)
{
    size_t cap_params = 0, cap_defaults = 0;
    bool has_default = false;
    if (!parse_expect(p, T_LPAREN, "'('"))
        return false;
    while (p->cur.kind != T_RPAREN) {
        size_t n = g->n_params;
        if (n && !parse_expect(p, T_COMMA, "','"))
            return false;
        if (!parse_room(p, &g->params, n, &cap_params, sizeof *g->params) ||
            !parse_room(p, &g->defaults, n, &cap_defaults, sizeof *g->defaults) ||
            !parse_ident(p, &g->params[n]))
            return false;
        bool needs_default = has_default;
        if (!parse_take(p, T_ASSIGN, &has_default))
            return false;
        if (needs_default && !has_default)
            return parse_fail(p, p->cur.line, "a parameter without a default follows one with");
        if (has_default && !(g->defaults[n] = parse_expression(p)))
            return false;
        g->n_params++;
    }
    return parse_advance(p);
}

static bool has_param(const struct signature *g, const char *name)
{
    for (size_t i = 0; i < g->n_params; i++)
        if (str_is(g->params[i].s, name))
            return true;
    return false;
}

/* Notes which of the names that a call passes by itself the body (its tokens from `start`)
 * mentions. jinja2 looks for undeclared names; a mention is close enough. */
static void note_specials(struct parser *p, struct signature *g, const int seen_before[3])
{
    g->uses_caller = p->mentions[0] > seen_before[0] && !has_param(g, "caller");
    g->uses_varargs = p->mentions[1] > seen_before[1] && !has_param(g, "varargs");
    g->uses_kwargs = p->mentions[2] > seen_before[2] && !has_param(g, "kwargs");
}

static bool parse_macro_body(struct parser *p, struct signature *g, const char *end, int line)
{
    int seen[3];
    memcpy(seen, p->mentions, sizeof seen);
    if (!parse_whole_body(p, &g->body, end, line))
        return false;
    note_specials(p, g, seen);
    return true;
}

static struct stmt *parse_macro(struct parser *p, int line)
{
    struct stmt *s = new_stmt(p, S_MACRO, line);
    if (!s || !(s->macro = parse_alloc(p, sizeof *s->macro)) || !parse_ident(p, &s->macro->name) ||
        !parse_signature(p, s->macro))
        return NULL;
    return parse_macro_body(p, s->macro, "endmacro", line) ? s : NULL;
}

static struct stmt *parse_call_block(struct parser *p, int line)
{
    struct stmt *s = new_stmt(p, S_CALL, line);
    if (!s || !(s->call.caller = parse_alloc(p, sizeof *s->call.caller)))
        return NULL;
    if (p->cur.kind == T_LPAREN && !parse_signature(p, s->call.caller))
        return NULL;
    if (!(s->call.call = parse_expression(p)))
        return NULL;
    if (s->call.call->kind != E_CALL) {
        parse_set_error(p, line,
                        "a call block needs the call of a macro, like {%% call name() %%}");
        return NULL;
    }
    return parse_macro_body(p, s->call.caller, "endcall", line) ? s : NULL;
}

static struct stmt *parse_filter_block(struct parser *p, int line)
{
    struct stmt *s = new_stmt(p, S_FILTER, line);
    if (!s || !(s->set.value = parse_filter(p, NULL)))
        return NULL;
    return parse_whole_body(p, &s->set.body, "endfilter", line) ? s : NULL;
}

static struct stmt *parse_with(struct parser *p, int line)
{
    struct stmt *s = new_stmt(p, S_WITH, line);
    size_t cap_targets = 0, cap_values = 0;
    if (!s)
        return NULL;
    while (p->cur.kind != T_BLOCK_END) {
        size_t n = s->with.n;
        if (n && !parse_expect(p, T_COMMA, "','"))
            return NULL;
        if (!parse_room(p, &s->with.targets, n, &cap_targets, sizeof *s->with.targets) ||
            !parse_room(p, &s->with.values, n, &cap_values, sizeof *s->with.values) ||
            !(s->with.targets[n] = parse_target(p, false, NULL)) ||
            !parse_expect(p, T_ASSIGN, "'='") || !(s->with.values[n] = parse_expression(p)))
            return NULL;
        s->with.n++;
    }
    return parse_whole_body(p, &s->with.body, "endwith", line) ? s : NULL;
}

/* Its body is a function of its own in jinja2: no break out of it, variables of its own. */
static struct stmt *parse_generation(struct parser *p, int line)
{
    struct stmt *s = new_stmt(p, S_SCOPE, line);
    return s && parse_whole_body(p, &s->set.body, "endgeneration", line) ? s : NULL;
}

static struct stmt *parse_jump(struct parser *p, enum stmt_kind kind, int line)
{
    if (p->loops == 0) {
        parse_set_error(p, line, "break and continue belong inside a for loop");
        return NULL;
    }
    struct stmt *s = new_stmt(p, kind, line);
    return s && parse_expect(p, T_BLOCK_END, "'%}'") ? s : NULL;
}

static struct stmt *parse_break(struct parser *p, int line)
{
    return parse_jump(p, S_BREAK, line);
}

static struct stmt *parse_continue(struct parser *p, int line)
{
    return parse_jump(p, S_CONTINUE, line);
}

/* Parses with another number of loops around: break and continue do not leave a macro. */
static struct stmt *with_loops(struct parser *p, int loops,
                               struct stmt *(*parse)(struct parser *, int), int line)
{
    int outer = p->loops;
    p->loops = loops;
    struct stmt *s = parse(p, line);
    p->loops = outer;
    return s;
}

/* The current token is the tag's first word. */
static struct stmt *parse_tag(struct parser *p)
{
    static const struct {
        const char *word;
        struct stmt *(*parse)(struct parser *, int line);
        enum { SAME, NONE, ONE_MORE } loops;
    } tags[] = {
        {"if", parse_if, SAME},           {"for", parse_for, ONE_MORE},
        {"set", parse_set, SAME},         {"macro", parse_macro, NONE},
        {"call", parse_call_block, NONE}, {"filter", parse_filter_block, SAME},
        {"with", parse_with, SAME},       {"generation", parse_generation, NONE},
        {"break", parse_break, SAME},     {"continue", parse_continue, SAME},
    };
    char got[64];
    int line = p->cur.line;
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++) {
        if (!parse_is_name(&p->cur, tags[i].word))
            continue;
        int loops = tags[i].loops == SAME ? p->loops : tags[i].loops == NONE ? 0 : p->loops + 1;
        return parse_advance(p) ? with_loops(p, loops, tags[i].parse, line) : NULL;
    }
    parse_set_error(p, line, "unknown tag %s", token_describe(&p->cur, got, sizeof got));
    return NULL;
}

bool parse_template_body(struct parser *p, struct block *out)
{
    return parse_until(p, out, NULL, 1);
}
