/* Any bytes as the body of a request: an error that blames something, or parameters and
 * messages within their bounds. Run it: tests/fuzz/run.sh request [SECONDS] */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "json_in.h"
#include "messages.h"
#include "params.h"
#include "utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { N_VOCAB = 1000 };

static void check_error(const struct api_error *e)
{
    if (e->status != 400 || !e->code || !e->msg[0])
        abort();
    if (utf8_check(e->msg, strlen(e->msg)) != strlen(e->msg) ||
        utf8_check(e->param, strlen(e->param)) != strlen(e->param))
        abort();
}

static void check_params(const struct gen_params *p)
{
    const struct sampling_params *s = &p->sampling;
    if (p->n < 1 || p->max_tokens < -1 || p->stops.n > STOP_MAX_STRINGS)
        abort();
    if (!(s->temperature >= 0 && s->temperature <= 2) || s->top_k < 0 || !(s->top_p > 0))
        abort();
    if (s->n_logprobs > SAMPLING_MAX_TOP_LOGPROBS || s->n_stop_ids > SAMPLING_MAX_STOP_IDS)
        abort();
    for (int i = 0; i < s->n_bias; i++)
        if (s->bias[i].id < 0 || s->bias[i].id >= N_VOCAB ||
            (i && s->bias[i].id <= s->bias[i - 1].id))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct params_limits limits = {.n_vocab = N_VOCAB};
    if (!limits.salts && !(limits.salts = cache_salts_new()))
        abort();
    struct api_error e = {0};
    json_t *body = json_in_read_object((const char *)data, n, &e);
    if (!body) {
        check_error(&e);
        return 0;
    }
    for (int chat = 0; chat < 2; chat++) {
        struct gen_params p = {0};
        e = (struct api_error){0};
        if (gen_params_read(body, chat, &limits, &p, &e))
            check_params(&p);
        else
            check_error(&e);
        gen_params_free(&p);
    }
    e = (struct api_error){0};
    json_t *messages = messages_normalise(json_object_get(body, "messages"), &e);
    if (!messages)
        check_error(&e);
    json_decref(messages);
    json_decref(body);
    return 0;
}
