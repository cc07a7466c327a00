/* main.c: the program's subcommands. */
#include "commands.h"
#include "output.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
    {"plan", "plan MODEL       say what a model needs of a device's memory (plan --help)",
     cmd_plan},
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

/* A page of a mapped file is gone: the file was cut while in use, or its disk failed. */
static void on_bus_error(int signal, siginfo_t *info, void *context)
{
    static const char text[] = "tokend: a mapped model file can no longer be read: it was made "
                               "shorter while in use, or its disk failed\n";
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (info->si_code != BUS_ADRERR) { /* it takes its usual course */
        (void)sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
        raise(signal);
        return;
    }
    while (atomic_flag_test_and_set(&told)) /* several threads may read there at once */
        pause();
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(2);
    _exit(1);
}

int main(int argc, char **argv)
{
    const struct sigaction bus = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &bus, NULL);
    return finish(argc > 1 ? argv[1] : "", run(argc, argv));
}
