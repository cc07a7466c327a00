#include "scheduler.h"

#include "check.h"
#include "page_claims.h"

/* What admission would find: pages, those of them that nobody uses now, and the last one. */
struct found {
    int n_pages, n_unused;
    prefix_node node;
};

struct scheduler {
    struct scheduler_config cfg;
    struct page_pool *pool;
    struct prefix_cache *cache;
    struct list waiting, running; /* both ordered by runs_before */
    int n_waiting, n_running;
    uint64_t next_serial;
    struct scheduler_stats stats; /* the counters only */

    /* the step that is put together or under way */
    struct scheduled *rows;    /* [max_seqs] */
    struct page_copy *copies;  /* [max_seqs]; each holds a reference on its src until commit */
    struct sequence **copiers; /* [max_seqs] whose write needed the copy */
    struct step_plan plan;
    int n_rows, n_copies; /* while put together: rows of preempted sequences are holes */
    int budget;           /* tokens left */
    struct step_work work;
    double target; /* the tightest of the step's decode rows, 0: none */
    bool limited;
    bool preempted;
    struct page_claims *claims;

    /* The last look-up of who waits first, which is asked for at every step until there are pages;
     * valid while the cache has its version and the sequence waits. */
    struct {
        bool valid;
        uint64_t serial, version;
        struct found found;
    } looked_up;

    int32_t *counts; /* [pages] scratch of the recounts, zero in between */
};

/* --- open and close --- */

static bool take_memory(struct scheduler *s)
{
    size_t n = (size_t)s->cfg.max_seqs;
    s->rows = calloc(n, sizeof *s->rows);
    s->copies = calloc(n, sizeof *s->copies);
    s->copiers = calloc(n, sizeof *s->copiers);
    s->counts = calloc((size_t)page_pool_total(s->pool), sizeof *s->counts);
    s->claims = page_claims_open(s->cache, s->cfg.block_size, s->cfg.max_seqs);
    return s->rows && s->copies && s->copiers && s->counts && s->claims;
}

struct scheduler *scheduler_open(const struct scheduler_config *cfg, struct page_pool *pool,
                                 struct prefix_cache *cache, struct err *e)
{
    if (cfg->block_size < 1 || cfg->max_seqs < 1 || cfg->max_step_tokens < cfg->max_seqs) {
        err_set(e, ERR_INVALID,
                "scheduler: %d tokens a step for %d sequences in pages of %d tokens: "
                "all must be at least 1, and a step needs a token for each sequence",
                cfg->max_step_tokens, cfg->max_seqs, cfg->block_size);
        return NULL;
    }
    struct scheduler *s = calloc(1, sizeof *s);
    if (s) {
        s->cfg = *cfg;
        s->pool = pool;
        s->cache = cache;
        list_init(&s->waiting);
        list_init(&s->running);
    }
    if (!s || !take_memory(s)) {
        err_set(e, ERR_MEMORY, "scheduler for %d sequences: out of memory", cfg->max_seqs);
        scheduler_free(s);
        return NULL;
    }
    return s;
}

void scheduler_free(struct scheduler *s)
{
    if (!s)
        return;
    CHECK(s->n_waiting == 0 && s->n_running == 0);
    free(s->rows);
    free(s->copies);
    free(s->copiers);
    free(s->counts);
    page_claims_free(s->claims);
    free(s);
}

/* --- order and queues --- */

static struct sequence *seq_of(const struct list_node *n)
{
    return n ? list_entry(n, struct sequence, link) : NULL;
}

static bool runs_before(const struct sequence *a, const struct sequence *b)
{
    if (a->priority != b->priority)
        return a->priority < b->priority;
    return a->arrival != b->arrival ? a->arrival < b->arrival : a->serial < b->serial;
}

