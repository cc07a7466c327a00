/* The real cuBLASLt, where this machine has one: its calls are found. Nothing is computed, which
 * needs a GPU. */
#include "cublas_calls.h"

#include <stdio.h>
#include <string.h>

#include "test.h"

static void all_calls_are_found_in_the_library(void **state)
{
    (void)state;
    int found = 0;
    for (int i = 0; i < CUBLAS_LIBRARIES; i++) {
        struct cublas_calls calls = {0};
        struct err e = {0};
        if (!cublas_library_load(i, &calls, &e)) {
            printf("    %s\n", e.msg);
            assert_int_equal(e.code, ERR_NOT_FOUND);
            assert_contains(e.msg, "libcublasLt.so.1");
            continue;
        }
        found++;
#define CALL(name) assert_non_null(calls.name);
        CUBLAS_CALLS(CALL)
#undef CALL
        assert_true(calls.GetVersion() >= 120000);
        assert_string_equal(calls.GetStatusName(CUBLAS_STATUS_NOT_SUPPORTED),
                            "CUBLAS_STATUS_NOT_SUPPORTED");
    }
    if (!found) {
        printf("SKIPPED: no libcublasLt.so.13 or .12 here\n");
        skip();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_calls_are_found_in_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
