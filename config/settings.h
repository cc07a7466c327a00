/* settings.h: every setting of the server, in one table.
 *
 * A row of the table (settings.c) has a name, a type, bounds, a default and a help text; it
 * makes the flag (--max-model-len), the environment variable (TOKEND_MAX_MODEL_LEN), the key
 * of the JSON config file ("max-model-len"), the checks and the --help text. What is given
 * twice: flag > environment > file > default.
 * Names are vLLM's where the meaning is the same. Called at start by one thread. */
#ifndef TOKEND_SETTINGS_H
#define TOKEND_SETTINGS_H

#include "err.h"

#include <stdint.h>
#include <stdio.h>

struct settings {
    const char *model; /* the positional argument, or --model */
    const char *config;

    const char *host;
    int64_t port;
    const char *api_key; /* NULL: none */
    bool allow_unauthenticated;
    const char *served_model_name; /* NULL: from the model file's name; commas separate aliases */
    int64_t max_queue_len;         /* sequences that may wait */
    int64_t drain_timeout;         /* seconds */

    int64_t max_model_len; /* 0: automatic */
    int64_t max_num_seqs;
    int64_t max_num_batched_tokens;
    int64_t target_itl_ms;
    int64_t block_size;
    int64_t kv_cache_memory;     /* bytes; 0: automatic */
    int64_t prefix_cache_memory; /* bytes; 0: automatic */
    const char *kv_cache_dtype;
    const char *dtype;
    const char *activation_bits;
    const char *quantization;
    bool enable_prefix_caching;
    bool async_scheduling;
    int64_t seed;              /* −1: a new one for each request */
    const char *chat_template; /* NULL: the model's; else a file */
    const char *generation_config;

    const char *repack_cache; /* NULL: none; "beside", or a directory */

    const char *device;
    double gpu_memory_utilization;
    bool enforce_eager;
    int64_t threads; /* 0: automatic */
    bool pin_threads;
    bool batch_invariant;

    const char *log_level;
    const char *log_format;

    void *owned; /* strings that the struct points to */
};

enum settings_result { SETTINGS_OK, SETTINGS_HELP, SETTINGS_ERROR };

/* Reads argv[1 … argc) (argv[0] is the subcommand's name), the environment and --config.
 * On SETTINGS_OK *s is filled and every value is inside its bounds. */
enum settings_result settings_read(struct settings *s, int argc, char **argv, struct err *e);
void settings_free(struct settings *);

/* Calls warn for each TOKEND_* variable that is no setting but nearly one. */
void settings_warn_environment(void (*warn)(const char *message));

void settings_print_help(FILE *out);

/* "64MiB", "2GiB", "512KiB", "4096B", or a bare number of GiB ("2", "0.5"). */
bool parse_size(const char *text, int64_t *bytes, struct err *e);
/* A decimal number above 0, at most 1. */
bool parse_fraction(const char *text, double *out, struct err *e);
/* One of the choices of setting `name`, which has some; the error does not name the setting. */
bool parse_choice(const char *name, const char *text, struct err *e);
/* A whole decimal number and nothing else, inside [min, max]. */
bool parse_int(const char *text, int64_t min, int64_t max, int64_t *out, struct err *e);

#endif
