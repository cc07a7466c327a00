/* runtime.h: one rendering in progress, and what its parts call on each other.
 *
 * Functions return false (or NULL) with the error set; then everything unwinds and the arena
 * frees all memory. */
#ifndef TOKEND_RUNTIME_H
#define TOKEND_RUNTIME_H

#include "ast.h"
#include "dict.h"
#include "template.h"

struct binding {
    int id;
    struct value v;
};

struct scope {            /* variables of a loop turn, a macro call, a with */
    struct scope *parent; /* NULL: the template's own variables, in rt.vars */
    struct binding *b;
    size_t n, cap;
    bool captured; /* a macro was made here, so the scope must outlive its block */
};

enum var_state { VAR_UNKNOWN, VAR_SET, VAR_ABSENT };

struct rt {
    const struct template *t;
    const struct template_input *in;
    struct arena arena;
    struct err *e;
    uint64_t seed;
    int line; /* of the statement or expression being evaluated */
    size_t steps, max_steps, max_output;
    int frames, max_frames; /* C recursion of the evaluator */
    int calls, max_depth;   /* macro calls; nesting of values */
    struct str_builder *out;
    bool raised;    /* raise_exception was called, which ends the rendering */
    bool capturing; /* out is a macro's or a block's, not the rendering's */
    struct scope *scope;
    struct value *vars; /* [n_names], the template's own and the context's variables */
    uint8_t *var_state; /* [n_names], enum var_state */
};

struct kwarg {
    const struct str *name;
    struct value v;
};

enum { MAX_ARGS = 8 };

struct call {        /* the arguments of a filter, test, method, function or macro */
    const char *who; /* for messages */
    struct value *pos;
    size_t n_pos;
    struct kwarg *kw;
    size_t n_kw;
    /* After args_bind: argument i of the parameter list, where bit i of `given` is set. */
    struct value arg[MAX_ARGS];
    unsigned given;
};

/* ---- errors and limits (render.c) ---- */
void rt_set_error(struct rt *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A macro, so that the compiler knows it to be false: `return rt_fail(r, "…")`. */
#define rt_fail(...) (rt_set_error(__VA_ARGS__), false)
bool rt_no_memory(struct rt *);
bool rt_charge(struct rt *, size_t steps);
/* Work on n bytes of text. */
bool rt_charge_bytes(struct rt *, size_t n);
void *rt_alloc(struct rt *, size_t n); /* zeroed */
bool rt_enter(struct rt *);
void rt_leave(struct rt *);
bool rt_too_deep(struct rt *); /* fails: values nested too deeply */
/* Fails with what is wrong with using an undefined value. */
bool rt_undefined(struct rt *, struct value);
/* Writes to the current output. */
bool rt_write(struct rt *, const struct str *);
/* Sends output to *b until rt_capture_end, which gives what was collected. */
struct capture {
    struct str_builder b, *outer;
    bool outer_capturing;
};
void rt_capture(struct rt *, struct capture *);
const struct str *rt_capture_end(struct rt *, struct capture *);

/* ---- variables (scope.c) ---- */
struct scope *scope_push(struct rt *);
void scope_pop(struct rt *);
bool scope_set(struct rt *, int id, struct value v);
bool scope_get(struct rt *, const struct name *, struct value *out);
bool json_to_value(struct rt *, const json_t *, bool trusted, struct value *out);

/* ---- evaluating (eval.c, exec.c, call.c) ---- */
bool eval_expr(struct rt *, const struct expr *, struct value *out);
bool eval_filter(struct rt *, const struct expr *, const struct str *block, struct value *out);
bool exec_block(struct rt *, const struct block *);
enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };
bool exec_body(struct rt *, const struct block *, enum flow *);
bool assign_target(struct rt *, const struct expr *target, struct value v);

struct macro {
    const struct signature *sig;
    struct scope *scope; /* where it was made */
    bool is_caller;
};
bool eval_arguments(struct rt *, const struct arguments *, struct call *);
bool call_value(struct rt *, struct value callee, struct call *, struct value *out);
bool call_macro(struct rt *, const struct macro *, struct call *, struct value *out);

/* ---- loops (loop.c) ---- */
struct loop;
bool exec_for(struct rt *, const struct stmt *, enum flow *);
bool loop_attribute(struct rt *, struct loop *, const struct str *name, struct value *out);
bool loop_call(struct rt *, struct loop *, struct call *, struct value *out);
bool loop_repr(struct rt *, struct loop *, struct str_builder *);

/* ---- arguments (args.c) ---- */
/* Distributes the arguments over `params` ("a,b,c"); the first `min` must be there. */
bool args_bind(struct rt *, struct call *, const char *params, int min);
static inline bool arg_given(const struct call *c, int i)
{
    return c->given >> i & 1;
}
bool arg_int(struct rt *, const struct call *, int i, int64_t otherwise, int64_t *out);
bool arg_str(struct rt *, const struct call *, int i, const struct str **out); /* a str is needed */
bool arg_truth(const struct call *, int i, bool otherwise);

/* ---- operations on values (ops.c, compare.c, text.c, iterate.c, attribute.c) ---- */
bool value_arith(struct rt *, enum op, struct value a, struct value b, struct value *out);
bool value_negate(struct rt *, struct value a, bool minus, struct value *out);
/* As Markup; a Markup comes back as it is. NULL: failed. */
const struct str *escape_html(struct rt *, const struct str *);
bool value_equal(struct rt *, struct value a, struct value b, bool *out);
bool value_compare(struct rt *, enum op, struct value a, struct value b, bool *out);
bool value_contains(struct rt *, struct value needle, struct value in, bool *out);

/* str(v) and repr(v), as Python writes them. A string comes back as it is. */
bool value_to_str(struct rt *, struct value, const struct str **out);
bool value_put_repr(struct rt *, struct value, int depth, struct str_builder *);
void put_float_repr(double, struct str_builder *); /* Python's repr */

/* len(v); false: it has none (an error if `fail`). */
bool value_length(struct rt *, struct value, size_t *out);
bool value_has_length(struct value);

struct iter { /* a walk over what can be iterated */
    struct value v;
    size_t i, at;
};
bool value_iterable(struct value);
bool iter_begin(struct rt *, struct value, struct iter *);
/* *more = false at the end. */
bool iter_next(struct rt *, struct iter *, struct value *out, bool *more);
bool value_to_list(struct rt *, struct value, struct list **out); /* a new list */

bool get_attribute(struct rt *, struct value, const struct str *name, struct value *out);
bool get_item(struct rt *, struct value, struct value key, struct value *out);
bool get_slice(struct rt *, struct value, const struct value part[3], struct value *out);
/* d[key] for a string key, or NULL. */
struct value *dict_get_str(struct rt *, const struct dict *, const struct str *key);
bool dict_set(struct rt *, struct dict *, struct value key, struct value v);
/* False: the value cannot be a key (no error is set). */
bool hash_key(struct rt *, struct value key, uint64_t *hash);

/* Makes values; false: out of memory. */
bool make_str(struct rt *, struct str_builder *, struct value *out);
bool make_data(struct rt *, const char *text, struct value *out);
struct list *make_list(struct rt *, size_t cap);
bool list_append(struct rt *, struct list *, struct value);
bool make_generator(struct rt *, struct list *, struct value *out);

#endif
