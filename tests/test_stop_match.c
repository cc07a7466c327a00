#include "stop_match.h"

#include <stdlib.h>
#include <string.h>

#include "test.h"

/* Feeds the text in pieces of the given size; returns what is shown, and checks that nothing
 * of a stop string was ever released. */
static char *shown(const struct stop_set *set, const char *text, size_t piece)
{
    struct stop_matcher m = {0};
    size_t n = strlen(text), released = 0;
    char *out = calloc(1, n + 1);
    for (size_t at = 0; at < n; at += piece) {
        size_t len = n - at < piece ? n - at : piece, used;
        int found = stop_feed(&m, set, text + at, len, &used);
        if (found) {
            size_t end = at + used - (size_t)found;
            assert_true(end >= released);
            memcpy(out, text, end);
            return out;
        }
        released = at + len - (size_t)stop_held(&m, set);
    }
    memcpy(out, text, n);
    return out;
}

static void assert_cut(const char *const *stops, const char *text, const char *want)
{
    struct stop_set set = {0};
    for (int i = 0; stops[i]; i++)
        assert_true(stop_set_add(&set, stops[i], strlen(stops[i])));
    for (size_t piece = 1; piece <= strlen(text) + 1; piece++) {
        char *got = shown(&set, text, piece);
        assert_string_equal(got, want);
        free(got);
    }
    stop_set_free(&set);
}

static void the_cut_does_not_depend_on_the_pieces(void **state)
{
    assert_cut((const char *[]){"END", NULL}, "some text END more", "some text ");
    assert_cut((const char *[]){"ENEND", NULL}, "ENENEND", "EN");
    assert_cut((const char *[]){"aab", NULL}, "aaaaab", "aaa");
    assert_cut((const char *[]){"abababc", NULL}, "ababababcx", "ab");
    assert_cut((const char *[]){"xyz", NULL}, "xyxyxy", "xyxyxy");
}

static void the_string_that_is_complete_first_wins_and_of_equals_the_longest(void **state)
{
    assert_cut((const char *[]){"abcdef", "cd", NULL}, "zabcdef", "zab");
    assert_cut((const char *[]){"d", "bcd", "cd", NULL}, "abcd", "a");
}

static void an_empty_string_is_no_stop(void **state)
{
    assert_cut((const char *[]){"", NULL}, "abc", "abc");
}

static void the_longest_partial_match_is_held_back(void **state)
{
    struct stop_set set = {0};
    struct stop_matcher m = {0};
    size_t used;
    stop_set_add(&set, "<|end|>", 7);
    stop_set_add(&set, "|x", 2);
    assert_int_equal(stop_feed(&m, &set, "a<|en", 5, &used), 0);
    assert_int_equal(stop_held(&m, &set), 4);
    assert_int_equal(stop_feed(&m, &set, "t|", 2, &used), 0);
    assert_int_equal(stop_held(&m, &set), 1);
    stop_set_free(&set);
}

static void random_texts_are_cut_as_a_plain_search_would(void **state)
{
    srand(7);
    for (int round = 0; round < 20000; round++) {
        struct stop_set set = {0};
        char stops[3][8], text[40];
        int n = 1 + rand() % 3, len = rand() % 39;
        for (int k = 0; k < n; k++) {
            int l = 1 + rand() % 6;
            for (int i = 0; i < l; i++)
                stops[k][i] = (char)('a' + rand() % 2);
            stops[k][l] = '\0';
            stop_set_add(&set, stops[k], (size_t)l);
        }
        for (int i = 0; i < len; i++)
            text[i] = (char)('a' + rand() % 2);
        text[len] = '\0';
        size_t cut = (size_t)len;
        for (int end = 1; end <= len && cut == (size_t)len; end++)
            for (int k = 0; k < n; k++) {
                size_t l = strlen(stops[k]);
                if (l <= (size_t)end && memcmp(text + end - l, stops[k], l) == 0 &&
                    (size_t)end - l < cut)
                    cut = (size_t)end - l;
            }
        char *got = shown(&set, text, 1 + (size_t)rand() % 5);
        assert_int_equal(strlen(got), cut);
        free(got);
        stop_set_free(&set);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cut_does_not_depend_on_the_pieces),
        cmocka_unit_test(the_string_that_is_complete_first_wins_and_of_equals_the_longest),
        cmocka_unit_test(an_empty_string_is_no_stop),
        cmocka_unit_test(the_longest_partial_match_is_held_back),
        cmocka_unit_test(random_texts_are_cut_as_a_plain_search_would),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
