/* engine_ahead.c: steps whose tokens the device draws, started before the last one has finished
 * (README.md, "Steps ahead"). */
#include "engine_impl.h"

#include "check.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(SAMPLING_MAX_STOP_IDS + MODEL_MAX_EOS <= DRAW_MAX_BANNED, "tokens never drawn");

/* --- opening --- */

static bool take_arrays(struct engine *e, int n_slots)
{
    const size_t n = (size_t)e->max_draws;
    for (int i = 0; i < MAX_STARTED; i++)
        if (!(e->started[i].choices = calloc(n, sizeof(struct choice_run *))))
            return false;
    e->draws = calloc(n, sizeof *e->draws);
    e->free_slots = calloc((size_t)n_slots + 1, sizeof *e->free_slots);
    return e->draws && e->free_slots;
}

bool engine_ahead_open(struct engine *e, struct err *err)
{
    const struct backend_ops *ops = e->backend->ops;
    const int n_vocab = e->info.spec.n_vocab;
    if (!e->config.async_scheduling || !ops->sampler_open)
        return true;
    const int fit = COUNT_SLOT_BYTES / (n_vocab * (int)sizeof(uint16_t));
    const int n_slots = fit < e->config.max_num_seqs ? fit : e->config.max_num_seqs;
    const struct sampler_config c = {n_vocab, e->max_logits, n_slots};
    e->max_draws = c.max_draws;
    if (!take_arrays(e, n_slots))
        return err_set(err, ERR_MEMORY, "no memory for the sampler");
    for (int i = 0; i < n_slots; i++)
        e->free_slots[e->n_free_slots++] = i;
    return ops->sampler_open(e->backend, &c, err);
}

void engine_ahead_close(struct engine *e)
{
    for (int i = 0; i < MAX_STARTED; i++)
        free(e->started[i].choices);
    free(e->draws);
    free(e->free_slots);
}

/* --- which steps --- */

/* Draws that a row of logits is wanted for; -1: the device cannot do it. */
static int n_draws_of(const struct logit_row *r, int *n_new_slots)
{
    const struct choice_run *c = r->seq->owner;
    const struct request_run *run = c->run;
    const struct sampling_params *p = &run->request->params;
    const int n = run->prompt_done ? 1 : run->n_choices;
    if (r->pos + 1 < r->seq->n_prompt || p->max_tokens == 0 || p->n_bias > DRAW_MAX_BIAS)
        return -1;
    if (sampling_wants_counts(p) && c->slot < 0)
        *n_new_slots += n;
    return n;
}

bool engine_can_start(const struct engine *e)
{
    int n_draws = 0, n_new_slots = 0;
    for (int i = 0; i < e->n_rows && e->max_draws > 0; i++) {
        const int n = n_draws_of(&e->rows[i], &n_new_slots);
        if (n < 0)
            return false;
        n_draws += n;
    }
    return e->max_draws > 0 && n_draws <= e->max_draws && n_new_slots <= e->n_free_slots;
}

/* --- draws --- */

/* The slot goes on with what it has unless the host drew meanwhile: then all tokens are known. */
static void use_counts(struct engine *e, struct choice_run *c, int n_drawn, struct draw *d)
{
    if (c->slot < 0) {
        c->slot = e->free_slots[--e->n_free_slots];
        c->n_counted = -1;
    }
    d->counts = c->slot;
    if (c->n_counted != n_drawn) {
        CHECK(c->n_generated == n_drawn);
        d->counts_before = choice_counts(c, e->info.spec.n_vocab);
    }
    c->n_counted = n_drawn + 1;
}

static void add_draw(struct engine *e, struct started *step, struct choice_run *c, int logit,
                     int pos)
{
    const struct sampling_params *p = &c->run->request->params;
    const int n_drawn = c->n_generated + c->seq->n_pending;
    struct draw *d = &e->draws[step->n_draws];
    *d = (struct draw){
        .logit = logit,
        .n_logprobs = p->n_logprobs,
        .temperature = p->temperature,
        .top_k = p->top_k,
        .top_p = p->top_p,
        .min_p = p->min_p,
        .presence_penalty = p->presence_penalty,
        .frequency_penalty = p->frequency_penalty,
        .repetition_penalty = p->repetition_penalty,
        .seed = p->seed,
        .choice = c->index,
        .position = pos + 1,
        .bias = p->bias,
        .n_bias = p->n_bias,
        .counts = -1,
    };
    if (n_drawn < p->min_tokens) {
        d->banned[0].ids = p->stop_ids;
        d->banned[0].n = p->n_stop_ids;
        d->banned[1].ids = e->info.spec.eos;
        d->banned[1].n = p->ignore_eos ? 0 : e->info.spec.n_eos;
    }
    if (sampling_wants_counts(p))
        use_counts(e, c, n_drawn, d);
    sequence_append_pending(c->seq, step->n_draws);
    step->choices[step->n_draws++] = c;
}

