/* Machines that are not here, as trees of files like Linux' sysfs; and where memory is asked to
 * lie. */
#include "blocks.h"
#include "temp_dir.h"
#include "topology.h"

#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "test.h"

/* Lists as sysfs writes them; NULL: no such file. */
struct machine {
    int n;                                        /* processors */
    const char *(*siblings)(int cpu, char s[24]); /* threads of its core */
    const char *nodes, *node[3];
};

static const char *alone(int cpu, char s[24])
{
    snprintf(s, 24, "%d", cpu);
    return s;
}
static const char *far_pairs_of_16(int cpu, char s[24])
{
    snprintf(s, 24, "%d,%d", cpu % 8, cpu % 8 + 8);
    return s;
}
static const char *near_pairs(int cpu, char s[24])
{
    snprintf(s, 24, "%d-%d", cpu / 2 * 2, cpu / 2 * 2 + 1);
    return s;
}
static const char *unknown(int cpu, char s[24])
{
    return NULL;
}

static void write_machine(struct temp_dir *d, const struct machine *m)
{
    char path[96], text[40], s[8];
    for (int i = 0; i < m->n; i++) {
        const char *list = m->siblings(i, s);
        snprintf(path, sizeof path, "devices/system/cpu/cpu%d/topology/thread_siblings_list", i);
        snprintf(text, sizeof text, "%s\n", list ? list : "");
        if (list)
            temp_dir_write(d, path, text);
    }
    if (m->nodes)
        temp_dir_write(d, "devices/system/node/online", m->nodes);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "devices/system/node/node%d/cpulist", i);
        if (m->node[i])
            temp_dir_write(d, path, m->node[i]);
    }
}

static void read_machine(struct topology *t, const struct machine *m, const char *allowed)
{
    struct temp_dir d;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < m->n; i++)
        if (!allowed || allowed[i] == 'x')
            CPU_SET(i, &set);
    temp_dir_open(&d);
    write_machine(&d, m);
    topology_read(t, d.path, &set);
    temp_dir_close(&d);
}

/* "0 2 4" of the first n members, or "none". */
static const char *places(const struct topology *t, int n)
{
    static char text[256];
    int ids[64], len = 0;
    if (!topology_place(t, n, ids))
        return "none";
    text[0] = '\0';
    for (int i = 0; i < n; i++)
        len += snprintf(text + len, sizeof text - (size_t)len, "%s%d", i ? " " : "", ids[i]);
    return text;
}

static void threads_of_a_core_are_taken_last(void **state)
{
    struct topology t;
    read_machine(&t, &(struct machine){8, near_pairs, "0\n", {"0-7\n"}}, NULL);
    assert_string_equal(places(&t, 4), "0 2 4 6");
    assert_string_equal(places(&t, 5), "0 1 2 4 6");
    assert_string_equal(places(&t, 8), "0 1 2 3 4 5 6 7");
    assert_string_equal(places(&t, 9), "none");
    read_machine(&t, &(struct machine){16, far_pairs_of_16, "0\n", {"0-15\n"}}, NULL);
    assert_string_equal(places(&t, 8), "0 1 2 3 4 5 6 7");
    assert_string_equal(places(&t, 9), "0 1 2 3 4 5 6 7 8");
}

static void members_are_spread_over_all_nodes_and_neighbours_share_one(void **state)
{
    struct topology t;
    read_machine(&t, &(struct machine){16, far_pairs_of_16, "0-1\n", {"0-3,8-11\n", "4-7,12-15\n"}},
                 NULL);
    assert_int_equal(topology_nodes(&t), 3);
    assert_string_equal(places(&t, 1), "0");
    assert_string_equal(places(&t, 4), "0 1 4 5");
    assert_string_equal(places(&t, 8), "0 1 2 3 4 5 6 7");
    assert_string_equal(places(&t, 10), "0 1 2 3 8 4 5 6 7 12");
    /* processors of one node interleaved with the other's, and nodes of unequal size */
    read_machine(&t, &(struct machine){6, alone, "0,2\n", {"0,2\n", NULL, "1,3-5\n"}}, NULL);
    assert_int_equal(topology_nodes(&t), 5);
    assert_string_equal(places(&t, 3), "0 2 1");
    assert_string_equal(places(&t, 6), "0 2 1 3 4 5");
}

