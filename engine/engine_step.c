/* engine_step.c: one iteration of the engine thread (see README.md, "One request"). */
#include "engine_impl.h"
#include "log.h"

#include <string.h>

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
static void finish_choice(struct engine *e, struct choice_run *c, enum finish_reason reason)
{
    if (c->finish != FINISH_NONE)
        return;
    c->finish = reason;
    c->run->n_open--;
    note_news(e, c->run);
}

static void finish_run(struct engine *e, struct request_run *run, enum finish_reason reason)
{
    for (int i = 0; i < run->n_choices; i++)
        finish_choice(e, &run->choices[i], reason);
}

static void fail_run(struct engine *e, struct request_run *run, const struct err *why)
{
    if (run->n_open > 0)
        run->request->error = *why;
    finish_run(e, run, FINISH_ERROR);
}

static void release_finished(struct engine *e)
{
    for (struct request_run *run = e->news; run; run = run->next_news) {
        for (int i = 0; i < run->n_choices; i++) {
            struct choice_run *c = &run->choices[i];
            if (c->finish == FINISH_NONE || !c->started || c->seq->state == SEQ_DONE)
                continue;
            /* Whichever page is to blame for bad numbers, nobody may find one again. */
            if (run->has_bad_numbers)
                scheduler_forget(e->scheduler, c->seq);
            scheduler_finish(e->scheduler, c->seq);
        }
    }
}

/* --- mail --- */

static void admit(struct engine *e, struct request *r)
{
    struct request_run *run = r->run;
    list_push_back(&e->live, &run->link);
    for (int i = 0; i < run->n_choices; i++)
        run->choices[i].seq->arrival = e->n_arrivals++;
    if (atomic_load(&e->dead)) {
        fail_run(e, run, &e->device_error);
    } else if (atomic_load(&r->cancel_asked)) {
        finish_run(e, run, FINISH_CANCELLED);
    } else {
        run->choices[0].started = true;
        scheduler_add(e->scheduler, run->choices[0].seq);
    }
}

static void look_at_flags(struct engine *e, struct request_run *run)
{
    if (atomic_load(&run->request->cancel_asked))
        finish_run(e, run, FINISH_CANCELLED);
    /* Before, the leader is still needed for the prompt: begin_choices looks again. */
    for (int i = 0; run->prompt_done && i < run->n_choices; i++)
        if (atomic_load(&run->request->choices[i].stop_asked))
            finish_choice(e, &run->choices[i], FINISH_STOP);
}

/* A cancellation is a flag and a ring: it finds its request here, or in admit when it overtook
 * the request. */
static void take_mail(struct engine *e)
{
    bool rung = mailbox_was_rung(&e->mail);
    for (struct request *r = mailbox_take(&e->mail), *next; r; r = next) {
        next = r->inbox_next;
        admit(e, r);
    }
    /* After the inbox: who asked before submitting is obeyed before that request looks pages up. */
    if (atomic_exchange(&e->reset_asked, false))
        prefix_cache_reset(e->cache);
    for (struct list_node *n = list_first(&e->live); rung && n; n = list_next(&e->live, n))
        look_at_flags(e, list_entry(n, struct request_run, link));
}

/* --- the batch --- */

static bool wants_prompt_logprob(const struct engine *e, const struct choice_run *c, int pos)
{
    const struct request_run *run = c->run;
    return c->index == 0 && run->request->params.n_prompt_logprobs >= 0 &&
           pos + 1 < c->seq->n_prompt && pos >= run->n_prompt_logprobs_done;
}

static void list_logit_rows(struct engine *e, const struct step_plan *plan)
{
    int row = 0;
    e->n_rows = 0;
    for (int i = 0; i < plan->n; i++) {
        const struct scheduled *s = &plan->rows[i];
        const struct choice_run *c = s->seq->owner;
        for (int j = 0; j < s->n; j++, row++) {
            bool last = s->wants_logits && j == s->n - 1;
            if (last || wants_prompt_logprob(e, c, s->start + j))
                e->rows[e->n_rows++] = (struct logit_row){row, s->start + j, s->seq};
        }
        if (c->run->request->t_scheduled == 0)
            c->run->request->t_scheduled = engine_now();
    }
}

static void prepare_pages(struct engine *e, const struct step_plan *plan)
{
    const struct backend_ops *ops = e->backend->ops;
    const int block = e->config.block_size;
    for (int i = 0; i < plan->n_copies; i++)
        ops->page_copy(e->backend, plan->copies[i].src, plan->copies[i].dst);
    for (int i = 0; e->config.check_pages && i < plan->n; i++) {
        const struct sequence *s = plan->rows[i].seq;
        for (int p = (plan->rows[i].start + block - 1) / block; p < s->n_pages; p++)
            ops->page_fill(e->backend, s->pages[p], 0xFF);
    }
}