/* From the back, where newcomers belong; the preempted belong to the front. */
static void insert_ordered(struct list *l, struct sequence *seq)
{
    struct list_node *at = list_first(l);
    if (at && runs_before(seq, seq_of(at))) {
        list_push_front(l, &seq->link);
        return;
    }
    for (at = list_last(l); at && runs_before(seq, seq_of(at));)
        at = list_prev(l, at);
    list_insert_before(at ? at->next : l->head.next, &seq->link);
}

static void enqueue(struct scheduler *s, struct sequence *seq)
{
    sequence_set_state(seq, SEQ_WAITING);
    if (s->looked_up.serial == seq->serial)
        s->looked_up.valid = false; /* it may have more tokens by now */
    insert_ordered(&s->waiting, seq);
    s->n_waiting++;
}

static void start_running(struct scheduler *s, struct sequence *seq)
{
    sequence_set_state(seq, SEQ_RUNNING);
    insert_ordered(&s->running, seq);
    s->n_running++;
}

/* --- pages --- */

static int pages_for(const struct scheduler *s, int n_tokens)
{
    return (n_tokens + s->cfg.block_size - 1) / s->cfg.block_size;
}

static void release_pages(struct scheduler *s, struct sequence *seq)
{
    while (seq->n_pages > 0)
        page_pool_unref(s->pool, seq->pages[--seq->n_pages]);
    seq->n_computed = 0;
    seq->n_entered = 0;
    seq->node = PREFIX_ROOT;
}

/* Sequences that name the page. */
static int n_owners(const struct scheduler *s, int32_t page)
{
    int n = page_pool_refs(s->pool, page);
    for (int i = 0; i < s->n_copies; i++)
        n -= s->copies[i].src == page;
    return n;
}

/* A row comes into the step (sign 1), or leaves it (-1). */
static void account(struct scheduler *s, const struct scheduled *row, int sign)
{
    *(row->n == 1 ? &s->work.decode_rows : &s->work.prefill_tokens) += sign * row->n;
    s->work.pairs += sign * step_cost_pairs(row->start, row->n);
    s->budget -= sign * row->n;
}

static void unplan(struct scheduler *s, struct sequence *seq)
{
    if (seq->row < 0)
        return;
    struct scheduled *row = &s->rows[seq->row];
    account(s, row, -1);
    row->seq = NULL;
    seq->row = -1;
    for (int i = 0; i < s->n_copies; i++) {
        if (s->copiers[i] != seq)
            continue;
        page_pool_unref(s->pool, s->copies[i].src);
        s->copies[i] = s->copies[--s->n_copies];
        s->copiers[i] = s->copiers[s->n_copies];
        return; /* a sequence writes to one partly filled page a step */
    }
}

static void preempt(struct scheduler *s, struct sequence *seq)
{
    unplan(s, seq);
    list_remove(&seq->link);
    s->n_running--;
    release_pages(s, seq);
    seq->blocked_on_prefix = false;
    seq->n_preemptions++;
    s->stats.preemptions++;
    s->preempted = true;
    enqueue(s, seq);
}

/* Preempts the last running sequence that comes after `needer` and has pages to give. */
static bool preempt_below(struct scheduler *s, const struct sequence *needer)
{
    for (struct list_node *at = list_last(&s->running); at; at = list_prev(&s->running, at)) {
        struct sequence *seq = seq_of(at);
        if (!runs_before(needer, seq))
            return false;
        if (seq->n_pages > 0) {
            preempt(s, seq);
            return true;
        }
    }
    return false;
}

/* Whether a cached page is to be given up before the pool's next page is taken: there is none, or
 * it was never used while enough are cached. */
static bool should_reclaim(const struct scheduler *s)
{
    const struct page_pool *p = s->pool;
    const int n_cached = page_pool_n_cached(p);
    if (page_pool_n_free(p) == 0)
        return true;
    return n_cached > s->cfg.max_cached_pages &&
           page_pool_n_touched(p) == page_pool_n_in_use(p) + n_cached;
}

