#include "err.h"

#include <string.h>

#include "test.h"

static void a_long_message_is_cut_at_a_character(void **state)
{
    struct err e;
    char text[600];
    for (size_t i = 0; i + 2 < sizeof text; i += 2)
        memcpy(text + i, "\xC3\xA9", 2);
    text[598] = '\0';
    assert_false(err_set(&e, ERR_INVALID, "x%s", text));
    assert_int_equal(strlen(e.msg), 511);
    assert_false(err_set(&e, ERR_INVALID, "%s", text));
    assert_int_equal(strlen(e.msg), 510);
}

static void a_prefix_goes_before_the_message_and_keeps_the_code(void **state)
{
    struct err e;
    err_set(&e, ERR_LIMIT, "too deep");
    assert_false(err_prefix(&e, "template %s", "chat"));
    assert_string_equal(e.msg, "template chat: too deep");
    assert_int_equal(e.code, ERR_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_message_is_cut_at_a_character),
        cmocka_unit_test(a_prefix_goes_before_the_message_and_keeps_the_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
