/* The real cuBLASLt, where this machine has one: its calls are found, and it takes what we set of
 * its objects. Nothing is computed, which needs a GPU. */
#include "cublas_linear.c" /* what it sets of objects has no other way in without a GPU */

#include "test.h"

/* Calls those tests that a library is there for */
static void with_each_library(void (*test)(struct cublas *))
{
    int n_found = 0;
    for (int i = 0; i < CUBLAS_LIBRARIES; i++) {
        struct cublas *c = calloc(1, sizeof *c);
        struct err e = {0};
        if (cublas_library_load(i, &c->call, &e)) {
            test(c);
            n_found++;
        } else {
            printf("    %s\n", e.msg);
            assert_int_equal(e.code, ERR_NOT_FOUND);
            assert_contains(e.msg, "libcublasLt.so.1");
        }
        cublas_close(c);
    }
    if (!n_found) {
        printf("SKIPPED: no libcublasLt.so.13 or .12 here\n");
        skip();
    }
}

static void check_calls(struct cublas *c)
{
#define CALL(name) assert_non_null(c->call.name);
    CUBLAS_CALLS(CALL)
#undef CALL
    assert_true(c->call.GetVersion() >= 120000);
    assert_string_equal(c->call.GetStatusName(CUBLAS_STATUS_NOT_SUPPORTED),
                        "CUBLAS_STATUS_NOT_SUPPORTED");
}

static void all_calls_are_found_in_the_library(void **state)
{
    (void)state;
    with_each_library(check_calls);
}

static void check_objects(struct cublas *c)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    static const float bias[32] __attribute__((aligned(256)));
    struct err e;
    assert_int_equal(c->call.MatmulPreferenceCreate(&c->preference), CUBLAS_STATUS_SUCCESS);
    c->workspace_bytes = cublas_workspace_wanted(9);
    assert_true(prefer(c));
    for (int i = 0; i < 6; i++) {
        const struct plan_key key = {
            .type = types[i / 2], .rows = 32, .stride = 64, .most = 24, .biased = i % 2};
        struct plan p = {.key = key, .n = 24};
        assert_true(make_product(c, &p));
        assert_true(make_layouts(c, &p));
        assert_true(fit(c, &p, 20, key.biased ? bias : NULL, &e));
        free_plan(c, &p);
    }
}

static void the_library_takes_what_we_set_of_its_objects(void **state)
{
    (void)state;
    with_each_library(check_objects);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_calls_are_found_in_the_library),
        cmocka_unit_test(the_library_takes_what_we_set_of_its_objects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
