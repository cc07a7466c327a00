#include "buf.h"
#include "log.h"

#include <string.h>
#include <unistd.h>

#include "test.h"

/* What one line writes to standard error. */
static void capture(char *out, size_t cap, enum log_level level, const char *text)
{
    int ends[2], saved = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    log_line(level, "%s", text);
    dup2(saved, STDERR_FILENO);
    close(ends[1]);
    close(saved);
    ssize_t n = read(ends[0], out, cap - 1);
    out[n < 0 ? 0 : n] = '\0';
    close(ends[0]);
}

static void a_text_line_has_time_level_and_message_and_no_control_characters(void **state)
{
    char line[8192];
    log_setup(LOG_INFO, LOG_TEXT);
    capture(line, sizeof line, LOG_WARN, "a\nb\xFF\xC3\xA9\x1B[0m");
    assert_contains(line, "Z warn  a\\x0ab\\xff\xC3\xA9\\x1b[0m\n");
    assert_int_equal(strchr(line, '\n') - line, strlen(line) - 1);
}

static void a_json_line_is_escaped(void **state)
{
    char line[8192];
    log_setup(LOG_INFO, LOG_JSON);
    capture(line, sizeof line, LOG_ERROR, "say \"hi\" \\ \t\xC3");
    assert_contains(line, "\"level\":\"error\"");
    assert_contains(line, "\"message\":\"say \\\"hi\\\" \\\\ \\u0009\\u00c3\"}\n");
}

static void a_long_line_is_cut_and_still_whole(void **state)
{
    char line[8192], text[4000];
    memset(text, 1, sizeof text);
    text[sizeof text - 1] = '\0';
    log_setup(LOG_INFO, LOG_JSON);
    capture(line, sizeof line, LOG_INFO, text);
    assert_string_equal(line + strlen(line) - 3, "\"}\n");
}

static void lines_below_the_level_are_not_written(void **state)
{
    char line[64];
    log_setup(LOG_WARN, LOG_TEXT);
    capture(line, sizeof line, LOG_INFO, "quiet");
    assert_string_equal(line, "");
}

static void a_buffer_grows_drops_and_stays_terminated(void **state)
{
    struct buf b = {0};
    for (int i = 0; i < 1000; i++)
        buf_addf(&b, "%d,", i);
    assert_int_equal(b.len, 3890);
    buf_drop(&b, 3885);
    assert_string_equal(b.data, ",999,");
    buf_add_byte(&b, '!');
    buf_add(&b, "\0x", 2);
    assert_int_equal(b.len, 8);
    buf_clear(&b);
    assert_string_equal(b.data, "");
    buf_free(&b);
    assert_null(b.data);
}

static void a_buffer_that_failed_keeps_what_it_had(void **state)
{
    struct buf b = {0};
    buf_add_str(&b, "kept");
    assert_null(buf_reserve(&b, SIZE_MAX - 2));
    buf_add_str(&b, "lost");
    assert_true(b.failed);
    assert_string_equal(b.data, "kept");
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_line_has_time_level_and_message_and_no_control_characters),
        cmocka_unit_test(a_json_line_is_escaped),
        cmocka_unit_test(a_long_line_is_cut_and_still_whole),
        cmocka_unit_test(lines_below_the_level_are_not_written),
        cmocka_unit_test(a_buffer_grows_drops_and_stays_terminated),
        cmocka_unit_test(a_buffer_that_failed_keeps_what_it_had),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
