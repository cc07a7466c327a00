/* topology.h: which processors are threads of one core, and which memory node is near to them.
 *
 * Read from Linux' sysfs. Where that says nothing, each processor is a core of its own and all
 * have one node. Pure functions of their arguments and these files. */
#ifndef TOKEND_TOPOLOGY_H
#define TOKEND_TOPOLOGY_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

struct processor {
    int id, node;
    int thread;  /* 0: the first of its core among those allowed, 1: the second, … */
    int in_node; /* how many of its node have the same `thread` and lower ids */
};

struct topology {
    int n;
    struct processor all[CPU_SETSIZE]; /* those allowed, by ascending id */
};

/* `sysfs` is "/sys", or a tree like it. */
void topology_read(struct topology *, const char *sysfs, const cpu_set_t *allowed);

/* A processor for each of n members: different cores as long as there are some, taken evenly from
 * all nodes; members of one node follow each other. False when there are fewer than n. */
bool topology_place(const struct topology *, int n, int *ids);

/* The nodes of all these processors as bits; nodes beyond 63 are left out. */
uint64_t topology_nodes(const struct topology *);

#endif
