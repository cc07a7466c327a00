#include "loaded_model.h"
#include "output.h"
#include "plan.h"

#include <stdio.h>
#include <string.h>

enum { BAR = 64, NUMBER = 32 };

void plan_parts(const struct plan *p, struct plan_part parts[PLAN_PARTS])
{
    const struct budget *b = &p->budget;
    const struct plan_part all[PLAN_PARTS] = {
        {"weights", b->weights, 'W'},         {"KV cache", b->kv, 'K'},
        {"activations", b->activations, 'A'}, {"runtime", b->runtime, 'R'},
        {"kept free", b->reserved, '-'},      {"left", b->left > 0 ? (uint64_t)b->left : 0, '.'},
    };
    memcpy(parts, all, sizeof all);
}

/* --- JSON --- */

static json_t *real_or_null(double v)
{
    return v > 0 ? json_real(v) : json_null();
}

static json_t *device_json(const struct plan *p)
{
    const struct device_facts *d = &p->device;
    return json_pack("{s:s, s:I, s:o, s:o, s:i}", "name", d->name, "memory_bytes",
                     (json_int_t)d->memory, "bandwidth_bytes_per_second",
                     real_or_null(d->bandwidth), "flops", real_or_null(d->flops), "count",
                     p->wish.n_devices);
}

static json_t *memory_json(const struct plan *p)
{
    const struct budget *b = &p->budget;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "weights", (json_int_t)b->weights, "kv",
                     (json_int_t)b->kv, "activations", (json_int_t)b->activations, "runtime",
                     (json_int_t)b->runtime, "kept_free", (json_int_t)b->reserved, "left",
                     (json_int_t)b->left);
}

json_t *plan_json(const struct plan *p)
{
    const struct budget *b = &p->budget;
    const struct model_spec *s = &p->model->spec;
    json_t *all = json_pack(
        "{s:s, s:I, s:I, s:I, s:s, s:I, s:I, s:i, s:I, s:o, s:o}", "model", s->name, "parameters",
        (json_int_t)s->n_params, "active_parameters", (json_int_t)p->model->active_params,
        "weight_bytes", (json_int_t)p->model->weight_bytes, "kv_cache_dtype",
        dtype_info(p->wish.kv)->name, "kv_bytes_per_token", (json_int_t)b->kv_bytes_per_token,
        "kv_bytes", (json_int_t)b->kv_bytes, "batch", p->wish.batch, "len", (json_int_t)p->wish.len,
        "device", device_json(p), "memory_of_each_device", memory_json(p));
    if (!all)
        return NULL;
    json_object_set_new(all, "fits", p->device.memory ? json_boolean(b->left >= 0) : json_null());
    json_object_set_new(all, "max_sequences",
                        b->max_sequences < 0 ? json_null() : json_integer(b->max_sequences));
    json_object_set_new(all, "decode_context", json_integer(p->wish.depth));
    json_object_set_new(all, "decode_step_seconds", real_or_null(b->step_seconds));
    json_object_set_new(all, "decode_ceiling_tokens_per_second",
                        real_or_null(b->decode_per_second));
    json_object_set_new(all, "prefill_ceiling_tokens_per_second",
                        real_or_null(b->prefill_per_second));
    return all;
}

/* --- text --- */

static const char *commas(double v, char out[NUMBER])
{
    output_number(v, out, NUMBER);
    return out;
}

