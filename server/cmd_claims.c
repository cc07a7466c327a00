/* cmd_claims.c: `tokend bench claims`: a table and plots of what each feature is worth. */
#include "commands.h"

#include "claims.h"
#include "loaded_model.h"
#include "log.h"
#include "output.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char help_text[] =
    "usage: tokend bench claims MODEL [--out DIR] [--context TOKENS] [--threads N] [--device D]\n"
    "\n"
    "Measures on this machine what is told of inference servers: a KV cache, continuous batching,\n"
    "pages, a prefix cache, tiled attention, each off and on. Prints a table; takes minutes.\n"
    "\n"
    "  --out DIR         also writes claims.md, claims.json and claims.svg there\n"
    "  --context TOKENS  longest context that is used (1024; at most 4096 and the model's)\n"
    "  --threads N       0: as many as may run at once (0)\n"
    "  --device auto|cuda|cpu   as of serve (auto)\n";

struct claims_options {
    const char *model, *out, *device;
    int64_t context, threads;
    bool help;
};

static bool parse_value(struct claims_options *o, const char *name, const char *value,
                        struct err *e)
{
    if (!strcmp(name, "--out"))
        o->out = value;
    else if (!strcmp(name, "--context"))
        return parse_int(value, 128, 4096, &o->context, e);
    else if (!strcmp(name, "--threads"))
        return parse_int(value, 0, 1024, &o->threads, e);
    else if (!strcmp(name, "--device")) {
        o->device = value;
        return parse_choice("device", value, e);
    } else
        return err_set(e, ERR_NOT_FOUND, "unknown flag %s", name);
    return true;
}

static bool parse_options(struct claims_options *o, int argc, char **argv, struct err *e)
{
    *o = (struct claims_options){.device = "auto", .context = 1024};
    for (int i = 1; i < argc; i++) {
        char name[32];
        const size_t n = strcspn(argv[i], "=");
        snprintf(name, sizeof name, "%.*s", n < sizeof name ? (int)n : 31, argv[i]);
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return o->help = true;
        if (argv[i][0] != '-') {
            if (o->model)
                return err_set(e, ERR_INVALID, "one model at a time: \"%s\" comes after \"%s\"",
                               argv[i], o->model);
            o->model = argv[i];
            continue;
        }
        const char *value = argv[i][n] ? argv[i] + n + 1 : i + 1 < argc ? argv[++i] : NULL;
        if (!parse_value(o, name, value ? value : "", e))
            return e->code == ERR_NOT_FOUND ? false
                                            : err_prefix(e, "%s %s", name, value ? value : "");
        if (!value)
            return err_set(e, ERR_INVALID, "%s: expected a value after it", name);
    }
    return o->model || err_set(e, ERR_INVALID, "expected a MODEL");
}

/* --- results --- */

static json_t *claims_json(const struct claims *c, const char *model)
{
    json_t *rows = json_array();
    for (int i = 0; i < c->n_rows; i++) {
        const struct claim_row *r = &c->rows[i];
        json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:f, s:f}", "feature", r->claim,
                                              "measured", r->measured, "unit", r->unit, "off",
                                              r->off, "on", r->on));
    }
    return json_pack("{s:s, s:s, s:i, s:o}", "model", model, "backend", c->backend, "context",
                     c->context, "claims", rows);
}

static bool write_file(const char *dir, const char *name, const struct buf *text, struct err *e)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return err_set(e, ERR_LIMIT, "--out: the path is too long");
    return output_file("--out: cannot write", path, text, e);
}

static bool write_all(const struct claims *c, const char *model, const char *dir, struct err *e)
{
    struct buf table = {0}, svg = {0}, text = {0};
    claims_table(c, &table);
    claims_svg(c, model, &svg);
    json_t *json = claims_json(c, model);
    char *dumped = json ? json_dumps(json, JSON_INDENT(2)) : NULL;
    if (dumped)
        buf_add_str(&text, dumped);
    text.failed |= !dumped;
    free(dumped);
    json_decref(json);
    const bool ok = write_file(dir, "claims.md", &table, e) &&
                    write_file(dir, "claims.svg", &svg, e) &&
                    write_file(dir, "claims.json", &text, e);
    buf_free(&table);
    buf_free(&svg);
    buf_free(&text);
    return ok;
}

/* --- the run --- */

static bool measure(struct claims *c, struct err *e)
{
    static const struct {
        const char *name;
        claim_fn *run;
    } all[] = {
        {"KV cache", claim_kv_cache},
        {"continuous batching", claim_continuous_batching},
        {"pages", claim_pages},
        {"prefix cache", claim_prefix_cache},
        {"tiled attention", claim_tiled_attention},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        fprintf(stderr, "%s ...\n", all[i].name);
        if (!all[i].run(c, e))
            return err_prefix(e, "%s", all[i].name);
    }
    return true;
}

/* Told before the minutes that measuring takes. */
static bool make_dir(const char *dir, struct err *e)
{
    struct stat st;
    if (!dir || (stat(dir, &st) == 0 && S_ISDIR(st.st_mode)) || mkdir(dir, 0777) == 0)
        return true;
    return err_errno(e, "--out %s: cannot make that directory", dir);
}

static bool run(const struct claims_options *o, struct err *e)
{
    struct claims c = {.base = {.threads = (int)o->threads, .async_scheduling = true}};
    struct buf table = {0};
    if (!make_dir(o->out, e) || !(c.model = model_file_open(o->model, e)))
        return false;
    const struct model_spec *spec = model_file_spec(c.model, e);
    bool ok = spec && engine_config_types(&c.base, "auto", "auto", "none", "auto", e) &&
              engine_config_device(&c.base, o->device, false, e);
    if (ok) {
        c.context = o->context < spec->n_ctx_train ? (int)o->context : spec->n_ctx_train;
        ok = c.context >= 128 || err_set(e, ERR_LIMIT,
                                         "the model's context is %d tokens, expected "
                                         "128 or more",
                                         c.context);
    }
    ok = ok && measure(&c, e);
    if (ok) {
        claims_table(&c, &table);
        fputs(table.failed ? "" : table.data, stdout);
        buf_free(&table);
    }
    ok = ok && (!o->out || write_all(&c, spec->name, o->out, e));
    model_file_close((struct model_file *)c.model);
    return ok;
}

int cmd_claims(int argc, char **argv)
{
    struct claims_options o;
    struct err e;
    if (!parse_options(&o, argc, argv, &e)) {
        output_error("bench claims", "%s; see tokend bench claims --help", e.msg);
        return 2;
    }
    if (o.help) {
        fputs(help_text, stdout);
        return 0;
    }
    log_setup(LOG_WARN, LOG_TEXT);
    if (run(&o, &e))
        return 0;
    output_error("bench claims", "%s", e.msg);
    return 1;
}
