/* cmd_inspect.c: what a model is, without loading it. */
#include "commands.h"

#include "inspect.h"
#include "log.h"

#include <stdio.h>
#include <string.h>

static const char usage_text[] =
    "usage: tokend inspect MODEL [--json]\n"
    "\n"
    "Says what a model is: architecture, sizes, tensors, tokenizer, chat templates, what ends an\n"
    "answer, licence; and warns of known traps. Reads headers only.\n"
    "\n"
    "  MODEL    a GGUF file, a Hugging Face directory, or a hub name in the local cache\n"
    "  --json   one JSON object\n";

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
            fprintf(stderr, "tokend inspect: %s: unexpected; see tokend inspect --help\n", argv[i]);
            return 2;
        } else
            path = argv[i];
    }
    if (!path) {
        fprintf(stderr, "tokend inspect: expected a MODEL; see tokend inspect --help\n");
        return 2;
    }
    log_setup(LOG_WARN, LOG_TEXT); /* what readers of files find strange */
    struct model_file *file = model_file_open(path, &e);
    if (!file) {
        fprintf(stderr, "tokend inspect: %s\n", e.msg);
        return 1;
    }
    json_t *all = inspect_model(file, path);
    if (json) {
        json_dumpf(all, stdout, JSON_INDENT(2));
        putchar('\n');
    } else
        inspect_print(all);
    json_decref(all);
    model_file_close(file);
    return 0;
}
