/* cmd_plan.c: `tokend plan`: what a model needs of a device's memory, before it is loaded. */
#include "commands.h"

#include "loaded_model.h"
#include "log.h"
#include "machine_memory.h"
#include "output.h"
#include "plan.h"
#include "settings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage_text[] =
    "usage: tokend plan MODEL [options]\n"
    "\n"
    "Says what a model, its KV cache and a batch take of a device's memory, how many sequences\n"
    "fit, and the most tokens a second that bandwidth and arithmetic leave. Loads nothing.\n"
    "\n"
    "  MODEL                a model as of serve; a config.json alone, or a directory with one; or\n"
    "                       llama-2-7b, llama-2-13b, llama-2-70b\n"
    "  --device NAME        cpu: this machine (cpu), or one of\n"
    "                       %s\n"
    "                       or gpu: another one, described by these three, which override what\n"
    "                       is known of the others\n"
    "  --memory SIZE        80GiB; a bare number is GiB\n"
    "  --bandwidth GB/S\n"
    "  --flops TFLOP/S\n"
    "  --devices N          that share the model by tensor parallelism (1)\n"
    "  --batch N            sequences at once (1)\n"
    "  --len TOKENS         of each. The decode ceiling is of a cache so full; without --len\n"
    "                       memory is of the model's whole context, and the ceiling of none\n"
    "  --kv-cache-dtype, --quantization, --block-size, --max-num-seqs,\n"
    "  --max-num-batched-tokens, --gpu-memory-utilization   as of serve\n"
    "  --json               one JSON object, in bytes\n"
    "  --svg FILE           also a picture of the memory\n";

struct plan_options {
    const char *model, *device, *svg, *kv, *quantization;
    int64_t memory, devices, batch, len, block_size, max_seqs, max_rows;
    double bandwidth, flops, share;
    bool json, help;
};

/* --- the command line --- */

static bool parse_positive(const char *text, double *out, struct err *e)
{
    char *end;
    *out = strtod(text, &end);
    return (end != text && *end == '\0' && *out > 0 && *out <= 1e9) ||
           err_set(e, ERR_INVALID, "expected a number above 0");
}

static bool parse_value(struct plan_options *o, const char *name, const char *value, struct err *e)
{
    const struct {
        const char *name;
        int64_t min, max, *out;
    } numbers[] = {
        {"--devices", 1, 1024, &o->devices},
        {"--batch", 1, 1 << 20, &o->batch},
        {"--len", 1, 1 << 30, &o->len},
        {"--block-size", 16, 1024, &o->block_size},
        {"--max-num-seqs", 1, 4096, &o->max_seqs},
        {"--max-num-batched-tokens", 1, 1 << 16, &o->max_rows},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(name, numbers[i].name))
            return parse_int(value, numbers[i].min, numbers[i].max, numbers[i].out, e);
    if (!strcmp(name, "--memory"))
        return parse_size(value, &o->memory, e);
    if (!strcmp(name, "--bandwidth"))
        return parse_positive(value, &o->bandwidth, e);
    if (!strcmp(name, "--flops"))
        return parse_positive(value, &o->flops, e);
    if (!strcmp(name, "--gpu-memory-utilization"))
        return parse_fraction(value, &o->share, e);
    if (!strcmp(name, "--kv-cache-dtype") || !strcmp(name, "--quantization")) {
        *(name[2] == 'k' ? &o->kv : &o->quantization) = value;
        return parse_choice(name + 2, value, e);
    }
    *(name[2] == 'd' ? &o->device : &o->svg) = value;
    return true;
}

static bool is_flag(const char *name)
{
    static const char *const flags[] = {
        "--devices",
        "--batch",
        "--len",
        "--block-size",
        "--max-num-seqs",
        "--memory",
        "--bandwidth",
        "--flops",
        "--device",
        "--svg",
        "--kv-cache-dtype",
        "--quantization",
        "--max-num-batched-tokens",
        "--gpu-memory-utilization",
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (!strcmp(name, flags[i]))
            return true;
    return false;
}

/* The value may follow after '=' or as the next argument. */
static bool parse_flag(struct plan_options *o, int argc, char **argv, int *i, struct err *e)
{
    char name[32];
    const char *arg = argv[*i];
    const size_t n = strcspn(arg, "=");
    snprintf(name, sizeof name, "%.*s", n < sizeof name ? (int)n : 0, arg);
    if (!is_flag(name))
        return err_set(e, ERR_INVALID, "unknown flag %s", arg);
    if (arg[n] == '\0' && *i + 1 >= argc)
        return err_set(e, ERR_INVALID, "%s: expected a value after it", arg);
    const char *value = arg[n] ? arg + n + 1 : argv[++*i];
    return parse_value(o, name, value, e) || err_prefix(e, "%s %s", name, value);
}

static bool parse_options(struct plan_options *o, int argc, char **argv, struct err *e)
{
    *o = (struct plan_options){.device = "cpu",
                               .kv = "auto",
                               .quantization = "none",
                               .devices = 1,
                               .batch = 1,
                               .block_size = 16,
                               .max_seqs = 64,
                               .max_rows = 512,
                               .share = 0.9};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return o->help = true;
        if (!strcmp(argv[i], "--json"))
            o->json = true;
        else if (argv[i][0] == '-') {
            if (!parse_flag(o, argc, argv, &i, e))
                return false;
        } else if (o->model)
            return err_set(e, ERR_INVALID, "one model at a time: \"%s\" comes after \"%s\"",
                           argv[i], o->model);
        else
            o->model = argv[i];
    }
    if (o->block_size % 16)
        return err_set(e, ERR_INVALID, "--block-size %lld: expected a multiple of 16",
                       (long long)o->block_size);
    return o->model || err_set(e, ERR_INVALID, "expected a MODEL");
}

