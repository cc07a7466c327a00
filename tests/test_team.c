#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>

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

enum { UNITS = 200, PHASES = 300 };
struct taking {
    struct team *team;
    bool claims; /* every other phase by team_claim */
    atomic_int done[PHASES][UNITS];
};

static void take_all(void *arg, int member)
{
    struct taking *t = arg;
    for (int phase = 0; phase < PHASES; phase++) {
        const int n = phase * 7 % UNITS;
        if (t->claims && phase % 2)
            for (int u; (u = team_claim(t->team)) < n;)
                atomic_fetch_add(&t->done[phase][u], 1);
        else
            for (int u; (u = team_take(t->team, member, n)) >= 0;)
                atomic_fetch_add(&t->done[phase][u], 1);
        team_barrier(t->team, member);
    }
}

static void check_taking(int size, bool claims)
{
    struct err e;
    struct taking *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->claims = claims;
    assert_non_null(t->team = team_new(size, &e));
    for (int round = 1; round <= 3; round++) {
        team_run(t->team, take_all, t);
        for (int phase = 0; phase < PHASES; phase++)
            for (int u = 0; u < UNITS; u++)
                assert_int_equal(t->done[phase][u], u < phase * 7 % UNITS ? round : 0);
    }
    team_free(t->team);
    free(t);
}

static void every_unit_is_taken_once_whatever_the_number_of_members(void **state)
{
    for (int size = 1; size <= 8; size++) {
        check_taking(size, false);
        check_taking(size, true);
    }
}

static void a_member_alone_takes_its_units_in_order(void **state)
{
    struct err e;
    struct team *t = team_new(1, &e);
    for (int u = 0; u < 5; u++)
        assert_int_equal(team_take(t, 0, 5), u);
    assert_int_equal(team_take(t, 0, 5), -1);
    team_barrier(t, 0);
    assert_int_equal(team_take(t, 0, 5), 0);
    team_free(t);
}

static void shares_cover_all_units(void **state)
{
    struct err e;
    struct team *t = team_new(7, &e);
    for (int n = 0; n < 40; n++) {
        assert_int_equal(team_first(t, 0, n), 0);
        assert_int_equal(team_first(t, 7, n), n);
        for (int m = 0; m < 7; m++)
            assert_in_range(team_first(t, m + 1, n) - team_first(t, m, n), n / 7, n / 7 + 1);
    }
    team_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_control_group_limits_the_processors),
        cmocka_unit_test(every_unit_is_taken_once_whatever_the_number_of_members),
        cmocka_unit_test(a_member_alone_takes_its_units_in_order),
        cmocka_unit_test(shares_cover_all_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
