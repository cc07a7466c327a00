#include "settings.h"

#include "buf.h"
#include "edit_distance.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum setting_type { TEXT, INTEGER, SIZE, FRACTION, SWITCH, CHOICE };

struct setting {
    const char *name;
    enum setting_type type;
    size_t offset;
    int64_t min, max;    /* of INTEGER; a SIZE is from 1 byte to 4 EiB */
    const char *dflt;    /* as it would be written on the command line; NULL: unset */
    const char *choices; /* of CHOICE: "a|b|c" */
    const char *metavar;
    const char *help;
    const char *none; /* of a SIZE: what says what 0 would mean */
};

#define AT(field) offsetof(struct settings, field)

static const struct setting table[] = {
    {"model", TEXT, AT(model), 0, 0, NULL, NULL, "MODEL",
     "the model: a GGUF file, a Hugging Face directory, or a hub name in the local cache; as MODEL "
     "without a flag"},
    {"config", TEXT, AT(config), 0, 0, NULL, NULL, "FILE",
     "JSON file of settings: {\"port\": 8080, \"max-num-seqs\": 64}"},
    {"host", TEXT, AT(host), 0, 0, "127.0.0.1", NULL, "ADDRESS", "address to listen on"},
    {"port", INTEGER, AT(port), 1, 65535, "8000", NULL, "N", "port to listen on"},
    {"api-key", TEXT, AT(api_key), 0, 0, NULL, NULL, "KEY",
     "key that clients must send as a bearer token; better set as TOKEND_API_KEY: `ps` shows "
     "everybody the flags"},
    {"allow-unauthenticated", SWITCH, AT(allow_unauthenticated), 0, 0, "false", NULL, NULL,
     "listen beyond loopback without --api-key"},
    {"served-model-name", TEXT, AT(served_model_name), 0, 0, NULL, NULL, "NAME[,NAME]",
     "name of the model in the API; more names are aliases (default: the file's name)"},
    {"max-queue-len", INTEGER, AT(max_queue_len), 0, 1 << 20, "1024", NULL, "N",
     "sequences (one for each choice of a request) that may wait beyond --max-num-seqs; a request "
     "that would exceed it is refused with 429"},
    {"drain-timeout", INTEGER, AT(drain_timeout), 0, 86400, "30", NULL, "SECONDS",
     "time that running requests get after the first SIGTERM"},
    {"max-model-len", INTEGER, AT(max_model_len), 1, 1 << 24, NULL, NULL, "TOKENS",
     "longest prompt and answer together (default: the model's, shrunk to what memory holds)"},
    {"max-num-seqs", INTEGER, AT(max_num_seqs), 1, 4096, "64", NULL, "N",
     "most sequences that run at once"},
    {"max-num-batched-tokens", INTEGER, AT(max_num_batched_tokens), 1, 1 << 16, "512", NULL, "N",
     "token budget of one step, prefill and decode together"},
    {"target-itl-ms", INTEGER, AT(target_itl_ms), 0, 3600000, "100", NULL, "MS",
     "time between two tokens of a running stream that other requests' prompts should leave; a "
     "request's header x-slo-tpot-ms overrides it; 0: no limit but --max-num-batched-tokens"},
    {"block-size", INTEGER, AT(block_size), 16, 1024, "16", NULL, "TOKENS",
     "tokens of a KV page, a multiple of 16"},
    {"kv-cache-memory", SIZE, AT(kv_cache_memory), 0, 0, NULL, NULL, "SIZE",
     "memory of the KV pages: 64MiB, 2GiB; a bare number is GiB (default: what max-num-seqs "
     "sequences of max-model-len can use, at most a quarter of RAM and 3/4 of what the model "
     "leaves; on a GPU all that is left)",
     "leave it out for the default"},
    {"prefix-cache-memory", SIZE, AT(prefix_cache_memory), 0, 0, NULL, NULL, "SIZE",
     "KV pages of requests that are over are kept for those that begin alike; while these take "
     "more than this, new pages replace the ones used longest ago instead of taking memory never "
     "used before (default: half of --kv-cache-memory, on a GPU all of it)",
     "--no-enable-prefix-caching keeps none"},
    {"kv-cache-dtype", CHOICE, AT(kv_cache_dtype), 0, 0, "auto",
     "auto|f16|bf16|f32|int8|fp8|fp8_e4m3", NULL,
     "type of K and V; auto: f32 for F32 models, else f16; int8: half as large as f16, one scale a "
     "token and head; fp8, the same as fp8_e4m3: likewise, on a GPU"},
    {"dtype", CHOICE, AT(dtype), 0, 0, "auto", "auto|float32", NULL,
     "float32: quantised matrices become float32 while loading, activations too: exact, and four "
     "to eight times as large"},
    {"activation-bits", CHOICE, AT(activation_bits), 0, 0, "auto", "auto|8|16", NULL,
     "bits of the activations that quantised matrices are multiplied with; BF16 matrices take "
     "them as bf16 with 8, as float32 with 16 (CPU); 16 is far more exact and takes up to twice "
     "the time; auto: 16 for models with experts and with --dtype float32, else 8"},
    {"quantization", CHOICE, AT(quantization), 0, 0, "none",
     "none|q8_0|q6_k|q5_k|q5_1|q5_0|q4_k|q4_1|q4_0", NULL,
     "quantise the float matrices of the model while loading: smaller and faster; the fewer bits, "
     "the less exact"},
    {"enable-prefix-caching", SWITCH, AT(enable_prefix_caching), 0, 0, "true", NULL, NULL,
     "share KV pages between requests that begin alike"},
    {"async-scheduling", SWITCH, AT(async_scheduling), 0, 0, "true", NULL, NULL,
     "on a GPU: start each step before the tokens of the last one are known, so that it never "
     "idles between them; tokens are the same either way"},
    {"seed", INTEGER, AT(seed), 0, INT64_MAX, NULL, NULL, "N",
     "seed of requests that bring none (default: a new one for each)"},
    {"chat-template", TEXT, AT(chat_template), 0, 0, NULL, NULL, "FILE",
     "Jinja chat template to use instead of the model's"},
    {"generation-config", CHOICE, AT(generation_config), 0, 0, "auto", "auto|none", NULL,
     "sampling defaults of requests; auto: the model's generation_config.json"},
    {"repack-cache", TEXT, AT(repack_cache), 0, 0, NULL, NULL, "beside|DIR",
     "keep the weights as the processor wants them in a file beside the model, or in DIR: as large "
     "as the model, written in the background by the first start, mapped by the next ones, which "
     "are ready sooner (default: none)"},
    {"device", CHOICE, AT(device), 0, 0, "auto", "auto|cuda|cpu", NULL,
     "what runs the model; auto: the CPU, as cuda is new and was tested under emulation only"},
    {"gpu-memory-utilization", FRACTION, AT(gpu_memory_utilization), 0, 0, "0.9", NULL, "FRACTION",
     "share of the GPU's memory that may be used; what weights and activations leave of it is for "
     "KV pages"},
    {"enforce-eager", SWITCH, AT(enforce_eager), 0, 0, "false", NULL, NULL,
     "launch the GPU's kernels one by one, not as CUDA graphs: slower; to find faults"},
    {"threads", INTEGER, AT(threads), 0, 1024, NULL, NULL, "N",
     "threads that compute; 0: all cores that it may use (the default)"},
    {"pin-threads", SWITCH, AT(pin_threads), 0, 0, "false", NULL, NULL,
     "keep each of them on a core of its own; for a machine, or a set of cores (taskset, cpuset), "
     "that nothing else uses"},
    {"batch-invariant", SWITCH, AT(batch_invariant), 0, 0, "false", NULL, NULL,
     "answers do not depend, in any bit, on what else runs: on a GPU float weights are then not "
     "multiplied by cuBLASLt, which takes longer for prompts; the CPU always does so"},
    {"log-level", CHOICE, AT(log_level), 0, 0, "info", "debug|info|warn|error", NULL,
     "least level that is logged"},
    {"log-format", CHOICE, AT(log_format), 0, 0, "text", "text|json", NULL,
     "log lines as text or as JSON objects"},
};
enum { N_SETTINGS = sizeof table / sizeof table[0] };

