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

/* The value may follow after '=' or as the next argument. */
static bool parse_flag(struct plan_options *o, int argc, char **argv, int *i, struct err *e)
{
    const struct {
        const char *name;
        int64_t *whole;      /* or … */
        double *number;      /* … or … */
        const char **choice; /* … of a setting, or … */
        const char **text;
        int64_t min, max;
    } flags[] = {
        {"--devices", .whole = &o->devices, .min = 1, .max = 1024},
        {"--batch", .whole = &o->batch, .min = 1, .max = 1 << 20},
        {"--len", .whole = &o->len, .min = 1, .max = 1 << 30},
        {"--block-size", .whole = &o->block_size, .min = 16, .max = 1024},
        {"--max-num-seqs", .whole = &o->max_seqs, .min = 1, .max = 4096},
        {"--max-num-batched-tokens", .whole = &o->max_rows, .min = 1, .max = 1 << 16},
        {"--bandwidth", .number = &o->bandwidth},
        {"--flops", .number = &o->flops},
        {"--kv-cache-dtype", .choice = &o->kv},
        {"--quantization", .choice = &o->quantization},
        {"--device", .text = &o->device},
        {"--svg", .text = &o->svg},
        {"--memory"},
        {"--gpu-memory-utilization"},
    };
    enum { N_FLAGS = sizeof flags / sizeof *flags };
    const char *arg = argv[*i];
    const size_t len = strcspn(arg, "=");
    size_t k = 0;
    while (k < N_FLAGS && (strlen(flags[k].name) != len || strncmp(arg, flags[k].name, len) != 0))
        k++;
    if (k == N_FLAGS)
        return err_set(e, ERR_INVALID, "unknown flag %s", arg);
    if (arg[len] == '\0' && *i + 1 >= argc)
        return err_set(e, ERR_INVALID, "%s: expected a value after it", arg);
    const char *value = arg[len] ? arg + len + 1 : argv[++*i];
    bool ok = true;
    if (flags[k].whole)
        ok = parse_int(value, flags[k].min, flags[k].max, flags[k].whole, e);
    else if (flags[k].number)
        ok = parse_positive(value, flags[k].number, e);
    else if (flags[k].text)
        *flags[k].text = value;
    else if (flags[k].choice)
        ok = parse_choice(flags[k].name + 2, *flags[k].choice = value, e);
    else if (strcmp(flags[k].name, "--memory") == 0)
        ok = parse_size(value, &o->memory, e);
    else
        ok = parse_fraction(value, &o->share, e);
    return ok || err_prefix(e, "%s %s", flags[k].name, value);
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
    const bool ok = output_file("--svg", path, &out, e);
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
