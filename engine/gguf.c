#include "gguf.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf_file.h"

static void show_path(struct gguf *g)
{
    size_t n = strlen(g->path), room = sizeof g->shown_path - 1;
    if (n <= room)
        memcpy(g->shown_path, g->path, n + 1);
    else
        snprintf(g->shown_path, sizeof g->shown_path, "...%s", g->path + n - (room - 3));
}

static struct gguf *new_gguf(const char *path, struct err *e)
{
    struct gguf *g = calloc(1, sizeof *g);
    if (!g || !(g->path = strdup(path))) {
        free(g);
        err_set(e, ERR_MEMORY, "no memory to open %.200s", path);
        return NULL;
    }
    show_path(g);
    return g;
}

static struct gguf *parse_or_close(struct gguf *g, struct err *e)
{
    if (gguf_parse(g, e))
        return g;
    err_prefix(e, "%s", g->shown_path);
    gguf_close(g);
    return NULL;
}

/* Maps fd's file. */
static bool map_file(struct gguf *g, int fd, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return err_errno(e, "cannot examine %s", g->shown_path);
    if (S_ISDIR(st.st_mode))
        return err_set(e, ERR_INVALID, "%s is a directory, expected a GGUF file", g->shown_path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INVALID, "%s is not a regular file, expected a GGUF file",
                       g->shown_path);
    if (st.st_size == 0)
        return err_set(e, ERR_INVALID, "%s is empty, expected a GGUF file", g->shown_path);
    void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return err_errno(e, "cannot map %s", g->shown_path);
    g->bytes = bytes;
    g->size = (uint64_t)st.st_size;
    g->mapped = true;
    return true;
}

struct gguf *gguf_open(const char *path, struct err *e)
{
    struct gguf *g = new_gguf(path, e);
    if (!g)
        return NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
    bool mapped = fd >= 0 ? map_file(g, fd, e) : err_errno(e, "cannot open %s", g->shown_path);
    if (fd >= 0)
        close(fd);
    if (!mapped) {
        gguf_close(g);
        return NULL;
    }
    return parse_or_close(g, e);
}

struct gguf *gguf_open_memory(const void *bytes, size_t n, struct err *e)
{
    struct gguf *g = new_gguf("(memory)", e);
    if (!g)
        return NULL;
    g->bytes = bytes;
    g->size = n;
    return parse_or_close(g, e);
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    if (g->mapped)
        munmap((void *)g->bytes, g->size);
    for (int i = 0; i < g->n_parts; i++)
        gguf_close(g->parts[i]);
    free(g->parts);
    free(g->key_index.by_name);
    free(g->tensor_index.by_name);
    free(g->keys);
    free(g->tensors);
    free(g->path);
    free(g);
}
