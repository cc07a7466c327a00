/* engine_tasks.c: from logits to tokens, on the host, and how choices end. */
#include "engine_impl.h"

/* --- ends --- */

static void note_news(struct engine *e, struct request_run *run)
{
    if (run->has_news)
        return;
    run->has_news = true;
    run->next_news = e->news;
    e->news = run;
}

/* Marks it; release_finished takes it out of the scheduler, publish tells the loop. */
void engine_finish_choice(struct engine *e, struct choice_run *c, enum finish_reason reason)
{
    if (c->finish != FINISH_NONE)
        return;
    c->finish = reason;
    c->run->n_open--;
    note_news(e, c->run);
}

void engine_finish_run(struct engine *e, struct request_run *run, enum finish_reason reason)
{
    for (int i = 0; i < run->n_choices; i++)
        engine_finish_choice(e, &run->choices[i], reason);
}

void engine_fail_run(struct engine *e, struct request_run *run, const struct err *why)
{
    if (run->n_open > 0)
        run->request->error = *why;
    engine_finish_run(e, run, FINISH_ERROR);
}

/* --- from logits to tokens --- */

static void do_prompt_logprob(struct engine *e, struct task *t)
{
    struct request *r = t->run->request;
    const int k = r->params.n_prompt_logprobs, at = t->pos + 1;
    struct top_logprob *tops = r->prompt_tops ? r->prompt_tops + (size_t)at * (size_t)k : NULL;
    bool ok = sampling_logprobs(t->logits, e->info.spec.n_vocab, r->prompt[at], k,
                                &r->prompt_logprobs[at], tops);
    t->result = ok ? SAMPLING_OK : SAMPLING_BAD_NUMBERS;
}

static void do_draw(struct engine *e, struct task *t, struct sampling_scratch *scratch)
{
    struct choice_run *c = t->choice;
    const struct sampling_params *p = &t->run->request->params;
    struct choice *out = &t->run->request->choices[c->index];
    const struct sampling_input in = {
        .logits = t->logits,
        .n_vocab = e->info.spec.n_vocab,
        .params = p,
        .counts = choice_counts(c, e->info.spec.n_vocab),
        .eos = e->info.spec.eos,
        .n_eos = e->info.spec.n_eos,
        .n_generated = c->n_generated,
        .choice = c->index,
        .position = t->pos + 1,
    };
    t->result = sampling_draw(&in, scratch, &t->token);
    if (t->result != SAMPLING_OK || p->n_logprobs < 0)
        return;
    /* The entries behind n_tokens are not published yet: any lane may write its own. */
    size_t n = (size_t)c->n_generated, k = (size_t)p->n_logprobs;
    sampling_logprobs(t->logits, in.n_vocab, t->token, p->n_logprobs, &out->logprobs[n],
                      out->tops ? out->tops + n * k : NULL);
}

/* host_for's function: lanes claim tasks as they come free; a task's result does not depend on
 * the lane. */
static void do_tasks(void *arg, int lane)
{
    struct engine *e = arg;
    for (;;) {
        int i = atomic_fetch_add(&e->next_task, 1);
        if (i >= e->n_tasks)
            return;
        struct task *t = &e->tasks[i];
        if (t->choice)
            do_draw(e, t, e->scratch[lane]);
        else
            do_prompt_logprob(e, t);
    }
}

static bool ends_on(const struct engine *e, const struct choice_run *c, int32_t token)
{
    const struct sampling_params *p = &c->run->request->params;
    if (c->n_generated < p->min_tokens)
        return false;
    for (int i = 0; i < e->info.spec.n_eos && !p->ignore_eos; i++)
        if (token == e->info.spec.eos[i])
            return true;
    for (int i = 0; i < p->n_stop_ids; i++)
        if (token == p->stop_ids[i])
            return true;
    return false;
}

