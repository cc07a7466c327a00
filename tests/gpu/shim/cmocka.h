/* cmocka.h: as much of cmocka as the tests of CUDA kernels use, for machines that lack it. */
#ifndef TOKEND_SHIM_CMOCKA_H
#define TOKEND_SHIM_CMOCKA_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};
#define cmocka_unit_test(f)                                                                        \
    {                                                                                              \
#f, f                                                                                      \
    }

/* What a test ends with, once it jumps */
enum { SHIM_FAILED = 1, SHIM_SKIPPED };
extern jmp_buf shim_end;
/* Tests whose names the pattern (with *) does not match do not run. */
void cmocka_set_test_filter(const char *pattern);
int shim_run(const struct CMUnitTest *, size_t n);
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    shim_run(tests, sizeof(tests) / sizeof *(tests))

#define skip() longjmp(shim_end, SHIM_SKIPPED)
#define fail() shim_fail(__FILE__, __LINE__, "failed")
#define fail_msg(...)                                                                              \
    do {                                                                                           \
        char message_[512];                                                                        \
        snprintf(message_, sizeof message_, __VA_ARGS__);                                          \
        shim_fail(__FILE__, __LINE__, message_);                                                   \
    } while (0)
_Noreturn void shim_fail(const char *file, int line, const char *what);

#define assert_true(x) ((x) ? (void)0 : shim_fail(__FILE__, __LINE__, "not true: " #x))
#define assert_false(x) ((x) ? shim_fail(__FILE__, __LINE__, "not false: " #x) : (void)0)
#define assert_non_null(x) assert_true((x) != NULL)
#define assert_null(x) assert_true((x) == NULL)
#define assert_int_equal(a, b)                                                                     \
    do {                                                                                           \
        const int64_t a_ = (int64_t)(a), b_ = (int64_t)(b);                                        \
        if (a_ != b_)                                                                              \
            fail_msg("%s is %lld, not %lld", #a, (long long)a_, (long long)b_);                    \
    } while (0)
#define assert_int_not_equal(a, b) assert_true((int64_t)(a) != (int64_t)(b))
#define assert_in_range(x, from, to) assert_true((x) >= (from) && (x) <= (to))
#define assert_memory_equal(a, b, n) assert_true(memcmp(a, b, n) == 0)
#define assert_string_equal(a, b) assert_true(strcmp(a, b) == 0)

#endif
