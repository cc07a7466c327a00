/* Any bytes as a GGUF file: an error with a message, or a file whose every part can be read and
 * whose model spec is right or refused. Run it: tests/fuzz/run.sh gguf [SECONDS] */
#include <stdint.h>
#include <stdlib.h>

#include "gguf_walk.h"
#include "log.h"
#include "model_spec.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    log_setup(LOG_ERROR, LOG_TEXT);
    return 0;
}

static void check_spec(const struct model_spec *s)
{
    struct err e;
    if (!model_spec_check(s, &e) || s->n_layers < 1 || s->n_heads % s->n_kv_heads != 0 ||
        s->rope.n_dims > s->head_dim || s->n_eos > MODEL_MAX_EOS || s->n_vocab < 1)
        abort();
    for (int i = 0; i < s->n_eos; i++)
        if (s->eos[i] < 0 || s->eos[i] >= s->n_vocab)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct err e = {0};
    struct model_spec s;
    struct gguf *g = gguf_open_memory(data, n, &e);
    if (!g) {
        if (e.code == ERR_NONE || !e.msg[0])
            abort();
        return 0;
    }
    volatile unsigned sum = gguf_walk(g);
    (void)sum;
    if (model_spec_from_gguf(g, &s, &e))
        check_spec(&s);
    gguf_close(g);
    return 0;
}
