#include "topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A list such as "0-3,8" in a file of sysfs. False when there is none. */
static bool read_list(const char *sysfs, const char *name, cpu_set_t *out)
{
    char path[512];
    const int len = snprintf(path, sizeof path, "%s/devices/system/%s", sysfs, name);
    FILE *f = len > 0 && (size_t)len < sizeof path ? fopen(path, "re") : NULL;
    CPU_ZERO(out);
    if (!f)
        return false;
    int first, last;
    char separator = ',';
    while (separator == ',' && fscanf(f, "%d", &first) == 1) {
        last = first;
        separator = '\n';
        if (fscanf(f, "-%d", &last) >= 0)
            (void)!fscanf(f, "%c", &separator);
        for (int i = first < 0 ? 0 : first; i <= last && i < CPU_SETSIZE; i++)
            CPU_SET(i, out);
    }
    fclose(f);
    return CPU_COUNT(out) > 0;
}

/* Of each processor; 0 where no node has it. */
static void read_nodes(const char *sysfs, int node_of[CPU_SETSIZE])
{
    char name[64];
    cpu_set_t nodes, processors;
    memset(node_of, 0, CPU_SETSIZE * sizeof *node_of);
    if (!read_list(sysfs, "node/online", &nodes))
        return;
    for (int node = 0; node < CPU_SETSIZE; node++) {
        if (!CPU_ISSET(node, &nodes))
            continue;
        snprintf(name, sizeof name, "node/node%d/cpulist", node);
        if (!read_list(sysfs, name, &processors))
            continue;
        for (int i = 0; i < CPU_SETSIZE; i++)
            if (CPU_ISSET(i, &processors))
                node_of[i] = node;
    }
}

/* Allowed processors of the same core that come before this one */
static int thread_of(const char *sysfs, int id, const cpu_set_t *allowed)
{
    char name[64];
    cpu_set_t core;
    int n = 0;
    snprintf(name, sizeof name, "cpu/cpu%d/topology/thread_siblings_list", id);
    if (read_list(sysfs, name, &core))
        for (int i = 0; i < id; i++)
            n += CPU_ISSET(i, &core) && CPU_ISSET(i, allowed);
    return n;
}

void topology_read(struct topology *t, const char *sysfs, const cpu_set_t *allowed)
{
    int node_of[CPU_SETSIZE];
    read_nodes(sysfs, node_of);
    t->n = 0;
    for (int id = 0; id < CPU_SETSIZE; id++) {
        if (!CPU_ISSET(id, allowed))
            continue;
        struct processor *p = &t->all[t->n++];
        *p = (struct processor){id, node_of[id], thread_of(sysfs, id, allowed), 0};
        for (const struct processor *q = t->all; q < p; q++)
            p->in_node += q->node == p->node && q->thread == p->thread;
    }
}

/* The order in which processors are taken */
static int by_use(const void *a, const void *b)
{
    const struct processor *p = a, *q = b;
    if (p->thread != q->thread)
        return p->thread - q->thread;
    return p->in_node != q->in_node ? p->in_node - q->in_node : p->node - q->node;
}

static int by_node(const void *a, const void *b)
{
    const struct processor *p = a, *q = b;
    return p->node != q->node ? p->node - q->node : p->id - q->id;
}

bool topology_place(const struct topology *t, int n, int *ids)
{
    struct topology sorted = *t;
    if (n < 0 || n > t->n)
        return false;
    qsort(sorted.all, (size_t)sorted.n, sizeof *sorted.all, by_use);
    qsort(sorted.all, (size_t)n, sizeof *sorted.all, by_node);
    for (int i = 0; i < n; i++)
        ids[i] = sorted.all[i].id;
    return true;
}

uint64_t topology_nodes(const struct topology *t)
{
    uint64_t nodes = 0;
    for (int i = 0; i < t->n; i++)
        if (t->all[i].node < 64)
            nodes |= UINT64_C(1) << t->all[i].node;
    return nodes;
}
