/* parser.h: what the two halves of the parser share (expressions, statements). */
#ifndef TOKEND_PARSER_H
#define TOKEND_PARSER_H

#include "ast.h"
#include "dict.h"
#include "lexer.h"

struct parser {
    struct template *t;
    struct lexer lx;
    struct token cur, next;
    int nest; /* of statements and expressions that are being parsed */
    uint64_t seed;
    struct dict ids; /* name -> id */
    int loops;       /* for loops around, for break and continue */
    int mentions[3]; /* uses so far of the names caller, varargs, kwargs */
    struct err *e;
};

void parse_set_error(struct parser *, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
#define parse_fail(...) (parse_set_error(__VA_ARGS__), false)
void *parse_alloc(struct parser *, size_t n); /* zeroed; NULL with the error set */
/* Makes *items (of cap, n in use) one longer if it is full. */
bool parse_room(struct parser *, void *items, size_t n, size_t *cap, size_t size);
bool parse_enter(struct parser *); /* one level deeper; parse_leave on every way out */
void parse_leave(struct parser *);

bool parse_advance(struct parser *);
bool parse_is_name(const struct token *, const char *word);
/* Takes the current token if it is that word or of that kind. *taken says whether. */
bool parse_take_name(struct parser *, const char *word, bool *taken);
bool parse_take(struct parser *, enum token_kind, bool *taken);
bool parse_expect(struct parser *, enum token_kind, const char *what);
bool parse_intern(struct parser *, const struct token *, struct name *out);
bool parse_ident(struct parser *, struct name *out); /* a name token, taken */

/* A string or number, the current token; a constant. */
struct expr *parse_string(struct parser *);
struct expr *parse_number(struct parser *);
struct expr *parse_constant(struct parser *, int line, struct value v);

/* An expression; NULL with the error set. */
struct expr *parse_expression(struct parser *);
struct expr *parse_no_condition(struct parser *); /* without a trailing `if` */
/* Expressions that make a tuple if a comma separates them. stop: a word that ends it, or NULL. */
struct expr *parse_tuple(struct parser *, bool conditions, const char *stop);
/* What can be assigned to. ns: also a namespace's attribute. */
struct expr *parse_target(struct parser *, bool ns, const char *stop);
/* name(args)|name… after the bar, for filter blocks and set blocks; applied to `input`. */
struct expr *parse_filter(struct parser *, struct expr *input);

/* The statements of a whole template, up to its end. */
bool parse_template_body(struct parser *, struct block *);

#endif
