/* parse_expr.c: jinja2's expression grammar, by recursive descent. */
#include "functions.h"
#include "parser.h"
#include "unicode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct expr *new_expr(struct parser *p, enum expr_kind kind, int line, size_t n_items)
{
    struct expr *x = parse_alloc(p, sizeof *x);
    if (!x)
        return NULL;
    x->kind = (uint8_t)kind;
    x->line = line;
    x->n_items = n_items;
    if (n_items && !(x->items = parse_alloc(p, n_items * sizeof(struct expr *))))
        return NULL;
    return x;
}

static size_t deepest(const struct expr *x)
{
    size_t d = 0;
    for (size_t i = 0; i < x->n_items; i++)
        if (x->items[i] && x->items[i]->depth > d)
            d = x->items[i]->depth;
    if (!x->args)
        return d;
    for (size_t i = 0; i < x->args->n_pos; i++)
        if (x->args->pos[i]->depth > d)
            d = x->args->pos[i]->depth;
    for (size_t i = 0; i < x->args->n_kw; i++)
        if (x->args->kw[i].value->depth > d)
            d = x->args->kw[i].value->depth;
    if (x->args->star && x->args->star->depth > d)
        d = x->args->star->depth;
    if (x->args->star_star && x->args->star_star->depth > d)
        d = x->args->star_star->depth;
    return d;
}

/* Notes how deep a finished node is; NULL if that is too deep. */
static struct expr *finish(struct parser *p, struct expr *x)
{
    size_t d = deepest(x) + 1;
    if (d > TEMPLATE_MAX_NEST) {
        err_set(p->e, ERR_LIMIT, "line %d: expressions are nested more than %d deep", x->line,
                TEMPLATE_MAX_NEST);
        return NULL;
    }
    x->depth = (uint16_t)d;
    return x;
}

static struct expr *unary(struct parser *p, enum expr_kind kind, int line, struct expr *a)
{
    struct expr *x = a ? new_expr(p, kind, line, 1) : NULL;
    if (!x)
        return NULL;
    x->items[0] = a;
    return finish(p, x);
}

struct expr *parse_constant(struct parser *p, int line, struct value v)
{
    struct expr *x = new_expr(p, E_CONST, line, 0);
    if (x) {
        x->constant = v;
        x->depth = 1;
    }
    return x;
}

/* A growing list of items, turned into a node when it is complete. */
struct items {
    struct expr **v;
    size_t n, cap;
};

static bool items_add(struct parser *p, struct items *l, struct expr *x)
{
    if (!x || !parse_room(p, &l->v, l->n, &l->cap, sizeof(struct expr *)))
        return false;
    l->v[l->n++] = x;
    return true;
}

static struct expr *items_node(struct parser *p, enum expr_kind kind, int line, struct items *l)
{
    struct expr *x = new_expr(p, kind, line, 0);
    if (!x)
        return NULL;
    x->items = l->v;
    x->n_items = l->n;
    return x;
}

/* Binary operators of one precedence: the operator at the current token, or -1. */
typedef int operator_at(struct parser *);
typedef struct expr *operand(struct parser *);

static bool take_operator(struct parser *p, int op)
{
    return parse_advance(p) && (op != OP_NOT_IN || parse_advance(p));
}

static struct expr *chain(struct parser *p, enum expr_kind kind, operator_at *op_at, operand *parse)
{
    int line = p->cur.line;
    struct expr *first = parse(p);
    if (!first || op_at(p) < 0)
        return first;
    struct items l = {0};
    uint8_t *ops = NULL;
    size_t n_ops = 0, cap_ops = 0;
    if (!items_add(p, &l, first))
        return NULL;
    for (int op = op_at(p); op >= 0; op = op_at(p)) {
        if (!parse_room(p, &ops, n_ops, &cap_ops, 1))
            return NULL;
        ops[n_ops++] = (uint8_t)op;
        if (!take_operator(p, op) || !items_add(p, &l, parse(p)))
            return NULL;
    }
    struct expr *x = items_node(p, kind, line, &l);
    if (!x)
        return NULL;
    if (kind == E_CHAIN || kind == E_COMPARE)
        x->ops = ops;
    return finish(p, x);
}