static int32_t take_unused_page(struct scheduler *s)
{
    if (should_reclaim(s))
        prefix_cache_reclaim(s->cache);
    return page_pool_take(s->pool);
}

/* A page that nobody uses, or that somebody below `needer` has to give up; -1: none. */
static int32_t take_page(struct scheduler *s, const struct sequence *needer)
{
    int32_t page;
    while ((page = take_unused_page(s)) < 0 && preempt_below(s, needer))
        ;
    return page;
}

/* Makes the page of the next token the sequence's own if others name it too. The last owner
 * keeps it; the sequence's reference on the others' page passes to the copy. */
static bool own_next_page(struct scheduler *s, struct sequence *seq)
{
    int k = seq->n_computed / s->cfg.block_size;
    if (k >= seq->n_pages)
        return true;
    while (n_owners(s, seq->pages[k]) > 1) {
        int32_t page = take_unused_page(s);
        if (page >= 0) {
            s->copies[s->n_copies] = (struct page_copy){seq->pages[k], page};
            s->copiers[s->n_copies++] = seq;
            seq->pages[k] = page;
            return true;
        }
        if (!preempt_below(s, seq))
            return false;
    }
    return true;
}

/* Takes pages for the next n tokens; returns for how many there are some. */
static int take_pages(struct scheduler *s, struct sequence *seq, int n)
{
    int block = s->cfg.block_size, end = seq->n_computed + n;
    if (!own_next_page(s, seq))
        return 0;
    while (seq->n_pages * block < end) {
        int32_t page = take_page(s, seq);
        if (page < 0)
            return seq->n_pages * block - seq->n_computed;
        seq->pages[seq->n_pages++] = page;
    }
    return n;
}

/* --- the prefix cache --- */

static bool reads_cache(const struct scheduler *s, const struct sequence *seq)
{
    return s->cfg.prefix_caching && !seq->skip_cache_reads;
}

static const int32_t *page_tokens(const struct scheduler *s, const struct sequence *seq, int k)
{
    return seq->tokens + k * s->cfg.block_size;
}

/* A page that ends with the last known token is computed all the same, for the logits. */
static bool can_adopt(const struct scheduler *s, const struct sequence *seq, int k)
{
    const int end = (k + 1) * s->cfg.block_size;
    return reads_cache(s, seq) && end < seq->n_tokens && end <= sequence_n_known(seq);
}

/* Takes the page over from the cache that follows those entered, instead of a page of the
 * sequence's own that it may have begun. */
static bool adopt_page(struct scheduler *s, struct sequence *seq)
{
    int k = seq->n_entered;
    if (!can_adopt(s, seq, k))
        return false;
    prefix_node node = prefix_cache_find(s->cache, seq->node, seq->key, page_tokens(s, seq, k));
    if (node == PREFIX_NONE)
        return false;
    int32_t page = prefix_cache_use(s->cache, node);
    if (k < seq->n_pages)
        page_pool_unref(s->pool, seq->pages[k]);
    else
        seq->n_pages++;
    seq->pages[k] = page;
    seq->node = node;
    seq->n_entered++;
    return true;
}

static void adopt_pages(struct scheduler *s, struct sequence *seq)
{
    while (adopt_page(s, seq))
        ;
    int gained = seq->n_entered * s->cfg.block_size - seq->n_computed;
    if (gained <= 0)
        return;
    seq->n_computed += gained;
    if (seq->n_preemptions > 0)
        return;
    seq->n_cached += gained;
    s->stats.prefix_hit_tokens += (uint64_t)gained;
}

static struct found look_up(const struct scheduler *s, const struct sequence *seq)
{
    struct found f = {.node = PREFIX_ROOT};
    while (can_adopt(s, seq, f.n_pages)) {
        prefix_node next =
            prefix_cache_find(s->cache, f.node, seq->key, page_tokens(s, seq, f.n_pages));
        if (next == PREFIX_NONE)
            break;
        f.n_unused += page_pool_refs(s->pool, prefix_cache_page(s->cache, next)) == 0;
        f.node = next;
        f.n_pages++;
    }
    return f;
}

