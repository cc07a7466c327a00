#include "rope_freqs.h"

#include <math.h>

static const double PI = 3.14159265358979323846;

void rope_default(struct rope_spec *r, double theta, int n_dims)
{
    r->n_dims = n_dims;
    r->mscale = 1;
    for (int i = 0; i < n_dims / 2; i++)
        r->inv_freq[i] = (float)pow(theta, -2.0 * i / n_dims);
}

void rope_scale_linear(struct rope_spec *r, double factor)
{
    for (int i = 0; i < r->n_dims / 2; i++)
        r->inv_freq[i] = (float)((double)r->inv_freq[i] / factor);
}

void rope_scale_by(struct rope_spec *r, const float *factors)
{
    for (int i = 0; i < r->n_dims / 2; i++)
        r->inv_freq[i] = (float)((double)r->inv_freq[i] / (double)factors[i]);
}

/* A number between 0 at `from` and 1 at `to`, held there outside. */
static double ramp(double x, double from, double to)
{
    return fmin(fmax((x - from) / (to - from), 0), 1);
}

void rope_scale_llama3(struct rope_spec *r, double factor, double low, double high, double original)
{
    for (int i = 0; i < r->n_dims / 2; i++) {
        const double f = (double)r->inv_freq[i], turns = original * f / (2 * PI);
        const double kept = high > low ? ramp(turns, low, high) : turns >= low;
        r->inv_freq[i] = (float)(f * (kept + (1 - kept) / factor));
    }
}

/* The pair (a real number) that turns `turns` times within the original context. */
static double yarn_pair(const struct rope_yarn *y, double turns, int n_dims)
{
    return n_dims * log(y->original / (turns * 2 * PI)) / (2 * log(y->theta));
}

void rope_scale_yarn(struct rope_spec *r, const struct rope_yarn *y)
{
    double first = yarn_pair(y, y->beta_fast, r->n_dims),
           last = yarn_pair(y, y->beta_slow, r->n_dims);
    if (y->truncate) {
        first = floor(first);
        last = ceil(last);
    }
    first = fmax(first, 0);
    last = fmin(last, r->n_dims - 1);
    if (first == last)
        last += 0.001;
    for (int i = 0; i < r->n_dims / 2; i++) {
        const double f = pow(y->theta, -2.0 * i / r->n_dims), stretched = ramp(i, first, last);
        r->inv_freq[i] = (float)(f * (1 - stretched) + f / y->factor * stretched);
    }
    r->mscale = (float)(y->mscale > 0 ? y->mscale : rope_yarn_mscale(y->factor, 1));
}

double rope_yarn_mscale(double factor, double weight)
{
    return factor > 1 ? 0.1 * weight * log(factor) + 1 : 1;
}

double rope_longrope_mscale(double factor, double original)
{
    return factor > 1 && original > 1 ? sqrt(1 + log(factor) / log(original)) : 1;
}
