#include <errno.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "team.h"
#include "team_rest.h"
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

enum { UNITS = 200, PHASES = 100 };
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
    assert_non_null(t->team = team_new(size, false, &e));
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
    static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 63, 64, 65};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_taking(sizes[i], false);
        check_taking(sizes[i], true);
    }
}

static long sleeps(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_nvcsw;
}

static void many_members_on_few_processors_sleep_once_a_phase_each(void **state)
{
    struct err e;
    struct taking *t = calloc(1, sizeof *t);
    assert_non_null(t);
    assert_non_null(t->team = team_new(64, false, &e));
    team_run(t->team, take_all, t); /* all have started */
    const long before = sleeps();
    team_run(t->team, take_all, t);
    assert_in_range(sleeps() - before, 0, 64 * PHASES * 3 / 2);
    team_free(t->team);
    free(t);
}

static double processor_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void an_idle_team_takes_no_processor_time(void **state)
{
    static const int sizes[] = {2, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct err e;
        struct taking *t = calloc(1, sizeof *t);
        assert_non_null(t);
        assert_non_null(t->team = team_new(sizes[i], false, &e));
        team_run(t->team, take_all, t);
        usleep(50 * 1000);
        const double before = processor_time();
        usleep(200 * 1000);
        assert_true(processor_time() - before < 0.002);
        team_free(t->team);
        free(t);
    }
}

/* --- pinning --- */

static int allowed_here(cpu_set_t *set)
{
    assert_int_equal(pthread_getaffinity_np(pthread_self(), sizeof *set, set), 0);
    return CPU_COUNT(set);
}

struct pinning {
    struct team *team;
    cpu_set_t of[CPU_SETSIZE];
};

static void note_affinity(void *arg, int member)
{
    allowed_here(&((struct pinning *)arg)->of[member]);
}

static void pinned_members_have_a_processor_each(void **state)
{
    struct err e;
    cpu_set_t before, after, seen;
    const int n = allowed_here(&before);
    struct pinning *p = calloc(1, sizeof *p);
    assert_non_null(p);
    assert_non_null(p->team = team_new(0, true, &e));
    for (int run = 0; run < 2; run++) {
        CPU_ZERO(&seen);
        team_run(p->team, note_affinity, p);
        for (int i = 0; i < team_size(p->team); i++) {
            assert_int_equal(CPU_COUNT(&p->of[i]), 1);
            CPU_OR(&seen, &seen, &p->of[i]);
        }
        assert_int_equal(CPU_COUNT(&seen), team_size(p->team));
        CPU_AND(&after, &seen, &before);
        assert_true(CPU_EQUAL(&after, &seen));
        team_unpin_caller(p->team);
        allowed_here(&after);
        assert_true(CPU_EQUAL(&before, &after));
    }
    team_free(p->team);
    free(p);
    assert_null(team_new(n + 1, true, &e));
    assert_contains(e.msg, "cannot be pinned");
}

static void beside_busy_processes_all_is_done_once_and_no_affinity_stays_changed(void **state)
{
    struct err e;
    cpu_set_t usual;
    pid_t busy[2];
    allowed_here(&usual);
    for (int i = 0; i < 2; i++)
        if ((busy[i] = fork()) == 0)
            for (;;)
                ;
    struct pinning *p = calloc(1, sizeof *p);
    assert_non_null(p);
    for (int i = 0; i < 5; i++)
        check_taking(0, i % 2);
    assert_non_null(p->team = team_new(0, false, &e));
    for (int i = 0; i < 2000; i++)
        team_run(p->team, note_affinity, p);
    for (int i = 0; i < 2; i++) {
        kill(busy[i], SIGKILL);
        waitpid(busy[i], NULL, 0);
    }
    int unchanged = 0; /* a change lasts for microseconds, or until who made it has a processor */
    for (int i = 0; i < 100 && unchanged < team_size(p->team); i++) {
        usleep(1000);
        team_run(p->team, note_affinity, p);
        unchanged = 0;
        for (int k = 0; k < team_size(p->team); k++)
            unchanged += CPU_EQUAL(&p->of[k], &usual) != 0;
    }
    assert_int_equal(unchanged, team_size(p->team));
    team_free(p->team);
    free(p);
}

static void members_that_are_not_pinned_run_anywhere(void **state)
{
    struct err e;
    cpu_set_t usual;
    allowed_here(&usual);
    struct pinning *p = calloc(1, sizeof *p);
    assert_non_null(p);
    assert_non_null(p->team = team_new(3, false, &e));
    team_run(p->team, note_affinity, p);
    for (int i = 0; i < 3; i++)
        assert_true(CPU_EQUAL(&p->of[i], &usual));
    team_free(p->team);
    free(p);
}

