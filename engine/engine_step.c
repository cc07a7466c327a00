/* engine_step.c: one iteration of the engine thread (see README.md, "One request"). */
#include "engine_impl.h"
#include "log.h"

#include <string.h>

/* --- ends --- */

static void release_finished(struct engine *e)
{
    for (struct request_run *run = e->news; run; run = run->next_news) {
        for (int i = 0; i < run->n_choices; i++) {
            struct choice_run *c = &run->choices[i];
            if (c->finish == FINISH_NONE)
                continue;
            engine_free_slot(e, c);
            if (!c->started || c->seq->state == SEQ_DONE)
                continue;
            /* Whichever page is to blame for bad numbers, nobody may find one again. */
            if (run->has_bad_numbers)
                scheduler_forget(e->scheduler, c->seq);
            scheduler_finish(e->scheduler, c->seq);
        }
    }
    engine_forget_ended(e);
}

/* --- mail --- */

static void admit(struct engine *e, struct request *r)
{
    struct request_run *run = r->run;
    list_push_back(&e->live, &run->link);
    for (int i = 0; i < run->n_choices; i++)
        run->choices[i].seq->arrival = e->n_arrivals++;
    if (atomic_load(&e->dead)) {
        engine_fail_run(e, run, &e->device_error);
    } else if (atomic_load(&r->cancel_asked)) {
        engine_finish_run(e, run, FINISH_CANCELLED);
    } else {
        run->choices[0].started = true;
        scheduler_add(e->scheduler, run->choices[0].seq);
    }
}

static void look_at_flags(struct engine *e, struct request_run *run)
{
    if (atomic_load(&run->request->cancel_asked))
        engine_finish_run(e, run, FINISH_CANCELLED);
    /* Before, the leader is still needed for the prompt: begin_choices looks again. */
    for (int i = 0; run->prompt_done && i < run->n_choices; i++)
        if (atomic_load(&run->request->choices[i].stop_asked))
            engine_finish_choice(e, &run->choices[i], FINISH_STOP);
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

void engine_fill_inputs(struct engine *e, const struct step_plan *plan, int first, int n_logits)
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

/* --- a step --- */

/* One pass is the whole forward; prompts whose every logit row is wanted may need more passes
 * over the last part, max_logits rows each. */
static bool run_passes(struct engine *e, const struct step_plan *plan, struct err *why)
{
    int first = 0;
    do {
        int n = e->n_rows - first < e->max_logits ? e->n_rows - first : e->max_logits;
        engine_fill_inputs(e, plan, first, n);
        if (first == 0)
            model_forward(e->model);
        else
            model_forward_logits(e->model);
        if (!e->backend->ops->submit(e->backend, why))
            return false;
        engine_take_logits(e, first, n);
        first += n;
    } while (first < e->n_rows);
    return true;
}

void engine_start_follower(struct engine *e, struct choice_run *c)
{
    c->started = true;
    choice_take_prompt(c);
    scheduler_fork(e->scheduler, c->run->choices[0].seq, c->seq);
}

static void start_followers(struct engine *e)
{
    for (struct request_run *run = e->news; run; run = run->next_news) {
        for (int i = 1; run->prompt_done && i < run->n_choices; i++) {
            struct choice_run *c = &run->choices[i];
            if (!c->started && c->finish == FINISH_NONE)
                engine_start_follower(e, c);
        }
    }
}

static void die(struct engine *e, const struct err *why)
{
    e->device_error = *why;
    err_prefix(&e->device_error, "the device failed");
    log_error("%s; nothing runs any more", e->device_error.msg);
    atomic_store(&e->dead, true);
    e->n_started = 0;
    for (struct list_node *n = list_first(&e->live); n; n = list_next(&e->live, n))
        engine_fail_run(e, list_entry(n, struct request_run, link), &e->device_error);
}

/* Runs the plan, and draws by the helpers. */
static bool run_now(struct engine *e, const struct step_plan *plan, struct err *why)
{
    const uint64_t n_tokens = (uint64_t)plan->n_tokens;
    const struct step_work work = plan->work;
    const double begin = engine_now();
    if (!run_passes(e, plan, why))
        return false;
    scheduler_commit(e->scheduler);
    e->finished = engine_now();
    if (e->n_rows <= e->max_logits) /* prompts' logits take passes of their own */
        step_cost_learn(&e->cost, &work, e->finished - begin);
    start_followers(e);
    e->counted.steps++;
    e->counted.computed_tokens += n_tokens;
    return true;
}

/* What the device can draw is started, and then the step before it finishes; anything else waits
 * until nothing else runs. */
static bool run_plan(struct engine *e, const struct step_plan *plan, struct err *why)
{
    prepare_pages(e, plan);
    list_logit_rows(e, plan);
    if (engine_can_start(e))
        return engine_start(e, plan, why) && engine_finish_until(e, MAX_STARTED - 1, why);
    return engine_finish_until(e, 0, why) && run_now(e, plan, why);
}

static bool run_step(struct engine *e)
{
    const struct step_plan *plan = scheduler_step(e->scheduler);
    struct err why;
    if (plan->n == 0 && e->n_started == 0)
        return false;
    if (!(plan->n > 0 ? run_plan(e, plan, &why) : engine_finish_until(e, 0, &why)))
        die(e, &why);
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
    struct err why;
    take_mail(e);
    if (!engine_finish_until(e, 0, &why))
        die(e, &why);
    for (struct list_node *n = list_first(&e->live); n; n = list_next(&e->live, n))
        engine_finish_run(e, list_entry(n, struct request_run, link), FINISH_CANCELLED);
    release_finished(e);
    publish(e);
}
