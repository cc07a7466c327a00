#include "request.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Elements of zero bytes are allocated too: NULL means out of memory only. calloc checks the
 * product, and leaves large arrays untouched. */
static void *array_new(size_t n, size_t size)
{
    return calloc(n ? n : 1, size);
}

/* For what is written before it is read: nothing is touched now. */
static void *array_untouched(size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        return NULL;
    return malloc(bytes ? bytes : 1);
}

static bool choice_init(struct choice *c, const struct sampling_params *p)
{
    const size_t n = (size_t)p->max_tokens;
    c->stop_id = -1;
    c->tokens = array_untouched(n, sizeof *c->tokens);
    if (p->n_logprobs >= 0)
        c->logprobs = array_untouched(n, sizeof *c->logprobs);
    if (p->n_logprobs > 0)
        c->tops = array_untouched(n, (size_t)p->n_logprobs * sizeof *c->tops);
    return c->tokens && (p->n_logprobs < 0 || c->logprobs) && (p->n_logprobs <= 0 || c->tops);
}

static bool prompt_logprobs_init(struct request *r)
{
    const int k = r->params.n_prompt_logprobs;
    if (k < 0)
        return true;
    r->prompt_logprobs = array_new((size_t)r->n_prompt, sizeof *r->prompt_logprobs);
    if (!r->prompt_logprobs)
        return false;
    r->prompt_logprobs[0] = NAN;
    if (k == 0)
        return true;
    r->prompt_tops = array_new((size_t)r->n_prompt, (size_t)k * sizeof *r->prompt_tops);
    for (int i = 0; r->prompt_tops && i < k; i++)
        r->prompt_tops[i] = (struct top_logprob){-1, NAN};
    return r->prompt_tops;
}

static bool bias_init(struct request *r, const struct sampling_params *p)
{
    const size_t bytes = (size_t)p->n_bias * sizeof *p->bias;
    r->params.bias = NULL;
    if (p->n_bias == 0)
        return true;
    struct logit_bias *copy = malloc(bytes);
    if (copy)
        memcpy(copy, p->bias, bytes);
    r->params.bias = copy;
    return copy;
}

struct request *request_new(int32_t *prompt, int n_prompt, int n_choices,
                            const struct sampling_params *p)
{
    struct request *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->n_prompt = n_prompt;
    r->params = *p;
    bool ok = bias_init(r, p);
    r->choices = array_new((size_t)n_choices, sizeof *r->choices);
    r->n_choices = r->choices ? n_choices : 0;
    ok = ok && r->choices && prompt_logprobs_init(r);
    for (int i = 0; ok && i < n_choices; i++)
        ok = choice_init(&r->choices[i], p);
    if (ok) {
        r->prompt = prompt;
        return r;
    }
    request_free(r);
    return NULL;
}

void request_free(struct request *r)
{
    if (!r)
        return;
    for (int i = 0; i < r->n_choices; i++) {
        free(r->choices[i].tokens);
        free(r->choices[i].logprobs);
        free(r->choices[i].tops);
    }
    free(r->choices);
    free(r->prompt_logprobs);
    free(r->prompt_tops);
    free((void *)r->params.bias);
    free(r->prompt);
    request_run_free(r->run);
    free(r);
}

static bool choice_run_init(struct choice_run *c, struct request *r, int max_len, int block_size)
{
    const int room = max_len - r->n_prompt;
    const int n_new = r->params.max_tokens < room ? r->params.max_tokens : room;
    struct sequence *s = c->seq = sequence_new(r->n_prompt + n_new, block_size);
    if (!s)
        return false;
    s->n_prompt = s->n_tokens = r->n_prompt;
    s->n_cached = -1;
    s->priority = r->priority;
    s->target_itl = r->target_itl;
    s->key = (struct prefix_key){.adapter = -1, .salt = r->cache_salt};
    s->owner = c;
    c->slot = -1;
    return true;
}

static bool counts_init(struct request_run *run, int n_vocab)
{
    const size_t n = (size_t)n_vocab;
    if (!sampling_wants_counts(&run->request->params))
        return true;
    run->counts = array_untouched((size_t)run->n_choices + 1, n * sizeof *run->counts);
    for (int i = 0; run->counts && i < run->n_choices; i++)
        run->choices[i].counts = run->counts + ((size_t)i + 1) * n;
    return run->counts;
}

void choice_take_prompt(struct choice_run *c)
{
    const struct request *r = c->run->request;
    memcpy(c->seq->tokens, r->prompt, (size_t)r->n_prompt * sizeof *c->seq->tokens);
}

void request_run_count_prompt(struct request_run *run, int n_vocab)
{
    if (!run->counts)
        return;
    memset(run->counts, 0, (size_t)n_vocab * sizeof *run->counts);
    sampling_count_prompt(run->counts, run->request->prompt, run->request->n_prompt);
}

const uint16_t *choice_counts(struct choice_run *c, int n_vocab)
{
    if (c->n_generated == 0 || !c->counts)
        return c->run->counts;
    if (!c->counts_own_tokens) {
        const int32_t *tokens = c->run->request->choices[c->index].tokens;
        memcpy(c->counts, c->run->counts, (size_t)n_vocab * sizeof *c->counts);
        for (int i = 0; i < c->n_generated; i++)
            sampling_count(c->counts, tokens[i]);
        c->counts_own_tokens = true;
    }
    return c->counts;
}

struct request_run *request_run_new(struct request *r, int n_vocab, int max_len, int block_size)
{
    const size_t choices = (size_t)r->n_choices * sizeof(struct choice_run);
    struct request_run *run = calloc(1, sizeof *run + choices);
    if (!run)
        return NULL;
    run->request = r;
    run->n_choices = run->n_open = r->n_choices;
    bool ok = counts_init(run, n_vocab);
    for (int i = 0; ok && i < run->n_choices; i++) {
        run->choices[i].run = run;
        run->choices[i].index = i;
        ok = choice_run_init(&run->choices[i], r, max_len, block_size);
    }
    if (ok) {
        choice_take_prompt(&run->choices[0]);
        run->choices[0].seq->skip_cache_reads = r->params.n_prompt_logprobs >= 0;
        return run;
    }
    request_run_free(run);
    return NULL;
}

void request_run_free(struct request_run *run)
{
    if (!run)
        return;
    for (int i = 0; i < run->n_choices; i++)
        sequence_free(run->choices[i].seq);
    free(run->counts);
    free(run);
}
