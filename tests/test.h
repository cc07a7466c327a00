/* test.h: cmocka with the headers it wants, and what our unit tests share. */
#ifndef TOKEND_TEST_H
#define TOKEND_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define assert_contains(text, part)                                                                \
    do {                                                                                           \
        const char *text_ = (text), *part_ = (part);                                               \
        if (!strstr(text_, part_))                                                                 \
            fail_msg("\"%s\" does not contain \"%s\"", text_, part_);                              \
    } while (0)

#endif
