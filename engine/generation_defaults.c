#include "generation_defaults.h"

#include <string.h>

void generation_defaults_list(const struct generation_defaults *d,
                              struct generation_default out[N_GENERATION_DEFAULTS])
{
    const struct generation_default all[N_GENERATION_DEFAULTS] = {
        {"temperature", d->has_temperature, d->temperature},
        {"top_p", d->has_top_p, d->top_p},
        {"top_k", d->has_top_k, d->top_k},
        {"min_p", d->has_min_p, d->min_p},
        {"repetition_penalty", d->has_repetition_penalty, d->repetition_penalty}};
    memcpy(out, all, sizeof all);
}