/* From the row of the prompt's last token every choice draws its first. */
static void add_first_draws(struct engine *e, struct started *step, struct request_run *run,
                            int logit, int pos)
{
    engine_begin_choices(e, run);
    for (int i = 0; i < run->n_choices; i++)
        if (run->choices[i].finish == FINISH_NONE)
            add_draw(e, step, &run->choices[i], logit, pos);
}

static void add_draws(struct engine *e, struct started *step)
{
    step->n_draws = 0;
    for (int i = 0; i < e->n_rows; i++) {
        struct choice_run *c = e->rows[i].seq->owner;
        if (c->run->prompt_done)
            add_draw(e, step, c, i, e->rows[i].pos);
        else
            add_first_draws(e, step, c->run, i, e->rows[i].pos);
    }
}

/* --- starting --- */

bool engine_start(struct engine *e, const struct step_plan *plan, struct err *why)
{
    struct started *step = &e->started[e->n_started++];
    CHECK(e->n_started <= MAX_STARTED);
    step->begin = engine_now();
    step->work = plan->work;
    step->n_tokens = plan->n_tokens;
    engine_fill_inputs(e, plan, 0, e->n_rows);
    add_draws(e, step);
    model_forward(e->model);
    if (step->n_draws > 0)
        model_sample(e->model, e->draws, step->n_draws);
    if (!e->backend->ops->start(e->backend, why))
        return false;
    scheduler_commit(e->scheduler);
    for (int k = 0; k < step->n_draws; k++)
        if (!step->choices[k]->started)
            engine_start_follower(e, step->choices[k]);
    return true;
}

/* --- finishing --- */

static void take_drawn(struct engine *e, struct choice_run *c, const struct drawn *d)
{
    const int k = c->run->request->params.n_logprobs;
    struct choice *out = &c->run->request->choices[c->index];
    const size_t n = (size_t)c->n_generated;
    if (c->finish != FINISH_NONE)
        return; /* its request failed by another draw of this step */
    if (d->result != SAMPLING_OK) {
        engine_fail_draw(e, c->run, d->result);
        return;
    }
    if (k >= 0)
        out->logprobs[n] = d->logprob;
    if (k > 0)
        memcpy(out->tops + n * (size_t)k, d->tops, (size_t)k * sizeof *out->tops);
    scheduler_settle(e->scheduler, c->seq, d->id);
    engine_take_token(e, c, d->id);
}

static bool finish_one(struct engine *e, struct err *why)
{
    const struct drawn *drawn;
    struct started step = e->started[0];
    if (!e->backend->ops->finish(e->backend, &drawn, why))
        return false;
    const double now = engine_now();
    for (int k = 0; k < step.n_draws; k++)
        if (step.choices[k])
            take_drawn(e, step.choices[k], &drawn[k]);
    /* It ran from the end of the one before on. */
    step_cost_learn(&e->cost, &step.work,
                    now - (step.begin > e->finished ? step.begin : e->finished));
    e->finished = now;
    e->counted.steps++;
    e->counted.computed_tokens += (uint64_t)step.n_tokens;
    e->n_started--;
    memmove(e->started, e->started + 1, (MAX_STARTED - 1) * sizeof *e->started);
    e->started[MAX_STARTED - 1] = step; /* its array */
    return true;
}

bool engine_finish_until(struct engine *e, int n_left, struct err *why)
{
    while (e->n_started > n_left)
        if (!finish_one(e, why))
            return false;
    return true;
}

void engine_forget_ended(struct engine *e)
{
    for (int i = 0; i < e->n_started; i++) {
        struct started *step = &e->started[i];
        for (int k = 0; k < step->n_draws; k++)
            if (step->choices[k] && step->choices[k]->finish != FINISH_NONE)
                step->choices[k] = NULL;
    }
}

void engine_free_slot(struct engine *e, struct choice_run *c)
{
    if (c->slot >= 0)
        e->free_slots[e->n_free_slots++] = c->slot;
    c->slot = -1;
}
