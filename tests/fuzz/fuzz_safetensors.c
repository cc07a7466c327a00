/* Any bytes as a checkpoint: the text of a config.json, a zero byte, and a safetensors file. Each
 * is refused with a message, or right; what both make together is computed. Run it:
 * tests/fuzz/run.sh safetensors [SECONDS] */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hf_config.h"
#include "log.h"
#include "model_rig.h"
#include "weights_hf.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    log_setup(LOG_ERROR, LOG_TEXT);
    return 0;
}

static void check(bool ok, const struct err *e)
{
    if (!ok && (e->code == ERR_NONE || !e->msg[0]))
        abort();
}

/* Reads all of it. */
static void walk(const struct hf_shards *s)
{
    unsigned sum = 0;
    for (size_t i = 0; i < hf_shards_n(s); i++) {
        const struct st_tensor *t = hf_shards_at(s, i);
        for (uint64_t k = 0; k < t->bytes; k++)
            sum += ((const unsigned char *)t->data)[k];
        if (hf_shards_find(s, t->name) != t)
            abort();
    }
    volatile unsigned read = sum;
    (void)read;
}

static void compute(const struct hf_config *c, const struct hf_shards *s)
{
    char prefix[64];
    int64_t n_vocab = -1;
    struct model_spec spec;
    const struct hf_arch *a = hf_arch_of(c);
    check(a, c->e);
    if (!a || (s && !hf_find_embedding(s, prefix, &n_vocab, c->e)))
        return;
    struct hf_quant quant;
    bool ok = hf_quant_read(c, a, &quant) && hf_spec_read(c, a, n_vocab, &spec);
    check(ok, c->e);
    if (!ok || !s)
        return;
    struct weights *w = weights_open_hf(s, "fuzz", a, &quant, &spec, c->e);
    check(w, c->e);
    if (w)
        check(model_rig_compute(&spec, w, c->e), c->e);
    weights_close(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct err e = {0};
    json_error_t why;
    const uint8_t *end = memchr(data, 0, n);
    const size_t n_config = end ? (size_t)(end - data) : n, at = end ? n_config + 1 : n;
    json_t *config = json_loadb((const char *)data, n_config, 0, &why);
    /* A copy of its own, so that a read beyond its end is seen. */
    void *file = malloc(n - at + 1);
    memcpy(file, data + at, n - at);
    struct hf_shards *s = hf_shards_open_memory(file, n - at, &e);
    check(s, &e);
    if (s)
        walk(s);
    e = (struct err){0};
    const json_t *text = hf_get(config, "text_config");
    const struct hf_config c = {{"fuzz"}, config, json_is_object(text) ? text : config, &e};
    if (json_is_object(config))
        compute(&c, s);
    hf_shards_close(s);
    free(file);
    json_decref(config);
    return 0;
}
