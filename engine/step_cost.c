#include "step_cost.h"

#include <math.h>
#include <string.h>

enum { WARM_UP = 4 }; /* steps until an unexpected time counts less */

#define NOISE 0.1  /* of a step's time, relative */
#define DRIFT 0.01 /* of a term in a step, relative */

/* What a term may be, in seconds, before anything is known: its standard deviation. */
static const double at_first[STEP_COST_TERMS] = {0.1, 0.1, 0.1, 1e-4};

void step_cost_init(struct step_cost *c)
{
    memset(c, 0, sizeof *c);
    for (int i = 0; i < STEP_COST_TERMS; i++)
        c->variance[i][i] = at_first[i] * at_first[i];
}

static void terms_of(const struct step_work *w, double *x)
{
    x[0] = 1;
    x[1] = w->decode_rows;
    x[2] = w->prefill_tokens;
    x[3] = w->pairs;
}

double step_cost_seconds(const struct step_cost *c, const struct step_work *w)
{
    double x[STEP_COST_TERMS], sum = 0;
    terms_of(w, x);
    for (int i = 0; i < STEP_COST_TERMS; i++)
        sum += c->of[i] * x[i];
    return sum;
}

/* Only what this step says something of has drifted, and never beyond where it began. */
static void drift(struct step_cost *c, const double *x)
{
    for (int i = 0; i < STEP_COST_TERMS; i++) {
        const double most = at_first[i] * at_first[i], d = DRIFT * c->of[i];
        if (x[i] > 0 && c->variance[i][i] + d * d < most)
            c->variance[i][i] += d * d;
    }
}

void step_cost_learn(struct step_cost *c, const struct step_work *w, double seconds)
{
    double x[STEP_COST_TERMS], vx[STEP_COST_TERMS], expected = step_cost_seconds(c, w), s;
    if (!(seconds > 0) || !isfinite(seconds))
        return;
    if (c->n_learnt++ >= WARM_UP && expected > 0)
        seconds = fmin(fmax(seconds, expected / 2), expected * 2);
    terms_of(w, x);
    drift(c, x);
    s = NOISE * NOISE * seconds * seconds;
    for (int i = 0; i < STEP_COST_TERMS; i++) {
        vx[i] = 0;
        for (int k = 0; k < STEP_COST_TERMS; k++)
            vx[i] += c->variance[i][k] * x[k];
        s += vx[i] * x[i];
    }
    for (int i = 0; i < STEP_COST_TERMS; i++) {
        c->of[i] = fmax(c->of[i] + vx[i] / s * (seconds - expected), 0);
        for (int k = 0; k < STEP_COST_TERMS; k++)
            c->variance[i][k] -= vx[i] * vx[k] / s;
    }
    for (int i = 0; i < STEP_COST_TERMS; i++) /* rounding must not make it negative */
        c->variance[i][i] = fmax(c->variance[i][i], 0);
}

double step_cost_pairs(int start, int n)
{
    return n * (start + (n + 1) / 2.0);
}

int step_cost_tokens_within(const struct step_cost *c, int start, double seconds, int most)
{
    int low = 0, high = most; /* low fits */
    while (low < high) {
        const int n = low + (high - low + 1) / 2;
        if (n * c->of[2] + step_cost_pairs(start, n) * c->of[3] <= seconds)
            low = n;
        else
            high = n - 1;
    }
    return low;
}