static void only_processors_that_are_allowed_count(void **state)
{
    struct topology t;
    const struct machine m = {16, far_pairs_of_16, "0-1\n", {"0-3,8-11\n", "4-7,12-15\n"}};
    read_machine(&t, &m, "----xx------xx--");
    assert_int_equal(t.n, 4);
    assert_int_equal(topology_nodes(&t), 2);
    assert_string_equal(places(&t, 2), "4 5");
    assert_string_equal(places(&t, 3), "4 5 12");
    assert_string_equal(places(&t, 5), "none");
    read_machine(&t, &m, "--------x-------"); /* the other thread of its core is not allowed */
    assert_string_equal(places(&t, 1), "8");
    assert_int_equal(t.all[0].thread, 0);
}

static void a_machine_that_says_nothing_has_one_node_and_single_cores(void **state)
{
    static const struct machine silent[] = {
        {4, unknown, NULL, {NULL}},
        {4, unknown, "garbage\n", {"0-3\n"}},
        {4, unknown, "0\n", {NULL}},
        {4, unknown, "", {"3-1\n"}},
    };
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) {
        struct topology t;
        read_machine(&t, &silent[i], NULL);
        assert_int_equal(t.n, 4);
        assert_int_equal(topology_nodes(&t), 1);
        assert_string_equal(places(&t, 4), "0 1 2 3");
    }
}

static void this_machine_is_read(void **state)
{
    struct topology t;
    cpu_set_t allowed;
    int ids[CPU_SETSIZE];
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    topology_read(&t, "/sys", &allowed);
    assert_int_equal(t.n, CPU_COUNT(&allowed));
    assert_true(topology_place(&t, t.n, ids));
    for (int i = 0; i < t.n; i++) {
        assert_true(CPU_ISSET(ids[i], &allowed));
        CPU_CLR(ids[i], &allowed);
    }
}

/* Of the memory at `data`; -1 where the kernel does not say. */
static int policy_at(void *data)
{
    int mode = -1;
    return syscall(SYS_get_mempolicy, &mode, NULL, 0, data, MPOL_F_ADDR) == 0 ? mode : -1;
}

static void large_blocks_are_spread_over_the_nodes_where_that_is_asked_for(void **state)
{
    struct err e;
    struct blocks b = {0};
    const size_t large = (size_t)4 << 20;
    void *near = blocks_take(&b, 1, large, "test", NULL, &e);
    if (policy_at(near) < 0) {
        blocks_free(&b);
        skip(); /* a kernel without memory nodes, or a container that hides them */
    }
    assert_int_equal(policy_at(near), MPOL_DEFAULT);
    b.spread = 1;
    uint8_t *spread = blocks_take(&b, 1, large, "test", NULL, &e);
    uint8_t *packed = blocks_pack(&b, 1, 100, "test", NULL, &e);
    assert_int_equal(policy_at(spread), MPOL_INTERLEAVE);
    assert_int_equal(policy_at(spread + large - 1), MPOL_INTERLEAVE);
    assert_int_equal(policy_at(packed), MPOL_INTERLEAVE);
    for (size_t i = 0; i < large; i += 4096)
        assert_int_equal(spread[i], 0);
    b.spread = UINT64_C(1) << 63; /* no such node: the memory is there all the same */
    uint8_t *anywhere = blocks_take(&b, 1, large, "test", NULL, &e);
    assert_non_null(anywhere);
    assert_int_equal(anywhere[large / 2], 0);
    blocks_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_of_a_core_are_taken_last),
        cmocka_unit_test(members_are_spread_over_all_nodes_and_neighbours_share_one),
        cmocka_unit_test(only_processors_that_are_allowed_count),
        cmocka_unit_test(a_machine_that_says_nothing_has_one_node_and_single_cores),
        cmocka_unit_test(this_machine_is_read),
        cmocka_unit_test(large_blocks_are_spread_over_the_nodes_where_that_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
