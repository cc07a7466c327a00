#include "bench_run.h"

#include <stdlib.h>
#include <string.h>

static void wake(void *arg)
{
    sem_post(arg);
}

bool bench_run_open(struct bench_run *run, const struct engine_config *c,
                    const struct model_file *m, struct err *e)
{
    run->news = malloc(sizeof *run->news);
    if (!run->news || sem_init(run->news, 0, 0) != 0) {
        free(run->news);
        run->news = NULL;
        return err_set(e, ERR_MEMORY, "no memory for a benchmark");
    }
    run->engine = engine_open(c, m, wake, run->news, e);
    if (run->engine)
        return true;
    bench_run_close(run);
    return false;
}

void bench_run_close(struct bench_run *run)
{
    engine_close(run->engine);
    if (run->news)
        sem_destroy(run->news);
    free(run->news);
    *run = (struct bench_run){.rng = run->rng};
}

static int32_t random_id(struct bench_run *run)
{
    const uint32_t counter[4] = {(uint32_t)run->rng, (uint32_t)(run->rng >> 32), 0, 0};
    uint32_t r[4];
    run->rng++;
    philox4x32(1, counter, r);
    return (int32_t)(r[0] % (uint32_t)engine_get_info(run->engine)->spec.n_vocab);
}

int32_t *bench_random_prompts(struct bench_run *run, int batch, int n, int shared)
{
    int32_t *ids = malloc((size_t)batch * (size_t)n * sizeof *ids);
    for (int64_t i = 0; ids && i < (int64_t)batch * n; i++)
        ids[i] = i >= n && i % n < shared ? ids[i % n] : random_id(run);
    return ids;
}

bool bench_submit(struct bench_run *run, const int32_t *ids, int n, int max_tokens,
                  struct request **out, struct err *e)
{
    const struct sampling_params p = {
        .top_p = 1,
        .repetition_penalty = 1,
        .n_logprobs = -1,
        .n_prompt_logprobs = -1,
        .ignore_eos = true,
        .max_tokens = max_tokens,
    };
    int32_t *copy = malloc((size_t)n * sizeof *copy);
    *out = copy ? request_new(copy, n, 1, &p) : NULL;
    if (!*out) {
        free(copy);
        return err_set(e, ERR_MEMORY, "no memory for a request");
    }
    memcpy(copy, ids, (size_t)n * sizeof *copy);
    if (engine_submit(run->engine, *out, e))
        return true;
    request_free(*out);
    *out = NULL;
    return false;
}

bool bench_look(struct bench_run *run, struct request *const *q, int n)
{
    int i = 0;
    while (i < n && atomic_load(&q[i]->ended))
        i++;
    if (i == n)
        return true;
    if (!engine_poll(run->engine))
        sem_wait(run->news);
    return false;
}

bool bench_wait(struct bench_run *run, struct request *const *q, int n, struct err *e)
{
    while (!bench_look(run, q, n))
        ;
    for (int i = 0; i < n; i++)
        if (atomic_load(&q[i]->choices[0].finish) == FINISH_ERROR) {
            *e = q[i]->error;
            return false;
        }
    return true;
}

void bench_free(struct bench_run *run, struct request **q, int n)
{
    for (int i = 0; i < n; i++) {
        struct request *const one = q[i];
        struct err ignored;
        if (one)
            bench_wait(run, &one, 1, &ignored);
        request_free(one);
        q[i] = NULL;
    }
}