/* What settings own: a list of copied strings. */
struct owned {
    struct owned *next;
    char text[];
};

static const char *own(struct settings *s, const char *text)
{
    size_t n = strlen(text);
    struct owned *o = malloc(sizeof *o + n + 1);
    if (!o)
        return NULL;
    memcpy(o->text, text, n + 1);
    o->next = s->owned;
    s->owned = o;
    return o->text;
}

void settings_free(struct settings *s)
{
    for (struct owned *o = s->owned, *next; o; o = next) {
        next = o->next;
        free(o);
    }
    *s = (struct settings){0};
}

bool parse_int(const char *text, int64_t min, int64_t max, int64_t *out, struct err *e)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    bool whole = (*text == '-' || (*text >= '0' && *text <= '9')) && *end == '\0' && end != text;
    if (!whole || errno == ERANGE || v < min || v > max)
        return err_set(e, ERR_INVALID, "expected a whole number from %lld to %lld", (long long)min,
                       (long long)max);
    *out = v;
    return true;
}

bool parse_size(const char *text, int64_t *bytes, struct err *e)
{
    static const struct {
        const char *unit;
        double bytes;
    } units[] = {{"", 0x1p30},    {"B", 1},        {"KiB", 0x1p10},
                 {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
    char *end;
    double v =
        *text >= '0' && *text <= '9' && text[1] != 'x' && text[1] != 'X' ? strtod(text, &end) : NAN;
    if (isfinite(v))
        for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
            if (!strcmp(end, units[i].unit) && v * units[i].bytes >= 1 &&
                v * units[i].bytes < 0x1p62) {
                *bytes = (int64_t)(v * units[i].bytes);
                return true;
            }
    return err_set(e, ERR_INVALID, "expected a size such as 64MiB or 2GiB (a bare number is GiB)");
}

bool parse_fraction(const char *text, double *out, struct err *e)
{
    char *end = NULL;
    const size_t n = strspn(text, "0123456789.");
    const double v = n > 0 && text[n] == '\0' ? strtod(text, &end) : 0;
    if (!end || *end || !(v > 0 && v <= 1))
        return err_set(e, ERR_INVALID, "expected a number above 0, at most 1, such as 0.9");
    *out = v;
    return true;
}

static bool in_choices(const char *choices, const char *text)
{
    size_t n = strlen(text);
    for (const char *p = choices; *p;) {
        size_t len = strcspn(p, "|");
        if (len == n && !memcmp(p, text, n))
            return true;
        p += len + (p[len] == '|');
    }
    return false;
}

static bool set_switch(const char *text, bool *out, struct err *e)
{
    if (!strcmp(text, "true") || !strcmp(text, "1"))
        *out = true;
    else if (!strcmp(text, "false") || !strcmp(text, "0"))
        *out = false;
    else
        return err_set(e, ERR_INVALID, "expected true or false");
    return true;
}

static bool is_zero(const char *size)
{
    char *end;
    return *size >= '0' && *size <= '9' && strtod(size, &end) == 0 &&
           strspn(end, "KMGTiB") == strlen(end);
}

/* Checks `text` against the row and stores it; the error does not name the source yet. */
static bool set_value(struct settings *s, const struct setting *row, const char *text,
                      struct err *e)
{
    void *field = (char *)s + row->offset;
    switch (row->type) {
    case INTEGER:
        return parse_int(text, row->min, row->max, field, e);
    case SIZE:
        if (is_zero(text))
            return err_set(e, ERR_INVALID, "expected more than 0; %s", row->none);
        return parse_size(text, field, e);
    case FRACTION:
        return parse_fraction(text, field, e);
    case SWITCH:
        return set_switch(text, field, e);
    case CHOICE:
        if (!in_choices(row->choices, text))
            return err_set(e, ERR_INVALID, "expected one of %s", row->choices);
        break;
    case TEXT:
        if (!*text)
            return err_set(e, ERR_INVALID, "expected a value, not an empty one");
        break;
    }
    const char *copy = own(s, text);
    if (!copy)
        return err_set(e, ERR_MEMORY, "out of memory");
    *(const char **)field = copy;
    return true;
}

static const struct setting *find(const char *name, size_t n)
{
    for (size_t i = 0; i < N_SETTINGS; i++)
        if (strlen(table[i].name) == n && !memcmp(table[i].name, name, n))
            return &table[i];
    return NULL;
}

/* The setting that was likely meant: one that differs in two letters; of whose name this is a part;
 * or that differs in a third of the letters. NULL: none. */
static const char *nearest(const char *name, size_t n)
{
    const char *best = NULL, *whole = NULL;
    size_t least = n / 3 + 1;
    for (size_t i = 0; i < N_SETTINGS; i++) {
        size_t d = edit_distance(name, n, table[i].name);
        if (d <= least && (!best || d < least)) {
            best = table[i].name;
            least = d;
        }
        if (n >= 4 && !whole && memmem(table[i].name, strlen(table[i].name), name, n))
            whole = table[i].name;
    }
    return best && (least <= 2 || !whole) ? best : whole;
}

/* An error of the given words about a setting that is not there. */
static bool unknown(struct err *e, const char *name, size_t n, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static bool unknown(struct err *e, const char *name, size_t n, const char *fmt, ...)
{
    const char *near = nearest(name, n);
    char what[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return err_set(e, ERR_INVALID, "%s%s%s; `tokend serve --help` lists all", what,
                   near ? ": did you mean --" : "", near ? near : "");
}

bool parse_choice(const char *name, const char *text, struct err *e)
{
    const char *choices = find(name, strlen(name))->choices;
    return in_choices(choices, text) || err_set(e, ERR_INVALID, "expected one of %s", choices);
}

static bool read_defaults(struct settings *s, struct err *e)
{
    *s = (struct settings){.seed = -1};
    for (size_t i = 0; i < N_SETTINGS; i++)
        if (table[i].dflt && !set_value(s, &table[i], table[i].dflt, e))
            return err_prefix(e, "default of --%s", table[i].name);
    return true;
}

/* A JSON value as it would be written on the command line. */
static bool json_as_text(const json_t *v, char *text, size_t cap, struct err *e)
{
    if (json_is_string(v)) {
        if (json_string_length(v) >= cap)
            return err_set(e, ERR_INVALID, "longer than %zu bytes", cap - 1);
        snprintf(text, cap, "%s", json_string_value(v));
    } else if (json_is_integer(v))
        snprintf(text, cap, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        snprintf(text, cap, "%.17g", json_real_value(v));
    else if (json_is_boolean(v))
        snprintf(text, cap, "%s", json_is_true(v) ? "true" : "false");
    else
        return err_set(e, ERR_INVALID, "expected a string, a number, true or false");
    return true;
}

/* given: whether the file has had the row, under this spelling (jansson refuses that) or with '_'.
 */
static bool read_file_entry(struct settings *s, bool given[N_SETTINGS], const char *path,
                            const char *key, const json_t *v, struct err *e)
{
    char name[64], text[4096];
    if (strlen(key) >= sizeof name)
        return err_set(e, ERR_INVALID, "%s: unknown setting \"%.60s…\"", path, key);
    for (size_t i = 0; i <= strlen(key); i++)
        name[i] = key[i] == '_' ? '-' : key[i];
    const struct setting *row = find(name, strlen(name));
    if (row && row->offset == AT(config))
        return err_set(e, ERR_INVALID, "%s: \"config\": a file of settings cannot name another",
                       path);
    if (!row)
        return unknown(e, name, strlen(name), "%s: unknown setting \"%s\"", path, key);
    if (given[row - table])
        return err_set(e, ERR_INVALID, "%s: \"%s\" is given twice", path, row->name);
    given[row - table] = true;
    if (json_is_null(v))
        return true;
    if (!json_as_text(v, text, sizeof text, e) || !set_value(s, row, text, e))
        return err_prefix(e, "%s: \"%s\"", path, key);
    return true;
}

static bool read_file(struct settings *s, const char *path, struct err *e)
{
    json_error_t je;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &je);
    if (!root && je.line > 0)
        return err_set(e, ERR_INVALID, "--config %s: %s (line %d)", path, je.text, je.line);
    if (!root)
        return err_set(e, ERR_INVALID, "--config: %s", je.text);
    bool ok = json_is_object(root) ||
              err_set(e, ERR_INVALID, "--config %s: expected a JSON object of settings", path);
    bool given[N_SETTINGS] = {false};
    const char *key;
    json_t *value;
    if (ok)
        json_object_foreach(
            root, key, value) if (!(ok = read_file_entry(s, given, path, key, value, e))) break;
    json_decref(root);
    return ok;
}

/* TOKEND_MAX_NUM_SEQS of max-num-seqs. */
static void variable_of(const char *setting, char name[64])
{
    int n = sprintf(name, "%s", "TOKEND_");
    for (const char *p = setting; *p; p++)
        name[n++] = *p == '-' ? '_' : (char)(*p - ('a' <= *p && *p <= 'z' ? 32 : 0));
    name[n] = '\0';
}

/* And back, the prefix being taken off; false when it is no such name. */
static bool setting_of(const char *variable, size_t n, char name[64])
{
    if (n >= 64)
        return false;
    for (size_t i = 0; i < n; i++)
        name[i] = variable[i] == '_'
                      ? '-'
                      : (char)(variable[i] + ('A' <= variable[i] && variable[i] <= 'Z' ? 32 : 0));
    name[n] = '\0';
    return true;
}

void settings_warn_environment(void (*warn)(const char *message))
{
    static const char prefix[] = "TOKEND_";
    for (char **at = environ; *at; at++) {
        char name[64], right[64], message[256];
        const char *rest = *at + sizeof prefix - 1;
        if (strncmp(*at, prefix, sizeof prefix - 1) ||
            !setting_of(rest, strcspn(rest, "="), name) || find(name, strlen(name)))
            continue;
        const char *near = nearest(name, strlen(name));
        if (!near)
            continue; /* of a test, or of Kubernetes, which describes Services so */
        variable_of(near, right);
        snprintf(message, sizeof message, "the variable %.*s is no setting: did you mean %s?",
                 (int)strcspn(*at, "="), *at, right);
        warn(message);
    }
}

static bool read_environment(struct settings *s, struct err *e)
{
    for (size_t i = 0; i < N_SETTINGS; i++) {
        char name[64];
        variable_of(table[i].name, name);
        const char *text = getenv(name);
        /* Kubernetes gives every container TOKEND_PORT=tcp://… of a Service called "tokend". */
        if (text && !strncmp(text, "tcp://", 6))
            continue;
        if (text && !set_value(s, &table[i], text, e))
            return err_prefix(e, "%s=%s", name, text);
    }
    return true;
}

/* One flag at argv[*i]: "--name value", "--name=value", "--switch" or "--no-switch".
 * Advances *i over what it used. s NULL: only looks (for --config). */
static bool read_flag(struct settings *s, int argc, char **argv, int *i, const struct setting **row,
                      const char **value, struct err *e)
{
    const char *flag = argv[*i] + 2;
    size_t n = strcspn(flag, "=");
    *value = flag[n] == '=' ? flag + n + 1 : NULL;
    *row = find(flag, n);
    bool no = false;
    if (!*row && n > 3 && !strncmp(flag, "no-", 3)) {
        *row = find(flag + 3, n - 3);
        no = *row && (*row)->type == SWITCH;
        if (no && *value)
            return err_set(e, ERR_INVALID, "%s: --no-%s takes no value; or say --%s=false",
                           argv[*i], (*row)->name, (*row)->name);
        if (!no)
            *row = NULL;
    }
    if (!*row)
        return unknown(e, flag, n, "unknown flag %s", argv[*i]);
    if ((*row)->type == SWITCH) {
        if (!*value)
            *value = no ? "false" : "true";
    } else if (!*value) {
        if (*i + 1 >= argc)
            return err_set(e, ERR_INVALID, "--%s: expected a value after it", (*row)->name);
        *value = argv[++*i];
    }
    if (s && (*row)->offset != AT(model) && !set_value(s, *row, *value, e))
        return err_prefix(e, "--%s %s", (*row)->name, *value);
    return true;
}

/* The model of the command line, which names one once. */
static bool set_model(struct settings *s, const char *name, bool *given, struct err *e)
{
    if (*given)
        return err_set(e, ERR_INVALID, "one model at a time: \"%s\" comes after \"%s\"", name,
                       s->model);
    *given = true;
    return (s->model = own(s, name)) || err_set(e, ERR_MEMORY, "out of memory");
}

static bool read_flags(struct settings *s, int argc, char **argv, struct err *e)
{
    bool model_given = false;
    for (int i = 1; i < argc; i++) {
        const struct setting *row;
        const char *value;
        if (!strncmp(argv[i], "--", 2)) {
            if (!read_flag(s, argc, argv, &i, &row, &value, e))
                return false;
            if (row->offset == AT(model) && !set_model(s, value, &model_given, e))
                return false;
        } else if (argv[i][0] == '-' && argv[i][1]) {
            return unknown(e, argv[i], strlen(argv[i]), "unknown flag %s", argv[i]);
        } else if (!set_model(s, argv[i], &model_given, e)) {
            return false;
        }
    }
    return true;
}

/* The config file's name has the precedence flag > environment, before either is read. */
static const char *config_path(int argc, char **argv)
{
    const char *path = getenv("TOKEND_CONFIG");
    for (int i = 1; i < argc; i++) {
        const struct setting *row;
        const char *value;
        if (!strncmp(argv[i], "--", 2) && read_flag(NULL, argc, argv, &i, &row, &value, NULL) &&
            row->offset == AT(config))
            path = value;
    }
    return path;
}

static bool is_loopback(const char *host)
{
    unsigned char address[4];
    return (inet_pton(AF_INET, host, address) == 1 && address[0] == 127) || !strcmp(host, "::1") ||
           !strcmp(host, "localhost");
}

static bool check_together(const struct settings *s, struct err *e)
{
    if (s->block_size % 16)
        return err_set(e, ERR_INVALID, "--block-size %lld: expected a multiple of 16",
                       (long long)s->block_size);
    if (s->max_num_batched_tokens < s->max_num_seqs)
        return err_set(e, ERR_INVALID,
                       "--max-num-batched-tokens %lld: expected at least --max-num-seqs (%lld)",
                       (long long)s->max_num_batched_tokens, (long long)s->max_num_seqs);
    if (!is_loopback(s->host) && !s->api_key && !s->allow_unauthenticated)
        return err_set(e, ERR_INVALID,
                       "--host %s listens beyond this machine: set TOKEND_API_KEY, or "
                       "--allow-unauthenticated if everybody may use it",
                       s->host);
    if (!s->model)
        return err_set(e, ERR_INVALID,
                       "expected a model: tokend serve MODEL, --model MODEL, or TOKEND_MODEL; see "
                       "tokend serve --help");
    return true;
}

enum settings_result settings_read(struct settings *s, int argc, char **argv, struct err *e)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return SETTINGS_HELP;
    const char *path = config_path(argc, argv);
    if (read_defaults(s, e) && (!path || read_file(s, path, e)) && read_environment(s, e) &&
        read_flags(s, argc, argv, e) && check_together(s, e))
        return SETTINGS_OK;
    settings_free(s);
    return SETTINGS_ERROR;
}

static void print_wrapped(FILE *out, const char *text, int indent)
{
    int column = indent;
    for (const char *p = text; *p;) {
        int n = (int)strcspn(p, " ");
        if (column > indent && column + 1 + n > 96) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        }
        fprintf(out, "%s%.*s", column > indent ? " " : "", n, p);
        column += n + (column > indent);
        p += n + (p[n] == ' ');
    }
}

void settings_print_help(FILE *out)
{
    fprintf(out,
            "usage: tokend serve MODEL [--flag value ...]\n\n"
            "MODEL is a GGUF file, a Hugging Face directory, or a hub name in the local cache.\n"
            "Every flag can also be set as an environment variable\n"
            "(--max-num-seqs: TOKEND_MAX_NUM_SEQS) or in a JSON file (--config);\n"
            "flag > environment > file > default.\n\n");
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *row = &table[i];
        bool on = row->type == SWITCH && !strcmp(row->dflt, "true");
        char flag[128];
        snprintf(flag, sizeof flag, "--%s%s%s%s", on ? "[no-]" : "", row->name,
                 row->type == SWITCH ? "" : " ",
                 row->type == SWITCH   ? ""
                 : row->type == CHOICE ? row->choices
                                       : row->metavar);
        fprintf(out, "  %s\n        ", flag);
        print_wrapped(out, row->help, 8);
        if (row->dflt)
            fprintf(out, " [%s]", row->dflt);
        fputc('\n', out);
    }
}
