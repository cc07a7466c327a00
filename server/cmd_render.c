/* cmd_render.c: the prompt that a chat template makes of given variables.
 *
 * The variables go to the template as the file has them; no server's habits (normalised
 * messages) come between. Only a model's own template gets the special tokens that the model
 * names, where the file has none. */
#include "commands.h"

#include "json_in.h"
#include "model_file.h"
#include "output.h"
#include "read_file.h"
#include "template.h"
#include "template_tail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_TEMPLATE = 1 << 20, MAX_CONTEXT = 64 << 20 };

struct render_options {
    const char *template, *model, *context, *now;
    bool help;
};

static const char usage_text[] =
    "usage: tokend render --template FILE|--model MODEL --context FILE.json [--now TIME]\n"
    "\n"
    "Prints the prompt that a chat template makes, byte for byte.\n"
    "\n"
    "  --template FILE   the template (Jinja)\n"
    "  --model MODEL     or that of a model: a GGUF file, a Hugging Face directory, or a hub name\n"
    "                    in the local cache\n"
    "  --context FILE    its variables, a JSON object: messages, tools, bos_token,\n"
    "                    add_generation_prompt, …; tools and documents are null if absent;\n"
    "                    with --model, bos_token, eos_token, unk_token and pad_token are the\n"
    "                    model's if absent;\n"
    "                    continue_final_message: true cuts after the last message's text\n"
    "  --now TIME        the clock that the template sees, 2026-07-26T12:34:56, with Z or +02:00\n"
    "                    behind it where the zone matters (the computer's own)\n";

/* --- the command line --- */

static bool parse_options(struct render_options *o, int argc, char **argv, struct err *e)
{
    *o = (struct render_options){0};
    const struct {
        const char *name;
        const char **value;
    } flags[] = {{"--template", &o->template},
                 {"--model", &o->model},
                 {"--context", &o->context},
                 {"--now", &o->now}};
    enum { N_FLAGS = sizeof flags / sizeof *flags };
    for (int i = 1; i < argc; i++) {
        const size_t len = strcspn(argv[i], "=");
        size_t k = 0;
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return o->help = true;
        while (k < N_FLAGS &&
               (strlen(flags[k].name) != len || strncmp(argv[i], flags[k].name, len) != 0))
            k++;
        if (k == N_FLAGS)
            return err_set(e, ERR_INVALID, "unknown flag %s; see tokend render --help", argv[i]);
        if (argv[i][len] == '\0' && i + 1 >= argc)
            return err_set(e, ERR_INVALID, "%s: expected a value after it", argv[i]);
        *flags[k].value = argv[i][len] ? argv[i] + len + 1 : argv[i + 1];
        i += argv[i][len] == '\0';
    }
    if (!o->template == !o->model)
        return err_set(e, ERR_INVALID, "expected one of --template and --model");
    return o->context || err_set(e, ERR_INVALID, "expected --context");
}

/* n digits, within [min, max]. */
static bool take_number(const char **p, int n, int min, int max, int *out)
{
    *out = 0;
    for (; n > 0; n--, (*p)++) {
        if (**p < '0' || **p > '9')
            return false;
        *out = *out * 10 + (**p - '0');
    }
    return *out >= min && *out <= max;
}

static bool take(const char **p, char c)
{
    if (**p != c)
        return false;
    (*p)++;
    return true;
}

/* "Z", "+02:00", or nothing: the time is then this clock's own. */
static bool take_zone(const char **p, int *offset)
{
    int hours = 0, minutes = 0;
    const char sign = **p;
    *offset = 0;
    if (sign == 'Z')
        (*p)++;
    if (sign != '+' && sign != '-')
        return true;
    (*p)++;
    if (!take_number(p, 2, 0, 23, &hours) || !take(p, ':') || !take_number(p, 2, 0, 59, &minutes))
        return false;
    *offset = (sign == '-' ? -60 : 60) * (hours * 60 + minutes);
    return true;
}

static bool take_date(const char **p, struct tm *tm)
{
    if (!take_number(p, 4, 1, 9999, &tm->tm_year) || !take(p, '-') ||
        !take_number(p, 2, 1, 12, &tm->tm_mon) || !take(p, '-') ||
        !take_number(p, 2, 1, 31, &tm->tm_mday))
        return false;
    tm->tm_year -= 1900;
    tm->tm_mon--;
    return true;
}

/* Seconds and their fraction may be left out; the fraction is not kept. */
static bool take_clock(const char **p, struct tm *tm)
{
    if (!take_number(p, 2, 0, 23, &tm->tm_hour) || !take(p, ':') ||
        !take_number(p, 2, 0, 59, &tm->tm_min))
        return false;
    if (!take(p, ':'))
        return true;
    if (!take_number(p, 2, 0, 59, &tm->tm_sec))
        return false;
    *p += **p == '.' ? 1 + strspn(*p + 1, "0123456789") : 0;
    return true;
}