static struct expr *parse_name(struct parser *p)
{
    static const struct {
        const char *word;
        struct value v;
    } words[] = {
        {"true", {.type = V_BOOL, .b = true}},
        {"True", {.type = V_BOOL, .b = true}},
        {"false", {.type = V_BOOL, .b = false}},
        {"False", {.type = V_BOOL, .b = false}},
        {"none", {.type = V_NONE}},
        {"None", {.type = V_NONE}},
    };
    int line = p->cur.line;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (parse_is_name(&p->cur, words[i].word))
            return parse_advance(p) ? parse_constant(p, line, words[i].v) : NULL;
    struct expr *x = new_expr(p, E_NAME, line, 0);
    if (!x || !parse_ident(p, &x->name))
        return NULL;
    p->mentions[0] += x->name.id == p->t->caller_id;
    p->mentions[1] += x->name.id == p->t->varargs_id;
    p->mentions[2] += x->name.id == p->t->kwargs_id;
    return finish(p, x);
}

/* Items up to `close`; pairs: key: value. The opening bracket is the current token. */
static struct expr *parse_items(struct parser *p, enum expr_kind kind, enum token_kind close,
                                bool pairs)
{
    int line = p->cur.line;
    struct items l = {0};
    if (!parse_advance(p))
        return NULL;
    while (p->cur.kind != close) {
        if (l.n && !parse_expect(p, T_COMMA, "','"))
            return NULL;
        if (p->cur.kind == close)
            break;
        if (!items_add(p, &l, parse_expression(p)))
            return NULL;
        if (pairs && (!parse_expect(p, T_COLON, "':'") || !items_add(p, &l, parse_expression(p))))
            return NULL;
    }
    if (!parse_advance(p))
        return NULL;
    struct expr *x = items_node(p, kind, line, &l);
    return x ? finish(p, x) : NULL;
}

static bool tuple_ends(const struct parser *p, const char *stop)
{
    enum token_kind k = p->cur.kind;
    return k == T_VARIABLE_END || k == T_BLOCK_END || k == T_RPAREN ||
           (stop && parse_is_name(&p->cur, stop));
}

static struct expr *tuple_of(struct parser *p, operand *parse, const char *stop, bool may_be_empty)
{
    int line = p->cur.line;
    struct items l = {0};
    bool is_tuple = false;
    for (;;) {
        if (l.n && !parse_expect(p, T_COMMA, "','"))
            return NULL;
        if (tuple_ends(p, stop))
            break;
        if (!items_add(p, &l, parse(p)))
            return NULL;
        if (p->cur.kind != T_COMMA)
            break;
        is_tuple = true;
    }
    if (!is_tuple && l.n)
        return l.v[0];
    if (!is_tuple && !may_be_empty) {
        char what[64];
        parse_set_error(p, p->cur.line, "expected an expression, got %s",
                        token_describe(&p->cur, what, sizeof what));
        return NULL;
    }
    struct expr *x = items_node(p, E_TUPLE, line, &l);
    return x ? finish(p, x) : NULL;
}

static struct expr *parse_parenthesis(struct parser *p)
{
    if (!parse_advance(p))
        return NULL;
    struct expr *x = tuple_of(p, parse_expression, NULL, true);
    return x && parse_expect(p, T_RPAREN, "')'") ? x : NULL;
}

static struct expr *parse_primary(struct parser *p)
{
    char what[64];
    switch (p->cur.kind) {
    case T_NAME:
        return parse_name(p);
    case T_STRING:
        return parse_string(p);
    case T_INTEGER:
    case T_FLOAT:
        return parse_number(p);
    case T_LPAREN:
        return parse_parenthesis(p);
    case T_LBRACKET:
        return parse_items(p, E_LIST, T_RBRACKET, false);
    case T_LBRACE:
        return parse_items(p, E_DICT, T_RBRACE, true);
    default:
        parse_set_error(p, p->cur.line, "unexpected %s",
                        token_describe(&p->cur, what, sizeof what));
        return NULL;
    }
}

static bool add_keyword(struct parser *p, struct arguments *a, size_t *cap)
{
    struct name name;
    if (!parse_room(p, &a->kw, a->n_kw, cap, sizeof *a->kw) || !parse_ident(p, &name) ||
        !parse_advance(p))
        return false;
    for (size_t i = 0; i < a->n_kw && a->n_kw < 64; i++)
        if (str_eq(a->kw[i].name, name.s))
            return parse_fail(p, p->cur.line, "the keyword argument %.*s is repeated",
                              (int)name.s->n, name.s->s);
    struct expr *x = parse_expression(p);
    if (!x)
        return false;
    a->kw[a->n_kw++] = (struct keyword){name.s, x};
    return true;
}

