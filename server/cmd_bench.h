/* cmd_bench.h: `tokend bench MODEL`: throughput of prefill and decode through the real engine.
 * argv[0] is the subcommand's name. Returns the exit status. */
#ifndef TOKEND_CMD_BENCH_H
#define TOKEND_CMD_BENCH_H

int cmd_bench(int argc, char **argv);

#endif
