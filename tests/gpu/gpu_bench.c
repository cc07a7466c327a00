/* gpu_bench.c: the table of what a GPU does of what it could do.
 *
 *   gpu_bench [--json FILE] [--tiny] [--only limits|operations|overhead|model]
 *
 * The backend is the module that TOKEND_CUDA_MODULE names. --tiny: shapes for an emulated device.
 */
#include "bench.h"

#include <string.h>

const struct bench_sizes bench_llama_7b = {.n_layers = 32,
                                           .n_embd = 4096,
                                           .n_ff = 11008,
                                           .n_heads = 32,
                                           .n_kv_heads = 32,
                                           .head_dim = 128,
                                           .n_vocab = 32000,
                                           .context = 2048,
                                           .prompt = 2048,
                                           .max_batch = 16,
                                           .copies = 4,
                                           .times = 32};
const struct bench_sizes bench_tiny = {.n_layers = 2,
                                       .n_embd = 256,
                                       .n_ff = 256,
                                       .n_heads = 4,
                                       .n_kv_heads = 4,
                                       .head_dim = 64,
                                       .n_vocab = 64,
                                       .context = 20,
                                       .prompt = 9,
                                       .max_batch = 2,
                                       .copies = 1,
                                       .times = 1};

struct part {
    const char *name;
    bool (*run)(struct bench_report *, const struct bench_sizes *);
};

int main(int argc, char **argv)
{
    static const struct part parts[] = {
        {"operations", bench_operations}, {"overhead", bench_overhead}, {"model", bench_model}};
    const struct bench_sizes *sizes = &bench_llama_7b;
    const char *json = NULL, *only = NULL;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--tiny") == 0)
            sizes = &bench_tiny;
        else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc)
            json = argv[++i];
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            only = argv[++i];
        else
            return fprintf(stderr, "gpu_bench: %s is not known\n", argv[i]), 2;
    FILE *f = json ? fopen(json, "w") : NULL;
    if (json && !f)
        return perror(json), 2;
    struct gpu_limits limits;
    struct bench_report r;
    bool ok = gpu_limits_measure(&limits, sizes == &bench_tiny);
    if (ok) {
        bench_begin(&r, &limits, f, sizes == &bench_tiny);
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            if (!only || strcmp(only, parts[i].name) == 0)
                ok = parts[i].run(&r, sizes) && ok;
        bench_end(&r);
    }
    if (f && fclose(f) != 0)
        return perror(json), 2;
    return ok ? 0 : 1;
}
