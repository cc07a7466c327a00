/* lexer.h: a template's text as tokens, by jinja2's rules with trim_blocks and lstrip_blocks. */
#ifndef TOKEND_LEXER_H
#define TOKEND_LEXER_H

#include "err.h"

#include <stdbool.h>
#include <stddef.h>

enum token_kind {
    T_EOF,
    T_DATA,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_VARIABLE_BEGIN,
    T_VARIABLE_END,
    T_NAME,
    T_STRING, /* still with its quotes and escapes */
    T_INTEGER,
    T_FLOAT,
    T_ADD,
    T_SUB,
    T_DIV,
    T_FLOORDIV,
    T_MUL,
    T_MOD,
    T_POW,
    T_TILDE,
    T_LBRACKET,
    T_RBRACKET,
    T_LPAREN,
    T_RPAREN,
    T_LBRACE,
    T_RBRACE,
    T_EQ,
    T_NE,
    T_GT,
    T_GE,
    T_LT,
    T_LE,
    T_ASSIGN,
    T_DOT,
    T_COLON,
    T_PIPE,
    T_COMMA,
    T_SEMICOLON,
};

struct token {
    enum token_kind kind;
    const char *p; /* into the source */
    size_t n;
    int line;
};

enum { LEXER_MAX_BRACKETS = 1000 };

struct lexer {
    const char *src;
    size_t n, pos;
    int line;
    size_t counted; /* newlines before here are in `line` */
    enum { LEX_TEXT, LEX_BLOCK, LEX_VARIABLE, LEX_RAW } state;
    bool at_tag;                       /* at the {% or {{ that the state is about */
    char brackets[LEXER_MAX_BRACKETS]; /* closers that are awaited */
    size_t n_brackets;
};

/* src[n]: valid UTF-8 whose newlines are \n; kept. */
void lexer_begin(struct lexer *, const char *src, size_t n);
bool lexer_next(struct lexer *, struct token *, struct err *e);
/* "'name'", "end of block", … for messages; out holds at least 64 bytes. */
const char *token_describe(const struct token *, char *out, size_t n);

#endif