/* 2026-07-26, or with T12:34, T12:34:56, and a zone. */
static bool parse_time(const char *text, struct template_input *in, struct err *e)
{
    struct tm tm = {0};
    in->utc_offset = 0;
    const char *p = text;
    bool ok = take_date(&p, &tm);
    const int day = tm.tm_mday;
    if (ok && (take(&p, 'T') || take(&p, ' ')))
        ok = take_clock(&p, &tm) && take_zone(&p, &in->utc_offset);
    in->now = (int64_t)timegm(&tm) - in->utc_offset;
    return (ok && *p == '\0' && tm.tm_mday == day) || /* timegm makes March of February 30 */
           err_set(e, ERR_INVALID, "--now %s: expected a time such as 2026-07-26T12:34:56", text);
}

static void read_clock(struct template_input *in)
{
    time_t now = time(NULL);
    struct tm tm;
    localtime_r(&now, &tm);
    in->now = now;
    in->utc_offset = (int)tm.tm_gmtoff;
}

/* --- what is rendered --- */

/* The special tokens that the model names, unless the context has variables of these names. */
static void add_special_texts(json_t *context, const struct chat_templates *t)
{
    for (int i = 0; i < N_SPECIAL_TEXTS; i++) {
        const char *name = special_text_name((enum special_text)i);
        if (t->special[i] && !json_object_get(context, name))
            json_object_set_new(context, name, json_string(t->special[i]));
    }
}

/* The text of a model's own template; with tools, of the one for them, where it has one. */
static bool read_model_template(const char *path, json_t *context, struct buf *out, struct err *e)
{
    const bool tools = json_is_array(json_object_get(context, "tools"));
    struct model_file *m = model_file_open(path, e);
    if (!m)
        return false;
    const struct chat_templates *all = model_file_templates(m);
    const struct chat_template *t = tools ? chat_templates_find(all, "tool_use") : NULL;
    if (!t)
        t = chat_templates_find(all, "default");
    if (t)
        buf_add(out, t->text, t->len);
    else
        err_set(e, ERR_NOT_FOUND, "%s: the model has no chat template", path);
    add_special_texts(context, all);
    model_file_close(m);
    return t;
}

static struct template *open_template(const struct render_options *o, json_t *context,
                                      struct err *e)
{
    struct buf text = {0};
    struct template *t = NULL;
    bool ok = o->template ? read_file(o->template, MAX_TEMPLATE, &text, e)
                          : read_model_template(o->model, context, &text, e);
    if (ok && text.failed)
        err_set(e, ERR_MEMORY, "out of memory");
    else if (ok && !(t = template_parse(text.data ? text.data : "", text.len, e)))
        err_prefix(e, "%s", o->template ? o->template : o->model);
    buf_free(&text);
    return t;
}

/* The variables; those that templates expect to be there at least as null are added. */
static json_t *read_context(const char *path, struct err *e)
{
    static const char *const expected[] = {"tools", "documents"};
    struct buf text = {0};
    struct api_error why;
    json_t *context = NULL;
    if (read_file(path, MAX_CONTEXT, &text, e) &&
        !(context = json_in_read_file(text.data ? text.data : "", text.len, path, &why))) {
        err_set(e, ERR_INVALID, "%s", why.msg);
        if (why.param[0]) /* a value is to blame: its name is told, the file's is not yet */
            err_prefix(e, "%s", path);
    }
    buf_free(&text);
    for (size_t i = 0; context && i < sizeof expected / sizeof *expected; i++)
        if (!json_object_get(context, expected[i]))
            json_object_set_new(context, expected[i], json_null());
    const json_t *cut = field(context, "continue_final_message");
    if (cut && !json_is_boolean(cut)) {
        err_set(e, ERR_INVALID, "%s: continue_final_message: expected true or false, got %s", path,
                json_in_kind(cut));
        json_decref(context);
        return NULL;
    }
    return context;
}

static bool render(const struct render_options *o, const struct template *t,
                   struct template_input *in, struct rendered *out, struct err *e)
{
    const char *name = o->template ? o->template : o->model;
    if (!template_render(t, in, out, e)) {
        template_name_line(out, e);
        return err_prefix(e, "%s", name);
    }
    return !json_is_true(json_object_get(in->context, "continue_final_message")) ||
           template_cut_after(out, json_object_get(in->context, "messages"), e) ||
           err_prefix(e, "%s", o->context);
}

static bool run(const struct render_options *o, struct template_input *in, struct err *e)
{
    struct rendered out = {0};
    json_t *context = read_context(o->context, e);
    struct template *t = context ? open_template(o, context, e) : NULL;
    in->context = context;
    bool ok = t && render(o, t, in, &out, e);
    if (ok)
        fwrite(out.text.data ? out.text.data : "", 1, out.text.len, stdout);
    ok = ok && output_flush(e);
    rendered_free(&out);
    json_decref(context);
    template_free(t);
    return ok;
}

int cmd_render(int argc, char **argv)
{
    struct render_options o;
    struct template_input in = {0};
    struct err e;
    read_clock(&in);
    if (!parse_options(&o, argc, argv, &e) || (o.now && !parse_time(o.now, &in, &e))) {
        output_error("render", "%s; see tokend render --help", e.msg);
        return 2;
    }
    if (o.help) {
        fputs(usage_text, stdout);
        return 0;
    }
    if (run(&o, &in, &e))
        return 0;
    output_error("render", "%s", e.msg);
    return 1;
}
