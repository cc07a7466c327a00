/* The trie finds the strings of its set, and nothing else. */
#include "trie.h"

#include <stdlib.h>
#include <string.h>

#include "random.h"
#include "test.h"

enum { N = 3000, LONGEST = 6 };

/* The number of a text: of equal strings the last. */
static int32_t number_of(const struct str *strings, int n, struct str text)
{
    while (n-- > 0)
        if (strings[n].len == text.len && memcmp(strings[n].data, text.data, text.len) == 0)
            return n;
    return -1;
}

static int32_t walk(const struct trie *t, struct str text)
{
    uint32_t node = 0;
    for (size_t i = 0; i < text.len; i++)
        if ((node = trie_step(t, node, (unsigned char)text.data[i])) == 0)
            return -1;
    return trie_value(t, node);
}

static void check_set(uint64_t seed, int n_bytes, int n)
{
    static char text[2 * N][LONGEST];
    static struct str strings[2 * N];
    struct trie t;
    struct err e;
    for (int i = 0; i < 2 * n; i++) {
        strings[i] = (struct str){text[i], 1 + (size_t)(random_next(&seed) % LONGEST)};
        for (size_t k = 0; k < strings[i].len; k++)
            text[i][k] = (char)(random_next(&seed) % (uint64_t)n_bytes);
    }
    assert_true(trie_build(&t, strings, (size_t)n, &e));
    for (int i = 0; i < 2 * n; i++) /* the latter half are no strings of it, but by chance */
        assert_int_equal(walk(&t, strings[i]), number_of(strings, n, strings[i]));
    trie_free(&t);
}

static void strings_of_a_set_are_found_and_no_others(void **state)
{
    check_set(1, 2, 100);
    check_set(2, 4, N);
    check_set(3, 26, N);
    check_set(4, 256, N);
}

static void every_byte_may_start_a_string(void **state)
{
    char text[256];
    struct str strings[256];
    struct trie t;
    struct err e;
    for (int i = 0; i < 256; i++) {
        text[i] = (char)i;
        strings[i] = (struct str){text + i, 1};
    }
    assert_true(trie_build(&t, strings, 256, &e));
    for (int i = 0; i < 256; i++) {
        assert_int_equal(walk(&t, strings[i]), i);
        for (int k = 0; k < 256; k++)
            assert_int_equal(trie_step(&t, trie_step(&t, 0, (unsigned char)i), (unsigned char)k),
                             0);
    }
    trie_free(&t);
}

static void an_empty_set_has_nothing(void **state)
{
    struct str empty = {"", 0};
    struct trie t;
    struct err e;
    assert_true(trie_build(&t, &empty, 1, &e));
    for (int i = 0; i < 256; i++)
        assert_int_equal(trie_step(&t, 0, (unsigned char)i), 0);
    trie_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_of_a_set_are_found_and_no_others),
        cmocka_unit_test(every_byte_may_start_a_string),
        cmocka_unit_test(an_empty_set_has_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