static void fill_rows(struct engine *e, const struct scheduled *s, int row, struct step_inputs *in)
{
    const struct sequence *seq = s->seq;
    const int block = e->config.block_size;
    for (int j = 0; j < s->n; j++) {
        int pos = s->start + j;
        in->ids[row + j] = seq->tokens[pos];
        in->positions[row + j] = pos;
        in->kv_slots[row + j] = seq->pages[pos / block] * block + pos % block;
        in->adapters[row + j] = -1;
    }
}

/* Logit rows [first, first + n_logits) of e->rows are wanted in this pass. */
static void fill_inputs(struct engine *e, const struct step_plan *plan, int first, int n_logits)
{
    struct step_inputs *in = e->backend->ops->step_begin(e->backend);
    const size_t stride = (size_t)e->max_pages;
    int row = 0;
    for (int i = 0; i < plan->n; i++) {
        const struct scheduled *s = &plan->rows[i];
        in->seqs[i] = (struct step_seq){row, s->n, s->start};
        memcpy(in->page_tables + (size_t)i * stride, s->seq->pages,
               (size_t)s->seq->n_pages * sizeof *in->page_tables);
        fill_rows(e, s, row, in);
        row += s->n;
    }
    for (int i = 0; i < n_logits; i++)
        in->logit_rows[i] = e->rows[first + i].row;
    in->n_rows = row;
    in->n_seqs = plan->n;
    in->n_logits = n_logits;
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

static void append_token(struct engine *e, struct choice_run *c, int32_t token)
{
    struct request *r = c->run->request;
    struct sequence *s = c->seq;
    s->tokens[s->n_tokens++] = token;
    r->choices[c->index].tokens[c->n_generated++] = token;
    if (c->counts_own_tokens)
        sampling_count(c->counts, token);
    if (r->t_first_token == 0)
        r->t_first_token = engine_now();
    e->counted.generated_tokens++;
    note_news(e, c->run);
    if (ends_on(e, c, token)) {
        r->choices[c->index].stop_id = token;
        finish_choice(e, c, FINISH_STOP);
    } else if (s->n_tokens == s->max_tokens) {
        finish_choice(e, c, FINISH_LENGTH);
    }
}

static void fail_task(struct engine *e, const struct task *t)
{
    struct err why;
    if (t->result == SAMPLING_BAD_NUMBERS) {
        err_set(&why, ERR_DEVICE, "numerical_error");
        e->counted.corrupted_requests += t->run->n_open > 0;
        t->run->has_bad_numbers = true;
    } else {
        err_set(&why, ERR_INVALID, "logit_bias and stop tokens leave no token to draw");
    }
    fail_run(e, t->run, &why);
}

static void apply_task(struct engine *e, const struct task *t)
{
    if (t->run->n_open == 0)
        return; /* failed by an earlier task of this step */
    if (t->result != SAMPLING_OK)
        fail_task(e, t);
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

/* The leader has the logits of the prompt's last token: every choice draws its first token
 * from that row. */
static void begin_choices(struct engine *e, struct request_run *run, const float *logits, int pos)
{
    run->prompt_done = true;
    e->counted.prompt_tokens += (uint64_t)run->request->n_prompt;
    run->choices[0].seq->skip_cache_reads = false;
    if (run->request->params.max_tokens == 0) {
        finish_run(e, run, FINISH_LENGTH);
        return;
    }
    request_run_count_prompt(run, e->info.spec.n_vocab);
    for (int i = 0; i < run->n_choices; i++) {
        if (atomic_load(&run->request->choices[i].stop_asked))
            finish_choice(e, &run->choices[i], FINISH_STOP);
        else
            add_task(e, run, &run->choices[i], logits, pos);
    }
}

/* The pass's logits: rows [first, first + n) of e->rows. */
static void take_logits(struct engine *e, int first, int n)
{
    for (int i = 0; i < n; i++) {
        const struct logit_row *r = &e->rows[first + i];
        struct choice_run *c = r->seq->owner;
        const float *logits = model_logits(e->model, i);
        if (r->pos + 1 < r->seq->n_prompt)
            add_task(e, c->run, NULL, logits, r->pos);
        else if (!c->run->prompt_done)
            begin_choices(e, c->run, logits, r->pos);
        else
            add_task(e, c->run, c, logits, r->pos);
    }
    run_tasks(e);
}

/* --- a step --- */

/* One pass is the whole forward; prompts whose every logit row is wanted may need more passes
 * over the last part, max_logits rows each. */
static bool run_passes(struct engine *e, const struct step_plan *plan, struct err *why)
{
    int first = 0;
    do {
        int n = e->n_rows - first < e->max_logits ? e->n_rows - first : e->max_logits;
        fill_inputs(e, plan, first, n);
        if (first == 0)
            model_forward(e->model);
        else
            model_forward_logits(e->model);
        if (!e->backend->ops->submit(e->backend, why))
            return false;
        take_logits(e, first, n);
        first += n;
    } while (first < e->n_rows);
    return true;
}

/* The prompt's pages are computed and committed: the other choices go on from there. */
static void start_followers(struct engine *e)
{
    for (struct request_run *run = e->news; run; run = run->next_news) {
        for (int i = 1; run->prompt_done && i < run->n_choices; i++) {
            struct choice_run *c = &run->choices[i];
            if (c->started || c->finish != FINISH_NONE)
                continue;
            c->started = true;
            choice_take_prompt(c);
            scheduler_fork(e->scheduler, run->choices[0].seq, c->seq);
        }
    }
}

static void die(struct engine *e, const struct err *why)
{
    e->device_error = *why;
    err_prefix(&e->device_error, "the device failed");
    log_error("%s; nothing runs any more", e->device_error.msg);
    atomic_store(&e->dead, true);
    for (struct list_node *n = list_first(&e->live); n; n = list_next(&e->live, n))
        fail_run(e, list_entry(n, struct request_run, link), &e->device_error);
}

static bool run_step(struct engine *e)
{
    const struct step_plan *plan = scheduler_step(e->scheduler);
    struct err why;
    if (plan->n == 0)
        return false;
    const uint64_t n_tokens = (uint64_t)plan->n_tokens;
    const struct step_work work = plan->work;
    const double begin = engine_now();
    prepare_pages(e, plan);
    list_logit_rows(e, plan);
    if (!run_passes(e, plan, &why)) {
        die(e, &why);
        return true;
    }
    scheduler_commit(e->scheduler);
    if (e->n_rows <= e->max_logits) /* prompts' logits take passes of their own */
        step_cost_learn(&e->cost, &work, engine_now() - begin);
    start_followers(e);
    e->counted.steps++;
    e->counted.computed_tokens += n_tokens;
    return true;
}

/* --- publication --- */

static void write_stats(struct engine *e)
{
    const struct scheduler_stats s = scheduler_get_stats(e->scheduler);
    struct engine_stats out = e->counted;
    out.n_waiting = s.n_waiting;
    out.n_running = s.n_running;
    out.pages_total = page_pool_total(e->pool);
    out.pages_free = page_pool_n_free(e->pool);
    out.pages_cached = page_pool_n_cached(e->pool);
    out.pages_in_use = page_pool_n_in_use(e->pool);
    out.pages_touched = page_pool_n_touched(e->pool);
    out.slots_in_use = s.slots_in_use;
    out.slots_written = s.slots_written;
    out.preemptions = s.preemptions;
    out.limited_steps = s.limited_steps;
    out.prefix_queried_tokens = s.prefix_queried_tokens;
    out.prefix_hit_tokens = s.prefix_hit_tokens;
    stats_write(&e->stats_box, &out);
}

/* True when the loop must be woken. The run is the submitter's when it has ended. */
static bool publish_run(struct engine *e, struct request_run *run)
{
    struct request *r = run->request;
    const int n_cached = run->choices[0].seq->n_cached;
    atomic_store_explicit(&r->n_cached, n_cached > 0 ? n_cached : 0, memory_order_relaxed);
    for (int i = 0; i < run->n_choices; i++) {
        const struct choice_run *c = &run->choices[i];
        atomic_store_explicit(&r->choices[i].n_tokens, c->n_generated, memory_order_release);
        atomic_store_explicit(&r->choices[i].finish, (int)c->finish, memory_order_release);
    }
    run->has_news = false;
    const bool ended = run->n_open == 0;
    if (ended) {
        r->t_ended = engine_now();
        list_remove(&run->link);
    }
    return mailbox_publish(&e->mail, r, ended);
}

static void publish(struct engine *e)
{
    bool must_wake = false;
    write_stats(e);
    for (struct request_run *run = e->news, *next; run; run = next) {
        next = run->next_news;
        must_wake |= publish_run(e, run);
    }
    e->news = NULL;
    if (must_wake && e->wake)
        e->wake(e->wake_arg);
}

bool engine_iterate(struct engine *e)
{
    take_mail(e);
    release_finished(e);
    bool ran = !atomic_load(&e->dead) && run_step(e);
    release_finished(e);
    publish(e);
    return ran;
}

void engine_end_all(struct engine *e)
{
    take_mail(e);
    for (struct list_node *n = list_first(&e->live); n; n = list_next(&e->live, n))
        finish_run(e, list_entry(n, struct request_run, link), FINISH_CANCELLED);
    release_finished(e);
    publish(e);
}
