#include "buf.h"
#include "utf8.h"

#include <string.h>

#include "test.h"

static void a_character_is_measured_only_when_it_is_whole_and_well_formed(void **state)
{
    assert_int_equal(utf8_char("a", 1), 1);
    assert_int_equal(utf8_char("\xC3\xA9", 2), 2);
    assert_int_equal(utf8_char("\xE2\x82\xAC!", 4), 3);
    assert_int_equal(utf8_char("\xF0\x9F\x98\x80", 4), 4);
    assert_int_equal(utf8_char("\xF0\x9F\x98\x80", 3), 0); /* cut off */
    assert_int_equal(utf8_char("\x80", 1), 0);
    assert_int_equal(utf8_char("\xC0\x80", 2), 0);         /* overlong */
    assert_int_equal(utf8_char("\xED\xA0\x80", 3), 0);     /* a surrogate */
    assert_int_equal(utf8_char("\xF4\x90\x80\x80", 4), 0); /* above U+10FFFF */
    assert_int_equal(utf8_check("all is well \xE2\x82", 14), 12);
}

static void only_a_cut_off_tail_is_left_out(void **state)
{
    assert_int_equal(utf8_uncut("", 0), 0);
    assert_int_equal(utf8_uncut("abc", 3), 3);
    assert_int_equal(utf8_uncut("ab\xE2\x82\xAC", 5), 5);
    assert_int_equal(utf8_uncut("ab\xE2\x82\xAC", 4), 2);
    assert_int_equal(utf8_uncut("ab\xE2\x82\xAC", 3), 2);
    assert_int_equal(utf8_uncut("\xF0\x9F\x98", 3), 0);
    assert_int_equal(utf8_uncut("\xFF\xE9 later", 8), 8); /* bytes that are no text stay */
    assert_int_equal(utf8_uncut("\x80\x80\x80\x80\x80", 5), 5);
    assert_int_equal(utf8_uncut("\x80", 1), 1);
}

static void text_is_trimmed_at_the_first_fault_and_counted_in_characters(void **state)
{
    char text[] = "caf\xC3\xA9 \xFF tail";
    utf8_trim(text);
    assert_string_equal(text, "caf\xC3\xA9 ");
    assert_int_equal(utf8_count(text, strlen(text)), 5);
}

static void each_bad_byte_is_replaced_and_the_rest_is_kept(void **state)
{
    struct buf out = {0};
    utf8_replace_bad(&out, "a\xE2\x82"
                           "b\xC3\xA9\xFF");
    assert_string_equal(out.data, "a\xEF\xBF\xBD\xEF\xBF\xBD"
                                  "b\xC3\xA9\xEF\xBF\xBD");
    buf_clear(&out);
    utf8_replace_bad(&out, "");
    assert_int_equal(out.len, 0);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_character_is_measured_only_when_it_is_whole_and_well_formed),
        cmocka_unit_test(only_a_cut_off_tail_is_left_out),
        cmocka_unit_test(text_is_trimmed_at_the_first_fault_and_counted_in_characters),
        cmocka_unit_test(each_bad_byte_is_replaced_and_the_rest_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
