/* Regular expressions of files: what they find, and what they may cost. */
#include "regex.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test.h"

struct found {
    int n;
    size_t start[64], end[64];
};

static struct regex *opened(const char *pattern)
{
    struct err e;
    struct regex *re = regex_open((struct str){pattern, strlen(pattern)}, REGEX_ONIG, &e);
    if (!re)
        fail_msg("%s: %s", pattern, e.msg);
    return re;
}

static struct found all_of(const char *pattern, const char *text)
{
    struct found f = {0};
    struct err e;
    struct regex *re = opened(pattern);
    struct regex_scratch *s = regex_scratch_new(&e);
    size_t n = strlen(text), at = 0;
    while (f.n < 64 && regex_find(re, s, text, n, at, &f.start[f.n], &f.end[f.n], &e) == 1) {
        assert_true(f.end[f.n] > f.start[f.n]);
        at = f.end[f.n++];
    }
    regex_scratch_free(s);
    regex_close(re);
    return f;
}

static void a_match_is_found_however_far_away_it_starts(void **state)
{
    char text[300];
    for (size_t at = 0; at < 250; at++) {
        /* two bytes a character: places to start at are characters' */
        for (size_t i = 0; i < 280; i += 2)
            memcpy(text + i, "\xC3\xA9", 3);
        memcpy(text + at / 2 * 2, "xy", 2);
        struct found f = all_of("xy", text);
        assert_int_equal(f.n, 1);
        assert_int_equal(f.start[0], at / 2 * 2);
        assert_int_equal(f.end[0], at / 2 * 2 + 2);
    }
    assert_int_equal(all_of("z", text).n, 0);
    assert_int_equal(all_of("z", "").n, 0);
}

static void what_lies_before_the_place_of_a_start_is_seen(void **state)
{
    struct found f = all_of("(?<=ab)c", "xxxxxxxxxxxxabxcxxxxxxxxxxabc");
    assert_int_equal(f.n, 1);
    assert_int_equal(f.start[0], 28);
    f = all_of("\\s+$", "a    b   \n   c  ");
    assert_int_equal(f.n, 2);
    assert_int_equal(f.start[0], 6);
    assert_int_equal(f.start[1], 14);
}

/* As in a file's pattern: the end of the match before, where the look begins. */
static void a_look_continues_where_it_began_and_nowhere_else(void **state)
{
    char text[174];
    memset(text, 'x', 173);
    text[173] = 0;
    text[170] = 'y';
    struct found f = all_of("\\G[^x]|\\Gx{3}|y", text);
    assert_int_equal(f.n, 57); /* to 168, the y of 170, and no more: "xx" is not three */
    assert_int_equal(f.start[55], 165);
    assert_int_equal(f.start[56], 170);
}

/* More than a quick match may cost, and honest. */
static void a_long_word_is_found_whole(void **state)
{
    const size_t n = 200000;
    char *text = malloc(n + 1);
    memset(text, 'a', n);
    text[n] = 0;
    struct found f = all_of("(?:a|b)+", text);
    assert_int_equal(f.n, 1);
    assert_int_equal(f.end[0], n);
    free(text);
}

static double processor_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void a_pattern_that_does_not_end_is_stopped(void **state)
{
    static const char *const hostile[] = {
        "(a+)+[zy]",          "(?:a|aa)+[zy]", "[\\s\\S]*[\\s\\S]*[\\s\\S]*[zy]",
        "(?=[\\s\\S]*[zy])a", "a(?![^q]*+q)b", "^a(?:\\p{L}*\\p{L}*)*[zy]",
    };
    const size_t n = 60000;
    char *text = malloc(n);
    memset(text, 'a', n);
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        struct err e = {0};
        struct regex *re = opened(hostile[i]);
        struct regex_scratch *s = regex_scratch_new(&e);
        size_t start, end;
        regex_scratch_limit(s, 0.05);
        const double begin = processor_time();
        const int found = regex_find(re, s, text, n, 0, &start, &end, &e);
        const double took = processor_time() - begin;
        assert_true(took < 2); /* a look at the clock is late by a few matches */
        assert_true(found < 0 || took < 0.2);
        if (found < 0) {
            assert_int_equal(e.code, ERR_LIMIT);
            assert_contains(e.msg, "takes more than 0.05 seconds");
        }
        regex_scratch_free(s);
        regex_close(re);
    }
    free(text);
}

/* The limit is that of a text, not of a word. */
static void many_words_together_are_limited(void **state)
{
    const size_t n = 200000;
    char *text = malloc(n);
    struct err e = {0};
    size_t start = 0, end = 0, n_found = 0;
    struct regex *re = opened("(?=[^q]*z)a|a");
    struct regex_scratch *s = regex_scratch_new(&e);
    memset(text, 'a', n);
    regex_scratch_limit(s, 0.1);
    int found = 1;
    const double begin = processor_time();
    while ((found = regex_find(re, s, text, n, end, &start, &end, &e)) > 0)
        n_found++;
    assert_int_equal(found, -1);
    assert_true(n_found < n && processor_time() - begin < 2);
    assert_contains(e.msg, "pattern for splitting text");
    regex_scratch_free(s);
    regex_close(re);
    free(text);
}

/* Not ten seconds of one of the few threads that make tokens of texts. */
static void a_short_text_has_little_time_and_a_long_one_more(void **state)
{
    static const struct {
        size_t n;
        double least, most;
    } cases[] = {{100, 0.2, 0.6}, {100000, 1.0, 1.8}};
    char *text = malloc(100000);
    memset(text, 'a', 100000);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};
        struct regex *re = opened("(a+)+[zy]");
        struct regex_scratch *s = regex_scratch_new(&e);
        size_t start, end;
        const double begin = processor_time();
        assert_int_equal(regex_find(re, s, text, cases[i].n, 0, &start, &end, &e), -1);
        const double took = processor_time() - begin;
        assert_true(took > cases[i].least && took < cases[i].most);
        regex_scratch_free(s);
        regex_close(re);
    }
    free(text);
}

/* The way back through a repeated group is kept for each of its rounds. */
static void memory_of_a_pattern_is_limited(void **state)
{
    const size_t n = 3000000;
    char *text = malloc(n);
    struct err e = {0};
    size_t start, end;
    struct regex *re = opened("(a|aa)+");
    struct regex_scratch *s = regex_scratch_new(&e);
    memset(text, 'a', n);
    regex_scratch_limit(s, 30);
    assert_int_equal(regex_find(re, s, text, n, 0, &start, &end, &e), -1);
    assert_contains(e.msg, "takes more than 128 MiB for this text");
    assert_int_equal(regex_find(re, s, text, 10000, 0, &start, &end, &e), 1);
    assert_int_equal(end, 10000);
    regex_scratch_free(s);
    regex_close(re);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_match_is_found_however_far_away_it_starts),
        cmocka_unit_test(what_lies_before_the_place_of_a_start_is_seen),
        cmocka_unit_test(a_long_word_is_found_whole),
        cmocka_unit_test(a_pattern_that_does_not_end_is_stopped),
        cmocka_unit_test(many_words_together_are_limited),
        cmocka_unit_test(a_look_continues_where_it_began_and_nowhere_else),
        cmocka_unit_test(a_short_text_has_little_time_and_a_long_one_more),
        cmocka_unit_test(memory_of_a_pattern_is_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