/* One argument of a call. */
static bool parse_argument(struct parser *p, struct arguments *a, size_t *cap_pos, size_t *cap_kw)
{
    bool star = p->cur.kind == T_MUL, star_star = p->cur.kind == T_POW;
    bool keyword = p->cur.kind == T_NAME && p->next.kind == T_ASSIGN;
    bool bad = a->star_star || (star && a->star) ||
               (!star && !star_star && !keyword && (a->star || a->n_kw));
    if (bad)
        return parse_fail(p, p->cur.line,
                          "positional arguments come before keyword arguments, "
                          "* before **, each of those once");
    if (star)
        return parse_advance(p) && (a->star = parse_expression(p));
    if (star_star)
        return parse_advance(p) && (a->star_star = parse_expression(p));
    if (keyword)
        return add_keyword(p, a, cap_kw);
    if (!parse_room(p, &a->pos, a->n_pos, cap_pos, sizeof *a->pos))
        return false;
    struct expr *x = parse_expression(p);
    if (x)
        a->pos[a->n_pos++] = x;
    return x != NULL;
}

/* "(…)" at the current token. */
static struct arguments *parse_arguments(struct parser *p)
{
    struct arguments *a = parse_alloc(p, sizeof *a);
    size_t cap_pos = 0, cap_kw = 0;
    bool first = true;
    if (!a || !parse_expect(p, T_LPAREN, "'('"))
        return NULL;
    for (; p->cur.kind != T_RPAREN; first = false) {
        if (!first && !parse_expect(p, T_COMMA, "','"))
            return NULL;
        if (p->cur.kind == T_RPAREN)
            break;
        if (!parse_argument(p, a, &cap_pos, &cap_kw))
            return NULL;
    }
    return parse_advance(p) ? a : NULL;
}

static struct expr *parse_call(struct parser *p, struct expr *callee)
{
    struct expr *x = new_expr(p, E_CALL, p->cur.line, 1);
    if (!x || !(x->args = parse_arguments(p)))
        return NULL;
    x->items[0] = callee;
    return finish(p, x);
}

static struct expr *parse_attribute(struct parser *p, struct expr *object)
{
    int line = p->cur.line;
    if (!parse_advance(p))
        return NULL;
    if (p->cur.kind == T_INTEGER) {
        struct expr *x = new_expr(p, E_ITEM, line, 2);
        if (!x || !(x->items[1] = parse_number(p)))
            return NULL;
        x->items[0] = object;
        return finish(p, x);
    }
    if (p->cur.kind != T_NAME) {
        parse_set_error(p, line, "expected a name or number after '.'");
        return NULL;
    }
    struct expr *x = new_expr(p, E_ATTR, line, 1);
    if (!x || !parse_ident(p, &x->name))
        return NULL;
    x->items[0] = object;
    return finish(p, x);
}

static bool slice_part_absent(const struct parser *p)
{
    return p->cur.kind == T_COLON || p->cur.kind == T_RBRACKET || p->cur.kind == T_COMMA;
}

/* What stands in the brackets of object[…]. */
static struct expr *parse_index(struct parser *p, struct expr *object, int line)
{
    struct expr *part[3] = {0};
    if (p->cur.kind != T_COLON) {
        if (!(part[0] = parse_expression(p)))
            return NULL;
        if (p->cur.kind != T_COLON) {
            struct expr *x = new_expr(p, E_ITEM, line, 2);
            if (!x)
                return NULL;
            x->items[0] = object;
            x->items[1] = part[0];
            return finish(p, x);
        }
    }
    for (int i = 1; i < 3 && p->cur.kind == T_COLON; i++) {
        if (!parse_advance(p))
            return NULL;
        if (!slice_part_absent(p) && !(part[i] = parse_expression(p)))
            return NULL;
    }
    struct expr *x = new_expr(p, E_SLICE, line, 4);
    if (!x)
        return NULL;
    x->items[0] = object;
    memcpy(x->items + 1, part, sizeof part);
    return finish(p, x);
}

static struct expr *parse_subscript(struct parser *p, struct expr *object)
{
    int line = p->cur.line;
    if (!parse_advance(p))
        return NULL;
    struct expr *x = parse_index(p, object, line);
    return x && parse_expect(p, T_RBRACKET, "']'") ? x : NULL;
}

static struct expr *parse_postfix(struct parser *p, struct expr *x)
{
    while (x) {
        if (p->cur.kind == T_DOT)
            x = parse_attribute(p, x);
        else if (p->cur.kind == T_LBRACKET)
            x = parse_subscript(p, x);
        else if (p->cur.kind == T_LPAREN)
            x = parse_call(p, x);
        else
            break;
    }
    return x;
}

