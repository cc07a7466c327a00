/* step_cost.h: how long a step takes, learnt from the steps that were run.
 *
 *   seconds = base + decode rows * per_row + prefill tokens * per_token + pairs * per_pair
 *
 * where pairs are (token, token that it attends to). The four numbers are tracked by a Kalman
 * filter whose state drifts slowly (Kalman 1960): it forgets at the pace at which something is
 * learnt of a number, so that an hour of decoding does not lose what a prompt costs. One step
 * counts at most as twice or half as long as was expected: the machine may have been busy.
 * Owned by the engine thread; nothing here can fail. */
#ifndef TOKEND_STEP_COST_H
#define TOKEND_STEP_COST_H

enum { STEP_COST_TERMS = 4 };

struct step_work {
    int decode_rows, prefill_tokens;
    double pairs;
};

struct step_cost {
    double of[STEP_COST_TERMS];                        /* seconds of each term, >= 0 */
    double variance[STEP_COST_TERMS][STEP_COST_TERMS]; /* of what is believed of them */
    int n_learnt;
};

/* Nothing is known: everything is thought to be free. */
void step_cost_init(struct step_cost *);
/* Such a step took so many seconds. */
void step_cost_learn(struct step_cost *, const struct step_work *, double seconds);
double step_cost_seconds(const struct step_cost *, const struct step_work *);

/* Pairs of tokens [start, start + n) of a sequence. */
double step_cost_pairs(int start, int n);
/* Most prefill tokens from `start` on that take no longer than so many seconds, at most `most`. */
int step_cost_tokens_within(const struct step_cost *, int start, double seconds, int most);

#endif
