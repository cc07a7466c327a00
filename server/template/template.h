/* template.h: chat templates, a small interpreter of the Jinja language.
 *
 * A template is parsed once and immutable afterwards; rendering is a pure function that any
 * thread may run (text workers do). Semantics are jinja2's with trim_blocks, lstrip_blocks
 * and loop controls, in a sandbox without I/O, plus what chat templates rely on:
 * raise_exception(message), strftime_now(format), the generation tag, tojson as transformers
 * defines it.
 *
 * Text is not control (promise 9): the output says which bytes the template itself wrote
 * (its literal text and its string constants); every other byte came from the context.
 * Strings carry this through every filter, method and concatenation; when unsure a byte counts
 * as the context's. One exception: a message's `role` that is one of the usual words (system,
 * user, assistant, tool, …) counts as the template's, for templates that spell control tokens
 * with it ('<|' ~ message.role ~ '|>'); any other role is context. */
#ifndef TOKEND_TEMPLATE_H
#define TOKEND_TEMPLATE_H

#include "buf.h"
#include "err.h"
#include "tokenizer.h" /* struct text_span */

#include <jansson.h>

struct template;

/* Bounds of one rendering; 0 = the default. */
struct template_limits {
    size_t max_output; /* bytes; default 64 MiB */
    size_t max_steps;  /* evaluated nodes, loop turns included; default 50 million */
    int max_depth;     /* nesting of expressions, calls and values; default 200 */
    size_t max_memory; /* bytes of all values that are made; default 512 MiB */
};

struct rendered {                     /* zeroed = empty; free with rendered_free */
    struct buf text;                  /* UTF-8 */
    struct text_span *template_spans; /* bytes that the template wrote, ascending, merged */
    size_t n_spans;
    /* After a failure, when the rest is empty: the line where the template was, and whether it
     * raised the error itself. */
    int error_line;
    bool raised;
};

/* source[n]: the template's text. Errors name the line. NULL and *e on a syntax error. */
struct template *template_parse(const char *source, size_t n, struct err *e);
void template_free(struct template *); /* NULL is fine */

struct template_input {
    const json_t *context; /* a JSON object of variables; read only, not kept */
    /* Names of variables whose strings count as written by the template (the tokenizer's own
     * bos_token, eos_token, …), NULL-terminated; may be NULL. */
    const char *const *trusted;
    int64_t now;    /* seconds since 1970, for strftime_now */
    int utc_offset; /* seconds east of Greenwich, for strftime_now */
    struct template_limits limits;
};

/* A template's raise_exception gives ERR_INVALID with exactly its message; another failure
 * (undefined attribute, wrong type) ERR_INVALID with the line; a limit ERR_LIMIT. */
bool template_render(const struct template *, const struct template_input *, struct rendered *out,
                     struct err *e);
void rendered_free(struct rendered *);
/* After a failed rendering: puts the line before a message that lacks it (raise_exception's).
 * Returns false. */
bool template_name_line(const struct rendered *failed, struct err *e);

#endif
