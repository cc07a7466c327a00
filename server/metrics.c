#include "metrics.h"

static const double seconds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
                                 0.75,  1,     2.5,  5,    7.5,  10,   20,   40,  80,   160};
static const double token_gap[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
                                   0.2,   0.3,    0.4,   0.5,  0.75,  1,    2.5,   5,   10};
static const double long_seconds[] = {0.05, 0.1, 0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,
                                      10,   15,  20,  30,  40,  50, 60,  120, 240, 480};
static const double step_sizes[] = {1,   8,    16,   32,   64,   128,  256, 512,
                                    768, 1024, 1280, 1536, 2048, 4096, 8192};
static const double token_counts[] = {1,   2,    5,    10,   20,    50,    100,   200,
                                      500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
static const double few[] = {1, 2, 5, 10, 20};

#define WITH_BOUNDS(b) ((struct histogram){.bounds = (b), .n = (int)(sizeof(b) / sizeof *(b))})

void metrics_init(struct metrics *m)
{
    *m = (struct metrics){
        .ttft = WITH_BOUNDS(seconds),
        .itl = WITH_BOUNDS(token_gap),
        .e2e = WITH_BOUNDS(long_seconds),
        .queue = WITH_BOUNDS(long_seconds),
        .prefill = WITH_BOUNDS(long_seconds),
        .decode = WITH_BOUNDS(long_seconds),
        .inference = WITH_BOUNDS(long_seconds),
        .step_tokens = WITH_BOUNDS(step_sizes),
        .prompt_tokens = WITH_BOUNDS(token_counts),
        .generation_tokens = WITH_BOUNDS(token_counts),
        .n = WITH_BOUNDS(few),
        .max_tokens = WITH_BOUNDS(token_counts),
    };
}

static enum metric_end end_of(int finish)
{
    switch (finish) {
    case FINISH_STOP:
        return END_STOP;
    case FINISH_LENGTH:
        return END_LENGTH;
    case FINISH_ERROR:
        return END_ERROR;
    default:
        return END_ABORT;
    }
}

static void request_times(struct metrics *m, const struct request *r)
{
    histogram_add(&m->e2e, r->t_ended - r->t_submitted, 1);
    if (r->t_scheduled <= 0)
        return; /* it left the queue only by being cancelled */
    histogram_add(&m->queue, r->t_scheduled - r->t_submitted, 1);
    histogram_add(&m->inference, r->t_ended - r->t_scheduled, 1);
    if (r->t_first_token <= 0)
        return;
    histogram_add(&m->prefill, r->t_first_token - r->t_scheduled, 1);
    histogram_add(&m->decode, r->t_ended - r->t_first_token, 1);
}

void metrics_request(struct metrics *m, const struct request *r)
{
    for (int i = 0; i < r->n_choices; i++) {
        m->ends[end_of(atomic_load(&r->choices[i].finish))]++;
        histogram_add(&m->generation_tokens, atomic_load(&r->choices[i].n_tokens), 1);
    }
    histogram_add(&m->prompt_tokens, r->n_prompt, 1);
    histogram_add(&m->n, r->n_choices, 1);
    histogram_add(&m->max_tokens, r->params.max_tokens, 1);
    request_times(m, r);
}

void metrics_steps(struct metrics *m, const struct engine_stats *s)
{
    uint64_t steps = s->steps - m->last.steps;
    uint64_t tokens = s->computed_tokens - m->last.computed_tokens;
    if (steps > 0)
        histogram_add(&m->step_tokens, (double)tokens / (double)steps, steps);
    m->last = *s;
}