static struct found look_up_again(struct scheduler *s, const struct sequence *seq)
{
    uint64_t version = prefix_cache_version(s->cache);
    if (!s->looked_up.valid || s->looked_up.serial != seq->serial ||
        s->looked_up.version != version) {
        s->looked_up.found = look_up(s, seq);
        s->looked_up.serial = seq->serial;
        s->looked_up.version = version;
        s->looked_up.valid = true;
    }
    return s->looked_up.found;
}

static bool next_page_is_claimed(const struct scheduler *s, const struct sequence *seq)
{
    int k = seq->n_entered;
    return can_adopt(s, seq, k) &&
           page_claims_has(s->claims, seq->node, seq->key, page_tokens(s, seq, k));
}

static void claim_next_page(struct scheduler *s, const struct sequence *seq)
{
    int k = seq->n_entered;
    if (s->cfg.prefix_caching && (k + 1) * s->cfg.block_size <= sequence_n_known(seq))
        page_claims_add(s->claims, seq->node, seq->key, page_tokens(s, seq, k));
}

/* Tokens that are computed and known */
static int n_enterable(const struct sequence *seq)
{
    const int known = sequence_n_known(seq);
    return seq->n_computed < known ? seq->n_computed : known;
}

/* Enters what is full by now. Where somebody else has entered an equal page, the sequence
 * changes over to that one: no page is kept twice, and a sequence references its whole path,
 * as the cache wishes. */
static void enter_pages(struct scheduler *s, struct sequence *seq)
{
    while (s->cfg.prefix_caching && (seq->n_entered + 1) * s->cfg.block_size <= n_enterable(seq)) {
        int k = seq->n_entered++;
        int32_t own = seq->pages[k];
        seq->node = prefix_cache_insert(s->cache, seq->node, seq->key, page_tokens(s, seq, k), own);
        if (prefix_cache_page(s->cache, seq->node) == own)
            continue;
        seq->pages[k] = prefix_cache_use(s->cache, seq->node);
        page_pool_unref(s->pool, own);
    }
}

/* --- a step --- */

/* Its last token is on its way, and nothing comes after that. */
static bool is_held(const struct sequence *seq)
{
    return seq->n_pending > 0 && seq->n_tokens == seq->max_tokens;
}

/* Tokens to compute */
static int gap_of(const struct sequence *seq)
{
    return is_held(seq) ? 0 : seq->n_tokens - seq->n_computed;
}

static void plan_row(struct scheduler *s, struct sequence *seq, int n)
{
    int start = seq->n_computed;
    CHECK(seq->n_pending <= 1);
    seq->row = s->n_rows++;
    s->rows[seq->row] = (struct scheduled){seq, start, n, start + n == seq->n_tokens};
    account(s, &s->rows[seq->row], 1);
}

/* Prefill tokens of `seq` from n_computed on that the budget and the target leave */
static int prefill_room(struct scheduler *s, const struct sequence *seq)
{
    const int most = gap_of(seq) < s->budget ? gap_of(seq) : s->budget;
    if (s->target <= 0 || !s->cfg.cost)
        return most;
    const double left = s->target - step_cost_seconds(s->cfg.cost, &s->work);
    int n = step_cost_tokens_within(s->cfg.cost, seq->n_computed, left, most);
    if (n < LEAST_PREFILL && n < most)
        n = s->work.prefill_tokens > 0 ? 0 : most < LEAST_PREFILL ? most : LEAST_PREFILL;
    s->limited |= n < most;
    return n;
}

static void schedule_decodes(struct scheduler *s)
{
    /* Victims come after the needer, so `at` itself stays in the list. */
    for (struct list_node *at = list_first(&s->running); at; at = list_next(&s->running, at)) {
        struct sequence *seq = seq_of(at);
        seq->blocked_on_prefix = false;
        if (gap_of(seq) != 1 || take_pages(s, seq, 1) != 1)
            continue;
        plan_row(s, seq, 1);
        if (seq->target_itl > 0 && (s->target == 0 || seq->target_itl < s->target))
            s->target = seq->target_itl;
    }
}

