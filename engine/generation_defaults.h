/* generation_defaults.h: what a model's authors want sampled with, where a client says nothing. */
#ifndef TOKEND_GENERATION_DEFAULTS_H
#define TOKEND_GENERATION_DEFAULTS_H

#include <stdbool.h>

struct generation_defaults {
    bool has_temperature, has_top_p, has_top_k, has_min_p, has_repetition_penalty;
    double temperature, top_p, min_p, repetition_penalty;
    int top_k;
};

/* The same as a list, in a fixed order, to print. */
enum { N_GENERATION_DEFAULTS = 5 };
struct generation_default {
    const char *name; /* as requests spell it */
    bool has;
    double value;
};
void generation_defaults_list(const struct generation_defaults *,
                              struct generation_default out[N_GENERATION_DEFAULTS]);

#endif