void engine_take_token(struct engine *e, struct choice_run *c, int32_t token)
{
    struct request *r = c->run->request;
    const struct sequence *s = c->seq;
    r->choices[c->index].tokens[c->n_generated++] = token;
    if (c->counts_own_tokens)
        sampling_count(c->counts, token);
    if (r->t_first_token == 0)
        r->t_first_token = engine_now();
    e->counted.generated_tokens++;
    note_news(e, c->run);
    if (ends_on(e, c, token)) {
        r->choices[c->index].stop_id = token;
        engine_finish_choice(e, c, FINISH_STOP);
    } else if (sequence_n_known(s) == s->max_tokens) {
        engine_finish_choice(e, c, FINISH_LENGTH);
    }
}

static void append_token(struct engine *e, struct choice_run *c, int32_t token)
{
    c->seq->tokens[c->seq->n_tokens++] = token;
    engine_take_token(e, c, token);
}

void engine_fail_draw(struct engine *e, struct request_run *run, enum sampling_result result)
{
    struct err why;
    if (result == SAMPLING_BAD_NUMBERS) {
        err_set(&why, ERR_DEVICE, "numerical_error");
        e->counted.corrupted_requests += run->n_open > 0;
        run->has_bad_numbers = true;
    } else {
        err_set(&why, ERR_INVALID, "logit_bias and stop tokens leave no token to draw");
    }
    engine_fail_run(e, run, &why);
}

static void apply_task(struct engine *e, const struct task *t)
{
    if (t->run->n_open == 0)
        return; /* failed by an earlier task of this step */
    if (t->result != SAMPLING_OK)
        engine_fail_draw(e, t->run, t->result);
    else if (t->choice)
        append_token(e, t->choice, t->token);
    else
        t->run->n_prompt_logprobs_done = t->pos + 1;
}

static void run_tasks(struct engine *e)
{
    if (e->n_tasks == 0)
        return;
    atomic_store(&e->next_task, 0);
    int lanes = e->n_tasks < e->n_lanes ? e->n_tasks : e->n_lanes;
    e->backend->ops->host_for(e->backend, do_tasks, e, lanes);
    for (int i = 0; i < e->n_tasks; i++)
        apply_task(e, &e->tasks[i]);
    e->n_tasks = 0;
}

static void add_task(struct engine *e, struct request_run *run, struct choice_run *c,
                     const float *logits, int pos)
{
    if (e->n_tasks == e->max_logits)
        run_tasks(e);
    e->tasks[e->n_tasks++] = (struct task){.run = run, .choice = c, .logits = logits, .pos = pos};
}

void engine_begin_choices(struct engine *e, struct request_run *run)
{
    run->prompt_done = true;
    e->counted.prompt_tokens += (uint64_t)run->request->n_prompt;
    run->choices[0].seq->skip_cache_reads = false;
    if (run->request->params.max_tokens == 0) {
        engine_finish_run(e, run, FINISH_LENGTH);
        return;
    }
    request_run_count_prompt(run, e->info.spec.n_vocab);
    for (int i = 0; i < run->n_choices; i++)
        if (atomic_load(&run->request->choices[i].stop_asked))
            engine_finish_choice(e, &run->choices[i], FINISH_STOP);
}

/* Every choice draws its first token from the row of the prompt's last. */
static void draw_first_tokens(struct engine *e, struct request_run *run, const float *logits,
                              int pos)
{
    engine_begin_choices(e, run);
    for (int i = 0; i < run->n_choices; i++)
        if (run->choices[i].finish == FINISH_NONE)
            add_task(e, run, &run->choices[i], logits, pos);
}

void engine_take_logits(struct engine *e, int first, int n)
{
    for (int i = 0; i < n; i++) {
        const struct logit_row *r = &e->rows[first + i];
        struct choice_run *c = r->seq->owner;
        const float *logits = model_logits(e->model, i);
        if (c->finish != FINISH_NONE)
            continue; /* by a step that finished after this one was planned */
        if (r->pos + 1 < r->seq->n_prompt)
            add_task(e, c->run, NULL, logits, r->pos);
        else if (!c->run->prompt_done)
            draw_first_tokens(e, c->run, logits, r->pos);
        else
            add_task(e, c->run, c, logits, r->pos);
    }
    run_tasks(e);
}