static void schedule_prefill(struct scheduler *s, struct sequence *seq)
{
    adopt_pages(s, seq);
    seq->blocked_on_prefix = next_page_is_claimed(s, seq);
    if (seq->blocked_on_prefix)
        return;
    int n = prefill_room(s, seq);
    n = n > 0 ? take_pages(s, seq, n) : 0;
    if (n == 0)
        return;
    plan_row(s, seq, n);
    claim_next_page(s, seq);
}

static void schedule_prefills(struct scheduler *s)
{
    for (struct list_node *at = list_first(&s->running); at && s->budget > 0;
         at = list_next(&s->running, at)) {
        if (gap_of(seq_of(at)) > 1)
            schedule_prefill(s, seq_of(at));
    }
}

/* Pages kept for a sequence's next tokens when others are admitted. */
static int reserve_for(const struct sequence *seq, int n_pages)
{
    return n_pages < seq->max_pages;
}

/* True when nothing runs: then all pages are unused, and every sequence fits alone. */
static bool has_room(struct scheduler *s, const struct sequence *seq)
{
    int room = page_pool_n_free(s->pool) + page_pool_n_cached(s->pool);
    for (struct list_node *at = list_first(&s->running); at; at = list_next(&s->running, at))
        room -= reserve_for(seq_of(at), seq_of(at)->n_pages);
    if (room <= 0)
        return false;
    struct found f = look_up_again(s, seq);
    bool next_claimed =
        can_adopt(s, seq, f.n_pages) &&
        page_claims_has(s->claims, f.node, seq->key, page_tokens(s, seq, f.n_pages));
    int end = f.n_pages * s->cfg.block_size;
    if (seq->n_preemptions > 0 || (!next_claimed && seq->n_tokens - end < s->budget))
        end = seq->n_tokens;
    else if (!next_claimed)
        end += s->budget;
    int n_pages = pages_for(s, end);
    return room >= f.n_unused + n_pages - f.n_pages + reserve_for(seq, n_pages);
}

static void admit(struct scheduler *s, struct sequence *seq)
{
    list_remove(&seq->link);
    s->n_waiting--;
    start_running(s, seq);
    if (seq->n_cached < 0) {
        seq->n_cached = 0;
        if (reads_cache(s, seq))
            s->stats.prefix_queried_tokens += (uint64_t)seq->n_tokens;
    }
    schedule_prefill(s, seq);
}

/* Not while a target leaves no time for those that run already. In order; who comes behind one that
 * has to wait for pages waits, too. */
static void admit_waiting(struct scheduler *s)
{
    while (!s->preempted && !s->limited && s->budget > 0 && s->n_running < s->cfg.max_seqs) {
        struct sequence *seq = seq_of(list_first(&s->waiting));
        if (!seq || is_held(seq) || !has_room(s, seq))
            return;
        admit(s, seq);
    }
}

static void close_plan(struct scheduler *s)
{
    int n = 0;
    for (int i = 0; i < s->n_rows; i++) {
        if (!s->rows[i].seq)
            continue;
        s->rows[n] = s->rows[i];
        s->rows[n].seq->row = n;
        n++;
    }
    s->n_rows = n;
    s->plan = (struct step_plan){s->rows, n,         s->cfg.max_step_tokens - s->budget,
                                 s->work, s->copies, s->n_copies};
    s->stats.limited_steps += s->limited;
}

const struct step_plan *scheduler_step(struct scheduler *s)
{
    CHECK(s->n_rows == 0);
    s->budget = s->cfg.max_step_tokens;
    s->preempted = false;
    s->work = (struct step_work){0};
    s->target = 0;
    s->limited = false;
    page_claims_clear(s->claims);
    schedule_decodes(s);
    schedule_prefills(s);
    admit_waiting(s);
    close_plan(s);
    return &s->plan;
}

