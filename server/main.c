/* main.c: the program's subcommands. */
#include "commands.h"
#include "output.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *help;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"serve", "serve MODEL      answer the OpenAI API over HTTP (serve --help: all settings)",
     cmd_serve},
    {"bench", "bench MODEL      measure prefill and decode speed (bench --help: all flags)",
     cmd_bench},
    {"tokenize", "tokenize MODEL   print the token ids of texts (tokenize --help)", cmd_tokenize},
    {"render", "render ...       print the prompt that a chat template makes (render --help)",
     cmd_render},
    {"inspect", "inspect MODEL    say what a model is and warn of traps (inspect --help)",
     cmd_inspect},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void usage(FILE *out)
{
    fprintf(out, "usage: tokend COMMAND ...\n\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  tokend %s\n", commands[i].help);
    fprintf(out, "  tokend help COMMAND     what COMMAND --help says\n"
                 "  tokend --version\n");
}

/* The status of a command, or 1 where what it printed did not arrive. */
static int finish(const char *name, int status)
{
    struct err e;
    if (status != 0 || output_flush(&e))
        return status;
    fprintf(stderr, "tokend %s: %s\n", name, e.msg);
    return 1;
}

static int run(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "help") && argc > 2)
        return run(3, (char *[]){argv[0], argv[2], "--help", NULL});
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (!strcmp(name, commands[i].name))
            return commands[i].run(argc - 1, argv + 1);
    if (!strcmp(name, "--version")) {
        puts("tokend " TOKEND_VERSION);
        return 0;
    }
    bool help = !strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help");
    if (*name && !help)
        fprintf(stderr, "tokend: unknown command \"%s\"\n\n", name);
    usage(help ? stdout : stderr);
    return help ? 0 : 2;
}

int main(int argc, char **argv)
{
    return finish(argc > 1 ? argv[1] : "", run(argc, argv));
}
