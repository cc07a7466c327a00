/* commands.h: the subcommands of the program. argv[0] is the subcommand's name; each returns
 * the exit status: 0, 1 after a failure, 2 after a wrong command line. */
#ifndef TOKEND_COMMANDS_H
#define TOKEND_COMMANDS_H

#include <stdbool.h>

int cmd_serve(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_claims(int argc, char **argv); /* bench claims */
int cmd_tokenize(int argc, char **argv);
int cmd_render(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_plan(int argc, char **argv);

#endif
