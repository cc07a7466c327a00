#include "settings.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test.h"

#define READ(s, e, ...)                                                                            \
    settings_read(s, sizeof((char *[]){"serve", __VA_ARGS__}) / sizeof(char *),                    \
                  (char *[]){"serve", __VA_ARGS__}, e)

static void refused(const char *expected, int argc, char **argv)
{
    struct settings s;
    struct err e = {0};
    assert_int_equal(settings_read(&s, argc, argv, &e), SETTINGS_ERROR);
    assert_contains(e.msg, expected);
}
#define REFUSED(expected, ...)                                                                     \
    refused(expected, sizeof((char *[]){"serve", __VA_ARGS__}) / sizeof(char *),                   \
            (char *[]){"serve", __VA_ARGS__})

static void write_config(char *path, const char *text)
{
    strcpy(path, "/tmp/tokend-settings-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

/* What other tests are told so (TOKEND_MODEL, TOKEND_SEED) is a setting here. */
static int clear_environment(void **state)
{
    for (char **at = environ; *at;) {
        char name[64];
        const size_t n = strcspn(*at, "=");
        if (strncmp(*at, "TOKEND_", 7) || n >= sizeof name) {
            at++;
            continue;
        }
        memcpy(name, *at, n);
        name[n] = 0;
        unsetenv(name); /* moves the next one here */
    }
    return 0;
}

static void defaults_are_those_of_the_table(void **state)
{
    struct settings s;
    struct err e;
    assert_int_equal(READ(&s, &e, "m.gguf"), SETTINGS_OK);
    assert_string_equal(s.model, "m.gguf");
    assert_string_equal(s.host, "127.0.0.1");
    assert_int_equal(s.port, 8000);
    assert_int_equal(s.block_size, 16);
    assert_true(s.enable_prefix_caching);
    assert_true(s.async_scheduling);
    assert_int_equal(s.seed, -1);
    assert_int_equal(s.max_model_len, 0);
    assert_null(s.api_key);
    settings_free(&s);
}

static void flag_beats_environment_beats_file_beats_default(void **state)
{
    struct settings s;
    struct err e;
    char path[64];
    write_config(path, "{\"port\": 1001, \"max-num-seqs\": 11, \"threads\": 3, \"seed\": null}");
    setenv("TOKEND_PORT", "1002", 1);
    setenv("TOKEND_MAX_NUM_SEQS", "12", 1);
    assert_int_equal(READ(&s, &e, "m", "--config", path, "--port=1003"), SETTINGS_OK);
    assert_int_equal(s.port, 1003);
    assert_int_equal(s.max_num_seqs, 12);
    assert_int_equal(s.threads, 3);
    assert_int_equal(s.max_num_batched_tokens, 512);
    settings_free(&s);
    unsetenv("TOKEND_PORT");
    unsetenv("TOKEND_MAX_NUM_SEQS");
    unlink(path);
}

static void a_kubernetes_service_of_our_name_is_no_setting(void **state)
{
    struct settings s;
    struct err e;
    setenv("TOKEND_PORT", "tcp://10.0.0.1:8000", 1);
    assert_int_equal(READ(&s, &e, "m"), SETTINGS_OK);
    assert_int_equal(s.port, 8000);
    settings_free(&s);
    unsetenv("TOKEND_PORT");
}

static void the_model_may_have_a_flag(void **state)
{
    struct settings s;
    struct err e;
    char path[64];
    write_config(path, "{\"model\": \"of the file\"}");
    assert_int_equal(READ(&s, &e, "--config", path), SETTINGS_OK);
    assert_string_equal(s.model, "of the file");
    settings_free(&s);
    setenv("TOKEND_MODEL", "of the environment", 1);
    assert_int_equal(READ(&s, &e, "--config", path), SETTINGS_OK);
    assert_string_equal(s.model, "of the environment");
    settings_free(&s);
    assert_int_equal(READ(&s, &e, "--config", path, "--model", "m.gguf", "--port", "80"),
                     SETTINGS_OK);
    assert_string_equal(s.model, "m.gguf");
    settings_free(&s);
    assert_int_equal(READ(&s, &e, "--model=m.gguf"), SETTINGS_OK);
    assert_string_equal(s.model, "m.gguf");
    settings_free(&s);
    REFUSED("one model at a time: \"b\" comes after \"a\"", "a", "--model", "b");
    REFUSED("one model at a time: \"b\" comes after \"a\"", "--model", "a", "b");
    REFUSED("--model: expected a value", "--model");
    unsetenv("TOKEND_MODEL");
    unlink(path);
}

static char warned[1000];
static void on_warning(const char *message)
{
    strcat(strcat(warned, message), "\n");
}

static void misspelt_names_are_told_the_nearest(void **state)
{
    static const char *const names[] = {
        "TOKEND_MAX_NUM_SEQ",  "TOKEND_MODEL_LEN", "TOKEND_SERVICE_HOST", "TOKEND_PORT_8000_TCP",
        "TOKEND_SERVICE_PORT", "TOKEND_CORPUS",    "TOKEND_MAX_NUM_SEQS", "TOKEND"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        setenv(names[i], "1", 1);
    settings_warn_environment(on_warning);
    assert_contains(warned,
                    "TOKEND_MAX_NUM_SEQ is no setting: did you mean TOKEND_MAX_NUM_SEQS?\n");
    assert_contains(warned, "TOKEND_MODEL_LEN is no setting: did you mean TOKEND_MAX_MODEL_LEN?\n");
    for (const char *p = strchr(warned, '\n'), *last = NULL; p; last = p, p = strchr(p + 1, '\n'))
        assert_true(!last || !strchr(p + 1, '\n')); /* two lines */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    REFUSED("unknown flag --max-nun-seqs: did you mean --max-num-seqs; `tokend", "m",
            "--max-nun-seqs", "4");
    REFUSED("unknown flag --wild; `tokend", "m", "--wild");
}

static void a_switch_has_a_no_form(void **state)
{
    struct settings s;
    struct err e;
    assert_int_equal(READ(&s, &e, "m", "--no-enable-prefix-caching"), SETTINGS_OK);
    assert_false(s.enable_prefix_caching);
    settings_free(&s);
    REFUSED("--no-enable-prefix-caching takes no value; or say --enable-prefix-caching=false", "m",
            "--no-enable-prefix-caching=true");
    REFUSED("unknown flag --no-port", "m", "--no-port");
}

static void bad_values_name_the_flag_and_what_would_be_right(void **state)
{
    REFUSED("--port 99999: expected a whole number from 1 to 65535", "m", "--port", "99999");
    REFUSED("--port 80x: expected a whole number from 1 to 65535", "m", "--port", "80x");
    REFUSED("--target-itl-ms 1.5: expected a whole number from 0 to 3600000", "m",
            "--target-itl-ms", "1.5");
    REFUSED("--port  80: expected", "m", "--port", " 80");
    REFUSED("--port: expected a value", "m", "--port");
    REFUSED("--activation-bits 12: expected one of auto|8|16", "m", "--activation-bits", "12");
    REFUSED("--kv-cache-dtype int3: expected one of auto|f16", "m", "--kv-cache-dtype", "int3");
    REFUSED("--kv-cache-memory 2Gb: expected a size", "m", "--kv-cache-memory", "2Gb");
    REFUSED("--kv-cache-memory 0GiB: expected more than 0; leave it out for the default", "m",
            "--kv-cache-memory", "0GiB");
    REFUSED("--prefix-cache-memory 0: expected more than 0; --no-enable-prefix-caching keeps none",
            "m", "--prefix-cache-memory", "0");
    REFUSED("--prefix-cache-memory 0Gb: expected a size", "m", "--prefix-cache-memory", "0Gb");
    REFUSED("--block-size 24: expected a multiple of 16", "m", "--block-size", "24");
    REFUSED("unknown flag --prot", "m", "--prot", "80");
    REFUSED("unknown flag -p", "m", "-p");
    REFUSED("one model at a time", "m", "n");
    REFUSED("expected a model", "--port", "80");
    REFUSED("at least --max-num-seqs (64)", "m", "--max-num-batched-tokens", "32");
}

static void listening_beyond_loopback_needs_a_key_or_consent(void **state)
{
    struct settings s;
    struct err e;
    REFUSED("--allow-unauthenticated", "m", "--host", "0.0.0.0");
    REFUSED("--allow-unauthenticated", "m", "--host", "127.example.org");
    assert_int_equal(READ(&s, &e, "m", "--host", "0.0.0.0", "--api-key", "k"), SETTINGS_OK);
    settings_free(&s);
    assert_int_equal(READ(&s, &e, "m", "--host", "::", "--allow-unauthenticated"), SETTINGS_OK);
    settings_free(&s);
    assert_int_equal(READ(&s, &e, "m", "--host", "::1"), SETTINGS_OK);
    settings_free(&s);
}

static void config_files_are_checked_like_flags(void **state)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"{\"port\": 0}", "\"port\": expected a whole number from 1 to 65535"},
        {"{\"prot\": 80}", "unknown setting \"prot\""},
        {"{\"port\": [80]}", "\"port\": expected a string, a number"},
        {"[1]", "expected a JSON object"},
        {"{\"port\": 80", "line 1"},
        {"{\"port\": 80, \"port\": 81}", "duplicate"},
        {"{\"max-num-seqs\": 8, \"max_num_seqs\": 9}", "\"max-num-seqs\" is given twice"},
        {"{\"max_num_seqs\": null, \"max-num-seqs\": 9}", "\"max-num-seqs\" is given twice"},
        {"{\"prefix-cache-memory\": 0}", "--no-enable-prefix-caching keeps none"},
        {"{\"config\": \"x\"}", "\"config\": a file of settings cannot name another"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[64];
        write_config(path, cases[i].text);
        REFUSED(cases[i].error, "m", "--config", path);
        unlink(path);
    }
    REFUSED("/nowhere/config.json", "m", "--config", "/nowhere/config.json");
}

static void sizes_have_binary_units_and_a_bare_number_is_gib(void **state)
{
    static const struct {
        const char *text;
        int64_t bytes;
    } good[] = {{"64MiB", 64 << 20}, {"2GiB", INT64_C(2) << 30}, {"2", INT64_C(2) << 30},
                {"0.5", 1 << 29},    {"512KiB", 512 << 10},      {"4096B", 4096}};
    static const char *const bad[] = {"",    "-1",    "x",    "2GB",   "0",
                                      "nan", "1e300", "0x10", "2 GiB", "inf"};
    int64_t bytes;
    struct err e;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(parse_size(good[i].text, &bytes, &e));
        assert_int_equal(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(parse_size(bad[i], &bytes, &e));
}

static void a_fraction_is_above_0_and_at_most_1(void **state)
{
    static const char *const bad[] = {"0", "1.01", "-0.5", "90%", "nan", "1e-1", "", ".", "0.5.5"};
    struct settings s;
    struct err e;
    double v = 0;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (parse_fraction(bad[i], &v, &e))
            fail_msg("\"%s\" is taken as %g", bad[i], v);
    assert_true(parse_fraction("1", &v, &e) && v == 1);
    assert_int_equal(READ(&s, &e, "m"), SETTINGS_OK);
    assert_true(s.gpu_memory_utilization == 0.9);
    settings_free(&s);
    assert_int_equal(READ(&s, &e, "m", "--gpu-memory-utilization", "0.25"), SETTINGS_OK);
    assert_true(s.gpu_memory_utilization == 0.25);
    settings_free(&s);
    assert_int_equal(READ(&s, &e, "m", "--enforce-eager"), SETTINGS_OK);
    assert_true(s.enforce_eager);
    settings_free(&s);
    REFUSED("--gpu-memory-utilization 2: expected a number above 0, at most 1", "m",
            "--gpu-memory-utilization", "2");
    REFUSED("--device gpu: expected one of auto|cuda|cpu", "m", "--device", "gpu");
}

static void help_is_asked_for_anywhere(void **state)
{
    struct settings s;
    struct err e;
    assert_int_equal(READ(&s, &e, "--port", "99999", "--help"), SETTINGS_HELP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_table),
        cmocka_unit_test(flag_beats_environment_beats_file_beats_default),
        cmocka_unit_test(a_kubernetes_service_of_our_name_is_no_setting),
        cmocka_unit_test(the_model_may_have_a_flag),
        cmocka_unit_test(misspelt_names_are_told_the_nearest),
        cmocka_unit_test(a_switch_has_a_no_form),
        cmocka_unit_test(bad_values_name_the_flag_and_what_would_be_right),
        cmocka_unit_test(listening_beyond_loopback_needs_a_key_or_consent),
        cmocka_unit_test(config_files_are_checked_like_flags),
        cmocka_unit_test(sizes_have_binary_units_and_a_bare_number_is_gib),
        cmocka_unit_test(a_fraction_is_above_0_and_at_most_1),
        cmocka_unit_test(help_is_asked_for_anywhere),
    };
    return cmocka_run_group_tests(tests, clear_environment, NULL);
}
