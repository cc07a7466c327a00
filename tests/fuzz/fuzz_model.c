/* A model file with some bytes changed: it is refused with a message, or loads and runs a step.
 * Run it: tests/fuzz/run.sh model [SECONDS] */
#include "log.h"
#include "model_rig.h"
#include "variant_build.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum {
    N_KINDS = 5,
    N_LLAMAS = 2 * N_KINDS,
    N_APART = N_LLAMAS + N_VARIANT_KINDS,
    N_SEEDS = N_APART + 1,
    MAX_CHANGES = 64
};
/* Every type of matrix, without and with biases; then every architecture; then experts in tensors
 * of their own, quantised. */
static struct gguf_build seeds[N_SEEDS];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const uint32_t types[N_KINDS] = {0, 1, 3, 8, 30};
    log_setup(LOG_ERROR, LOG_TEXT);
    for (int i = 0; i < N_LLAMAS; i++) {
        struct model_sizes s = model_tiny;
        s.biases = i >= N_KINDS;
        build_model(&seeds[i], &s, types[i % N_KINDS]);
        fill_model(&seeds[i]);
    }
    for (int i = 0; i < N_VARIANT_KINDS; i++) {
        struct variant v = {.arch = variant_kinds[i].arch};
        build_variant(&v);
        build_file(&v.b);
        fill_model(&v.b);
        seeds[N_LLAMAS + i] = v.b;
    }
    struct variant v = {.experts = true, .times = 4, .apart = true, .type = 8, .first_type = 8};
    build_variant(&v);
    build_file(&v.b);
    fill_model(&v.b);
    seeds[N_APART] = v.b;
    return 0;
}

static void must_run_or_say_why(const unsigned char *bytes, size_t n)
{
    struct err e = {0};
    if (!model_rig_run(bytes, n, &e) && (e.code == ERR_NONE || !e.msg[0]))
        abort();
}

/* The first byte says of which file, or that the rest is one; then come places (two bytes,
 * within the header mostly) and what to put there. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0)
        return 0;
    if (data[0] >= N_SEEDS) {
        must_run_or_say_why(data + 1, n - 1);
        return 0;
    }
    const struct gguf_build *seed = &seeds[data[0]];
    unsigned char *file = malloc(seed->file.len);
    if (!file)
        abort();
    memcpy(file, seed->file.data, seed->file.len);
    for (size_t i = 1; i + 3 <= n && i < MAX_CHANGES * 3; i += 3)
        file[(data[i] | (size_t)data[i + 1] << 8) % seed->file.len] = data[i + 2];
    must_run_or_say_why(file, seed->file.len);
    free(file);
    return 0;
}