static void a_member_alone_takes_its_units_in_order(void **state)
{
    struct err e;
    struct team *t = team_new(1, false, &e);
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
    struct team *t = team_new(7, false, &e);
    for (int n = 0; n < 40; n++) {
        assert_int_equal(team_first(t, 0, n), 0);
        assert_int_equal(team_first(t, 7, n), n);
        for (int m = 0; m < 7; m++)
            assert_in_range(team_first(t, m + 1, n) - team_first(t, m, n), n / 7, n / 7 + 1);
    }
    team_free(t);
}

/* From now on this process may not say where its threads run. */
static bool forbid_affinities(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_setaffinity, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof code / sizeof *code, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void nothing(void *arg, int member)
{
}

static void run_where_nobody_can_be_pinned(int error_output)
{
    struct err e;
    struct team *t = team_new(1, true, &e);
    if (!t || dup2(error_output, 2) < 0)
        _exit(1);
    if (!forbid_affinities())
        _exit(2);
    for (int i = 0; i < 3; i++)
        team_run(t, nothing, NULL);
    _exit(0);
}

static void a_caller_that_cannot_be_pinned_is_told_of_once(void **state)
{
    int ends[2], status;
    char said[512];
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0)
        run_where_nobody_can_be_pinned(ends[1]);
    close(ends[1]);
    waitpid(pid, &status, 0);
    const ssize_t n = read(ends[0], said, sizeof said - 1);
    close(ends[0]);
    if (WEXITSTATUS(status) == 2)
        skip(); /* the sandbox of the test allows no filter */
    said[n > 0 ? n : 0] = 0;
    assert_int_equal(status, 0);
    const char *first = strstr(said, "cannot pin thread 1 to processor ");
    assert_non_null(first);
    assert_contains(first, ": Operation not permitted");
    assert_null(strstr(first + 1, "cannot pin"));
}

/* One that moves as soon as it may and is late some time after. */
static int64_t rest_after(struct team_rest *r, int64_t *now, int moves, int64_t late_after)
{
    for (int i = 0; i < moves; i++) {
        while (!team_rest_is_over(r, *now))
            *now += 100000;
        team_rest_moved(r, *now);
        *now += late_after;
        team_rest_begin(r, *now);
    }
    return atomic_load(&r->until) - *now;
}

static void members_that_move_in_vain_rest_ever_longer_up_to_a_bound(void **state)
{
    struct team_rest r;
    int64_t now = 1, want = REST_NS;
    team_rest_init(&r);
    for (int i = 0; i < 9; i++) {
        want *= 2;
        assert_int_equal(rest_after(&r, &now, 1, 1000000), want);
    }
    assert_int_equal(rest_after(&r, &now, 5, 1000000), MOST_REST_NS);
    /* late while nobody has moved: what is known of moves stays */
    now += MOST_REST_NS / 2;
    team_rest_begin(&r, now);
    assert_int_equal(atomic_load(&r.until) - now, MOST_REST_NS);
    /* a move that served for longer */
    assert_int_equal(rest_after(&r, &now, 1, 2 * SHORT_NS), REST_NS);
    assert_int_equal(rest_after(&r, &now, 1, 1000000), 2 * REST_NS);
}

static void one_member_moves_at_a_time_and_no_rest_is_shortened(void **state)
{
    struct team_rest r;
    int64_t now = 1;
    team_rest_init(&r);
    assert_true(team_rest_is_over(&r, now));
    assert_false(team_rest_is_over(&r, now));
    assert_false(team_rest_is_over(&r, now + REST_NS - 1));
    assert_true(team_rest_is_over(&r, now + REST_NS));
    assert_true(rest_after(&r, &now, 6, 1000000) > 10 * REST_NS);
    const int64_t until = atomic_load(&r.until);
    assert_false(team_rest_is_over(&r, until - 1));
    atomic_store(&r.length, REST_NS);
    team_rest_begin(&r, now);
    assert_int_equal(atomic_load(&r.until), until);
    assert_true(team_rest_is_over(&r, until));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_control_group_limits_the_processors),
        cmocka_unit_test(every_unit_is_taken_once_whatever_the_number_of_members),
        cmocka_unit_test(many_members_on_few_processors_sleep_once_a_phase_each),
        cmocka_unit_test(an_idle_team_takes_no_processor_time),
        cmocka_unit_test(pinned_members_have_a_processor_each),
        cmocka_unit_test(beside_busy_processes_all_is_done_once_and_no_affinity_stays_changed),
        cmocka_unit_test(members_that_are_not_pinned_run_anywhere),
        cmocka_unit_test(a_member_alone_takes_its_units_in_order),
        cmocka_unit_test(shares_cover_all_units),
        cmocka_unit_test(members_that_move_in_vain_rest_ever_longer_up_to_a_bound),
        cmocka_unit_test(a_caller_that_cannot_be_pinned_is_told_of_once),
        cmocka_unit_test(one_member_moves_at_a_time_and_no_rest_is_shortened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
