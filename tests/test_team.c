#include <limits.h>

#include "team.h"
#include "temp_dir.h"

#include "test.h"

static void a_control_group_limits_the_processors(void **state)
{
    static const struct {
        const char *v2, *quota, *period; /* what the files hold, NULL: none */
        int want;
    } cases[] = {
        {"200000 100000\n", NULL, NULL, 2},
        {"150000 100000\n", NULL, NULL, 2},
        {"10000 100000\n", NULL, NULL, 1},
        {"max 100000\n", NULL, NULL, INT_MAX},
        {NULL, "300000\n", "100000\n", 3},
        {NULL, "250000\n", "100000\n", 3},
        {NULL, "-1\n", "100000\n", INT_MAX},
        {NULL, "300000\n", NULL, INT_MAX},
        {NULL, "9223372036854775807\n", "100000\n", INT_MAX},
        {NULL, "300000\n", "0\n", INT_MAX},
        {"garbage\n", NULL, NULL, INT_MAX},
        {NULL, NULL, NULL, INT_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct temp_dir d;
        temp_dir_open(&d);
        if (cases[i].v2)
            temp_dir_write(&d, "cpu.max", cases[i].v2);
        if (cases[i].quota)
            temp_dir_write(&d, "cpu/cpu.cfs_quota_us", cases[i].quota);
        if (cases[i].period)
            temp_dir_write(&d, "cpu/cpu.cfs_period_us", cases[i].period);
        assert_int_equal(team_quota(d.path), cases[i].want);
        temp_dir_close(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_control_group_limits_the_processors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