/* A filter's or test's name, which may have dots. */
static bool parse_dotted(struct parser *p, struct name *out)
{
    if (!parse_ident(p, out))
        return false;
    while (p->cur.kind == T_DOT) {
        struct name part;
        struct str_builder b;
        if (!parse_advance(p) || !parse_ident(p, &part))
            return false;
        str_begin(&b, &p->t->arena);
        str_put_str(&b, out->s);
        str_put_data(&b, ".");
        str_put_str(&b, part.s);
        if (!(out->s = str_end(&b)))
            return parse_fail(p, p->cur.line, "out of memory");
    }
    return true;
}

struct expr *parse_filter(struct parser *p, struct expr *input)
{
    for (bool more = true; more;) {
        struct expr *x = new_expr(p, E_FILTER, p->cur.line, 1);
        if (!x || !parse_dotted(p, &x->name))
            return NULL;
        x->items[0] = input;
        x->filter = filter_named(x->name.s);
        if (p->cur.kind == T_LPAREN && !(x->args = parse_arguments(p)))
            return NULL;
        if (!(input = finish(p, x)) || !parse_take(p, T_PIPE, &more))
            return NULL;
    }
    return input;
}

/* Whether a test without parentheses has an argument: x is divisibleby 3. */
static bool test_argument_follows(const struct parser *p)
{
    switch (p->cur.kind) {
    case T_STRING:
    case T_INTEGER:
    case T_FLOAT:
    case T_LBRACKET:
    case T_LBRACE:
        return true;
    case T_NAME:
        return !parse_is_name(&p->cur, "else") && !parse_is_name(&p->cur, "or") &&
               !parse_is_name(&p->cur, "and");
    default:
        return false;
    }
}

static bool parse_test_arguments(struct parser *p, struct expr *x)
{
    if (p->cur.kind == T_LPAREN)
        return (x->args = parse_arguments(p)) != NULL;
    if (!test_argument_follows(p))
        return true;
    if (parse_is_name(&p->cur, "is"))
        return parse_fail(p, p->cur.line, "tests cannot be chained with is");
    x->args = parse_alloc(p, sizeof *x->args);
    if (!x->args || !(x->args->pos = parse_alloc(p, sizeof *x->args->pos)))
        return false;
    struct expr *a = parse_primary(p);
    if (!a || !(a = parse_postfix(p, a)))
        return false;
    x->args->pos[0] = a;
    x->args->n_pos = 1;
    return true;
}

/* `is` is the current token. */
static struct expr *parse_test(struct parser *p, struct expr *input)
{
    bool negated;
    struct expr *x = new_expr(p, E_TEST, p->cur.line, 1);
    if (!x || !parse_advance(p) || !parse_take_name(p, "not", &negated) ||
        !parse_dotted(p, &x->name))
        return NULL;
    x->items[0] = input;
    x->test = test_named(x->name.s);
    if (!parse_test_arguments(p, x))
        return NULL;
    x = finish(p, x);
    return x && negated ? unary(p, E_NOT, x->line, x) : x;
}

static struct expr *parse_filters_and_tests(struct parser *p, struct expr *x)
{
    while (x) {
        if (p->cur.kind == T_PIPE)
            x = parse_advance(p) ? parse_filter(p, x) : NULL;
        else if (parse_is_name(&p->cur, "is"))
            x = parse_test(p, x);
        else if (p->cur.kind == T_LPAREN)
            x = parse_call(p, x);
        else
            break;
    }
    return x;
}

static struct expr *parse_unary_inner(struct parser *p, bool with_filter)
{
    int line = p->cur.line;
    struct expr *x;
    if (p->cur.kind == T_SUB || p->cur.kind == T_ADD) {
        enum expr_kind kind = p->cur.kind == T_SUB ? E_NEG : E_POS;
        if (!parse_advance(p) || !parse_enter(p))
            return NULL;
        x = unary(p, kind, line, parse_unary_inner(p, false));
        parse_leave(p);
    } else {
        x = parse_primary(p);
    }
    x = parse_postfix(p, x);
    return with_filter ? parse_filters_and_tests(p, x) : x;
}

static struct expr *parse_unary(struct parser *p)
{
    return parse_unary_inner(p, true);
}

static int pow_at(struct parser *p)
{
    return p->cur.kind == T_POW ? OP_POW : -1;
}

static int mul_at(struct parser *p)
{
    switch (p->cur.kind) {
    case T_MUL:
        return OP_MUL;
    case T_DIV:
        return OP_DIV;
    case T_FLOORDIV:
        return OP_FLOORDIV;
    case T_MOD:
        return OP_MOD;
    default:
        return -1;
    }
}

