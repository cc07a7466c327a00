/* cmd_inspect.c: what a model is, without loading it. */
#include "commands.h"

#include "inspect.h"
#include "log.h"
#include "output.h"

#include <stdio.h>
#include <string.h>

static const char usage_text[] =
    "usage: tokend inspect MODEL [--json]\n"
    "\n"
    "Says what a model is: architecture, sizes, tensors, tokenizer, chat templates, what ends an\n"
    "answer, licence; and warns of known traps. Reads headers only.\n"
    "\n"
    "  MODEL    a GGUF file, a Hugging Face directory, or a hub name in the local cache\n"
    "  --json   one JSON object\n"
    "\n"
    "The exit status is 1 where the server could not load it (\"supported\": false, with the\n"
    "problem).\n";

int cmd_inspect(int argc, char **argv)
{
    const char *path = NULL;
    bool json = false;
    struct err e;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            fputs(usage_text, stdout);
            return 0;
        }
        if (!strcmp(argv[i], "--json"))
            json = true;
        else if (argv[i][0] == '-' || path) {
            output_error("inspect", "%s %s; see tokend inspect --help",
                         argv[i][0] == '-' ? "unknown flag" : "one model at a time: unexpected",
                         argv[i]);
            return 2;
        } else
            path = argv[i];
    }
    if (!path) {
        output_error("inspect", "expected a MODEL; see tokend inspect --help");
        return 2;
    }
    log_setup(LOG_WARN, LOG_TEXT); /* what readers of files find strange */
    struct model_file *file = model_file_open(path, &e);
    if (!file) {
        output_error("inspect", "%s", e.msg);
        return 1;
    }
    json_t *all = inspect_model(file, path);
    const bool supported = json_is_true(json_object_get(all, "supported"));
    if (json) {
        json_dumpf(all, stdout, JSON_INDENT(2));
        putchar('\n');
    } else
        inspect_print(all);
    json_decref(all);
    model_file_close(file);
    return supported ? 0 : 1;
}