static void print_model(const struct plan *p)
{
    const struct plan_model *m = p->model;
    const struct model_spec *s = &m->spec;
    const struct budget *b = &p->budget;
    const char *type = dtype_info(m->plain)->name;
    char a[NUMBER], c[NUMBER];
    output_text(stdout, s->name[0] ? s->name : s->architecture);
    printf(": %s M parameters, %d layers, width %d, %d heads over %d KV heads of %d\n",
           commas((double)s->n_params / 1e6, a), s->n_layers, s->n_embd, s->n_heads, s->n_kv_heads,
           s->head_dim);
    if (m->active_params < s->n_params && s->n_experts)
        printf("  a token uses     %s M of them (%d of %d experts)\n",
               commas((double)m->active_params / 1e6, a), s->n_experts_used, s->n_experts);
    printf("  weights          %s (%s%s)\n", format_bytes(m->weight_bytes, a),
           m->is_quantised ? "quantised, the rest " : "", type);
    printf("  KV of a token    %s (%s: %d layers x %d heads x %d x 2)\n",
           format_bytes(b->kv_bytes_per_token, a), dtype_info(p->wish.kv)->name, s->n_layers,
           s->n_kv_heads, s->head_dim);
    printf("  KV of %d x %s%*s%s\n", p->wish.batch, commas((double)p->wish.len, c), 3, "",
           format_bytes(b->kv_bytes, a));
    if (p->wish.len > s->n_ctx_train)
        printf("  note: the model was trained for %s tokens; the server refuses longer contexts\n",
               commas(s->n_ctx_train, c));
}

static void print_bar(const struct plan_part *parts, uint64_t total)
{
    uint64_t upto = 0;
    int drawn = 0;
    printf("  [");
    for (int i = 0; i < PLAN_PARTS; i++) {
        upto += parts[i].bytes;
        const int end = upto >= total ? BAR : (int)((double)upto / (double)total * BAR + 0.5);
        for (; drawn < end; drawn++)
            putchar(parts[i].sign);
    }
    for (; drawn < BAR; drawn++)
        putchar('.');
    printf("]\n");
}

static void print_memory(const struct plan *p)
{
    const struct budget *b = &p->budget;
    struct plan_part parts[PLAN_PARTS];
    char a[NUMBER];
    plan_parts(p, parts);
    print_bar(parts, p->device.memory);
    for (int i = 0; i < PLAN_PARTS; i++)
        if (parts[i].bytes > 0)
            printf("   %c %-13s %10s  %5.1f %%\n", parts[i].sign, parts[i].name,
                   format_bytes(parts[i].bytes, a),
                   100 * (double)parts[i].bytes / (double)p->device.memory);
    if (b->left < 0)
        printf("  does not fit: %s too much%s\n", format_bytes((uint64_t)-b->left, a),
               p->wish.n_devices > 1 ? " on each device" : "");
    printf("  sequences of %s tokens that fit: ", commas((double)p->wish.len, a));
    printf("%s\n", commas((double)b->max_sequences, a));
}

static void print_speeds(const struct plan *p)
{
    const struct budget *b = &p->budget;
    char a[NUMBER], c[NUMBER];
    if (b->step_seconds > 0)
        printf("  decode, at most  %s tokens/s: a step of %d with %s tokens in the cache reads for "
               "%.3g ms\n",
               commas(b->decode_per_second, a), p->wish.batch, commas((double)p->wish.depth, c),
               b->step_seconds * 1e3);
    else
        printf("  decode, at most  not known: give --bandwidth\n");
    if (b->prefill_per_second > 0)
        printf("  prefill, at most %s tokens/s (prompts of %s)\n", commas(b->prefill_per_second, a),
               commas((double)p->wish.len, c));
}

void plan_print(const struct plan *p)
{
    const struct device_facts *d = &p->device;
    char a[NUMBER];
    print_model(p);
    printf("\n%d x %s", p->wish.n_devices, d->name);
    if (d->memory)
        printf(": %s", format_bytes(d->memory, a));
    if (d->bandwidth > 0)
        printf(", %s GB/s", commas(d->bandwidth / 1e9, a));
    if (d->flops > 0)
        printf(", %s TFLOP/s", commas(d->flops / 1e12, a));
    putchar('\n');
    if (d->memory)
        print_memory(p);
    print_speeds(p);
    printf(
        "  activations and runtime are estimates; ceilings are of memory and arithmetic alone\n");
}
