#include "packing.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "log.h"

struct packing {
    char *path;
    struct packed_key key;
    struct packed_file *file; /* NULL: none of use */
    struct packed_weight *weights;
    size_t n, room;
    bool stale; /* the file is not what was noted, or there is none */
    bool lost;  /* a weight could not be noted: nothing is written */
    pthread_t thread;
    bool writes; /* the thread runs, or has ended and is not joined */
    atomic_bool stop;
};

struct packing *packing_open(const char *path, const struct packed_key *key, struct err *e)
{
    struct packing *p = calloc(1, sizeof *p);
    struct err why;
    if (!p || !(p->path = strdup(path))) {
        free(p);
        err_set(e, ERR_MEMORY, "no memory for the repack cache");
        return NULL;
    }
    p->key = *key;
    atomic_init(&p->stop, false);
    p->stale = !packed_open(&p->file, path, key, &why);
    if (p->stale && access(path, F_OK) == 0)
        log_warn("repack cache %s is not used and will be written anew: %s", path, why.msg);
    return p;
}

void packing_wait(struct packing *p)
{
    if (p->writes)
        pthread_join(p->thread, NULL);
    p->writes = false;
}

void packing_close(struct packing *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    packing_wait(p);
    packed_close(p->file);
    free(p->weights);
    free(p->path);
    free(p);
}

const void *packing_find(struct packing *p, const struct packed_weight *w, struct team *team)
{
    struct err why;
    if (!p->file)
        return NULL;
    const void *data = packed_find(p->file, p->n, w, team, &why);
    if (!data && !p->stale)
        log_warn("repack cache %s: %s; it is packed again, and the file will be written anew",
                 p->path, why.msg);
    p->stale |= !data;
    return data;
}

void packing_note(struct packing *p, const struct packed_weight *w)
{
    if (p->n == p->room) {
        const size_t room = p->room ? 2 * p->room : 256;
        struct packed_weight *grown = realloc(p->weights, room * sizeof *grown);
        p->lost |= !grown;
        if (!grown)
            return;
        p->weights = grown;
        p->room = room;
    }
    p->weights[p->n++] = *w;
}

static void *write_file(void *arg)
{
    struct packing *p = arg;
    struct err why;
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19); /* of this thread, on Linux */
    if (packed_write(p->path, &p->key, p->weights, p->n, &p->stop, &why))
        log_info("repack cache %s is written", p->path);
    else if (!atomic_load(&p->stop))
        log_warn("repack cache %s is not written: %s", p->path, why.msg);
    return NULL;
}

void packing_done(struct packing *p)
{
    const bool whole = !p->stale && p->n == packed_n(p->file);
    if (p->writes || p->lost)
        return;
    if (whole) {
        log_info("weights from repack cache %s", p->path);
        return;
    }
    p->writes = pthread_create(&p->thread, NULL, write_file, p) == 0;
    if (!p->writes)
        log_warn("repack cache %s is not written: cannot start a thread", p->path);
}
