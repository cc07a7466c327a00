/* value.h: what a template computes with, after Python's types.
 *
 * A value is 16 bytes and refers to arena memory. Lists, tuples and dicts are immutable once
 * a template can see them (jinja2's immutable sandbox); namespaces, loops, cyclers, joiners
 * and generators change. */
#ifndef TOKEND_VALUE_H
#define TOKEND_VALUE_H

#include "str.h"

enum value_type {
    V_UNDEFINED,
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_STR,
    V_LIST,
    V_TUPLE,
    V_DICT,
    V_NAMESPACE,
    V_GENERATOR, /* items that can be walked once */
    V_RANGE,
    V_VIEW,     /* dict.keys(), .values(), .items() */
    V_MACRO,    /* of the template, or the body of a call block */
    V_FUNCTION, /* a global: range, namespace, … */
    V_METHOD,   /* bound to its object */
    V_LOOP,
    V_CYCLER,
    V_JOINER,
};

/* Why something is undefined: chooses the message when it is used. */
enum undefined_kind { UNDEFINED_NAME, UNDEFINED_ATTRIBUTE, UNDEFINED_UNSAFE, UNDEFINED_OTHER };

struct value {
    uint8_t type;
    uint8_t undefined; /* enum undefined_kind */
    union {
        bool b;
        int64_t i;
        double f;
        const struct str *s; /* also the name of what is undefined; may be NULL there */
        struct list *list;   /* tuples too */
        struct dict *dict;   /* namespaces too */
        struct generator *gen;
        struct range *range;
        struct view *view;
        struct macro *macro;
        const struct function *function;
        struct bound *bound;
        struct loop *loop;
        struct cycler *cycler;
        struct joiner *joiner;
    };
};

struct list {
    struct value *v;
    size_t n, cap;
    bool group; /* a tuple of groupby: has the attributes grouper and list */
};

struct entry {
    struct value key, value;
    uint64_t hash;
};

struct dict { /* insertion order; an index once it is not tiny */
    struct entry *e;
    size_t n, cap;
    uint32_t *index; /* [index_cap], position + 1, 0 = free; a power of two */
    size_t index_cap;
};

struct generator {
    struct list *items;
    size_t at;
};

struct range {
    int64_t start, step;
    size_t n;
};

enum view_kind { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };
struct view {
    struct dict *dict;
    enum view_kind kind;
};

struct cycler {
    struct list *items;
    size_t at;
};

struct joiner {
    struct value separator;
    bool used;
};

static inline struct value value_none(void)
{
    return (struct value){.type = V_NONE};
}
static inline struct value value_bool(bool b)
{
    return (struct value){.type = V_BOOL, .b = b};
}
static inline struct value value_int(int64_t i)
{
    return (struct value){.type = V_INT, .i = i};
}
static inline struct value value_float(double f)
{
    return (struct value){.type = V_FLOAT, .f = f};
}
static inline struct value value_str(const struct str *s)
{
    return (struct value){.type = V_STR, .s = s};
}
static inline struct value value_list(struct list *l)
{
    return (struct value){.type = V_LIST, .list = l};
}
static inline struct value value_tuple(struct list *l)
{
    return (struct value){.type = V_TUPLE, .list = l};
}
static inline struct value value_dict(struct dict *d)
{
    return (struct value){.type = V_DICT, .dict = d};
}
static inline struct value value_undefined(enum undefined_kind kind, const struct str *name)
{
    return (struct value){.type = V_UNDEFINED, .undefined = kind, .s = name};
}

/* Numbers for arithmetic; bool counts as 0 and 1, as in Python. */
static inline bool value_is_number(struct value v)
{
    return v.type == V_BOOL || v.type == V_INT || v.type == V_FLOAT;
}
static inline bool value_is_integer(struct value v)
{
    return v.type == V_BOOL || v.type == V_INT;
}
static inline int64_t value_as_int(struct value v) /* bool or int */
{
    return v.type == V_BOOL ? v.b : v.i;
}
static inline double value_as_float(struct value v) /* a number */
{
    return v.type == V_FLOAT ? v.f : (double)value_as_int(v);
}

bool value_truth(struct value v);
const char *value_type_name(struct value v); /* Python's name of the type */
/* Python's `is`: the same object. */
bool value_same(struct value a, struct value b);

#endif
