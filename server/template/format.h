/* format.h: one value laid out by a format specification. */
#ifndef TOKEND_TEMPLATE_FORMAT_H
#define TOKEND_TEMPLATE_FORMAT_H

#include "runtime.h"

struct format_spec {
    const char *fill; /* one character of n_fill bytes */
    size_t n_fill;
    char align; /* '<', '>', '^', '=' or 0 */
    char sign;  /* '+', ' ' or '-' */
    bool alternate, zero;
    char grouping;            /* ',', '_' or 0 */
    int64_t width, precision; /* precision -1: none */
    char type;                /* 0: none */
};

enum { FORMAT_MAX_WIDTH = 1000000, FORMAT_MAX_PRECISION = 300 };

/* Appends a number, or a string cut to the precision, with sign, grouping and padding. */
bool format_number(struct rt *, const struct format_spec *, struct value, struct str_builder *);
bool format_text(struct rt *, const struct format_spec *, const struct str *, struct str_builder *);

#endif
