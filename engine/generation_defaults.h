/* generation_defaults.h: what a model's authors want sampled with, where a client says nothing. */
#ifndef TOKEND_GENERATION_DEFAULTS_H
#define TOKEND_GENERATION_DEFAULTS_H

#include <stdbool.h>

struct generation_defaults {
    bool has_temperature, has_top_p, has_top_k, has_min_p, has_repetition_penalty;
    double temperature, top_p, min_p, repetition_penalty;
    int top_k;
};

#endif
