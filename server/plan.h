/* plan.h: what `tokend plan` says. */
#ifndef TOKEND_PLAN_H
#define TOKEND_PLAN_H

#include "budget.h"
#include "buf.h"

#include <jansson.h>

/* All that a plan was made of. */
struct plan {
    const struct plan_model *model;
    struct device_facts device;
    struct budget_wish wish;
    struct budget budget;
};

/* Exact bytes and plain numbers. NULL: out of memory. */
json_t *plan_json(const struct plan *);
/* For people, to standard output. */
void plan_print(const struct plan *);
/* The device's memory as a bar, as a self-contained SVG file; out->failed when memory ran out. */
void plan_svg(const struct plan *, struct buf *out);

/* A part of a device's memory. */
struct plan_part {
    const char *name;
    uint64_t bytes;
    char sign; /* in the bar of text */
};
enum { PLAN_PARTS = 6 };
/* From the start of the memory to its end, or beyond it where the plan does not fit. */
void plan_parts(const struct plan *, struct plan_part parts[PLAN_PARTS]);

#endif