static int tilde_at(struct parser *p)
{
    return p->cur.kind == T_TILDE ? 0 : -1;
}

static int add_at(struct parser *p)
{
    return p->cur.kind == T_ADD ? OP_ADD : p->cur.kind == T_SUB ? OP_SUB : -1;
}

static int compare_at(struct parser *p)
{
    switch (p->cur.kind) {
    case T_EQ:
        return OP_EQ;
    case T_NE:
        return OP_NE;
    case T_LT:
        return OP_LT;
    case T_LE:
        return OP_LE;
    case T_GT:
        return OP_GT;
    case T_GE:
        return OP_GE;
    default:
        if (parse_is_name(&p->cur, "in"))
            return OP_IN;
        return parse_is_name(&p->cur, "not") && parse_is_name(&p->next, "in") ? OP_NOT_IN : -1;
    }
}

static int and_at(struct parser *p)
{
    return parse_is_name(&p->cur, "and") ? 0 : -1;
}

static int or_at(struct parser *p)
{
    return parse_is_name(&p->cur, "or") ? 0 : -1;
}

static struct expr *parse_pow(struct parser *p)
{
    return chain(p, E_CHAIN, pow_at, parse_unary);
}

static struct expr *parse_mul(struct parser *p)
{
    return chain(p, E_CHAIN, mul_at, parse_pow);
}

static struct expr *parse_concat(struct parser *p)
{
    return chain(p, E_CONCAT, tilde_at, parse_mul);
}

static struct expr *parse_add(struct parser *p)
{
    return chain(p, E_CHAIN, add_at, parse_concat);
}

static struct expr *parse_compare(struct parser *p)
{
    return chain(p, E_COMPARE, compare_at, parse_add);
}

static struct expr *parse_not(struct parser *p)
{
    if (!parse_is_name(&p->cur, "not"))
        return parse_compare(p);
    int line = p->cur.line;
    if (!parse_advance(p) || !parse_enter(p))
        return NULL;
    struct expr *x = unary(p, E_NOT, line, parse_not(p));
    parse_leave(p);
    return x;
}

static struct expr *parse_and(struct parser *p)
{
    return chain(p, E_AND, and_at, parse_not);
}

struct expr *parse_no_condition(struct parser *p)
{
    if (!parse_enter(p))
        return NULL;
    struct expr *x = chain(p, E_OR, or_at, parse_and);
    parse_leave(p);
    return x;
}

struct expr *parse_expression(struct parser *p)
{
    if (!parse_enter(p))
        return NULL;
    struct expr *x = parse_no_condition(p);
    while (x) {
        bool taken, has_else;
        if (!parse_take_name(p, "if", &taken))
            return NULL;
        if (!taken)
            break;
        struct expr *c = new_expr(p, E_COND, x->line, 3);
        if (!c || !(c->items[0] = parse_no_condition(p)) || !parse_take_name(p, "else", &has_else))
            return NULL;
        c->items[1] = x;
        if (has_else && !(c->items[2] = parse_expression(p)))
            return NULL;
        x = finish(p, c);
    }
    parse_leave(p);
    return x;
}

struct expr *parse_tuple(struct parser *p, bool conditions, const char *stop)
{
    return tuple_of(p, conditions ? parse_expression : parse_no_condition, stop, false);
}

static struct expr *parse_target_item(struct parser *p)
{
    return parse_primary(p);
}

static struct expr *parse_ns_target_item(struct parser *p)
{
    if (p->cur.kind != T_NAME || p->next.kind != T_DOT)
        return parse_primary(p);
    struct name attr;
    struct expr *x = new_expr(p, E_NS_REF, p->cur.line, 0);
    if (!x || !parse_ident(p, &x->name) || !parse_advance(p) || !parse_ident(p, &attr))
        return NULL;
    x->attr = attr.s;
    return finish(p, x);
}

static bool assignable(const struct expr *x)
{
    if (x->kind == E_NAME || x->kind == E_NS_REF)
        return true;
    if (x->kind != E_TUPLE)
        return false;
    for (size_t i = 0; i < x->n_items; i++)
        if (!assignable(x->items[i]))
            return false;
    return true;
}

struct expr *parse_target(struct parser *p, bool ns, const char *stop)
{
    struct expr *x = tuple_of(p, ns ? parse_ns_target_item : parse_target_item, stop, false);
    if (x && !assignable(x)) {
        parse_set_error(p, x->line, "this cannot be assigned to: a name or names are needed");
        return NULL;
    }
    return x;
}