void scheduler_commit(struct scheduler *s)
{
    for (int i = 0; i < s->n_rows; i++) {
        struct sequence *seq = s->rows[i].seq;
        if (!seq)
            continue;
        seq->row = -1;
        seq->n_computed = s->rows[i].start + s->rows[i].n;
        enter_pages(s, seq);
    }
    for (int i = 0; i < s->n_copies; i++)
        page_pool_unref(s->pool, s->copies[i].src);
    s->n_rows = 0;
    s->n_copies = 0;
    s->plan = (struct step_plan){0};
}

/* --- coming and going --- */

void scheduler_add(struct scheduler *s, struct sequence *seq)
{
    CHECK(seq->n_tokens >= 1 && seq->n_tokens <= seq->max_tokens);
    CHECK(pages_for(s, seq->max_tokens) <= page_pool_total(s->pool));
    seq->serial = s->next_serial++;
    enqueue(s, seq);
}

void scheduler_fork(struct scheduler *s, struct sequence *parent, struct sequence *child)
{
    CHECK(parent->row < 0 && prefix_key_equal(parent->key, child->key));
    CHECK(parent->n_computed <= child->n_tokens);
    CHECK(parent->n_computed <= sequence_n_known(parent));
    if (parent->state != SEQ_RUNNING || s->n_running == s->cfg.max_seqs) {
        scheduler_add(s, child);
        return;
    }
    child->serial = s->next_serial++;
    child->n_computed = parent->n_computed;
    child->n_cached = parent->n_cached;
    child->n_entered = parent->n_entered;
    child->node = parent->node;
    child->n_pages = pages_for(s, parent->n_computed);
    CHECK(child->n_pages <= child->max_pages);
    for (int k = 0; k < child->n_pages; k++) {
        child->pages[k] = parent->pages[k];
        page_pool_ref(s->pool, child->pages[k]);
    }
    start_running(s, child);
}

void scheduler_settle(struct scheduler *s, struct sequence *seq, int32_t token)
{
    CHECK(seq->n_pending > 0);
    seq->tokens[sequence_n_known(seq)] = token;
    seq->n_pending--;
    if (seq->state == SEQ_RUNNING)
        enter_pages(s, seq);
}

void scheduler_finish(struct scheduler *s, struct sequence *seq)
{
    if (seq->state == SEQ_DONE)
        return;
    if (seq->state == SEQ_WAITING)
        s->n_waiting--;
    if (seq->state == SEQ_RUNNING)
        s->n_running--;
    if (seq->state != SEQ_NEW)
        list_remove(&seq->link);
    if (seq->row >= 0)
        s->rows[seq->row].seq = NULL;
    seq->row = -1;
    release_pages(s, seq);
    sequence_set_state(seq, SEQ_DONE);
}

void scheduler_forget(struct scheduler *s, struct sequence *seq)
{
    prefix_node first = PREFIX_NONE;
    if (seq->n_entered > 0)
        first = prefix_cache_node_of(s->cache, seq->pages[0]);
    else if (s->cfg.prefix_caching && s->cfg.block_size <= sequence_n_known(seq))
        /* a preempted one has no pages any more, but the cache may have them */
        first = prefix_cache_find(s->cache, PREFIX_ROOT, seq->key, page_tokens(s, seq, 0));
    if (first != PREFIX_NONE)
        prefix_cache_forget(s->cache, first);
}

/* --- counts --- */

/* Slots without a token in pages that no earlier sequence of this count has named. */
static int count_unwritten(const struct scheduler *s, const struct sequence *seq)
{
    int block = s->cfg.block_size, n = 0;
    for (int k = seq->n_computed / block; k < seq->n_pages; k++) {
        int written = seq->n_computed > k * block ? seq->n_computed - k * block : 0;
        if (s->counts[seq->pages[k]]++ == 0)
            n += block - written;
    }
    return n;
}

