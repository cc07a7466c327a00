/* ast.h: a parsed template. Immutable after parsing, all of it in the template's arena.
 *
 * No node is deeper than TEMPLATE_MAX_NEST, so walking the tree is bounded; chains of one
 * precedence (a + b + c, a and b, a ~ b, comparisons) are flat lists, however long. */
#ifndef TOKEND_AST_H
#define TOKEND_AST_H

#include "value.h"

enum { TEMPLATE_MAX_NEST = 200 };

struct name { /* an identifier; `id` numbers the template's distinct names from 0 */
    const struct str *s;
    int id;
};

enum expr_kind {
    E_CONST,
    E_NAME,
    E_NOT,
    E_NEG,
    E_POS,
    E_CHAIN, /* arithmetic of one precedence, left to right */
    E_CONCAT,
    E_AND,
    E_OR,
    E_COMPARE, /* a < b < c */
    E_COND,    /* items: condition, then, else (may be NULL) */
    E_ATTR,    /* items: object */
    E_ITEM,    /* items: object, index */
    E_SLICE,   /* items: object, start, stop, step (each may be NULL) */
    E_CALL,    /* items: callee */
    E_FILTER,  /* items: input (NULL: the text of a filter block) */
    E_TEST,    /* items: input */
    E_LIST,
    E_TUPLE,
    E_DICT,   /* items: key, value, key, value, … */
    E_NS_REF, /* assignment target ns.attr */
};

enum op {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN,
};

struct keyword {
    const struct str *name;
    struct expr *value;
};

struct arguments {
    struct expr **pos;
    size_t n_pos;
    struct keyword *kw;
    size_t n_kw;
    struct expr *star, *star_star; /* *args and **kwargs, or NULL */
};

struct filter;
struct test;

struct expr {
    uint8_t kind;
    uint16_t depth; /* 1 + the deepest item's */
    int line;
    size_t n_items;
    struct expr **items;
    union {
        struct value constant; /* E_CONST */
        struct name name;      /* E_NAME; E_ATTR and E_FILTER, E_TEST: id is unused */
        uint8_t *ops;          /* E_CHAIN, E_COMPARE: [n_items - 1], between the items */
    };
    struct arguments *args; /* E_CALL, E_FILTER, E_TEST; NULL: none */
    union {
        const struct filter *filter; /* NULL: no such filter, an error when evaluated */
        const struct test *test;
        const struct str *attr; /* E_NS_REF */
    };
};

struct block {
    struct stmt **v;
    size_t n;
};

enum stmt_kind {
    S_TEXT,
    S_PRINT,
    S_IF,
    S_FOR,
    S_SET,
    S_SET_BLOCK,
    S_MACRO,
    S_CALL,
    S_FILTER,
    S_WITH,
    S_SCOPE, /* a body with variables of its own (generation) */
    S_BREAK,
    S_CONTINUE,
};

struct branch {
    struct expr *test; /* NULL: else */
    struct block body;
};

struct signature { /* of a macro or a call block */
    struct name name;
    struct name *params;
    struct expr **defaults; /* [n_params], NULL: none */
    size_t n_params;
    /* The body mentions these names freely, so the call passes them. */
    bool uses_caller, uses_varargs, uses_kwargs;
    struct block body;
};

struct stmt {
    uint8_t kind;
    int line;
    union {
        const struct str *text;
        struct {
            struct branch *v;
            size_t n;
        } branches;
        struct {
            struct expr *target, *iter, *filter;
            struct block body, otherwise;
            bool recursive;
        } loop;
        struct {
            struct expr *target, *value; /* S_SET; S_PRINT: value; S_SET_BLOCK: filters or NULL */
            struct block body;           /* S_SET_BLOCK, S_FILTER (value: the filters), S_SCOPE */
        } set;
        struct signature *macro;
        struct {
            struct signature *caller;
            struct expr *call;
        } call;
        struct {
            struct expr **targets, **values;
            size_t n;
            struct block body;
        } with;
    };
};

struct template
{
    struct arena arena;
    struct block body;
    const struct str **names; /* [n_names], by id */
    int n_names;
    int loop_id, caller_id, varargs_id, kwargs_id;
};

#endif