/* --- the device --- */

static void device_names(char *out, size_t cap)
{
    int n, at = 0;
    const struct device_facts *all = devices_all(&n);
    for (int i = 0; i < n && (size_t)at < cap; i++)
        at += snprintf(out + at, cap - (size_t)at, "%s%s", i ? " " : "", all[i].name);
}

static bool read_device(const struct plan_options *o, struct device_facts *d, struct err *e)
{
    char names[256];
    const struct device_facts *known = device_find(o->device);
    device_names(names, sizeof names);
    if (known)
        *d = *known;
    else if (!strcmp(o->device, "cpu"))
        *d = (struct device_facts){.name = "cpu", .memory = memory_of_machine()};
    else if (!strcmp(o->device, "gpu"))
        *d = (struct device_facts){.name = "gpu", .is_gpu = true};
    else
        return err_set(e, ERR_INVALID,
                       "--device %s: expected cpu or one of %s; or gpu, described by --memory, "
                       "--bandwidth and --flops",
                       o->device, names);
    if (o->memory)
        d->memory = (uint64_t)o->memory;
    if (o->bandwidth > 0)
        d->bandwidth = o->bandwidth * 1e9;
    if (o->flops > 0)
        d->flops = o->flops * 1e12;
    return d->memory || err_set(e, ERR_INVALID, "--device gpu: expected --memory, too");
}

/* --- the plan --- */

static enum dtype kv_type(const struct plan_options *o, const struct plan_model *m)
{
    const bool f32 = strcmp(o->kv, "auto") == 0 && m->plain == DTYPE_F32 && !m->is_quantised;
    return f32 ? DTYPE_F32 : kv_cache_type(o->kv);
}

static bool make_plan(const struct plan_options *o, struct plan_model *m, struct plan *p,
                      struct err *e)
{
    enum dtype quantise = DTYPE_COUNT;
    if (strcmp(o->quantization, "none") != 0)
        dtype_from_name(o->quantization, &quantise);
    if (!read_device(o, &p->device, e) || !plan_model_read(o->model, quantise, m, e))
        return false;
    p->model = m;
    p->wish = (struct budget_wish){
        .batch = (int)o->batch,
        .len = o->len ? o->len : m->spec.n_ctx_train,
        .depth = o->len,
        .n_devices = (int)o->devices,
        .kv = kv_type(o, m),
        .block_size = (int)o->block_size,
        .max_rows = (int)o->max_rows,
        .max_seqs = (int)o->max_seqs,
        .share = o->share,
    };
    return budget_make(m, &p->device, &p->wish, &p->budget, e);
}

static bool write_svg(const struct plan *p, const char *path, struct err *e)
{
    struct buf out = {0};
    plan_svg(p, &out);
    FILE *f = out.failed ? NULL : fopen(path, "we");
    bool ok = !out.failed || err_set(e, ERR_MEMORY, "no memory for the picture");
    if (ok && !f)
        ok = err_errno(e, "--svg %s", path);
    if (ok && fwrite(out.data, 1, out.len, f) != out.len)
        ok = err_errno(e, "--svg %s", path);
    if (f && fclose(f) != 0 && ok)
        ok = err_errno(e, "--svg %s", path);
    buf_free(&out);
    return ok;
}

static bool show(const struct plan_options *o, const struct plan *p, struct err *e)
{
    if (!o->json) {
        plan_print(p);
    } else {
        json_t *all = plan_json(p);
        if (!all)
            return err_set(e, ERR_MEMORY, "no memory for the plan");
        json_dumpf(all, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(all);
    }
    return !o->svg || write_svg(p, o->svg, e);
}

int cmd_plan(int argc, char **argv)
{
    struct plan_options o;
    struct plan_model model;
    struct plan p;
    struct err e;
    char names[256];
    if (!parse_options(&o, argc, argv, &e)) {
        output_error("plan", "%s; see tokend plan --help", e.msg);
        return 2;
    }
    if (o.help) {
        device_names(names, sizeof names);
        printf(usage_text, names);
        return 0;
    }
    log_setup(LOG_ERROR, LOG_TEXT);
    if (make_plan(&o, &model, &p, &e) && show(&o, &p, &e))
        return 0;
    output_error("plan", "%s", e.msg);
    return 1;
}
