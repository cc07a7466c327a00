/* functions.h: the tables of filters, tests, methods and global functions. */
#ifndef TOKEND_TEMPLATE_FUNCTIONS_H
#define TOKEND_TEMPLATE_FUNCTIONS_H

#include "value.h"

struct rt;
struct call;

/* `params`: "a,b,c" as Python names them, of which `min` are needed; NULL: the function looks
 * at the raw arguments itself. */
struct filter {
    const char *name, *params;
    int min;
    bool (*run)(struct rt *, struct value in, struct call *, struct value *out);
};

struct test {
    const char *name, *params;
    int min;
    bool (*run)(struct rt *, struct value in, struct call *, bool *out);
};

struct function { /* a method (self) or a global (self is undefined) */
    const char *name, *params;
    int min;
    bool (*run)(struct rt *, struct value self, struct call *, struct value *out);
};

struct bound {
    struct value self;
    const struct function *method;
};

/* NULL: there is none of that name. */
const struct filter *filter_named(const struct str *name);
const struct test *test_named(const struct str *name);
const struct function *global_named(const struct str *name);
/* *unsafe: Python has it, but the sandbox refuses it because it changes its object. */
const struct function *method_named(struct value self, const struct str *name, bool *unsafe);

/* The parts of the filter table. */
extern const struct filter text_filters[], list_filters[], select_filters[], value_filters[];
extern const struct function str_methods[], str_more_methods[], dict_methods[], list_methods[],
    cycler_methods[], loop_methods[];

bool filter_tojson(struct rt *, struct value in, struct call *, struct value *out);
/* "…" % arg and "…".format(…). */
bool format_percent(struct rt *, const struct str *fmt, struct value arg, struct value *out);
bool format_braces(struct rt *, const struct str *fmt, struct call *, struct value *out);

#endif