static void forget_counts(const struct scheduler *s)
{
    for (struct list_node *at = list_first(&s->running); at; at = list_next(&s->running, at)) {
        const struct sequence *seq = seq_of(at);
        for (int k = seq->n_computed / s->cfg.block_size; k < seq->n_pages; k++)
            s->counts[seq->pages[k]] = 0;
    }
}

struct scheduler_stats scheduler_get_stats(const struct scheduler *s)
{
    struct scheduler_stats stats = s->stats;
    stats.n_waiting = s->n_waiting;
    stats.n_running = s->n_running;
    stats.slots_in_use = (uint64_t)page_pool_n_in_use(s->pool) * (uint64_t)s->cfg.block_size;
    stats.slots_written = stats.slots_in_use;
    for (struct list_node *at = list_first(&s->running); at; at = list_next(&s->running, at))
        stats.slots_written -= (uint64_t)count_unwritten(s, seq_of(at));
    forget_counts(s);
    return stats;
}

static void check_running(const struct scheduler *s, const struct sequence *seq)
{
    CHECK(seq->state == SEQ_RUNNING);
    CHECK(seq->n_computed <= seq->n_tokens && seq->n_tokens <= seq->max_tokens);
    CHECK(seq->n_pages >= pages_for(s, seq->n_computed) && seq->n_pages <= seq->max_pages);
    CHECK(seq->row < 0 || s->rows[seq->row].seq == seq);
    if (s->cfg.prefix_caching && seq->row < 0)
        CHECK(seq->n_entered == n_enterable(seq) / s->cfg.block_size);
    for (int k = 0; k < seq->n_pages; k++) {
        s->counts[seq->pages[k]]++;
        CHECK(page_pool_is_known(s->pool, seq->pages[k]) == (k < seq->n_entered));
    }
    if (seq->n_entered > 0)
        CHECK(prefix_cache_page(s->cache, seq->node) == seq->pages[seq->n_entered - 1]);
}

static void check_looked_up(const struct scheduler *s, const struct sequence *seq)
{
    if (!s->looked_up.valid || s->looked_up.serial != seq->serial ||
        s->looked_up.version != prefix_cache_version(s->cache))
        return;
    struct found f = look_up(s, seq);
    CHECK(f.n_pages == s->looked_up.found.n_pages && f.n_unused == s->looked_up.found.n_unused);
    CHECK(f.node == s->looked_up.found.node);
}

static void check_waiting(const struct scheduler *s, const struct sequence *seq)
{
    check_looked_up(s, seq);
    CHECK(seq->state == SEQ_WAITING);
    CHECK(seq->n_pages == 0 && seq->n_computed == 0 && seq->n_entered == 0);
    CHECK(seq->row < 0 && seq->node == PREFIX_ROOT);
}

static int check_order(const struct list *l)
{
    int n = 0;
    for (struct list_node *at = list_first(l); at; at = list_next(l, at), n++)
        CHECK(!list_next(l, at) || runs_before(seq_of(at), seq_of(list_next(l, at))));
    return n;
}

void scheduler_check(const struct scheduler *s)
{
    CHECK(check_order(&s->waiting) == s->n_waiting);
    CHECK(check_order(&s->running) == s->n_running && s->n_running <= s->cfg.max_seqs);
    for (struct list_node *at = list_first(&s->running); at; at = list_next(&s->running, at))
        check_running(s, seq_of(at));
    for (struct list_node *at = list_first(&s->waiting); at; at = list_next(&s->waiting, at))
        check_waiting(s, seq_of(at));
    for (int i = 0; i < s->n_copies; i++)
        s->counts[s->copies[i].src]++;
    for (int32_t page = 0; page < page_pool_total(s->pool); page++) {
        CHECK(s->counts[page] == page_pool_refs(s->pool, page));
        s->counts[page] = 0;
    }
}
